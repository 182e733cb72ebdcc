"""What synthesis is worth beside networks without it: which rival counts, the interval of the gain, and the sentences."""

import pytest

from syno.base.interval import Interval
from syno.results.metric import difference
from syno.results.rivals import best_of, compared, gained, worth
from syno.results.values import Judged, Score
from syno.search.goal import Goal
from syno.train.metric import ACCURACY, LOSS

GOAL = Goal(speedup=2, lose_at_most=0.01)


def network(name, role, score, speedup, spread=0.001, seeds=3, width=0.05):
    speed = Interval(speedup, speedup - width, speedup + width)
    return Score(name, role, name, "accuracy", score, spread, seeds, speedup=speed, verdict="meets")


def judged(networks, **verdicts):
    return {
        one.key: Judged(
            one.operator, one.key, one.role, verdicts.get(one.key, "meets"), "", 0.0, one.speedup, "", Interval(0.0)
        )
        for one in networks
    }


def test_the_gain_is_welchs_interval():
    samples = {"a": [0.91, 0.93, 0.94], "b": [0.90, 0.905, 0.88]}
    scores = {}
    for name, sample in samples.items():
        mean = sum(sample) / 3
        spread = (sum((one - mean) ** 2 for one in sample) / 2) ** 0.5
        scores[name] = network(name, "found", mean, 2.0, spread)
    assert gained(scores["a"], scores["b"], ACCURACY) == pytest.approx(difference(samples["a"], samples["b"]))
    less_is_better = gained(scores["a"], scores["b"], LOSS)
    assert less_is_better.value == pytest.approx(-gained(scores["a"], scores["b"], ACCURACY).value)
    assert not gained(network("a", "found", 0.9, 2.0, seeds=1), scores["b"], ACCURACY).is_certain


@pytest.mark.parametrize(
    ("rivals", "sentence"),
    [
        (
            [network("pruned_0.5", "rival", 0.92, 2.1), network("narrow_0.5", "rival", 0.95, 1.5)],
            "Synthesis is worth 2.0 points (95 %: +1.8 to +2.2): own_1 (2.10x (2.05 to 2.15), accuracy 0.9400) beats "
            "pruned_0.5 (2.10x (2.05 to 2.15), accuracy 0.9200), the best without it that is as fast.",
        ),
        (  # slower by less than the intervals say: it counts as being as fast
            [network("pruned_0.5", "rival", 0.96, 2.06)],
            "Synthesis adds nothing here: pruned_0.5 (2.06x (2.01 to 2.11), accuracy 0.9600) is as fast as own_1 (2.10x (2.05 "
            "to 2.15), accuracy 0.9400), and 2.0 points better (95 %: +1.8 to +2.2).",
        ),
        (
            [network("separable_conv2d", "rival", 0.9405, 3.0)],
            "It is not shown that synthesis adds anything here: separable_conv2d (3.00x (2.95 to 3.05), accuracy 0.9405) is as "
            "fast as own_1 (2.10x (2.05 to 2.15), accuracy 0.9400), and 0.1 points better (95 % of the gain: -0.3 to +0.2).",
        ),
        (
            [network("narrow_0.5", "rival", 0.99, 1.5)],
            "Nothing without synthesis is as fast as own_1 (2.10x (2.05 to 2.15), accuracy 0.9400): the fastest is narrow_0.5 "
            "(1.50x (1.45 to 1.55), accuracy 0.9900).",
        ),
    ],
)
def test_the_sentence_follows_from_the_gain_at_the_same_speed(rivals, sentence):
    networks = [network("own_1", "found", 0.94, 2.1), network("own_2", "found", 0.93, 2.5), *rivals]
    found = compared(networks, GOAL, judged(networks), ACCURACY)
    assert worth(found, ACCURACY) == sentence


def test_the_best_of_all_is_what_the_goal_asks_for():
    networks = [
        network("own_1", "found", 0.94, 2.1), network("pruned", "rival", 0.95, 2.2), network("int8", "rival", 0.97, 1.4),
        network("diverged", "rival", float("inf"), 9.0), network("own_2", "found", 0.90, 4.0),
    ]  # fmt: skip
    verdicts = judged(networks, int8="misses", own_2="may meet")
    assert best_of(networks, GOAL, verdicts, ACCURACY).key == "pruned"
    assert best_of(networks, Goal(lose_at_most=0.1), verdicts | judged([networks[4]]), ACCURACY).key == "own_2"  # the fastest
    only = [networks[2], networks[4]]
    assert best_of(only, GOAL, verdicts, ACCURACY).key == "own_2"  # one that may meet it is before one that misses it
    assert best_of([networks[3]], GOAL, verdicts, ACCURACY) is None
    assert compared(networks[:1], GOAL, verdicts, ACCURACY) is None  # nothing else is known
