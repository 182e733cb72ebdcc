"""The verdict at the top of the page: it says what was measured, and no more."""

from __future__ import annotations

import re
from dataclasses import replace
from math import nan
from typing import Any

import pandas
import pytest
from result_tables import NAMES, SPEEDUP_COLUMNS, latency_table, results, score_table, speedups_in

from syno.report.page import page
from syno.run.run import Run
from syno.run.speedups import APART, IN_TURNS, best_against_best
from syno.run.story import majority_warning, none_is_faster, verdict_lines
from syno.run.table import latencies_in
from syno.search.goal import Goal

EMPTY = pandas.DataFrame()
MEASURED = pandas.DataFrame([{
    "number": 2, "outcome": "complete", "reward": 0.9, "name": "glyphs_2",
    "metric_speedup": 3.98, "metric_speedup_low": 3.81, "metric_speedup_high": 4.09,
}])  # fmt: skip
GOAL = Goal(speedup=1.5, lose_at_most=0.02, compiler="inductor", device="cpu")
FOUND = {"shift_conv1x1": 3.0, "operator_1": 1.6, "operator_2": 5.0}


def speedups(values: dict[str, float], compiler: str = "inductor", half: float = 0.05, **changed: Any) -> pandas.DataFrame:
    roles = dict(zip(NAMES, ("baseline", "baseline", "found", "found", "found"), strict=True))
    rows = [
        (name, name, roles[name], "cpu", compiler, value, value - half, value + half, IN_TURNS, False)
        for name, value in values.items()
    ]
    return pandas.DataFrame(rows, columns=list(SPEEDUP_COLUMNS)).assign(**changed)


def lost(points: float, half: float = 0.3, name: str = "operator_1", metric: str = "accuracy") -> pandas.DataFrame:
    """Scores of which only one is near to the original's, so many points (or hundredths of nats) worse."""
    table, sign = score_table(metric=metric), -1 if metric == "accuracy" else 1
    chosen = table["operator"] == name
    ends = sorted(sign * (points + end) / 100 for end in (-half, half))
    table.loc[chosen, ["difference", "difference_low", "difference_high"]] = [sign * points / 100, *ends]
    return table


def texts(given: Run) -> list[str]:
    return [line.text for line in verdict_lines(given)]


def test_the_fastest_within_a_point_is_named_with_its_intervals() -> None:
    found = verdict_lines(results(scores=lost(0.6), speedups=speedups(FOUND)))
    assert found[0].text == (
        "Fastest within 1 point with inductor on cpu: operator_1, 1.60 times as fast (95 %: 1.55 to 1.65), "
        "accuracy 0.6 points lower (95 %: -0.9 to -0.3)."
    )
    assert found[0].operator == "operator_1"
    assert found[-1].text == (
        "Measured: accuracy of 6 trained networks, 3 seeds each; latency of whole networks on cpu (Made-up Processor 1 @ "
        "2.00GHz; batch of 8, 1 thread) with eager, inductor; speedups with inductor on cpu, timed in turns with the original "
        "after the selection."
    )


@pytest.mark.parametrize(
    ("share", "said"),
    [
        (
            0.99,
            r"^The original's accuracy of 0\.\d+ is not above that of always answering 3, the most frequent label \(0\.990\)",
        ),
        (0.4, None),
    ],
)
def test_a_label_that_is_nearly_everywhere_is_said(share: float, said: str | None) -> None:
    found = texts(results(scores=lost(0.6), speedups=speedups(FOUND), majority=(3, share)))
    assert [bool(re.search(said or "always answering", line)) for line in found].count(True) == (said is not None)
    assert not any(
        "always" in line for line in texts(results(metric="loss", scores=lost(2.0, metric="loss"), majority=(3, share)))
    )


def test_a_good_network_on_such_data_is_warned_of() -> None:
    assert majority_warning(0, 0.95, 0.97) == (
        "95.0% of the test data's labels are 0, so that always answering 0 has the accuracy 0.950: an operator that makes a "
        "network learn nothing loses little accuracy; balance the data, leave out the most frequent label (ignore_index), or "
        "score operators in a function of your own."
    )
    assert majority_warning(0, 0.5, 0.97) is None and majority_warning(None, None, 0.1) is None


