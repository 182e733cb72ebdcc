"""Goals: their settings, screening, rewards and verdicts."""

from __future__ import annotations

from dataclasses import replace
from math import inf, isfinite, nan
from types import SimpleNamespace
from typing import Any

import pandas
import pytest
from hypothesis import given
from hypothesis import strategies as st
from result_tables import results, score_table, scores_in

from syno.base.errors import DeviceError, SpecError
from syno.base.interval import Interval
from syno.config import Experiment
from syno.ir.library import OPERATORS
from syno.report.page import page
from syno.report.page_tables import summary
from syno.run.goal import judge, judged_networks, lost_in, nearest_screened, order_of_trial, verdict_on_trial
from syno.run.metric import front
from syno.run.speedups import APART, IN_SEARCH, IN_TURNS
from syno.run.story import SELECTED_BY, answer, end_of_search, nothing_meets, reason, verdict_text
from syno.run.table import LATENCY_COLUMNS, SCORE_COLUMNS, latencies_in, trials_in
from syno.run.values import Score, Trial
from syno.search.goal import Goal
from syno.search.reward import Failure, GoalReward
from syno.search.screening import GoalScreen
from syno.train.contract import Screening
from syno.train.metric import ACCURACY, LOSS, Metric

BOTH = Goal(speedup=1.5, lose_at_most=0.01)
OPERATOR = OPERATORS["conv2d"]()


class TestSettings:
    @pytest.mark.parametrize(
        ("given", "problem"),
        [
            ({"goal": {}}, "goal: the goal is empty; give speedup: 1.5"),
            ({"goal": {"speedup": 0.5}}, "goal.speedup: 0.5 is slower than the original; give 1 or more"),
            ({"goal": {"speedup": 50}}, "50 times as fast is out of reach; give a ratio: 1.5 for 50 % more"),
            ({"goal": {"lose_at_most": 2}}, "goal.lose_at_most: 2 is no fraction; give 0.02 for 2 %"),
            ({"goal": {"find": "fastest"}}, "find: fastest needs a limit of the loss"),
            ({"goal": {"find": "most_accurate"}}, "find: most_accurate needs a limit"),
            ({"goal": {"speedup": 2, "compiler": "inductr"}}, 'goal: compiler: .* Did you mean "inductor"'),
            ({"goal": {"speedup": 2, "device": "phone"}}, 'goal: device: "phone" is no device; there are: cpu, cuda'),
            ({"goal": {"speedup": 2}, "workload": None, "spec": "resnet18"}, "goal needs a workload: give the network"),
            ({"goal": {"speedup": 2}, "select": {"operators": ["conv2d"]}}, "goal: it is the goal of a search"),
            ({"reward": {"name": "goal"}}, "reward: goal needs a goal"),
            ({"select": {"by": "goal"}}, "select: by: goal needs a goal"),
        ],
    )
    def test_wrong_settings_are_one_clear_error(self, given: dict[str, Any], problem: str) -> None:
        with pytest.raises(SpecError, match=problem) as error:
            Experiment(**{"name": "e", "workload": {}, **given})
        assert len(str(error.value).splitlines()) == 1

    def test_defaults_follow_from_the_goal(self) -> None:
        one = Experiment(name="e", workload={}, goal={"lose_at_most": 0.01})
        assert one.goal is not None and (one.goal.find, one.goal.least_speedup, one.goal.compiler) == (
            "fastest",
            1.0,
            "inductor",
        )
        assert one.reward == {"name": "goal", "find": "fastest", "lose_at_most": 0.01} and one.select.by == "goal"
        assert Experiment(**one.model_dump()) == one
        own = Experiment(
            name="e", workload={}, goal={"find": "front"}, reward={"name": "goal", "power": 2}, select={"by": "reward"}
        )
        assert own.reward == {"name": "goal", "find": "front", "power": 2} and own.select.by == "reward"
        assert not Goal(find="most_accurate", most_parameters=0.5).measures

    def test_a_search_for_the_fastest_screens_with_one_compiler(self) -> None:
        goals = (Goal(speedup=2), Goal(speedup=2, compiler="fastest"), Goal(speedup=2, compiler="fastest", device="cuda:1"))
        assert [one.screening_compiler for one in goals] == ["inductor", "native", "inductor"]
        chosen = Goal(speedup=2, compiler="fastest", screening="openvino")
        assert chosen.screening_place == "openvino on cpu" and Goal(**chosen.model_dump()) == chosen
        assert "screening" not in goals[0].model_dump()  # checksums of older results stay
        with pytest.raises(SpecError, match="goal: screening: unknown compiler"):
            Experiment(name="e", workload={}, goal={"speedup": 2, "compiler": "fastest", "screening": "openvin"})

    def test_ids_of_files_depend_on_a_goal_only_where_there_is_one(self) -> None:
        without, with_one = (Experiment(name="e", workload={}, **goal) for goal in ({}, {"goal": {"speedup": 2}}))
        assert '"goal": null' in without.part("search") and "latency" not in without.part("search")
        assert '"speedup": 2.0' in with_one.part("search") and '"batch"' in with_one.part("search")


