"""Training: it learns, it is the same every time, it stops when told to, and what breaks is a result."""

from __future__ import annotations

import doctest
import math

import pytest
import torch
from torch import nn

from syno.base.errors import ShapeError
from syno.data import DATASETS, DataSet
from syno.model.backbones import BACKBONES
from syno.train import progress as pruning
from syno.train.progress import Milestones, Pruned, TrainingResult
from syno.train.settings import TrainingSettings
from syno.train.tasks import measure_accuracy
from syno.train.training import train

SHORT = TrainingSettings(epochs=2, batch=32)


@pytest.fixture(scope="module")
def data() -> DataSet:
    return DATASETS["glyphs"](preset="micro", classes=4, train=160, test=64)


@pytest.fixture(scope="module")
def easy() -> DataSet:
    """Pictures whose class is a colour."""
    generator = torch.Generator().manual_seed(0)
    labels = torch.arange(192) % 4
    images = torch.randn(192, 3, 8, 8, generator=generator) + torch.tensor([[2.0, 0, 0], [0, 2, 0], [0, 0, 2], [-2, -2, 0]])[
        labels
    ].reshape(-1, 3, 1, 1)
    return DataSet("colours", images[:128], labels[:128], images[128:], labels[128:], 4, "")


def run(data: DataSet, settings: TrainingSettings = SHORT, seed: int = 0, **options: object) -> TrainingResult:
    model = BACKBONES["resnet8"](classes=data.classes, width=0.25)
    return train(model, data, settings, seed=seed, **options)  # type: ignore[arg-type]


class Poisoned(nn.Module):
    """Its output is not finite from some call on."""

    def __init__(self, after: int, *, only_testing: bool = False) -> None:
        super().__init__()
        self.head = nn.Linear(3, 4)
        self.calls, self.after, self.only_testing = 0, after, only_testing

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.calls += 1
        y = self.head(x.mean((2, 3)))
        return y * math.nan if self.calls > self.after and not (self.only_testing and self.training) else y


class TestLearning:
    def test_an_easy_task_is_learnt(self, easy: DataSet) -> None:
        result = run(easy, TrainingSettings(epochs=4, batch=16))
        assert result.score > 0.9 and result.losses[-1] < result.losses[0]
        assert (len(result.scores), len(result.losses), result.steps, result.stopped) == (4, 4, 32, None)
        assert result.score == result.scores[-1] and result.seconds > 0 and result.cpu_seconds > 0

    @pytest.mark.slow
    def test_glyphs_are_learnt_by_a_small_network(self) -> None:
        learnt = DATASETS["glyphs"](preset="micro", classes=4, test=256)
        model = BACKBONES["resnet8"](classes=4, width=0.5)
        assert train(model, learnt, TrainingSettings(batch=32)).score > 0.7  # chance is 0.25; measured: 0.96

    def test_the_last_incomplete_batch_is_left_out(self, data: DataSet) -> None:
        assert run(data, TrainingSettings(epochs=1, batch=50)).steps == 3

    def test_weights_are_trained_in_place(self, data: DataSet) -> None:
        model = BACKBONES["resnet8"](classes=4, width=0.25)
        before = model.head.weight.detach().clone()
        result = train(model, data, SHORT)
        assert not torch.equal(model.head.weight, before)
        assert measure_accuracy(model, data.test_batches(64)) == result.score

    def test_the_memory_format_changes_little(self, data: DataSet) -> None:
        other = run(data, SHORT.model_copy(update={"channels_last": False}))
        assert other.losses[0] == pytest.approx(run(data).losses[0], rel=1e-2)

    def test_clipping_bounds_the_steps(self, data: DataSet) -> None:
        model = BACKBONES["resnet8"](classes=4, width=0.25)
        before = [parameter.detach().clone() for parameter in model.parameters()]
        train(model, data, TrainingSettings(epochs=1, batch=160, clip=1e-6, weight_decay=0))
        moved = [float((now.detach() - old).abs().max()) for now, old in zip(model.parameters(), before, strict=True)]
        assert 0 < max(moved) < 1e-5


