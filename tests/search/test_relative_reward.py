"""The reward relative to the original network: its formula, where it is the default, and the training that it needs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from small_experiment import FIELDS

from syno.base.errors import SpecError
from syno.config import Experiment
from syno.report.search_rewards import saturation
from syno.run.values import Trial
from syno.search.reward import Failure, RelativeReward
from syno.space import Space
from syno.stages.opening import open_study
from syno.stages.places import ORIGINAL_TRAINING, WEIGHTS
from syno.stages.search import original_scores
from syno.train.training_record import TrainingRecord

ACCURACIES = {"original_accuracy": 0.9, "chance_accuracy": 0.1}
LOSSES = {"original_loss": 2.0, "chance_loss": 6.0}
reward = RelativeReward(low=0.0, high=1.25, power=2)


@pytest.mark.parametrize(
    ("score", "metrics"),
    [(lambda s: {"accuracy": 0.1 + 0.8 * s}, ACCURACIES), (lambda s: {"loss": 6.0 - 4.0 * s}, LOSSES)],
    ids=["accuracy", "loss"],
)
def test_chance_is_0_and_the_original_1(score: Any, metrics: dict[str, float]) -> None:
    for s, expected in ((-0.5, 0.0), (0.0, 0.0), (0.5, 0.16), (1.0, 0.64), (1.125, 0.81)):
        assert reward({**metrics, **score(s)}) == pytest.approx(expected)


def test_an_original_that_learnt_nothing_is_no_measure() -> None:
    found = reward({"accuracy": 0.5, "original_accuracy": 0.1, "chance_accuracy": 0.1})
    assert isinstance(found, Failure) and found.fault == "function" and "train longer" in found.reason


def made(folder: Path, **changes: Any) -> Experiment:
    fields = {name: value for name, value in FIELDS.items() if name != "reward"}
    return Experiment(**{**fields, "output": folder, **changes})


class TestDefault:
    def test_where_operators_are_trained(self, tmp_path: Path) -> None:
        experiment = made(tmp_path)
        assert experiment.make_reward() == RelativeReward()
        assert Experiment(**experiment.model_dump()).make_reward() == RelativeReward()  # as other processes get it

    @pytest.mark.parametrize("changes", [{"evaluate": "cost"}, {"reward": {"name": "savings"}}])
    def test_not_elsewhere(self, tmp_path: Path, changes: dict[str, Any]) -> None:
        assert made(tmp_path, **changes).make_reward().name == "savings"


class TestOriginal:
    def test_is_trained_once_for_all_workers(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        trained, make = [], TrainingRecord.make
        monkeypatch.setattr(TrainingRecord, "make", lambda *given, **more: trained.append(1) or make(*given, **more))
        experiment = made(tmp_path, workload={**FIELDS["workload"], "training": {"epochs": 3, "batch": 32}})
        study = open_study(experiment, Space(experiment.operator_spec))
        found = original_scores(experiment, study)
        assert found["chance_accuracy"] == 1 / 6 < found["original_accuracy"] <= 1
        (tmp_path / "search" / "original.json").unlink()  # a worker on another machine does not have it
        assert original_scores(experiment, open_study(experiment, Space(experiment.operator_spec))) == found
        assert trained == [1]

    def test_one_that_learns_nothing_ends_the_search_before_it_begins(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        experiment = made(tmp_path)
        study = open_study(experiment, Space(experiment.operator_spec))
        settings = {"workload": experiment.network.settings.model_dump(mode="json"), "data": experiment.network.data.hash}
        study.keep("original", {**settings, "metric": "accuracy", "score": 0.05})
        with pytest.raises(SpecError, match=r"has the accuracy 0\.05 after this training, and chance has 0\.1667"):
            original_scores(experiment, study)

    def test_one_that_learns_nothing_may_give_its_weights_where_no_scores_are_compared(self, tmp_path: Path) -> None:
        training = {**FIELDS["workload"]["training"], "initialization": "fit"}
        changes = {"workload": {**FIELDS["workload"], "training": training}, "reward": {"name": "accuracy"}}
        experiment = made(tmp_path, **changes)
        study = open_study(experiment, Space(experiment.operator_spec))
        settings = {"workload": experiment.network.settings.model_dump(mode="json"), "data": experiment.network.data.hash}
        study.keep("original", {**settings, "metric": "accuracy", "score": 0.05})
        weights = (tmp_path / ORIGINAL_TRAINING).with_suffix(WEIGHTS)
        weights.parent.mkdir(parents=True, exist_ok=True)
        weights.touch()
        assert original_scores(experiment, study) == {}


class TestSaturation:
    def of(self, *rewards: float) -> str | None:
        trials = [Trial(number, "complete", reward) for number, reward in enumerate(rewards)]
        return saturation([*trials, *(Trial(len(rewards) + number, "failed", None) for number in range(9))])

    def test_a_quarter_at_one_end(self) -> None:
        assert str(self.of(1, 1, *[0.5] * 6)).startswith("2 of 8 complete trials have the reward 1: better operators are not")
        assert str(self.of(0, 0, 0, *[0.5] * 7)).startswith("3 of 10 complete trials have the reward 0: ")

    def test_fewer_say_nothing(self) -> None:
        assert self.of(0, 1, *[0.5] * 7) is None
        assert self.of(1, 1, 0.5) is None