def measured(low: float, high: float, status: str = "ok") -> Any:
    return SimpleNamespace(
        status=status, reason="" if status == "ok" else "no\nkernel", speedup=(low + high) / 2 if status == "ok" else None,
        speedup_low=low, speedup_high=high, latency_ms=SimpleNamespace(value=3.0),
    )  # fmt: skip


class TestScreening:
    def screened(self, goal: Goal, record: Any, predicted: Any = None, parameters: float = 0.5) -> tuple[Screening, list[str]]:
        asked: list[str] = []

        def ask(name: str, answer: Any) -> Any:
            asked.append(name)
            return answer

        screen = GoalScreen(
            goal,
            lambda operator: ask("shares", {"parameters": parameters}),
            lambda operator: ask("measure", record),
            lambda operator: ask("predict", predicted),
        )
        return screen(OPERATOR), asked

    def test_the_cheapest_checks_come_first(self) -> None:
        goal = Goal(speedup=1.5, most_parameters=0.6)
        found, asked = self.screened(goal, measured(1.45, 1.55))
        assert found.unmet is None and asked == ["shares", "predict", "measure"]
        assert found.metrics == {
            "parameters_share": 0.5, "speedup": 1.5, "speedup_low": 1.45, "speedup_high": 1.55, "latency_ms": 3.0
        }  # fmt: skip
        found, asked = self.screened(goal, measured(2, 2), parameters=0.7)
        assert asked == ["shares"]
        assert found.unmet == "too large: 0.7 times the original's parameters; the goal is at most 0.6"
        slow = Interval(1.0, 0.8, 1.2)
        found, asked = self.screened(Goal(speedup=1.5), measured(2, 2), slow)
        assert asked == ["predict"] and found.kind == "too slow" and found.metrics["predicted_speedup_high"] == 1.2
        found, asked = self.screened(Goal(speedup=1.5), measured(2, 2), Interval(1.4, 1.2, 1.6))
        assert asked == ["predict", "measure"] and found.unmet is None

    def test_a_speedup_without_an_interval_is_not_taken_for_certain(self) -> None:
        record = measured(1.3, 1.4)
        record.speedup_low = record.speedup_high = None
        found, _ = self.screened(BOTH, record)
        assert found.unmet is None and found.metrics == {"speedup": pytest.approx(1.35), "latency_ms": 3.0}

    def test_an_operator_is_trained_unless_it_is_certainly_too_slow(self) -> None:
        assert self.screened(BOTH, measured(1.3, 1.5))[0].unmet is None
        assert self.screened(BOTH, measured(1.3, 1.49))[0].unmet == (
            "too slow: 1.4 times as fast as the original (1.3 to 1.49) with inductor on cpu; the goal is 1.5"
        )
        assert self.screened(Goal(lose_at_most=0.01), measured(0.8, 0.99))[0].kind == "too slow"  # as slow as it was

    def test_where_nothing_can_be_measured_the_machine_is_to_blame(self) -> None:
        def screen(*records: Any) -> list[str]:
            rest = iter(records)
            made = GoalScreen(BOTH, lambda operator: {}, lambda operator: next(rest))
            return [made(OPERATOR).kind for _ in records]

        broken = measured(1, 1, "compile_failed")
        with pytest.raises(DeviceError, match="none of 5 operators .*compile_failed: no kernel"):
            screen(*[broken] * 5)
        assert screen(measured(2, 2), *[broken] * 6) == ["", *["not measured"] * 6]


