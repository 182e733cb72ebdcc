"""Trainings that begin with the trained original network, or learn from it."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from math import inf, log
from pathlib import Path
from statistics import fmean
from typing import Any, ClassVar

import pytest
import torch
from pydantic import ValidationError
from sequence_operators import LINEAR
from small_experiment import FIELDS
from torch import nn
from torch.nn import functional

from syno.base.errors import SpecError, UserCodeError
from syno.config import Experiment
from syno.data.pictures import Augmentation, DataSet
from syno.data.settings import AugmentationSettings
from syno.ir.library import OPERATORS
from syno.ir.rewriting import with_variables
from syno.model.replacements import NarrowerNetwork
from syno.notebook.training import OwnWorkload
from syno.space.sample import sample
from syno.space.space import Space
from syno.stages.search import search
from syno.stages.train import settings_of_training
from syno.stages.train import train as train_network
from syno.train import layer_fit
from syno.train.contract import FIT_ERROR, Report
from syno.train.own_task import Task, relative_error
from syno.train.proxy_training import ProxyTraining
from syno.train.settings import TrainingSettings, WorkloadSettings
from syno.train.tasks import DeviceTask, feature_pairs, task_of
from syno.train.training import train as train_modules
from syno.train.workload import Workload

MICRO: dict[str, Any] = {"width": 0.25, "data_settings": {"preset": "micro", "train": 128, "test": 64}}
TRAINING = {"epochs": 1, "batch": 32}
CPU = torch.device("cpu")


@pytest.fixture(scope="module")
def weights(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The weights of a trained network."""
    file = tmp_path_factory.mktemp("original") / "original.safetensors"
    Workload.of(WorkloadSettings(**MICRO, training={**TRAINING, "epochs": 2})).train(seed=0, weights=file)
    return file


def workload(weights: Path | None, **training: Any) -> Workload:
    file = None if weights is None else str(weights)
    return Workload.of(WorkloadSettings(**MICRO, weights=file, training={**TRAINING, **training}))


# ---- fit -------------------------------------------------------------------------------------------------------------


def fits(weights: Path, operator: Any, seed: int = 1) -> tuple[nn.Module, tuple[layer_fit.LayerFit, ...]]:
    begun = workload(weights, initialization="fit")
    network = begun.network(operator, seed)
    return network, begun.fit(network, begun.model(seed), operator, seed)


@pytest.mark.slow
def test_an_operator_that_can_express_its_layer_does(weights: Path) -> None:
    network, found = fits(weights, OPERATORS["conv2d"]())
    assert [one.layer for one in found] == [layer.name for layer in workload(weights).layers]
    assert all(one.after < 1e-5 < 0.1 < one.before for one in found), found
    values = torch.randn(4, 4, 16, 16)
    with torch.no_grad():
        made, expected = network.blocks[0].conv1(values), workload(weights).model(1).blocks[0].conv1(values)
    assert relative_error(made, expected) < 1e-3


@pytest.mark.slow
def test_no_operator_of_a_space_is_worse_than_it_began(weights: Path) -> None:
    spec = workload(weights).spec({"depth": 5})
    operators = sample(Space(spec), 6, seed=3)
    assert len(operators) == 6
    found = [one for operator in operators for one in fits(weights, operator)[1]]
    assert all(one.after <= one.before for one in found)
    assert sum(one.after < 0.9 * one.before for one in found) > len(found) / 2


