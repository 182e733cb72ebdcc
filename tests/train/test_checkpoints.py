"""A training that was interrupted goes on to the same result, bit for bit; files that are damaged or foreign are no danger."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import pytest
import torch
from quick_cases import quick_cases
from torch import nn

import syno
from syno.base.errors import DataError
from syno.data import DATASETS, DataSet, TokenSet
from syno.model.backbones import BACKBONES, SEQUENCE_BACKBONES
from syno.model.substitution import substitute
from syno.train.checkpoint import Checkpoint
from syno.train.progress import TrainingResult
from syno.train.settings import TrainingSettings
from syno.train.tasks import measure_accuracy
from syno.train.training import train
from syno.train.weights import load_weights

CPU = torch.device("cpu")


class Interrupted(BaseException):
    """As if the process had ended."""


@pytest.fixture(scope="module")
def data() -> DataSet:
    return DATASETS["glyphs"](preset="micro", classes=4, train=160, test=64)


@pytest.fixture(scope="module")
def text() -> TokenSet:
    return DATASETS["pydoc"](length=16)


class Stops(nn.Module):
    """A network with dropout that is interrupted at some call in training."""

    def __init__(self, network: nn.Module, after: int | None) -> None:
        super().__init__()
        self.network, self.dropout = network, nn.Dropout(0.2)
        self.left = after

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.training and self.left is not None:
            self.left -= 1
            if self.left < 0:
                raise Interrupted
        return self.network(x) if x.dtype == torch.int64 else self.network(self.dropout(x))


def pictures_network(after: int | None = None) -> nn.Module:
    network = substitute(
        BACKBONES["resnet8"](classes=4, width=0.25), syno.OPERATORS["separable_conv2d"](), torch.zeros(1, 3, 16, 16)
    )
    return Stops(network, after)


def equal(first: nn.Module, other: nn.Module) -> bool:
    mine, theirs = first.state_dict(), other.state_dict()
    return mine.keys() == theirs.keys() and all(torch.equal(mine[name], theirs[name]) for name in mine)


SETTINGS: dict[str, dict[str, Any]] = {
    "one-cycle": {},
    "adamw, cosine": {"optimizer": "adamw", "learning_rate": 1e-2, "schedule": "cosine", "clip": 1.0},
    "triangle, rounds": {"schedule": "triangle", "peak_epoch": 1, "round_steps": 3, "score": "best"},
}


@pytest.mark.parametrize("name", quick_cases(SETTINGS, "adamw, cosine".__eq__))
def test_an_interrupted_training_ends_as_one_that_was_not(data: DataSet, tmp_path: Path, name: str) -> None:
    settings = SETTINGS[name]
    chosen = TrainingSettings(epochs=2, batch=32, **settings)
    file = tmp_path / "state" / "seed0.checkpoint"

    def run(network: nn.Module, seen: list[tuple[int, float]]) -> TrainingResult:
        report = lambda *round: seen.append(round)  # noqa: E731
        kept: dict[str, Any] = {"checkpoint": file, "checkpoint_seconds": 0, "weights": weights}
        return train(network, data, chosen, seed=1, report=report, **kept)

    weights = tmp_path / "weights.safetensors"
    whole, seen = pictures_network(), []
    expected = run(whole, seen)
    assert not file.exists()
    kept_weights = weights.read_bytes()
    for after in (3, 5, 8):  # of 5 steps in an epoch: within, at its end, in the second
        weights.unlink()
        with pytest.raises(Interrupted):
            run(pictures_network(after), [])
        assert file.exists()
        torch.rand(13)  # another process has drawn other numbers
        resumed, seen_again = pictures_network(), []
        result = run(resumed, seen_again)
        assert result == expected and result.losses == expected.losses
        assert seen_again == seen  # whoever asks for milestones sees all rounds
        assert equal(resumed, whole)
        assert not file.exists()
        assert weights.read_bytes() == kept_weights
    load_weights(resumed, weights)
    assert measure_accuracy(resumed, data.test_batches(64)) == result.score


def test_lost_weights_of_the_best_round_are_noticed(data: DataSet, tmp_path: Path) -> None:
    file, weights = tmp_path / "c", tmp_path / "w"
    settings = TrainingSettings(epochs=3, batch=32, score="best")
    kept: dict[str, Any] = {"checkpoint": file, "checkpoint_seconds": 0, "weights": weights}
    with pytest.raises(Interrupted):
        train(pictures_network(8), data, settings, **kept)
    content = weights.read_bytes()
    weights.write_bytes(content[:-1])  # the last tensor is not whole, but the round is known
    with pytest.raises(DataError, match="holds no weights of this network"):
        load_weights(pictures_network(), weights)
    weights.unlink()
    with pytest.raises(DataError, match="weights of its round 1 .*delete it"):
        train(pictures_network(), data, settings, **kept)


def test_a_training_on_text_goes_on_from_its_checkpoint(text: TokenSet, tmp_path: Path) -> None:
    settings = TrainingSettings(recipe="quick-text", most_steps=9, round_steps=4, batch=8, most_tests=8, score="tail")

    def network(after: int | None = None) -> nn.Module:
        return Stops(SEQUENCE_BACKBONES["gpt_tiny"](vocabulary=256, context=16, width=1 / 6), after)

    expected = train(network(), text, settings)
    with pytest.raises(Interrupted):
        train(network(6), text, settings, checkpoint=tmp_path / "c", checkpoint_seconds=0)
    resumed = train(network(), text, settings, checkpoint=tmp_path / "c", checkpoint_seconds=0)
    assert resumed == expected and len(expected.scores) == 3 and expected.metric == "loss"
    for curve in (expected.curve, resumed.curve):  # both are whole, and time does not go back
        assert [point.step for point in curve] == list(range(1, 10))
        assert [point.loss for point in curve] == [point.loss for point in expected.curve]
        assert [point.minutes for point in curve] == sorted(point.minutes for point in curve)
        assert 0 < curve[-1].minutes <= resumed.seconds / 60 + 1e-3


def test_a_checkpoint_of_another_training_is_not_gone_on_with(data: DataSet, tmp_path: Path) -> None:
    file = tmp_path / "c"
    settings = TrainingSettings(epochs=2, batch=32)
    with pytest.raises(Interrupted):
        train(pictures_network(7), data, settings, checkpoint=file, checkpoint_seconds=0)
    expected = train(pictures_network(), data, settings, seed=1)
    assert train(pictures_network(), data, settings, seed=1, checkpoint=file) == expected


@pytest.mark.parametrize(("raised", "kept"), [(RuntimeError, False), (KeyboardInterrupt, True)])
def test_a_report_that_ends_it_leaves_no_checkpoint(
    data: DataSet, tmp_path: Path, raised: type[BaseException], kept: bool
) -> None:
    def report(number: int, score: float) -> None:
        if number == 2:
            raise raised

    file = tmp_path / "c"
    with pytest.raises(raised):
        train(
            pictures_network(), data, TrainingSettings(epochs=3, batch=32), report=report, checkpoint=file, checkpoint_seconds=0
        )
    assert file.exists() == kept  # one that was interrupted is gone on with


@pytest.mark.parametrize("damage", ["cut", "empty", "text", "other"])
def test_a_damaged_checkpoint_is_one_clear_error(tmp_path: Path, damage: str) -> None:
    file = tmp_path / "seed0.checkpoint"
    Checkpoint(file, "mine").write({"weights": torch.zeros(100)})
    content = file.read_bytes()
    match damage:
        case "cut":
            file.write_bytes(content[: len(content) // 2])
        case "empty":
            file.write_bytes(b"")
        case "text":
            file.write_text("no checkpoint")
        case "other":
            torch.save([1, 2], file)
    with pytest.raises(DataError, match=r"seed0\.checkpoint .*delete it"):
        Checkpoint(file, "mine").read(CPU)


def test_a_checkpoint_cannot_run_code(tmp_path: Path) -> None:
    ran = tmp_path / "ran"

    class Evil:
        def __reduce__(self) -> tuple[Any, ...]:
            return Path.touch, (ran,)

    file = tmp_path / "c"
    torch.save({"identity": "mine", "state": {"weights": Evil()}}, file)
    with pytest.raises(DataError, match="holds no checkpoint"):
        Checkpoint(file, "mine").read(CPU)
    file.write_bytes(pickle.dumps(Evil()))
    with pytest.raises(DataError, match="holds no checkpoint"):
        Checkpoint(file, "mine").read(CPU)
    assert not ran.exists()
