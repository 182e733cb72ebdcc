"""Workloads: a network and a data set, on which operators are evaluated.

>>> from syno.train.settings import WorkloadSettings
>>> workload = Workload.of(WorkloadSettings(data_settings={"preset": "micro"}, width=0.25))
>>> workload.spec().budget.rest_parameters
538.0
"""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cached_property
from math import inf, isfinite, log
from pathlib import Path
from typing import Any, Self

import torch
from torch import nn

from syno.base.core_locks import computing
from syno.base.errors import DataError, SpecError, TrainingError
from syno.base.files import checksum
from syno.base.identity import Identity, identity_of, identity_of_paths
from syno.base.registry import OWN_PACKAGE, imported, is_path, own_paths
from syno.base.user_code import unchanged_process, user_code
from syno.data import PictureData, TokenSet
from syno.data.pictures import check_images
from syno.model.backbones import BACKBONES, SEQUENCE_BACKBONES
from syno.model.counting import count
from syno.model.execution_paths import MOST_SAMPLES, ExecutionPaths, find_paths
from syno.model.extraction import layers_of, replaceable, size_of
from syno.model.inputs import len_of_batch, of_batch
from syno.model.layer import Layer
from syno.model.layer_rules import LAYER_RULES
from syno.model.network_function import make_network
from syno.model.placed import placed_layers, with_placed
from syno.model.pruning import narrowable
from syno.model.replacements import AnyOperator, Mixture, NarrowerLayer, NarrowerNetwork, Replacement, as_replacement
from syno.model.requirement import Requirement, requirement
from syno.model.shared_memory import moved_to, to_channels_last
from syno.model.spec import replaced_share, rest_cost, spec_for
from syno.model.substitution import substitute
from syno.space.complete import Cost
from syno.space.spec import OperatorSpec
from syno.train.data_sets import load_workload
from syno.train.first_batch import fault_on_first_batch
from syno.train.given_weights import content_of_weights, give_weights
from syno.train.layer_fit import LayerFit, RecordedLayer, fit_layers, measure_statistics, output_difference, record_layer
from syno.train.metric import ACCURACY, LOSS, Metric
from syno.train.numerics import initialize, on_device, own_state
from syno.train.own_task import Task
from syno.train.processes import ALONE, Processes
from syno.train.progress import EpochReport, Milestones, TrainingResult
from syno.train.settings import WorkloadSettings
from syno.train.tasks import DeviceTask, task_of
from syno.train.training import score_only, train

NEW_DEVIATION = 0.02  # for new weights of modules without `reset_parameters`
OF_CODE = ("data", "data_settings", "fit", "score", "example_inputs")  # settings that may name code of the data or the task
LEAST_ROWS = 8  # rows of each part of the data in the identity
_IDENTITIES: dict[
    tuple[str, int], tuple[Any, Identity | None]
] = {}  # by settings and id of the data, which is kept alive for its id