class TestReward:
    @staticmethod
    def of(accuracy: float, fast: float, **settings: Any) -> float:
        metrics = {"accuracy": accuracy, "original_accuracy": 0.9, "chance_accuracy": 0.1, "speedup": fast}
        found = GoalReward(**settings)(metrics)
        assert isinstance(found, float)
        return found

    def test_the_reward_of_the_most_accurate_goal(self) -> None:
        def reward(accuracy: float, speedup: float) -> float:
            return self.of(accuracy, speedup, speedup=1.5)

        assert reward(0.9, 1.5) == pytest.approx((1 / 1.1) ** 4) == reward(0.9, 3)
        assert reward(0.9, 1.4) < reward(0.9, 1.5) < reward(0.91, 1.5)

    def test_the_reward_of_the_fastest_goal(self) -> None:
        def reward(accuracy: float, speedup: float) -> float:
            return self.of(accuracy, speedup, find="fastest", lose_at_most=0.01)

        assert reward(0.89, 2) == pytest.approx((1 + 2 / 3) / 2) == reward(0.95, 2)
        assert reward(0.3, 9) < reward(0.8, 1) < 0.5 < reward(0.89, 1) < reward(0.89, 2)

    def test_the_reward_of_a_front_needs_speed_and_score(self) -> None:
        assert self.of(0.1, 5, find="front") == 0 < self.of(0.8, 1, find="front") < self.of(0.8, 2, find="front")

    def test_without_training_the_fastest_is_the_best(self) -> None:
        assert GoalReward(speedup=1.5)({"speedup": 3.0}) == 0.75
        failed = GoalReward(speedup=1.5)({"flops": 1.0})
        assert isinstance(failed, Failure) and 'no "speedup" was measured' in failed.reason


ends = st.sampled_from([nan, inf, -inf, 0.0, 0.01, 1.5]) | st.floats(-0.1, 0.1) | st.floats(1, 2)
spans = (
    st.none()
    | st.builds(Interval, ends, ends, ends)
    | st.builds(Interval, st.floats(1.4, 1.6), st.floats(1.4, 1.5), st.floats(1.5, 1.6))
)


