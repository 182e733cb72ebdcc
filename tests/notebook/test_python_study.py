"""`syno.Study` as it is used in a notebook: run, interrupted, resumed, with a function or a training."""

from __future__ import annotations

import re
from functools import partial
from pathlib import Path
from typing import Any

import pandas
import pytest
import small_specs
import torch
from torch import nn

import syno
from syno.base.errors import MisfitError, SearchStoppedError, SpecError, UnknownNameError
from syno.ir.graph import PGraph
from syno.ir.text import parse
from syno.notebook.study import storage_url
from syno.search.reward import Reward

SPACE = syno.Space(small_specs.convolution())
METRICS = {"value", "flops"}


def objective(operator: PGraph) -> dict[str, float]:
    """A number that follows from the operator, as its quality, and its FLOPs."""
    return {"value": int(operator.id[:4], 16) / 0xFFFF, "flops": syno.cost(operator, SPACE.spec).flops}


def study(**changes: Any) -> syno.Study:
    return syno.Study(SPACE, **{"objective": objective, "name": "small", **changes})


def evaluated(found: syno.Study) -> list[tuple[str, float]]:
    done = found.trials[found.trials["outcome"] == "complete"]
    return list(zip(done["fingerprint"], done["reward"], strict=True))


@pytest.mark.slow
@pytest.mark.parametrize("file", ["trials.db", "trials.log"])
def test_a_study_that_was_interrupted_and_resumed_has_the_same_trials(file: str, tmp_path: Path) -> None:
    calls = 0

    def interrupted(operator: PGraph) -> dict[str, float]:
        nonlocal calls
        calls += 1
        if calls == 4:
            raise KeyboardInterrupt
        return objective(operator)

    whole = study()
    whole.run(8, progress=False)
    first = study(objective=interrupted, storage=tmp_path / file)
    with pytest.raises(KeyboardInterrupt):
        first.run(8, progress=False)
    assert len(evaluated(first)) == 3
    second = study(objective=interrupted, storage=tmp_path / file)
    assert evaluated(second) == evaluated(whole)[:3]  # as the file has them
    second.run(8, progress=False)
    assert evaluated(second) == evaluated(whole)
    assert list(second.trials["outcome"]).count("interrupted") == 1


def scaled(factor: float) -> Any:
    def of(operator: PGraph) -> float:
        return factor * objective(operator)["value"]

    return of


def part_of_value(factor: float) -> Reward:
    class Part(Reward):
        name, needs = "part", ("value",)

        def of(self, metrics: Any) -> float:
            return factor * float(metrics["value"])

    return Part()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("there", "here", "named"),
    [
        ({"objective": scaled(1.0)}, {"objective": scaled(0.5)}, "the function scaled.<locals>.of in test_python_study.py"),
        ({"objective": partial(min, 1)}, {"objective": partial(min, 0)}, "the objective"),
        (
            {"reward": part_of_value(0.5)},
            {"reward": part_of_value(0.25)},
            "the function part_of_value.<locals>.Part.of in test_python_study.py",
        ),
    ],
)
def test_a_study_is_not_continued_with_another_objective_or_reward(
    there: dict[str, Any], here: dict[str, Any], named: str, tmp_path: Path
) -> None:
    first = study(storage=tmp_path / "trials.db", **there)
    first._stored.run(lambda operator, report: {"value": 0.5}, 1)
    study(storage=tmp_path / "trials.db", **there)
    told = f"has other settings: {re.escape(named)} changed since then. Trial 0 has succeeded"
    with pytest.raises(SpecError, match=told):
        study(storage=tmp_path / "trials.db", **here)


def test_an_interrupted_study_goes_on_in_the_same_process() -> None:
    stops = iter([False, True])

    def once(operator: PGraph) -> float:
        if next(stops, False):
            raise KeyboardInterrupt
        return objective(operator)["value"]

    found, whole = study(objective=once), study()
    with pytest.raises(KeyboardInterrupt):
        found.run(4, progress=False)
    found.run(4, progress=False)
    whole.run(4, progress=False)
    assert evaluated(found) == evaluated(whole)