@pytest.mark.slow
def test_what_a_fit_leaves_as_it_was(weights: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The original, random numbers and modes. The statistics of normalizations are those of the network's own values."""
    monkeypatch.setattr(layer_fit, "MOST_NUMBERS", 1)  # one sample has more
    begun, operator = workload(weights, initialization="fit"), OPERATORS["separable_conv2d"]()
    network, original = begun.network(operator, 1), begun.model(1)
    before, random = {name: one.clone() for name, one in original.state_dict().items()}, torch.get_rng_state()
    begun.fit(network, original, operator, 1)
    assert all(torch.equal(one, before[name]) for name, one in original.state_dict().items())
    assert torch.equal(random, torch.get_rng_state())
    normalizations = [one for one in network.modules() if isinstance(one, nn.BatchNorm2d)]
    assert network.training and all(one.training and one.momentum == 0.1 for one in normalizations)
    images = torch.cat([batch[0] for batch in device_task(begun.data).batches.epoch(1)])
    stem, block = network.eval().norm, network.blocks[0]
    with torch.no_grad():
        mean = block.conv1(stem(network.stem(images)).relu()).mean((0, 2, 3))
    torch.testing.assert_close(block.norm1.running_mean, mean, atol=0.05, rtol=0.05)


def test_the_error_in_one_layer_ranks_operators_before_they_are_trained(weights: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    begun, random = workload(weights, initialization="fit"), torch.get_rng_state()
    names = ("conv2d", "separable_conv2d", "conv1x1", "pixel_shuffle")
    exact, near, far, misfit = (begun.layer_error(OPERATORS[name]()) for name in names)
    assert exact < 1e-5 < near < far < 1 < misfit == inf
    assert begun.layer_error(OPERATORS["conv1x1"]()) == far and torch.equal(random, torch.get_rng_state())
    recorded = begun._recorded
    assert recorded.layer == "blocks.0.conv1" and len(recorded.inputs) == layer_fit.SAMPLES  # of equal layers the first
    monkeypatch.setattr(layer_fit, "FEW_NUMBERS", 1)
    few = workload(weights, initialization="fit")
    assert few.layer_error(OPERATORS["conv2d"]()) < far and len(few._recorded.inputs) == layer_fit.FEWEST_SAMPLES


@pytest.mark.slow
def test_a_search_compares_operators_by_that_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also with the original that it trains itself: its weights are there before the first operator is proposed."""
    begun: list[str | None] = []

    def noted(self: Workload, operator: object) -> float:
        begun.append(self.settings.weights)
        return 0.5

    monkeypatch.setattr(Workload, "layer_error", noted)
    monkeypatch.chdir(tmp_path)
    fields = {
        **FIELDS,
        "policy": {"name": "surrogate", "beginner_walks": 3},
        "study": {"n_trials": 1},
        "reward": {"name": "savings"},
    }
    search(Experiment(**{**fields, "evaluate": "cost"}))
    assert not begun
    training = {**FIELDS["workload"]["training"], "initialization": "fit"}
    search(Experiment(**{**fields, "name": "fitted", "workload": {**FIELDS["workload"], "training": training}}))
    assert begun and all(file is not None and Path(file).is_file() for file in begun)


def test_layers_of_a_task_of_ones_own_are_fitted() -> None:
    """Linear layers, behind a loss that runs the network itself."""
    torch.manual_seed(0)
    layers = nn.Linear(6, 16), nn.ReLU(), nn.Linear(16, 16), nn.ReLU(inplace=True), nn.Linear(16, 16), nn.Linear(16, 1)
    network = nn.Sequential(*layers)  # a layer's output is that before the activation, which changes it in place
    x = torch.randn(256, 6, generator=torch.Generator().manual_seed(1))
    task = Task([(x[:128], x[:128].sum(1)), (x[128:], x[128:].sum(1))], loss=lambda model, pair: model(pair[0]).mean())
    settings = WorkloadSettings(model="network", layers="2, 4", training={"initialization": "fit"})
    begun, operator = OwnWorkload(settings, task, network), LINEAR
    changed = begun.network(operator, 1)
    found = begun.fit(changed, begun.model(1), operator, 1)
    assert [(one.layer, one.after < 1e-5 < one.before) for one in found] == [("2", True), ("4", True)]
    assert relative_error(changed(x), network(x)) < 1e-5


@pytest.mark.slow
def test_the_error_of_a_fit_is_a_metric_known_before_the_training(weights: Path) -> None:
    class Told(Report):
        told: ClassVar[list[object]] = []

        def __call__(self, step: int, value: float) -> None:
            self.told.append(step)

        def measured(self, metrics: Mapping[str, float]) -> None:
            self.told.append(metrics)

    begun = workload(weights, initialization="fit")
    operator = with_variables(OPERATORS["separable_conv2d"](), {"k": "k_1"})
    metrics = ProxyTraining(begun, begun.spec())(operator, Told())
    error = fmean(one.after for one in fits(weights, operator, begun.settings.seed)[1])
    assert Told.told == [{FIT_ERROR: error}, 1] and metrics[FIT_ERROR] == error > 0
    assert FIT_ERROR not in ProxyTraining(workload(weights), begun.spec())(operator, Report())


@pytest.mark.slow
def test_a_training_that_resumes_is_not_fitted_again(weights: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    begun, operator = workload(weights, initialization="fit", distill={}, epochs=2), OPERATORS["separable_conv2d"]()
    whole = begun.train(operator, seed=1)
    calls: list[int] = []
    fit = Workload.fit
    monkeypatch.setattr(Workload, "fit", lambda self, *given: (calls.append(1), fit(self, *given))[1])
    monkeypatch.setattr("syno.train.workload.train", partial(train_modules, checkpoint_seconds=0))

    def interrupt(number: int, score: float) -> None:
        raise KeyboardInterrupt

    file = tmp_path / "checkpoint.pt"
    with pytest.raises(KeyboardInterrupt):
        begun.train(operator, seed=1, report=interrupt, checkpoint=file)
    assert file.exists() and begun.train(operator, seed=1, checkpoint=file) == whole and calls == [1]


# ---- distillation ----------------------------------------------------------------------------------------------------


def device_task(given: Any, **training: Any) -> DeviceTask:
    return task_of(given, TrainingSettings(**{**TRAINING, **training}), 0, CPU)


def test_the_loss_of_a_batch_with_a_teacher(weights: Path) -> None:
    begun = workload(weights)
    teacher, network = begun.model(1).eval(), begun.network(None, 2).train()
    task = device_task(begun.data, distill={"weight": 0.6, "temperature": 3})
    images, labels = next(iter(task.batches.epoch(1)))
    own = task.loss(network, (images, labels))
    task.teacher = teacher
    with torch.no_grad():
        logits, taught = network(images) / 3, teacher(images) / 3
    gap = (taught.softmax(1) * (taught.log_softmax(1) - logits.log_softmax(1))).sum(1).mean() * 9
    torch.testing.assert_close(task.loss(network, (images, labels)), 0.4 * own + 0.6 * gap)
    assert not network._forward_hooks
    assert float(task._difference(taught, taught)) == pytest.approx(0, abs=1e-6)


def test_outputs_of_any_kind_are_compared_with_the_teachers() -> None:
    class Two(nn.Module):
        def __init__(self, factor: float) -> None:
            super().__init__()
            self.factor = nn.Parameter(torch.tensor(factor))

        def forward(self, x: torch.Tensor) -> dict[str, torch.Tensor]:
            return {"double": 2 * self.factor * x, "count": torch.tensor(len(x))}

    x = torch.randn(32, 3)
    task = device_task(
        Task([x], [x], loss=lambda model, batch: model(batch)["double"].square().mean()), distill={"weight": 1.0}
    )
    task.teacher = Two(1.0)
    assert float(task.loss(Two(1.0), x)) == 0
    expected = (0.5 * 2 * x).square().mean() / (2 * x).var(correction=0)
    torch.testing.assert_close(task.loss(Two(1.5), x).detach(), expected)
    assert float(relative_error([torch.tensor(1)], [torch.tensor(2)])) == 0  # nothing that could be learnt


@pytest.mark.parametrize(
    "changes",
    [{}, {"micro_batch": 8}, pytest.param({"compile": True}, marks=pytest.mark.slow)],
    ids=["whole", "micro-batches", "compiled"],
)
def test_a_training_learns_from_the_original(weights: Path, changes: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """With nothing but the teacher, in whatever parts: the losses are those of the difference."""
    monkeypatch.setattr(torch, "compile", partial(torch.compile, backend="eager"))  # which traces as Inductor does
    begun = workload(weights, initialization="keep", distill={"weight": 1.0, "temperature": 1.0}, learning_rate=1e-9, **changes)
    result = begun.train(NarrowerNetwork("pruned", 0.5), seed=1)
    network, teacher = begun.network(NarrowerNetwork("pruned", 0.5), 1).train(), begun.model(1).eval()
    images, _ = next(iter(device_task(begun.data).batches.epoch(1)))
    with torch.no_grad():
        gap = functional.kl_div(network(images).log_softmax(1), teacher(images).softmax(1), reduction="batchmean")
    if not changes.get("micro_batch"):  # whose parts are normalized apart
        assert result.curve[0].loss == pytest.approx(float(gap), rel=0.3)
    assert 0 < result.curve[0].loss < log(10)


@pytest.mark.parametrize("changes", [{}, {"epochs": 1}, {"most_steps": 4}, {"distill": {"features": 1.0}}], ids=str)
def test_the_teacher_answers_once_for_all_epochs(weights: Path, changes: dict[str, Any]) -> None:
    """Where there are several epochs and samples are the same in each; with features, its layers are needed in each step."""
    begun = workload(weights)
    task = device_task(begun.data, **{"epochs": 2, "distill": {}, **changes})
    network, teacher = begun.network(None, 2).train(), begun.model(1).eval()
    task.teacher = teacher
    task.features = feature_pairs(network, teacher, ["blocks.0.conv1"]) if "distill" in changes else ()
    expected = [(batch, task.loss(network, batch)) for batch in task.batches.epoch(2, first=1)]
    task.prepare()
    asked: list[int] = []
    teacher.register_forward_pre_hook(lambda module, args: asked.append(len(args[0])))
    for batch, (pair, loss) in zip(task.batches.epoch(2, first=1), expected, strict=True):
        task.check(batch)
        assert [one.tolist() for one in batch[:2]] == [one.tolist() for one in pair]
        torch.testing.assert_close(task.loss(network, batch), loss)
        assert [task.samples(part) for part in task.parts(batch, 20)] == [20, 12]
    assert bool(asked) == bool(changes)


@pytest.mark.parametrize("recipe", [{"pad": 1}, {"flip": True}, {"cutout": 2}, {}], ids=str)
def test_the_teacher_answers_in_each_step_where_pictures_are_changed_at_random(recipe: dict[str, Any]) -> None:
    """And once where they are only scaled, with the outputs for these."""
    pictures = torch.randint(256, (64, 3, 8, 8), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
    labels = torch.arange(64) % 10
    settings = AugmentationSettings(**{"pad": 0, "flip": False, "cutout": 0, "size": None, **recipe})
    data = DataSet("random", pictures, labels, pictures, labels, 10, augmentation=Augmentation.of(settings, pictures))
    task = device_task(data, epochs=2, distill={})
    task.teacher, batches = nn.Flatten(), task.batches
    task.prepare()
    assert (task.batches is batches) == bool(recipe)
    if not recipe:
        for batch in task.batches.epoch(2):
            torch.testing.assert_close(batch[2], batch[0].flatten(1), rtol=0, atol=0)


def hooks_of(*networks: nn.Module) -> list[object]:
    modules = [module for network in networks for module in network.modules()]
    return [hook for module in modules for hook in (*module._forward_hooks.values(), *module._forward_pre_hooks.values())]


def test_outputs_of_blocks_are_compared_with_the_teachers(weights: Path) -> None:
    begun = workload(weights)
    teacher, network, batch = begun.model(1).eval(), begun.model(1).eval(), next(iter(device_task(begun.data).batches.epoch(1)))

    def loss(names: list[str], **distill: float) -> torch.Tensor:
        task = device_task(begun.data, distill=distill)
        task.teacher, task.features = teacher, feature_pairs(network, teacher, names)
        return task.loss(network, batch)

    names = [layer.name for layer in begun.layers]
    assert loss(names, features=0.5) == loss([])  # of an identical network
    with torch.no_grad():
        network.blocks[0].conv1.weight.add_(0.1)
        before = teacher.norm(teacher.stem(batch[0])).relu()
        made, expected = network.blocks[0](before), teacher.blocks[0](before)
    found = loss(["blocks.0.conv1", "blocks.0.conv2"], features=0.5)
    torch.testing.assert_close(found - loss([]), 0.5 * functional.mse_loss(made, expected) / expected.var(correction=0))
    assert loss(names, features=0.5) - loss([]) > 0.001
    assert not hooks_of(network, teacher)
    found.backward()
    assert all(one.grad is None for one in teacher.parameters()) and network.blocks[0].conv1.weight.grad.any()
    network.head = nn.Linear(1, 1)
    with pytest.raises(UserCodeError):
        loss(names, features=0.5)
    assert not hooks_of(network, teacher)


def test_layers_of_a_task_of_ones_own_are_compared_in_the_order_of_their_calls() -> None:
    """Also where the loss runs the network twice, or a layer alone. What has no weights, or another width, is left out."""
    network, teacher = (nn.Sequential(nn.Linear(3, 3), nn.Identity(), nn.Linear(3, width)) for width in (3, 4))
    teacher[0].load_state_dict(network[0].state_dict())
    x = torch.randn(32, 3)
    given = Task([x], [x], loss=lambda model, x: sum(part.square().mean() for part in (model[0](x), model(x), model(-x))))
    given.difference = lambda output, taught: output.sum() * 0  # type: ignore[method-assign]
    task = device_task(given, distill={"weight": 1.0, "features": 1.0})
    task.teacher, task.features = teacher, feature_pairs(network, teacher, ["0", "1", "2"])
    assert [pair[0] for pair in task.features] == [network[0], network[2]] and float(task.loss(network, x).detach()) == 0
    with torch.no_grad():
        network[0].bias.add_(1.0)
        expected = sum(1 / teacher[0](one).var(correction=0) for one in (x, -x)) / 2
    torch.testing.assert_close(task.loss(network, x), expected)


@pytest.mark.slow
def test_a_training_learns_from_layers_in_16_bits_and_in_parts(weights: Path) -> None:
    numerics: dict[str, Any] = {"initialization": "fit", "precision": "bfloat16", "micro_batch": 8}
    without, with_features = (workload(weights, distill=given, **numerics) for given in ({}, {"features": 1.0}))
    losses = [one.train(OPERATORS["separable_conv2d"](), seed=1).curve[0].loss for one in (without, with_features)]
    assert losses[0] < losses[1] < losses[0] + 10


def test_features_are_part_of_what_trainings_are_compared_by() -> None:
    assert TrainingSettings(distill={}).model_dump()["distill"] == {"weight": 0.7, "temperature": 2.0}
    assert TrainingSettings(distill={"features": 0.5}).model_dump()["distill"]["features"] == 0.5
    with pytest.raises(
        ValidationError, match=r"features is 0\.5, and torch\.compile hides .*; set compile: false, or leave out"
    ):
        TrainingSettings(distill={"features": 0.5}, compile=True)


def test_what_has_no_trained_original_is_refused() -> None:
    with pytest.raises(SpecError, match=r"begin with the trained original, and the model \"resnet8\" has new weights"):
        workload(None, initialization="fit").train(OPERATORS["separable_conv2d"]())
    own = Task(fit=lambda model, report: None, score=lambda model: 0.0, example_inputs=torch.zeros(1, 1, 16, 16))
    alone = Workload(WorkloadSettings(model="own:network", training={**TRAINING, "distill": {}}), own)
    with pytest.raises(SpecError, match="has a training of its own; leave distill out"):
        alone.trained(0)


# ---- in an experiment ------------------------------------------------------------------------------------------------


def experiment(**training: Any) -> Experiment:
    workload = {**FIELDS["workload"], "training": {**TRAINING, **training}}
    return Experiment.model_validate(
        {**FIELDS, "name": "small", "workload": workload, "train": {"seeds": [1], "weights": "none"}}
    )


def test_only_operators_that_are_fitted_can_be_compared_by_their_fits() -> None:
    study = {**FIELDS.get("study", {}), "stopping": {"keep": {0: 0.5}}}
    begun = {**FIELDS, "name": "small", "study": study}
    trained = {**FIELDS["workload"], "training": {**TRAINING, "epochs": 2, "initialization": "fit"}}
    assert Experiment.model_validate({**begun, "workload": trained}).study.stopping is not None
    with pytest.raises(ValidationError, match=r"keep has 0, .* begin with new weights; give training: \{initialization: fit\}"):
        Experiment.model_validate(begun)


def test_operators_begin_with_the_original_of_their_seed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    begun = experiment(initialization="fit", distill={})
    assert settings_of_training(begun, "original", 1).weights is None
    with pytest.raises(SpecError, match="begins with the trained original; train that first"):
        train_network(begun, "separable_conv2d", 1)
    train_network(begun, "original", 1)
    record = train_network(begun, "separable_conv2d", 1)
    assert record.workload.weights == "results/small/train/original/seed1.safetensors"
    assert not Path("results/small/train/separable_conv2d/seed1.safetensors").exists()  # weights: none
    assert settings_of_training(experiment(), "separable_conv2d", 1).weights is None