class TestReproducible:
    def test_equal_seeds_give_equal_results(self, data: DataSet) -> None:
        first = run(data)
        torch.rand(7)  # whatever else is drawn
        again = run(data)
        assert first == again and first.losses == again.losses

    def test_another_seed_gives_another_result(self, data: DataSet) -> None:
        assert run(data).losses != run(data, seed=1).losses

    def test_random_layers_follow_the_seed(self, easy: DataSet) -> None:
        def losses(seed: int) -> tuple[float, ...]:
            torch.manual_seed(0)
            return train(nn.Sequential(nn.Dropout(), nn.Flatten(), nn.Linear(192, 4)), easy, SHORT, seed=seed).losses

        assert losses(0) == losses(0) != losses(1)

    @pytest.mark.slow
    def test_the_state_of_the_process_is_left_as_it_was(self, data: DataSet) -> None:
        threads = torch.get_num_threads()
        torch.manual_seed(5)
        expected = torch.rand(1)
        torch.manual_seed(5)
        run(data, SHORT.model_copy(update={"threads": threads + 1, "epochs": 1}))
        assert torch.equal(torch.rand(1), expected) and torch.get_num_threads() == threads


class TestStopping:
    def test_the_report_sees_every_epoch(self, data: DataSet) -> None:
        seen: list[tuple[int, float]] = []
        result = run(data, report=lambda *epoch: seen.append(epoch))
        assert seen == list(enumerate(result.scores, 1))

    def test_a_report_that_returns_false_stops_the_training(self, data: DataSet) -> None:
        result = run(data, report=lambda epoch, accuracy: False)
        assert len(result.scores) == 1 and result.steps == 5
        assert result.stopped == "stopped by the report after epoch 1"
        assert result.score == run(data).scores[0]

    def test_a_missed_milestone_stops(self, data: DataSet) -> None:
        result = run(data, report=Milestones({1: 1.0}))
        assert len(result.scores) == 1 and result.stopped is not None
        assert result.stopped.endswith("after epoch 1 is below 1")

    def test_other_exceptions_go_through(self, data: DataSet) -> None:
        def report(epoch: int, accuracy: float) -> None:
            raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            run(data, report=report)

    def test_milestones_met_ask_the_next_report(self) -> None:
        asked: list[int] = []
        milestones = Milestones({2: 0.5}, then=lambda epoch, accuracy: asked.append(epoch) or epoch < 3)
        assert [milestones(1, 0.1), milestones(2, 0.5), milestones(3, 0.0)] == [True, True, False]
        with pytest.raises(Pruned, match=r"^accuracy 0\.4990 after epoch 2 is below 0\.5$"):
            milestones(2, 0.499)
        assert asked == [1, 2, 3]

    @pytest.mark.parametrize("least", [{0: 0.5}, {2: 35.0}])
    def test_milestones_that_mean_nothing_are_errors(self, least: dict[int, float]) -> None:
        with pytest.raises(ValueError, match="epochs count from 1, and accuracies are from 0 to 1"):
            Milestones(least)

    def test_the_example_in_the_module_runs(self) -> None:
        assert doctest.testmod(pruning).failed == 0


class TestBreaking:
    def test_a_loss_that_is_not_finite_is_a_result(self, data: DataSet) -> None:
        result = train(Poisoned(after=7), data, SHORT)  # 5 steps and a test make 6 calls
        assert (result.score, result.steps, len(result.scores)) == (0.0, 7, 1)
        assert result.stopped == "the loss is nan at step 7, in epoch 2"

    def test_a_loss_that_grows_without_bound_is_a_result(self, data: DataSet) -> None:
        result = run(data, TrainingSettings(epochs=1, batch=8, learning_rate=1e30))
        assert result.score == 0.0 and result.stopped is not None
        assert "the loss is" in result.stopped

    def test_logits_that_are_not_finite_are_no_accuracy(self, data: DataSet) -> None:
        result = train(Poisoned(after=0, only_testing=True), data, SHORT)
        assert (result.score, result.scores) == (0.0, ())
        assert result.stopped == "the network's output is not finite after epoch 1"

    def test_a_batch_larger_than_the_data_is_an_error(self, data: DataSet) -> None:
        with pytest.raises(ShapeError, match="batch is 500, .*160 pictures"):
            run(data, TrainingSettings(batch=500))