def test_characters_that_hide_text_are_escapes_on_the_page() -> None:
    given = results(scores=lost(0.6), speedups=speedups(FOUND))
    hostile = replace(given, name="a\x00b", notes=("\u202etxt\x1b[2J",), answer=("\u2066goal\u2069",))
    text = page(hostile, [])
    assert not {"\x00", "\u202e", "\x1b", "\u2066", "\u2069"}.intersection(text)
    assert "a\\x00b" in text and "\\u202etxt\\x1b[2J" in text


def test_an_interval_beyond_the_margin_is_in_the_sentence() -> None:
    (line, _) = texts(results(scores=lost(0.8), speedups=speedups(FOUND)))
    assert line.endswith("0.8 points lower (95 %: -1.1 to -0.5); the interval of the accuracy reaches beyond 1 point.")


def test_for_a_loss_more_is_worse() -> None:
    line = texts(results(metric="loss", scores=lost(2.0, metric="loss"), speedups=speedups(FOUND)))[0]
    assert line.startswith("Fastest within 0.05 nats with inductor on cpu: operator_1, 1.60 times as fast")
    assert line.endswith("loss 0.020 nats higher (95 %: +0.017 to +0.023).")


def test_one_sentence_says_for_all_compilers_that_no_operator_is_near() -> None:
    both = pandas.concat([speedups(FOUND), speedups({"operator_1": 1.2}, compiler="eager")])
    first, last = texts(results(scores=lost(1.9), speedups=both))
    assert first.startswith("No operator is within 1 point of the original's accuracy. The nearest: operator_1, accuracy 1.9")
    assert "1.20 times as fast (95 %: 1.15 to 1.25) with eager on cpu, 1.60 times as fast" in first
    assert first.endswith(" (95 %: 1.55 to 1.65) with inductor on cpu.")
    assert last.startswith("Measured: ")


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (
            {"scores": lost(0.6), "speedups": speedups({"operator_1": 0.9})},
            "No operator within 1 point of the original's accuracy is faster than the original with inductor on cpu. "
            "The fastest: operator_1, 0.90 times as fast (95 %: 0.85 to 0.95), accuracy",
        ),
        (
            {"scores": lost(0.6), "speedups": speedups({"operator_1": 1.02})},
            "Fastest within 1 point with inductor on cpu: operator_1, 1.02 times as fast (95 %: 0.97 to 1.07; the interval "
            "contains 1), accuracy",
        ),
        (
            {"scores": lost(1.9), "speedups": speedups(FOUND)},
            "No operator is within 1 point of the original's accuracy. The nearest: operator_1, accuracy 1.9 points lower "
            "(95 %: -2.2 to -1.6), 1.60 times as fast (95 %: 1.55 to 1.65) with inductor on cpu.",
        ),
        (
            {"scores": EMPTY, "speedups": speedups(FOUND)},
            "The fastest with inductor on cpu: operator_2, 5.00 times as fast (95 %: 4.95 to 5.05); its accuracy and the "
            "original's were not both measured.",
        ),
        (
            {"scores": EMPTY, "speedups": speedups({"operator_1": 0.86, "operator_2": 0.5})},
            "None is faster than the original with inductor on cpu. The fastest with inductor on cpu: operator_1, 0.86 times",
        ),
        (
            {"scores": lost(1.9), "speedups": speedups({"operator_1": 0.86, "operator_2": 0.5})},
            "None is faster than the original. No operator is within 1 point of the original's accuracy. The nearest: ",
        ),
        (
            {"scores": lost(0.6), "latencies": EMPTY},
            "No speedup of a whole network was measured. The fewest FLOPs within 1 point: operator_1, 41 % of the original's, "
            "accuracy 0.6 points lower",
        ),
        (
            {"scores": EMPTY, "latencies": EMPTY},
            "No network was trained again or measured after the search. The highest reward of the search is 0.99: glyphs_27, "
            "accuracy 0.9950.",
        ),
        (
            {"scores": EMPTY, "latencies": EMPTY, "trials": MEASURED},
            "No network was trained again or measured after the search. The highest reward of the search is 0.9: glyphs_2, "
            "3.98 times as fast (95 %: 3.81 to 4.09).",
        ),
        (
            {"scores": EMPTY, "latencies": EMPTY, "trials": EMPTY},
            "No network was trained again or measured, so nothing is known of speed and score.",
        ),
    ],
)  # fmt: skip
def test_sentences_where_no_operator_wins_or_scores_are_missing(given: dict[str, Any], expected: str) -> None:
    assert texts(results(**given))[0].startswith(expected)


