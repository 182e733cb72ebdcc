"""What synthesis is worth beside networks without it: which rival counts, the interval of the gain, and the sentences."""

from dataclasses import replace

import pytest
from result_tables import verdict_of

from syno.base.interval import Interval
from syno.run.metric import difference
from syno.run.rivals import best_of, compared, counting_choice, gain_over
from syno.run.story import beside_rivals, reason, worth
from syno.run.values import Score
from syno.search.goal import Goal
from syno.train.metric import ACCURACY, LOSS

GOAL = Goal(speedup=2, lose_at_most=0.01)


def network(name, role, score, speedup, spread=0.001, seeds=3, width=0.05):
    speed = Interval(speedup, speedup - width, speedup + width)
    return Score(name, role, name, "accuracy", score, spread, seeds, speedup=speed, verdict=verdict_of("meets"))


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


ORIGINAL = replace(network("original", "original", 0.99, float("nan")), verdict=None)
OWN = "own_1 (2.10x, accuracy 0.9400)"
COUNTS = "The interval counts that both are the best: of 2 with synthesis, and of {} without."


@pytest.mark.parametrize(
    ("rivals", "sentence"),
    [
        (  # slower by less than the intervals say: it counts as being as fast
            [network("pruned_0.5", "rival", 0.92, 2.06), network("narrow_0.5", "rival", 0.91, 1.5)],
            f"Synthesis is worth 2.0 points (95 %: +1.7 to +2.3): {OWN} beats pruned_0.5 (2.06x, accuracy 0.9200), the best "
            f"without it. {COUNTS.format(3)}",
        ),
        (
            [network("pruned_0.5", "rival", 0.96, 2.06)],
            f"Synthesis adds nothing here: pruned_0.5 (2.06x, accuracy 0.9600) is 2.0 points better than {OWN} (95 %: +1.7 to "
            f"+2.3). {COUNTS.format(2)}",
        ),
        (  # halfway between two rivals, one of another size would be as fast
            [network("pruned_0.5", "rival", 0.96, 1.6), network("separable_conv2d", "rival", 0.9208, 2.6)],
            "It is not shown that synthesis adds anything here: the front between pruned_0.5 (1.60x, accuracy 0.9600) and "
            "separable_conv2d (2.60x, accuracy 0.9208), accuracy 0.9404 at this speed, is 0.0 points better than "
            f"{OWN} (95 % of the gain: -0.3 to +0.2). {COUNTS.format(3)}",
        ),
        (  # the original is the slow end of the front
            [network("shift_conv1x1", "rival", 0.85, 3.2)],
            f"Synthesis is worth 2.0 points (95 %: +1.7 to +2.3): {OWN} beats the front between original (1.00x, accuracy "
            "0.9900) and shift_conv1x1 (3.20x, accuracy 0.8500), accuracy 0.9200 at this speed, the best without it. "
            f"{COUNTS.format(2)}",
        ),
        (
            [network("narrow_0.5", "rival", 0.98, 1.5)],
            f"Nothing without synthesis is as fast as {OWN}: the fastest is narrow_0.5 (1.50x, accuracy 0.9800).",
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
    networks[2], networks[4] = (
        replace(networks[2], verdict=verdict_of("misses")),
        replace(networks[4], verdict=verdict_of("may meet")),
    )
    assert best_of(networks, GOAL, ACCURACY).key == "pruned"
    only = [networks[2], networks[4]]
    assert best_of(only, GOAL, ACCURACY).key == "own_2"  # one that may meet it is before one that misses it
    doubted = [
        replace(one, verdict=verdict_of("may meet", missing=missing))
        for one, missing in ((networks[0], 0.0), (networks[4], 0.2), (networks[1], 0.1))
    ]
    assert best_of(doubted, GOAL, ACCURACY).key == "own_1"  # its own numbers meet the goal
    assert best_of(doubted[1:], GOAL, ACCURACY).key == "pruned"  # the nearest
    assert best_of([networks[3], ORIGINAL], GOAL, ACCURACY) is None  # it diverged, or is not judged
    assert compared([ORIGINAL, networks[0]], GOAL, ACCURACY) is None  # nothing else is known


@pytest.mark.parametrize("metric", [ACCURACY, LOSS])
def test_the_choice_widens_intervals_and_never_makes_a_verdict_better(metric):
    sign = 1 if metric is ACCURACY else -1
    samples = {"original": [0.990, 0.992, 0.991], "best": [0.984, 0.985, 0.986]}
    apart = difference(*(([sign * one for one in samples[name]]) for name in ("best", "original")))
    original = replace(network("original", "original", sign * 0.991, 1.0), verdict=None)
    own = replace(network("best", "found", sign * 0.985, 2.2), difference=apart, metric=metric.key)
    alone, of_two, of_many = (counting_choice(own, among, [own, original], GOAL, metric) for among in (1, 2, 16))
    assert alone == own
    lost = [one.lost for one in (alone, of_two, of_many)]
    assert lost[0].low > lost[1].low > lost[2].low and lost[0].high < lost[1].high < lost[2].high
    assert alone.speedup.low > of_two.speedup.low > of_many.speedup.low and of_many.speedup.value == 2.2
    assert gain_over(own, [(1.0, original)], metric) == pytest.approx(
        [-end for end in (lost[0].value, lost[0].high, lost[0].low)]
    )
    assert (of_two.state, of_many.state) == ("meets", "may meet")
    assert reason(of_many).endswith("; chosen among 16 networks, which the intervals count") and "among" not in reason(alone)
    for state in ("misses", "unknown"):  # by a cost, which has no interval
        assert counting_choice(replace(own, verdict=verdict_of(state)), 2, [original], GOAL, metric).state == state
    without = counting_choice(own, 2, [replace(original, spread=None)], GOAL, metric)
    assert not without.difference.is_certain and without.state == "may meet"


def test_the_page_says_among_how_many_the_best_was_chosen():
    apart = Interval(-0.005, -0.0073, -0.0027)
    own = replace(network("own_1", "found", 0.985, 2.2), difference=apart)
    lines = [line.text for line in beside_rivals(GOAL, ACCURACY, [ORIGINAL, own, network("pruned", "rival", 0.98, 2.1)])]
    assert lines[:2] == [
        "The best of all networks: own_1, with a synthesized operator, meets the goal: 2.20 times as fast (2.14 to 2.26), "
        "accuracy 0.9850: -0.5 points (95 %: -0.8 to -0.2).",
        "It was chosen among 2 networks: its intervals here, and whether it meets the goal, count that (95 % for all of these "
        "together).",
    ]