def test_trials_best_and_front(capsys: pytest.CaptureFixture[str]) -> None:
    found = study()
    found.run(12)
    assert "small: 12/12" in capsys.readouterr().err  # the progress
    trials = found.trials
    assert isinstance(trials, pandas.DataFrame) and len(trials) == 12
    best = found.best
    assert best.reward == trials["reward"].max() == objective(best.operator)["value"]
    assert best.operator.name == f"small_{best.number}"
    assert [one.reward for one in found.best_trials(3)] == sorted(trials["reward"], reverse=True)[:3]
    points = list(zip(trials["metric_flops"], trials["reward"], strict=True))
    ahead = {
        (flops, reward)
        for flops, reward in points
        if not any(f <= flops and r >= reward and (f, r) != (flops, reward) for f, r in points)
    }
    front = found.front()
    assert set(zip(front["metric_flops"], front["reward"], strict=True)) == ahead
    assert list(front["metric_flops"]) == sorted(front["metric_flops"])
    with pytest.raises(SpecError, match=r'has the metric "flop"; there are: reward, value, flops'):
        found.front("flop")


def test_trials_are_shown_short() -> None:
    found = study()
    found.run(2, progress=False)
    trials = found.trials
    assert list(trials.short.columns) == ["outcome", "reward", "value", "flops", "seconds", "operator"]
    assert list(trials.short["operator"]) == [parse(text).id[:8] for text in trials["operator"]]
    shown = trials._repr_html_()
    assert "<table" in shown and "Reduce" not in shown and "Reduce" not in repr(trials)
    assert repr(found).startswith("<study small: 2 trials (2 complete), best reward 0.")
    assert type(trials[["reward"]]) is pandas.DataFrame


class TestObjectives:
    def test_a_function_with_a_report_may_report(self) -> None:
        def reporting(operator: PGraph, report: Any) -> float:
            report(1, 0.5)
            return 0.25

        found = study(objective=reporting)
        found.run(1, progress=False)
        assert found.best.reward == 0.25

    def test_metrics_are_rewarded_by_the_reward_that_is_named(self) -> None:
        reward = {"name": "accuracy", "low": 0, "high": 1, "power": 2}
        found = study(objective=lambda operator: {"accuracy": 0.5}, reward=reward)
        found.run(1, progress=False)
        assert found.best.reward == 0.25

    def test_a_value_that_is_no_reward_stops_the_study_with_what_to_do(self) -> None:
        with pytest.raises(SearchStoppedError, match="returned 7; without a reward it must be from 0 to 1"):
            study(objective=lambda operator: 7).run(5, progress=False)

    @pytest.mark.parametrize("wrong", ["cost", lambda: 1, lambda a, b, c: 1])
    def test_what_cannot_be_called_with_an_operator_is_refused(self, wrong: Any) -> None:
        with pytest.raises(SpecError, match="an operator"):
            study(objective=wrong)

    def test_wrong_names_are_refused(self) -> None:
        for wrong in ({"policy": "mtcs"}, {"reward": "acuracy"}):
            with pytest.raises(UnknownNameError, match="Did you mean"):
                study(**wrong)
        with pytest.raises(SpecError, match="reward"):
            study(reward={"name": "accuracy", "low": 2})

    def test_a_study_without_a_reward_says_why(self) -> None:
        found = study()
        with pytest.raises(SpecError, match="0 trials, none with a reward; call run"):
            _ = found.best


def test_other_settings_than_the_stored_ones_are_named(tmp_path: Path) -> None:
    study(storage=tmp_path / "trials.db").run(1, progress=False)
    with pytest.raises(SpecError, match="seed is 0 there, 1 here"):
        study(storage=tmp_path / "trials.db", seed=1)


@pytest.mark.parametrize(
    ("given", "url"),
    [
        (None, "memory:"), ("a/trials.db", "sqlite:///a/trials.db"), (Path("/a/trials.db"), "sqlite:////a/trials.db"),
        ("trials.log", "trials.log"), ("journal:x", "journal:x"), ("postgresql://host/name", "postgresql://host/name"),
    ],
)  # fmt: skip
def test_storages(given: str | Path | None, url: str) -> None:
    assert storage_url(given) == url


# ---- trainings --------------------------------------------------------------------------------------------------------------


def network() -> nn.Sequential:
    return nn.Sequential(
        *(nn.Conv2d(1, 8, 3, padding=1), nn.ReLU(), nn.Conv2d(8, 8, 3, padding=1), nn.ReLU()),
        *(nn.AdaptiveMaxPool2d(1), nn.Flatten(), nn.Linear(8, 2)),
    )


def bright_or_dark(count: int) -> tuple[torch.Tensor, torch.Tensor]:
    labels = torch.arange(count) % 2
    return torch.randn(count, 1, 6, 6, generator=torch.Generator().manual_seed(count)) + 3.0 * labels[
        :, None, None, None
    ], labels