class TestVerdicts:
    @pytest.mark.parametrize(
        ("speedup", "lost", "state"),
        [
            (Interval(1.6, 1.5, 1.7), Interval(0.005, -0.01, 0.01), "meets"),
            (Interval(1.6, 1.49, 1.7), Interval(0.005, -0.01, 0.01), "may meet"),
            (Interval(1.4, 1.3, 1.5), Interval(0.005, -0.01, 0.01), "may meet"),
            (Interval(1.4, 1.3, 1.49), Interval(0.005, -0.01, 0.01), "misses"),
            (Interval(1.6, 1.5, 1.7), Interval(0.02, 0.011, 0.03), "misses"),
            (Interval(1.6, 1.5, 1.7), Interval(0.02, 0.01, 0.03), "may meet"),
            (Interval(1.5), Interval(0.01), "may meet"),  # intervals unknown
            (Interval(1.6, 1.5, 1.7), Interval(0.005), "may meet"),
            (Interval(1.6), Interval(0.005, -0.01, 0.01), "may meet"),
            (Interval(1.6, 1.5, inf), Interval(0.005, -0.01, 0.01), "may meet"),
            (Interval(1.6, 1.5, 1.7), Interval(0.005, -inf, 0.01), "may meet"),
            (Interval(1.6, 1.7, 1.5), Interval(0.005, -0.01, 0.01), "may meet"),  # no interval either
            (Interval(1.5), Interval(0.0101), "misses"),
            (Interval(inf, inf, inf), Interval(0.005, -0.01, 0.01), "unknown"),
            (Interval(nan, 1.6, 1.7), Interval(0.005, -0.01, 0.01), "unknown"),
            (Interval(1.6, 1.5, 1.7), Interval(nan, -0.01, 0.01), "unknown"),
            (Interval(1.6, 1.5, 1.7), Interval(inf), "misses"),  # it diverged
            (Interval(1.6, 1.5, 1.7), Interval(-inf), "unknown"),  # the original did
            (None, Interval(0.0), "unknown"),
            (Interval(2.0), None, "unknown"),
        ],
    )
    def test_verdicts_follow_from_both_intervals(self, speedup: Interval | None, lost: Interval | None, state: str) -> None:
        assert judge(BOTH, ACCURACY, speedup, lost).state == state

    @given(spans, spans, st.none() | st.integers(1, 3))
    def test_only_whole_intervals_meet_a_goal(self, speedup: Interval | None, lost: Interval | None, seeds: int | None) -> None:
        """NaN is neither above nor below anything, so that it must never decide."""
        found = judge(BOTH, ACCURACY, speedup, lost, seeds=seeds)
        ends = [*(speedup or [nan]), *(lost or [nan])]
        is_known = all(map(isfinite, ends))
        is_inside = is_known and min(ends[:3]) >= 1.5 and max(ends[3:]) <= 0.01
        is_ordered = is_known and ends[1] <= ends[2] and ends[4] <= ends[5]
        assert (found.state == "meets") == (is_inside and is_ordered)
        assert verdict_text(found).startswith(found.state) and (found.state == "meets") == (found.binding == ())
        if found.state == "misses":
            assert (speedup is not None and speedup.value < 1.5) or (lost is not None and lost.value > 0.01)

    @pytest.mark.parametrize(
        ("seeds", "why"),
        [
            (1, "one seed: no interval of the accuracy"),
            (3, "no interval of the accuracy: the scores of 3 seeds are equal, or the original's are too few"),
            (None, "no interval of the accuracy, as with one seed"),
        ],
    )
    def test_verdicts_say_why_there_is_no_interval(self, seeds: int | None, why: str) -> None:
        found = judge(BOTH, ACCURACY, Interval(1.6, 1.49, 1.7), Interval(0.0), seeds=seeds)
        assert verdict_text(found).startswith(
            f"may meet (the interval of the speedup contains the goal; {why}): 1.60 times as fast"
        )

    @pytest.mark.parametrize("share", [nan, inf, -inf, None])
    def test_a_cost_that_is_no_number_is_unknown(self, share: Any) -> None:
        small = Goal(find="most_accurate", most_parameters=0.5)
        assert judge(small, ACCURACY, None, None, {"parameters": share}).state == "unknown"

    def test_trials_are_ordered_by_their_one_seed_but_never_meet_a_goal_by_it(self) -> None:
        speed = {"speedup": 1.6, "speedup_low": 1.55, "speedup_high": 1.65, "original_accuracy": 0.9}
        metrics = [{**speed, "accuracy": accuracy} for accuracy in (0.895, 0.88, 0.85)]
        assert [verdict_on_trial(BOTH, one).state for one in metrics] == ["may meet", "misses", "misses"]
        order = [order_of_trial(BOTH, one) for one in metrics]
        assert order[0] == (0, 0.0) and order == sorted(order) and len({*order}) == 3

    def test_one_seed_is_not_enough_in_a_table(self) -> None:
        found = self.table((-0.002, nan, nan), seeds=1)
        assert found[0].state == "may meet" and reason(found[0]).startswith("may meet (one seed: no interval of the acc")
        assert answer(BOTH, found)[-1] == (
            "Without an interval of the score nothing is certain: train with more seeds (train: seeds)."
        )

    def test_the_first_sentence_says_that_none_is_faster(self) -> None:
        slow = Goal(lose_at_most=0.01)
        speeds = (Interval(0.86, 0.85, 0.87), Interval(0.8, 0.79, 0.81))
        judged = zip(self.table((-0.002, -0.004, 0.001)), speeds, strict=True)
        found = [replace(one, speedup=speedup) for one, speedup in judged]
        assert answer(slow, found)[1] == (
            "None is faster than the original with inductor on cpu: the fastest, one, is 0.86 times as fast (0.85 to 0.87)."
        )
        end = end_of_search(Goal(speedup=1.5), trials(("screened", None, 0.9), ("screened", None, 0.8)), 4)
        assert end is not None and "none is faster than the original; the fastest of 2 is 0.90 times as fast" in end

    def test_verdicts_say_by_how_much_the_goal_is_missed(self) -> None:
        found = judge(BOTH, ACCURACY, Interval(1.2, 1.1, 1.3), Interval(0.03, 0.02, 0.04))
        assert verdict_text(found) == (
            "misses by 0.30 in speedup and 2.0 points of accuracy: 1.20 times as fast (1.10 to 1.30); accuracy -3.0 points "
            "(-4.0 to -2.0)"
        )
        assert (found.state, found.binding) == ("misses", ("speedup", "score")) and found.missing == pytest.approx(0.4)
        assert verdict_text(judge(Goal(lose_at_most=0.1), LOSS, Interval(2.0), Interval(0.2))) == (
            "misses by 0.100 nats of loss: 2.00 times as fast; loss +0.200 nats"
        )
        shares = judge(Goal(find="front", most_parameters=0.5), ACCURACY, Interval(1.0), None, {"parameters": 0.7})
        assert verdict_text(shares) == "misses by 0.20 of the original's parameters: 1.00 times as fast; 0.70 of the parameters"

    @staticmethod
    def table(difference: tuple[float, float, float], seeds: int = 3) -> list[Score]:
        scores = pandas.DataFrame([
            {"operator": "original", "key": "original", "role": "original"},
            {"operator": "one", "key": "a", "role": "found", "metric": "accuracy", "difference": difference[0],
             "difference_low": difference[1], "difference_high": difference[2], "parameters_share": 0.3, "seeds": seeds},
            {"operator": "two", "key": "b", "role": "found", "metric": "accuracy", "difference": -0.1,
             "difference_low": -0.12, "difference_high": -0.08, "parameters_share": 0.3, "seeds": 3},
        ])  # fmt: skip
        latency = pandas.DataFrame([
            {"key": key, "compiler": "inductor", "device": "cpu", "status": "ok", "latency_ms": ms, "latency_low_ms": ms - 1,
             "latency_high_ms": ms + 1} for key, ms in (("original", 30.0), ("b", 10.0))
        ])  # fmt: skip
        searched = {"a": {"speedup": 1.6, "speedup_low": 1.55, "speedup_high": 1.65}}
        scores, latency = scores.reindex(columns=[*SCORE_COLUMNS, "key"]), latency.reindex(columns=[*LATENCY_COLUMNS, "key"])
        return judged_networks(BOTH, scores_in(scores), latencies_in(latency), searched)

    def test_verdicts_of_tables_take_timed_speedups_or_those_of_two_latencies(self) -> None:
        found = self.table((-0.002, -0.004, 0.001))
        assert [(one.state, one.timed) for one in found] == [("meets", IN_SEARCH), ("misses", APART)]
        assert [one.lost.value for one in found] == pytest.approx([0.002, 0.1])
        assert found[0].lost.high == pytest.approx(0.004)
        assert tuple(found[1].speedup) == pytest.approx((3.0, 29 / 11, 31 / 9))

    def test_sentences_name_what_meets_the_goal_and_what_would_help(self) -> None:
        met = answer(BOTH, self.table((-0.002, -0.004, 0.001)))
        assert met[0].startswith("Goal: the most accurate network, at least 1.5 times as fast as the original with inductor")
        assert met[1].startswith("one meets: 1.60 times as fast (1.55 to 1.65)") and len(met) == 2
        missed = answer(BOTH, self.table((-0.03, -0.04, -0.02)))
        assert missed[1].startswith("None of 2 meets it. The nearest, one, misses by 2.0 points of accuracy")
        assert missed[2].startswith("The score binds: allow a larger loss (goal: lose_at_most)")
        may = answer(BOTH, self.table((-0.008, -0.02, 0.0)))
        assert may[1].startswith("one may meet (the interval of the accuracy contains the goal)") and "More seeds" in may[2]