def test_without_an_interval_both_scores_are_told() -> None:
    scores = lost(0.6).assign(difference_low=nan, difference_high=nan)
    line = texts(results(scores=scores, speedups=speedups(FOUND, timed=APART)))[0]
    assert "points" not in line
    assert "accuracy 0.9467; the original's is 0.9593, and no interval of the difference is known" in line


def test_what_cannot_be_compared_is_not_counted() -> None:
    """Latencies below what the device can do, and those in 8-bit integers, where the score is of another network."""
    given = pandas.concat(
        [speedups(FOUND, suspicious=True), speedups(FOUND, "inductor-int8"), speedups({"operator_1": 1.2}, "eager")]
    )
    found = texts(results(scores=lost(0.6), speedups=given))
    assert [line.partition(":")[0] for line in found] == ["Fastest within 1 point with eager on cpu", "Measured"]


def test_a_known_operator_that_is_faster_is_named() -> None:
    line = texts(results(scores=lost(0.6), speedups=speedups({"conv2d": 2.0, "operator_1": 1.6})))[0]
    assert line.endswith("A known operator is faster: conv2d, 2.00 times as fast (95 %: 1.95 to 2.05).")


def latencies(**original: float) -> pandas.DataFrame:
    """Of the original as given, and of operators by both compilers: operator_1 takes 10 ms by inductor, operator_2 takes 5."""
    table = latency_table().assign(suspicious=False)
    found = {"operator_1": 10.0, "operator_2": 5.0, "conv2d": 1.0, "separable_conv2d": 1.0, "shift_conv1x1": 30.0}
    for place, row in table.iterrows():
        known = {**original, "inductor": found.get(row["operator"], nan), "eager": 30.0}
        latency = original[row["compiler"]] if row["role"] == "original" else known[row["compiler"]]
        table.loc[place, ["latency_ms", "latency_low_ms", "latency_high_ms"]] = latency, 0.99 * latency, 1.01 * latency
    return table


class TestBestAgainstBest:
    """A compiler that slows the original down makes everything else look fast."""

    def test_the_best_of_both_are_compared_first_where_it_does(self) -> None:
        found = texts(
            results(scores=lost(0.6), speedups=speedups({"operator_1": 1.6}), latencies=latencies(eager=12, inductor=16))
        )
        assert found[0] == (
            "On cpu, the original is faster with eager (12 ms) than with inductor (16 ms). Best compiler against best "
            "compiler, operator_1 with inductor is 1.20 times as fast (1.18 to 1.22)."
        )
        assert found[1].startswith("Fastest within 1 point with inductor on cpu: operator_1, 1.60 times as fast")

    def test_one_sentence_says_that_no_operator_is_faster(self) -> None:
        given = results(scores=lost(0.6), speedups=speedups({"operator_1": 1.6}), latencies=latencies(eager=8.6, inductor=16))
        assert verdict_lines(given)[0].operator == "operator_1" and texts(given)[0].endswith(
            "Best compiler against best compiler, none is faster than the original: operator_1 with inductor is 0.86 times as "
            "fast (0.84 to 0.88)."
        )

    @pytest.mark.parametrize("eager", [16.0, 15.9, 20.0])
    def test_nothing_is_said_where_it_does_not_for_certain(self, eager: float) -> None:
        assert best_against_best(latencies_in(latencies(eager=eager, inductor=16))) == []

    def test_without_a_named_operator_all_are_compared(self) -> None:
        (found,) = best_against_best(latencies_in(latencies(eager=12, inductor=16)))
        assert (found.operator, found.own_compiler, found.compiler) == ("operator_2", "inductor", "eager")

    def test_an_interval_around_1_leaves_the_answer_open(self) -> None:
        (line,) = none_is_faster(speedups_in(speedups({"operator_1": 0.9}, half=0.3)))
        assert line.endswith("operator_1, is 0.90 times as fast (0.60 to 1.20), an interval that contains 1.")

    def test_a_sentence_says_by_compiler_that_no_operator_is_faster(self) -> None:
        table = pandas.concat([speedups({"operator_1": 0.9, "operator_2": 0.8}), speedups(FOUND, "eager")])
        assert none_is_faster(speedups_in(table)) == [
            "None is faster than the original with inductor on cpu: the fastest, operator_1, is 0.90 times as fast (0.85 to "
            "0.95)."
        ]