@dataclass(frozen=True)
class Workload:
    """A network and a data set, or a user's own task.

    Attributes:
        settings: settings of network, data and training.
        data: the pictures, the text, or the task.
    """

    settings: WorkloadSettings
    data: PictureData | TokenSet | Task

    @classmethod
    def of(cls, settings: WorkloadSettings) -> Self:
        """Return the workload, with its data loaded.

        Raises:
            UnknownNameError: there is no such backbone, rule or data set; the message lists them.
            SpecError: an unknown setting of the data.
            DataError: the data is missing or damaged.
            UserCodeError: the user's own function of the data failed.
        """
        if settings.model not in SEQUENCE_BACKBONES:  # before loading the data, which may take long
            BACKBONES.find(settings.model)
        if (
            is_path(settings.layers) and "," not in settings.layers
        ):  # other names may be layers, which are only known once the network is built
            LAYER_RULES.find(settings.layers)
        return cls(settings, load_workload(settings))

    @property
    def metric(self) -> Metric:
        """The metric of the workload's trainings: loss for text, accuracy for pictures, or that of a user's own task."""
        if isinstance(self.data, Task):
            return self.data.score_metric
        return LOSS if isinstance(self.data, TokenSet) else ACCURACY

    @property
    def fits(self) -> bool:
        """Whether a user's own function `fit` trains the network; it starts anew after an interruption or a pause."""
        return isinstance(self.data, Task) and self.data.fits

    @property
    def is_own(self) -> bool:
        """Whether the network is a user's own, or has given weights, so that recipes initialize only operators.

        Only `initialization: paper-everywhere` initializes all weights of a user's own network.
        """
        return is_path(self.settings.model) or self.settings.weights is not None

    @property
    def trains_original(self) -> bool:
        """Whether the original network is trained, not only scored with its given weights."""
        asked = self.settings.training.train_original
        return self.settings.weights is None if asked is None else asked

    @cached_property
    def hash(self) -> str:
        """Cache key of results besides the settings: a hash of the data, of the file of weights, and of user code."""
        weights = self.settings.weights
        parts = [] if weights is None else [content_of_weights(weights)]
        parts += [] if self.identity is None else [self.identity.checksum.encode()]
        return checksum(self.data.hash.encode(), *parts) if parts else self.data.hash

    @cached_property
    def identity(self) -> Identity | None:
        """Identity of a user's own network and data: code, data, and weights that no seed determines; None without user code.

        It is computed once per settings, before the first use, so that caches that the code fills later do not count.
        """
        whole = self.settings.model_dump(include={"model", "model_settings", "width", "layers", "seed", *OF_CODE})
        code = identity_of_paths(whole)
        key = (f"{code and code.checksum} {json.dumps(whole, sort_keys=True, default=str)}", id(self.data))
        if key not in _IDENTITIES:
            things = self._own_things()
            _IDENTITIES[key] = self.data, identity_of(things) if things else None
        return _IDENTITIES[key][1]

    def _own_things(self) -> dict[str, Any]:
        """Return the user's own objects, such as network, data and loss, by their names in messages."""
        paths = [self.settings.model, self.settings.layers, *(getattr(self.settings, name) for name in OF_CODE)]
        own = {path for path in own_paths(paths) if not path.startswith(OWN_PACKAGE)}
        things: dict[str, Any] = {f"the code of {path}": imported(path, "code") for path in sorted(own)}
        if self.settings.model in own:
            things["the network"] = self._without_drawn_weights()
        if isinstance(self.data, Task):
            things |= self.data.things
        elif self.settings.data in own:
            things |= things_of_data(self.data)
        return things

    def _without_drawn_weights(self) -> nn.Module:
        """Return the network with zeros for all weights that depend on the seed, as these follow from the code.

        Weights that are equal for two seeds, such as trained ones from a file, stay. Random weights differ in their last digits
        between processors, so they are excluded.
        """
        network, other = (self._make_network(self.settings.seed + number) for number in (0, 1))
        there = {**dict(other.named_parameters()), **dict(other.named_buffers())}
        with torch.no_grad():
            for name, weight in (*network.named_parameters(), *network.named_buffers()):
                if not weight.is_meta and not _are_equal(weight.detach(), there.get(name)):
                    weight.zero_()
        return network

    @cached_property
    def batch(self) -> int:
        """The batch size for which costs are counted: the training's, or that of a user's own example inputs."""
        return len_of_batch(self.example)

    @cached_property
    def chance(self) -> float:
        """The score of chance: of a random guess, or, for a user's own task, of a network with newly initialized weights.

        Raises SpecError if it is not finite.
        """
        if not isinstance(self.data, Task):
            return log(self.data.classes) if isinstance(self.data, TokenSet) else 1 / self.data.classes
        if self.data.chance is not None:
            return self.data.chance
        settings, seed = self.settings.training, self.settings.seed
        with on_device(settings.device) as device:
            network = moved_to(untrained(self.model(seed), seed), device)
            score = score_only(network, self.data, settings, seed=seed, is_sound=False).score
        if not isfinite(score):
            raise SpecError(
                f"{self.data}: the score of the network with new weights is {score}, with which no other compares; give "
                "the score of a network that has learnt nothing, as in syno.Task(..., chance=0.0)"
            )
        return score

    def model(self, seed: int | None = None) -> nn.Module:
        """Return the original network with weights of this seed; None for the settings' seed.

        It contains the operators that the settings place in it.

        Raises SpecError if the network does not take such data, UserCodeError if the user's own function failed.
        """
        chosen = self.settings.seed if seed is None else seed
        return with_placed(self._without_placed(chosen), self.settings.placed, self.example, chosen)

    def _without_placed(self, chosen: int) -> nn.Module:
        """Return the network without placed operators, with the weights of the settings' file, if there is one.

        Raises DataError if the weights do not fit.
        """
        network = self._make_network(chosen)
        if self.settings.weights is not None:
            give_weights(network, Path(self.settings.weights))
        return network

    @property
    def fixed_weights(self) -> float | None:
        """Share of the weights that a user's own function makes equal for two seeds, for instance by loading trained weights.

        Vectors are ignored, as they mostly start as constants. None for other networks, and without weights. Warns if two calls
        with the same seed make different weights.
        """
        if not self.is_own:
            return None
        seed = self.settings.seed
        first, again, other = (self._matrices(number) for number in (seed, seed, seed + 1))
        if changing := [name for name in first if not _are_equal(first[name], again.get(name))]:
            warnings.warn(
                f'the model "{self.settings.model}" makes other weights ({changing[0]}) in each call with the seed {seed}, so '
                "that no training can be repeated; draw them from torch's, NumPy's or Python's global random numbers, or from "
                "a generator with the argument seed",
                stacklevel=2,
            )
        equal = sum(weight.numel() for name, weight in first.items() if _are_equal(weight, other.get(name)))
        total = sum(weight.numel() for weight in first.values())
        return equal / total if total else None

    def _matrices(self, seed: int) -> dict[str, torch.Tensor]:
        return {name: weight.detach() for name, weight in self._make_network(seed).named_parameters() if weight.dim() > 1}

    @property
    def placed_layers(self) -> dict[str, str]:
        """The layers that contain placed operators: the operator's name by the layer's name."""
        return placed_layers(self._make_network(self.settings.seed), self.settings.placed, self.example)

    def _make_network(self, chosen: int) -> nn.Module:
        settings, data = self.settings, self.data
        own = {"width": settings.width, "seed": chosen}
        if isinstance(data, Task):
            models = SEQUENCE_BACKBONES if settings.model in SEQUENCE_BACKBONES else BACKBONES
            return make_network(models, settings.model, own, settings.model_settings, self._inputs)
        if isinstance(data, TokenSet):
            if settings.model in BACKBONES:
                raise SpecError(_mismatch(settings, "text", "pictures", "text", SEQUENCE_BACKBONES))
            sizes = {"vocabulary": data.vocabulary, "context": data.length, **own}
            return make_network(SEQUENCE_BACKBONES, settings.model, sizes, settings.model_settings, self._inputs)
        if settings.model in SEQUENCE_BACKBONES:
            raise SpecError(_mismatch(settings, "pictures", "text", "pictures", BACKBONES))
        shape = {"classes": data.classes, "channels": data.image_shape[0], **own}
        return make_network(BACKBONES, settings.model, shape, settings.model_settings, self._inputs)

    @property
    def example(self) -> Any:
        """Example inputs with the training's shape: samples [batch, channels, ...], or tokens [batch, length].

        For a user's own task, they are its example inputs: a tensor, a tuple of arguments, or a dict of named ones. The
        execution path of a user's own network may depend on values, so it gets training samples, those with the longest
        execution path. Syno's networks compute the same for all values, and get zeros.
        """
        return self.paths.inputs

    @cached_property
    def paths(self) -> ExecutionPaths:
        """The execution paths of the network on some training samples."""
        if not self._has_own_network:
            return ExecutionPaths(self._inputs)
        return find_paths(self._without_placed(self.settings.seed), self._inputs)

    @property
    def _has_own_network(self) -> bool:
        return is_path(self.settings.model)

    @cached_property
    def _inputs(self) -> Any:
        """Inputs with the training's shape; for a user's own network, training samples."""
        data, batch = self.data, self.settings.training.batch
        if isinstance(data, Task):
            return data.example_inputs
        if self._has_own_network and data.train_count:
            return of_batch(_samples(data, min(batch, data.train_count, MOST_SAMPLES)), batch)
        if isinstance(data, TokenSet):
            return torch.zeros(batch, data.length, dtype=torch.int64)
        return torch.zeros(batch, *data.image_shape)

    @cached_property
    def original(self) -> Cost:
        """The cost of the original network, for one batch."""
        return count(self.model(), self.example).cost

    @cached_property
    def layers(self) -> tuple[Layer, ...]:
        """The layers to replace. Determined once, by running copies of the network."""
        return replaceable(self.model(), self.example, self.settings.layers)

    @cached_property
    def rest(self) -> Cost:
        """The cost of the network without the layers to replace, for one batch; memory is not counted."""
        model = self.model()
        return rest_cost(model, self.example, layers_of(model, self.layers))

    @cached_property
    def requirement(self) -> Requirement:
        """The requirement of the network on what operators in its layers read, with the reasons."""
        model = self.model()
        layers = layers_of(model, self.layers)
        return requirement(model, self.example, layers, replaced_share(model, self.example, self.rest))

    def spec(self, options: Mapping[str, Any] | None = None) -> OperatorSpec:
        """Return the spec of operators for the network's layers. `options` override the defaults; see `spec_for`."""
        settings = {"name": self.settings.model, **(options or {})}
        return spec_for(self.model(), self.example, options=settings, where=self.settings.layers)

    def network(self, operator: AnyOperator | None, seed: int) -> nn.Module:
        """Return the network with `operator` in its layers, or the original. SpecError if it does not fit; see `substitute`."""
        model = self.model(seed)
        if operator is not None:
            model = substitute(model, operator, self.example, seed=seed, layers=self.layers)
            if as_replacement(operator).begins_anew:
                untrained(model, seed)
        initialize(model, self.settings.training.initialization, seed, is_own=self.is_own)
        return model

    def fault_on_first_batch(self, operator: AnyOperator) -> str | None:
        """Return the reason why the operator cannot be trained, as far as one batch shows; None if there is none.

        Raises SpecError and TrainingError as `train` does.
        """
        settings, seed = self.settings.training, self.settings.seed
        with on_device(settings.device) as device:
            return fault_on_first_batch(moved_to(self.network(operator, seed), device), self.data, settings, seed)

    def train(
        self,
        operator: AnyOperator | None = None,
        *,
        seed: int | None = None,
        report: EpochReport | None = None,
        checkpoint: Path | None = None,
        weights: Path | None = None,
        then: Callable[[nn.Module], None] | None = None,
        recent_loss: Callable[[float, float], object] | None = None,
        looks: Sequence[float] = (),
        processes: Processes = ALONE,
        fitted: Callable[[Sequence[LayerFit]], object] | None = None,
    ) -> TrainingResult:
        """Train the network with `operator` in its layers, or the original, and return the result.

        Args:
            operator: see `substitute`.
            seed: seed of the weights and the order of the data; None: the settings' seed.
            report: called after each round whose milestone was met; see `syno.train.progress`.
            checkpoint: file of the training's state; see `syno.train.training.train`, also for `weights`, `recent_loss`,
                `looks` and `processes`.
            then: called with the trained network, unless the training diverged.
            fitted: called before the training with the fit errors of the layers, if the operator was fitted.

        The original network is only scored, not trained, if `trains_original` is False. Other networks are fitted to it, or
        distilled from it, with the settings `initialization: fit` and `distill`.

        Raises:
            SpecError: this machine has no such device, or the operator does not fit.
            TrainingError: the device runs out of memory.
        """
        chosen, settings = self.settings.seed if seed is None else seed, self.settings.training
        rounds = "epoch" if settings.round_steps is None else "round"
        asked = Milestones(self.settings.milestones, report, metric=self.metric.key, rounds=rounds)
        with on_device(settings.device) as device:
            network = moved_to(self.network(operator, chosen), device)
            if operator is None and not self.trains_original:
                result = score_only(network, self.data, settings, seed=chosen, weights=weights)
                if then is not None:
                    then(network)
                return result
            original = None
            if operator is not None and settings.uses_trained:
                original = moved_to(self.trained(chosen), device)
                is_resumed = checkpoint is not None and checkpoint.exists()  # the checkpoint has the weights
                if settings.initialization == "fit" and not is_resumed:
                    fits = self.fit(network, original, operator, chosen)
                    if fitted is not None and fits:
                        fitted(fits)
            kept: dict[str, Any] = {"checkpoint": checkpoint, "weights": weights, "recent_loss": recent_loss, "looks": looks}
            kept["identity"] = "" if self.identity is None else self.identity.checksum
            if settings.distill is not None:
                names = [layer.name for layer in self.layers] if settings.distill.features else ()
                kept |= {"teacher": original, "features": names}
            result = train(network, self.data, settings, seed=chosen, report=asked, processes=processes, **kept)
            if then is not None and not result.broken:
                then(network)
            return result

    def trained(self, seed: int) -> nn.Module:
        """Return the trained original.

        SpecError if it has no trained weights, or the task has no batches for comparing outputs.
        """
        if self.fits:
            raise SpecError(
                f"training: initialization: fit and distill need batches, and {self.data} has a training of its own; leave "
                "distill out, and give initialization: keep"
            )
        if not self.is_own:
            raise SpecError(
                f'training: initialization: fit and distill begin with the trained original, and the model "'
                f'{self.settings.model}" has new weights here; give trained ones (workload: weights)'
            )
        return self.model(seed)

    def score_of_trained(self, seed: int) -> float:
        """Return the score of the trained original. Raises TrainingError if it is NaN."""
        with on_device(self.settings.training.device) as device:
            return score_only(moved_to(self.trained(seed), device), self.data, self.settings.training, seed=seed).score

    def fit(self, network: nn.Module, original: nn.Module, operator: AnyOperator, seed: int) -> tuple[LayerFit, ...]:
        """Fit the operators in a network to the layers of the trained original, in place; () for narrower networks.

        Operators of a mixture in a narrower network, or beside narrower layers, are fitted to the layers of the narrower
        network. Narrower layers are not fitted.

        Args:
            network, original: the network and the trained original, on the training device.
            operator: the operator, or mixture, in the network.
            seed: seed of the order of the data.
        """
        replacement, names = as_replacement(operator), [layer.name for layer in self.layers]
        if not (fitted := replacement.fitted(names)):
            return ()
        with self._float32_task(seed, next(network.parameters()).device) as task:
            if task.channels_last:
                to_channels_last(network)
                to_channels_last(original)
            original = self._base_of(replacement, original, task)
            return fit_layers(network, original, [name for name in names if name in fitted], task)

    @contextmanager
    def _float32_task(self, seed: int, device: torch.device) -> Iterator[DeviceTask]:
        """Yield the task in float32, for comparing outputs, on locked cores and with its own random states."""
        settings = self.settings.training
        with own_state(seed, settings, device), computing(device.type):
            yield task_of(self.data, settings.model_copy(update={"precision": "float32"}), seed, device)

    def layer_error(self, operator: AnyOperator) -> float:
        """Return the fit error of an operator for one layer of the trained original: the replaceable layer with the most FLOPs.

        This takes a sixth of the time of `fit`, and ranks operators as well; see `LayerFit.after`. Infinity if the operator
        does not fit, or its outputs are not finite.
        """
        settings, seed, recorded = self.settings.training, self.settings.seed, self._recorded
        try:
            with on_device(settings.device) as device, own_state(seed, settings, device), computing(device.type):
                module = moved_to(self.network(operator, seed), device).get_submodule(recorded.layer)
                error = recorded.fit(module).after
        except (SpecError, TrainingError):
            return inf
        return error if isfinite(error) else inf

    @cached_property
    def _recorded(self) -> RecordedLayer:
        """The recorded layer for `layer_error`: the first layer that runs, among the replaceable layers with the most FLOPs."""
        flops = dict.fromkeys((layer.name for layer in self.layers), 0)
        for work in count(self.model(), self.example).work:
            if work.layer in flops:
                flops[work.layer] += work.flops
        seed = self.settings.seed
        with on_device(self.settings.training.device) as device, self._float32_task(seed, device) as task:
            trained = moved_to(self.trained(seed), device)
            for layer in sorted(flops, key=lambda name: -flops[name]):
                if (recorded := record_layer(trained, layer, task)) is not None:
                    return recorded
        raise TrainingError(
            f"none of the layers to replace runs on the first batches to train on: {', '.join(flops)}; choose others (layers)"
        )

    def base_of(self, operator: AnyOperator, original: nn.Module, seed: int) -> nn.Module:
        """Return the network around an operator: the original, or a narrower network with its own running statistics."""
        settings, device = self.settings.training, next(original.parameters()).device
        with own_state(seed, settings, device):
            return self._base_of(as_replacement(operator), original, task_of(self.data, settings, seed, device))

    def _base_of(self, replacement: Replacement, original: nn.Module, task: DeviceTask) -> nn.Module:
        if replacement.around is None:
            return original
        base = substitute(original, replacement.around, self.example)
        measure_statistics(base, task)
        return base

    def difference(self, network: nn.Module, original: nn.Module, seed: int) -> float:
        """Return the mean difference between the outputs of two networks on sampled batches: the distillation loss."""
        with self._float32_task(seed, next(network.parameters()).device) as task:
            return output_difference(network, original, task)

    def narrowable_layers(self, share: float, base: NarrowerNetwork | None = None) -> tuple[str, ...]:
        """Return the names of the replaceable layers that can be narrowed alone to this share of channels; see `narrowable`."""
        model = self.model() if base is None else substitute(self.model(), base, self.example)
        return narrowable(model, self.example, share, [layer.name for layer in self.layers])

    def equal_layers(self, base: NarrowerNetwork | None = None) -> list[tuple[str, ...]]:
        """Return groups of names: replaceable layers of equal size, in the original or in a narrower network."""
        by_size: dict[object, list[str]] = {}
        for name, size in self._sizes(base).items():
            by_size.setdefault(size, []).append(name)
        return [tuple(names) for names in by_size.values()]

    def layers_behind(self, narrower: NarrowerLayer, layer: str) -> tuple[str, ...]:
        """Return the names of the other replaceable layers whose sizes change if this layer is narrowed."""
        before, after = self._sizes(), self._sizes(Mixture(narrower.name, ((narrower, (layer,)),)))
        return tuple(name for name, size in after.items() if name != layer and size != before[name])

    def _sizes(self, narrower: NarrowerNetwork | Mixture | None = None) -> dict[str, object]:
        """Return the sizes of the replaceable layers, by the layers' names."""
        layers = self.layers
        if narrower is not None:
            names = [layer.name for layer in layers]
            layers = replaceable(substitute(self.model(), narrower, self.example), self.example, names)
        return {layer.name: size_of(layer) for layer in layers}