def trials(*rows: tuple[str, float | None, float | None], **metrics: list[float | None]) -> list[Trial]:
    """Trials by outcome, accuracy and speedup; the original's accuracy is 0.9. `metrics` are further ones of each trial."""
    table = pandas.DataFrame([
        {"number": number, "outcome": outcome, "reward": 0.5, "operator": str(OPERATOR), "message": "too slow: 1",
         "metric_accuracy": accuracy, "metric_original_accuracy": 0.9, "metric_speedup": speedup,
         "metric_speedup_low": speedup, "metric_speedup_high": speedup}
        for number, (outcome, accuracy, speedup) in enumerate(rows)
    ])  # fmt: skip
    return trials_in(table.assign(**{f"metric_{name}": values for name, values in metrics.items()}))


class TestEndOfASearch:
    def test_the_end_of_a_search_says_how_near_the_best_came(self) -> None:
        found = end_of_search(BOTH, trials(("complete", 0.9, 1.6), ("screened", None, 1.3), ("screened", None, 1.1)), 4)
        assert found is not None and found.startswith(
            "1 of 4 trials were trained when the search ended, since 2 operators cannot meet the goal (2 too slow): the "
            "fastest of 2 is 1.30 times as fast (1.30 to 1.30), and the goal is 1.5. The speed binds: ask for less"
        )
        assert end_of_search(BOTH, trials(("complete", 0.9, 1.6), ("screened", None, 1.3)), 1) is None

    @pytest.mark.parametrize(
        ("rows", "nearest"),
        [
            ([("screened", None, 1.3), ("screened", None, 1.4)], "the fastest of 2 is 1.40 times as fast (1.40 to 1.40), and "),
            ([("screened", None, 0.8)], "none is faster than the original; the only operator is 0.80 times as fast"),
            ([("screened", None, None)], "none of 1 operators could be measured; the last: too slow: 1"),
        ],
    )
    def test_where_nothing_was_trained_nothing_meets_the_goal(
        self, rows: list[tuple[str, float | None, float | None]], nearest: str
    ) -> None:
        found = end_of_search(BOTH, trials(*rows, ("failed", None, None)), 1)  # however many have failed
        assert found is not None and found.startswith(f"nothing meets the goal: {nearest}")
        assert f"({len(rows)} too slow; 1 failed in training)" in found

    def test_predictions_and_costs_are_findings_too(self) -> None:
        rows, parameters = (("screened", None, None), ("screened", None, None)), [0.9, 0.7]
        shares = trials(*rows, parameters_share=parameters)
        small = Goal(speedup=1.5, most_parameters=0.5)
        of = "the smallest of 2 has 0.7 of the original's parameters, and the goal is at most 0.5"
        assert nothing_meets(small, shares) == f"nothing meets the goal: {of}"
        predicted = {f"predicted_speedup{end}": [None, 1.2] for end in ("", "_low", "_high")}
        known = trials(*rows, parameters_share=parameters, **predicted)
        assert str(nothing_meets(small, known)).startswith(
            "nothing meets the goal: the fastest of 2 is predicted to be 1.20 times as fast"
        )
        nearest = nearest_screened(small, known)
        assert [one.trial.number for one in nearest] == [1, 0] and nearest[0].timed == "predicted"