def training(**changes: Any) -> syno.Training:
    data = syno.DataSet("bright or dark", *bright_or_dark(64), *bright_or_dark(32), classes=2)
    return syno.Training(**{"network": network, "data": data, "epochs": 2, "batch": 16, "learning_rate": 0.02, **changes})


def space_of(found: syno.Training) -> syno.Space:
    return syno.Space(found.spec(depth=4))


@pytest.mark.slow
def test_a_training_is_resumed_with_the_original_that_was_trained(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    options: dict[str, Any] = {"name": "bright", "policy": "random"}
    first, whole = training(), training()
    space = space_of(first)
    begun = syno.Study(space, first, storage=tmp_path / "trials.db", **options)
    begun.run(1, progress=False)
    monkeypatch.setattr(syno.Training, "train_original", lambda self: pytest.fail("the original is trained once"))
    resumed = syno.Study(space, training(), storage=tmp_path / "trials.db", **options)
    resumed.run(2, progress=False)
    monkeypatch.undo()
    other = syno.Study(space, whole, **options)
    other.run(2, progress=False)
    assert evaluated(resumed) == evaluated(other) and len(evaluated(other)) == 2
    row = resumed.trials.iloc[0]
    assert row["metric_original_accuracy"] > 0.9 and row["metric_chance_accuracy"] == 0.5
    operator = parse(row["operator"])
    changed = syno.substitute(network(), operator, first.example)
    assert row["metric_parameters"] == sum(one.numel() for one in changed.parameters())
    assert row["metric_original_flops"] == syno.model_cost(network(), first.example).flops


def test_costs_are_those_of_the_batch_of_the_space() -> None:
    found = training()
    spec = syno.spec_for(network(), torch.zeros(4, 1, 6, 6), options={"depth": 5})
    original = found.evaluation(spec).workload.original
    assert original.flops == syno.model_cost(network(), torch.zeros(4, 1, 6, 6)).flops


def test_a_module_begins_each_training_with_its_own_weights() -> None:
    torch.manual_seed(3)
    given = network()
    before = {name: one.clone() for name, one in given.state_dict().items()}
    found = training(network=given)
    assert found.train_original() == found.train_original()
    assert all(torch.equal(one, before[name]) for name, one in given.state_dict().items())


def test_a_space_of_other_layers_is_refused() -> None:
    other = nn.Sequential(nn.Conv2d(1, 8, 3, padding=1), nn.Conv2d(8, 16, 3, padding=1))
    space = syno.Space(syno.spec_for(other, torch.zeros(1, 1, 6, 6), options={"depth": 5}))
    with pytest.raises(SpecError, match=r"for the layers 1 of C_in=8, C_out=16, H=6, but the network .* has 1 of .*C_out=8"):
        syno.Study(space, training())


def test_wrong_settings_of_a_training_are_named() -> None:
    with pytest.raises(SpecError, match="epoch"):
        training(epoch=3)
    with pytest.raises(UnknownNameError, match="digits"):
        training(data="digit")
    with pytest.raises(SpecError, match="returned an int; it must return the network, an nn.Module"):
        _ = training(network=lambda: 1).settings


class TestLayerLatency:
    def test_each_size_is_measured_with_each_operator(self) -> None:
        model = nn.Sequential(*(nn.Conv2d(3, 8, 3, padding=1), nn.Conv2d(8, 8, 3, padding=1), nn.Conv2d(8, 8, 3, padding=1)))
        operators = [syno.OPERATORS[name]() for name in ("separable_conv2d", "conv1x1")]
        table = syno.layer_latency(model, operators, torch.zeros(2, 3, 8, 8), least_ms=1, least_repeats=6, warm_up_ms=0)
        assert list(table["operator"]) == ["original", "separable_conv2d", "conv1x1"] and set(table["layer"]) == {"1"}
        assert (table["latency_low_ms"] <= table["latency_ms"]).all() and set(table["batch"]) == {2}
        assert list(table["speedup"].notna()) == [True] * 3

    def test_what_cannot_be_measured_is_named(self) -> None:
        model, example = network(), torch.zeros(1, 1, 6, 6)
        with pytest.raises(MisfitError, match="pixel_shuffle does not fit layer 2"):
            syno.layer_latency(model, syno.OPERATORS["pixel_shuffle"](), example)
        conv = syno.OPERATORS["conv1x1"]()
        with pytest.raises(SpecError, match='several of the operators are called "conv1x1"'):
            syno.layer_latency(model, [conv, conv], example)
        with pytest.raises(SpecError, match="thread"):
            syno.layer_latency(model, conv, example, thread=2)