def _samples(data: PictureData | TokenSet, count: int) -> torch.Tensor:
    """Return some training samples, the same in all processes."""
    with unchanged_process(0), user_code(f'the data set "{data.name}"'):
        batch = next(iter(data.train_batches(count, seed=0).epoch(1)))
    if isinstance(data, TokenSet):
        return batch[:, :-1]
    try:
        check_images(f"{data.name}: a batch of images", batch[0], tuple(data.image_shape))
    except (DataError, TypeError, LookupError):  # `try_step` reports the error
        return torch.zeros(count, *data.image_shape)
    return batch[0]


def _are_equal(first: torch.Tensor, second: torch.Tensor | None) -> bool:
    return second is not None and first.shape == second.shape and torch.allclose(first, second, rtol=0, atol=0, equal_nan=True)


def things_of_data(data: PictureData | TokenSet) -> dict[str, Any]:
    """Return the objects that identify a user's own data set, by name: the data set itself, and some of its rows."""
    things: dict[str, Any] = {"the data": data}
    with suppress(Exception):  # trainings report errors of the data
        if not isinstance(data, TokenSet):
            batch = min(LEAST_ROWS, data.train_count)
            things["rows to train on"] = next(iter(data.train_batches(batch, seed=0).epoch(1)))
            things["rows to test on"] = next(iter(data.test_batches(batch)), None)
    return things


def _mismatch(settings: WorkloadSettings, data: str, model: str, needed: str, models: Iterable[str]) -> str:
    return (
        f'workload: the data set "{settings.data}" is {data}, and the model "{settings.model}" takes {model}; those for '
        f"{needed} are: {', '.join(models)}"
    )


def untrained(network: nn.Module, seed: int) -> nn.Module:
    """Initialize all weights of a network anew, in place, as creating its layers does; return the network."""
    with unchanged_process(seed):
        for module in network.modules():
            reset = getattr(module, "reset_parameters", None)
            if callable(reset):
                reset()
            else:
                for weight in module.parameters(recurse=False):
                    if weight.dim() > 1:
                        nn.init.normal_(weight, std=NEW_DEVIATION)
    return network