@pytest.mark.parametrize(
    ("goal", "order"),
    [
        ({"speedup": 1.5, "lose_at_most": 0.01}, [2, 1, 0, 3]),  # meet it, the better first; then the nearest
        ({"lose_at_most": 0.01}, [1, 2, 3, 0]),  # the fastest of those that lose little
        ({"find": "front"}, [0, 1, 2, 3]),  # the last is worse in both
    ],
)
def test_a_selection_takes_those_first_that_meet_the_goal(goal: dict[str, float], order: list[int]) -> None:
    from syno.stages.goal import nearest_first

    rows = trials(("complete", 0.88, 3.0), ("complete", 0.89, 2.0), ("complete", 0.90, 1.6), ("complete", 0.895, 1.1))
    assert [trial.number for trial in nearest_first(rows, Goal(**goal))] == order


def test_the_costs_of_a_network_are_shares_of_the_originals() -> None:
    from syno.stages.search import Shares

    goal = {"most_parameters": 1, "most_file_size": 1, "find": "most_accurate"}
    workload = {"width": 0.25, "data_settings": {"preset": "micro"}}
    found = Shares(Experiment(name="e", workload=workload, goal=goal))(OPERATORS["conv1x1"]())
    assert 0.1 < found["parameters"] < found["file_bytes"] < 0.6  # the statistics of normalizations are in the file, too
    assert 0.5 < found["memory_bytes"] <= 1