class TestGoal:
    def test_scores_without_an_interval_are_named(self) -> None:
        scores = lost(1.5).assign(difference_low=nan, difference_high=nan, seeds=1, verdict="may meet")
        assert texts(results(scores=scores, speedups=speedups(FOUND), goal=GOAL))[0].endswith(
            "3 of 3 operators may meet it, since there is no interval of the accuracy (one seed: train with more seeds)."
        )

    @pytest.mark.parametrize(
        ("states", "expected"),
        [
            (("meets", "meets", "misses"), "The goal is met by 2 of 3 operators. The most accurate of them: operator_1."),
            (("misses", "meets", "misses"), "The goal is met by 1 of 3 operators. It is operator_1."),
            (("misses", "may meet", "misses"), "Whether the goal is met is not certain: 1 of 3 operators may meet it, since"),
            (("misses", "misses", "unknown"), "The goal is not met by any of 3 operators."),
            (("unknown", "unknown", "unknown"), "Whether the goal is met is not known, since something was not measured."),
        ],
    )
    def test_the_first_line_says_whether_the_goal_is_met(self, states: tuple[str, ...], expected: str) -> None:
        verdicts = dict(zip(FOUND, states, strict=True))
        scores = lost(1.5).assign(verdict=[verdicts.get(name) for name in score_table()["operator"]])
        found = texts(results(scores=scores, speedups=speedups(FOUND), goal=GOAL))
        assert found[0].startswith(expected)

    def test_a_wide_interval_is_named(self) -> None:
        scores = lost(14, 25).assign(seeds=2)
        scores["verdict"] = ["may meet" if name == "operator_1" else "misses" for name in scores["operator"]]
        found = verdict_lines(results(scores=scores, speedups=speedups(FOUND), goal=GOAL))
        assert found[1].operator == "operator_1" and found[1].text == (
            "The nearest by its score is operator_1, accuracy 14.0 points lower (95 %: -39.0 to +11.0), where 2 points may be "
            "lost: 2 seeds cannot tell, more would narrow the interval."
        )

    def test_the_margin_of_the_goal_counts_and_its_compiler_comes_first(self) -> None:
        given = pandas.concat([speedups(FOUND, "eager"), speedups(FOUND)])
        found = texts(results(scores=lost(1.5), speedups=given, goal=GOAL))
        assert found[0].startswith("Fastest within 2 points with inductor on cpu: operator_1")
        assert found[1].startswith("Fastest within 2 points with eager on cpu: operator_1")


def test_the_verdict_is_at_the_top_of_the_page_and_links_to_the_card() -> None:
    html = page(results(scores=lost(0.6), speedups=speedups(FOUND)), [])
    assert html.index('class="verdict"') < html.index("<table")
    assert '<li>Fastest within 1 point with inductor on cpu: <a href="#card=operator_1">operator_1</a>, 1.60' in html
