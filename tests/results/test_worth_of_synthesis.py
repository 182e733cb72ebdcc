"""What synthesis is worth beside networks without it: which rival counts, the interval of the gain, and the sentences."""

from dataclasses import replace

import pytest

from syno.base.interval import Interval
from syno.results.metric import difference
from syno.results.rivals import best_of, compared, gain_over, worth
from syno.results.values import Score
from syno.search.goal import Goal
from syno.train.metric import ACCURACY, LOSS

GOAL = Goal(speedup=2, lose_at_most=0.01)


def network(name, role, score, speedup, spread=0.001, seeds=3, width=0.05):
    speed = Interval(speedup, speedup - width, speedup + width)
    return Score(name, role, name, "accuracy", score, spread, seeds, speedup=speed, verdict="meets")


def test_the_gain_is_welchs_interval():
    samples = {"a": [0.91, 0.93, 0.94], "b": [0.90, 0.905, 0.88]}
    scores = {}
    for name, sample in samples.items():
        mean = sum(sample) / 3
        spread = (sum((one - mean) ** 2 for one in sample) / 2) ** 0.5
        scores[name] = network(name, "found", mean, 2.0, spread)
    alone = [(1.0, scores["b"])]
    assert gain_over(scores["a"], alone, ACCURACY) == pytest.approx(difference(samples["a"], samples["b"]))
    assert gain_over(scores["a"], alone, LOSS).value == pytest.approx(-gain_over(scores["a"], alone, ACCURACY).value)
    halves = [(0.5, scores["b"]), (0.5, scores["b"])]  # two independent means say more than one
    assert gain_over(scores["a"], halves, ACCURACY).low - gain_over(scores["a"], alone, ACCURACY).low > 0
    assert not gain_over(network("a", "found", 0.9, 2.0, seeds=1), alone, ACCURACY).is_certain


ORIGINAL = replace(network("original", "original", 0.99, float("nan")), verdict="")
OWN = "own_1 (2.10x (2.05 to 2.15), accuracy 0.9400)"


@pytest.mark.parametrize(
    ("rivals", "sentence"),
    [
        (  # slower by less than the intervals say: it counts as being as fast
            [network("pruned_0.5", "rival", 0.92, 2.06), network("narrow_0.5", "rival", 0.91, 1.5)],
            f"Synthesis is worth 2.0 points (95 %: +1.8 to +2.2): {OWN} beats pruned_0.5 (2.06x (2.01 to 2.11), accuracy "
            "0.9200), the best without it.",
        ),
        (
            [network("pruned_0.5", "rival", 0.96, 2.06)],
            "Synthesis adds nothing here: pruned_0.5 (2.06x (2.01 to 2.11), accuracy 0.9600) is 2.0 points better than "
            f"{OWN} (95 %: +1.8 to +2.2).",
        ),
        (  # halfway between two rivals, one of another size would be as fast
            [network("pruned_0.5", "rival", 0.96, 1.6), network("separable_conv2d", "rival", 0.9208, 2.6)],
            "It is not shown that synthesis adds anything here: the front between pruned_0.5 (1.60x (1.55 to 1.65), accuracy "
            "0.9600) and separable_conv2d (2.60x (2.55 to 2.65), accuracy 0.9208), accuracy 0.9404 at this speed, is 0.0 "
            f"points better than {OWN} (95 % of the gain: -0.2 to +0.2).",
        ),
        (  # the original is the slow end of the front
            [network("shift_conv1x1", "rival", 0.85, 3.2)],
            f"Synthesis is worth 2.0 points (95 %: +1.8 to +2.2): {OWN} beats the front between original (1.00x, accuracy "
            "0.9900) and shift_conv1x1 (3.20x (3.15 to 3.25), accuracy 0.8500), accuracy 0.9200 at this speed, the best "
            "without it.",
        ),
        (
            [network("narrow_0.5", "rival", 0.98, 1.5)],
            f"Nothing without synthesis is as fast as {OWN}: the fastest is narrow_0.5 (1.50x (1.45 to 1.55), accuracy "
            "0.9800).",
        ),
    ],
)
def test_the_sentence_follows_from_the_gain_at_the_same_speed(rivals, sentence):
    networks = [ORIGINAL, network("own_1", "found", 0.94, 2.1), network("own_2", "found", 0.93, 2.5), *rivals]
    found = compared(networks, GOAL, ACCURACY)
    assert worth(found, ACCURACY) == sentence


def test_the_best_of_all_is_what_the_goal_asks_for():
    networks = [
        network("own_1", "found", 0.94, 2.1), network("pruned", "rival", 0.95, 2.2), network("int8", "rival", 0.97, 1.4),
        network("diverged", "rival", float("inf"), 9.0), network("own_2", "found", 0.90, 4.0),
    ]  # fmt: skip
    assert best_of(networks, Goal(lose_at_most=0.1), ACCURACY).key == "own_2"  # the fastest
    networks[2], networks[4] = replace(networks[2], verdict="misses"), replace(networks[4], verdict="may meet")
    assert best_of(networks, GOAL, ACCURACY).key == "pruned"
    only = [networks[2], networks[4]]
    assert best_of(only, GOAL, ACCURACY).key == "own_2"  # one that may meet it is before one that misses it
    doubted = [
        replace(one, verdict="may meet", missing=missing)
        for one, missing in ((networks[0], 0.0), (networks[4], 0.2), (networks[1], 0.1))
    ]
    assert best_of(doubted, GOAL, ACCURACY).key == "own_1"  # its own numbers meet the goal
    assert best_of(doubted[1:], GOAL, ACCURACY).key == "pruned"  # the nearest
    assert best_of([networks[3], ORIGINAL], GOAL, ACCURACY) is None  # it diverged, or is not judged
    assert compared([ORIGINAL, networks[0]], GOAL, ACCURACY) is None  # nothing else is known