def test_the_page_begins_with_the_answer_and_has_a_column_of_verdicts() -> None:
    assert "goal" not in summary(results()).columns
    why = "misses by 0.30 in speedup: 1.20 times as fast (1.10 to 1.30)"
    judged = score_table().assign(verdict="misses", goal_speedup=1.2, goal_speedup_low=1.1)
    judged["goal_speedup_high"] = 1.3
    found = results(scores=judged, answer=("Goal: 1.5 times as fast.", "None of 2 meets it."))
    table = summary(found)
    assert table.columns[4:6] == ("speedup", "goal")
    assert {(row[4].text, row[5].text, row[5].note) for row in table.rows} == {("1.20x (1.10 to 1.30)", "misses", why)}
    timed = [None, *[IN_TURNS, IN_SEARCH] * len(judged)][: len(judged)]  # the original was not
    rows = summary(results(scores=judged.assign(goal_timed=timed))).rows
    assert [row[4].text for row in rows[:3]] == [*["1.20x (1.10 to 1.30)"] * 2, "1.20x (1.10 to 1.30) in the search"]
    assert [row[4].note.partition("; ")[2] for row in rows[:3]] == ["", IN_TURNS, SELECTED_BY]
    assert '<p class="goal">Goal: 1.5 times as fast.</p>\n<p class="goal">None of 2 meets it.</p>' in page(found, [])


class TestMetricsOfOnesOwn:
    """Goals are in the unit of the score, and in its direction."""

    @given(
        lost=st.floats(-3, 3),
        half=st.floats(0, 1),
        most=st.floats(0, 3),
        original=st.floats(-50, 50),
        more_is_better=st.booleans(),
    )
    def test_the_direction_changes_signs_and_nothing_else(
        self, lost: float, half: float, most: float, original: float, more_is_better: bool
    ) -> None:
        metric = Metric("SI-SDR", "dB", more_is_better)
        score, goal = original - metric.quality(lost), Goal(lose_at_most=most)
        metrics = {metric.key: score, f"original_{metric.key}": original}
        found = lost_in(metrics)
        assert found is not None
        assert found.value == pytest.approx(lost, abs=1e-9)
        judged = judge(goal, metric, None, Interval(lost, lost - half, lost + half))
        assert judged.state == (
            "meets" if most - (lost + half) >= -1e-9 else "may meet" if most - (lost - half) >= -1e-9 else "misses"
        )
        points = [(1.0, metric.quality(one)) for one in (score, original)]
        assert (0 in front(points)) == (metric.quality(score) >= metric.quality(original))

    def test_words_have_the_unit(self) -> None:
        decibels, error = Metric("SI-SDR", "dB"), Metric("error", more_is_better=False)
        found = judge(Goal(lose_at_most=0.5), decibels, None, Interval(0.3, 0.2, 0.4))
        assert verdict_text(found) == "meets: speedup not measured; SI-SDR -0.3 dB (-0.4 to -0.2)"
        assert (
            verdict_text(judge(Goal(lose_at_most=0.5), error, None, Interval(2.0, 1.9, 2.1)))
            == "misses by 1.5 of error: speedup not measured; error +2 (+1.9 to +2.1)"
        )

    def test_a_percentage_is_an_error_for_fractions_only(self) -> None:
        Goal(lose_at_most=2).check_loss(Metric("SI-SDR", "dB"))
        with pytest.raises(SpecError, match=r"goal.lose_at_most: 2 is no fraction; give 0.02"):
            Goal(lose_at_most=2).check_loss(ACCURACY)
