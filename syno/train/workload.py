"""Workloads: a network and a data set, on which operators are evaluated.

>>> from syno.train.settings import WorkloadSettings
>>> workload = Workload.of(WorkloadSettings(data_settings={"preset": "micro"}, width=0.25))
>>> workload.spec().budget.rest_parameters
538.0
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Self

import torch
from torch import nn

from syno.base.errors import SpecError
from syno.base.registry import is_path
from syno.data import PictureData, TokenSet
from syno.model.backbones import BACKBONES, SEQUENCE_BACKBONES
from syno.model.baselines import Replacement
from syno.model.counting import count
from syno.model.extraction import layers_of, replaceable
from syno.model.layer import Layer
from syno.model.layers import LAYER_RULES
from syno.model.memory import moved_to
from syno.model.network_function import make_network
from syno.model.placed import placed_layers, with_placed
from syno.model.requirement import Requirement, requirement
from syno.model.spec import replaced_share, rest_cost, spec_for
from syno.model.substitution import substitute
from syno.space.complete import Cost
from syno.space.spec import OperatorSpec
from syno.train.data_sets import load_data
from syno.train.first_batch import fault_on_first_batch
from syno.train.optimization import initialize, on_device
from syno.train.progress import EpochReport, Milestones, TrainingResult
from syno.train.settings import Metric, WorkloadSettings
from syno.train.training import train


@dataclass(frozen=True)
class Workload:
    """A network and a data set.

    Attributes:
        settings: of both, and of the training.
        data: the pictures, or the text.
    """

    settings: WorkloadSettings
    data: PictureData | TokenSet

    @classmethod
    def of(cls, settings: WorkloadSettings) -> Self:
        """Return the workload, with its data loaded.

        Raises:
            UnknownNameError: there is no such backbone, rule or data set; the message lists them.
            SpecError: an unknown setting of the data.
            DataError: the data is missing or damaged.
            UserCodeError: the user's own function of the data failed.
        """
        if settings.model not in SEQUENCE_BACKBONES:  # before the data, which may take long
            BACKBONES.find(settings.model)
        if (
            is_path(settings.layers) and "," not in settings.layers
        ):  # other names may be of layers, which are known when the network is made
            LAYER_RULES.find(settings.layers)
        return cls(settings, load_data(settings.data, settings.data_settings))

    @property
    def metric(self) -> Metric:
        """The metric of its trainings: "loss" for text, "accuracy" for pictures."""
        return "loss" if isinstance(self.data, TokenSet) else "accuracy"

    @property
    def is_own(self) -> bool:
        """Whether the network is a user's own, whose weights only `initialization: paper-everywhere` draws anew."""
        return is_path(self.settings.model)

    def model(self, seed: int | None = None) -> nn.Module:
        """Return the original network, with weights of this seed, or of the settings' seed if it is None.

        It has the operators that the settings place in it.

        Raises SpecError if the network doesn't take such data, UserCodeError if the user's own function failed.
        """
        chosen = self.settings.seed if seed is None else seed
        return with_placed(self._made(chosen), self.settings.placed, self.example, chosen)

    @property
    def fixed_weights(self) -> float | None:
        """The share of the weights that a user's own function makes equal for two seeds: those of trained weights.

        Vectors, which mostly begin with constants, do not count. None for other networks, and without any. Warns if two calls
        with one seed make different weights.
        """
        if not self.is_own:
            return None
        seed = self.settings.seed
        one, again, other = (self._matrices(number) for number in (seed, seed, seed + 1))
        if changing := [name for name in one if not _are_equal(one[name], again.get(name))]:
            warnings.warn(
                f'the model "{self.settings.model}" makes other weights ({changing[0]}) in each call with the seed {seed}, so '
                "that no training can be repeated; draw them from torch's, NumPy's or Python's global random numbers, or from "
                "a generator with the argument seed",
                stacklevel=2,
            )
        equal = sum(weight.numel() for name, weight in one.items() if _are_equal(weight, other.get(name)))
        total = sum(weight.numel() for weight in one.values())
        return equal / total if total else None

    def _matrices(self, seed: int) -> dict[str, torch.Tensor]:
        return {name: weight.detach() for name, weight in self._made(seed).named_parameters() if weight.dim() > 1}

    @property
    def placed_layers(self) -> dict[str, str]:
        """The names of the layers that have an operator already, each with the operator's name."""
        return placed_layers(self._made(self.settings.seed), self.settings.placed, self.example)

    def _made(self, chosen: int) -> nn.Module:
        settings, data = self.settings, self.data
        own = {"width": settings.width, "seed": chosen}
        if isinstance(data, TokenSet):
            if settings.model in BACKBONES:
                raise SpecError(_mismatch(settings, "text", "pictures", "text", SEQUENCE_BACKBONES))
            sizes = {"vocabulary": data.vocabulary, "context": data.length, **own}
            return make_network(SEQUENCE_BACKBONES, settings.model, sizes, settings.model_settings, self.example)
        if settings.model in SEQUENCE_BACKBONES:
            raise SpecError(_mismatch(settings, "pictures", "text", "pictures", BACKBONES))
        shape = {"classes": data.classes, "channels": data.image_shape[0], **own}
        return make_network(BACKBONES, settings.model, shape, settings.model_settings, self.example)

    @cached_property
    def example(self) -> torch.Tensor:
        """A batch of zeros of the training's shape: samples [batch, channels, ...], or tokens [batch, length]."""
        batch = self.settings.training.batch
        if isinstance(self.data, TokenSet):
            return torch.zeros(batch, self.data.length, dtype=torch.int64)
        return torch.zeros(batch, *self.data.image_shape)

    @cached_property
    def original(self) -> Cost:
        """The cost of the original network, for one batch."""
        return count(self.model(), self.example).cost

    @cached_property
    def layers(self) -> tuple[Layer, ...]:
        """The layers to replace, looked for once: the network is run in copies to find them."""
        return replaceable(self.model(), self.example, self.settings.layers)

    @cached_property
    def rest(self) -> Cost:
        """The cost of the network outside of the layers to replace, for one batch, without memory."""
        model = self.model()
        return rest_cost(model, self.example, layers_of(model, self.layers))

    @cached_property
    def requirement(self) -> Requirement:
        """The requirement that the network has of operators in its layers, and why."""
        model = self.model()
        layers = layers_of(model, self.layers)
        return requirement(model, self.example, layers, replaced_share(model, self.example, self.rest))

    def spec(self, options: Mapping[str, Any] | None = None) -> OperatorSpec:
        """Return the spec of operators for its layers. `options` are those that differ from the defaults; see `spec_for`."""
        given = {"name": self.settings.model, **(options or {})}
        return spec_for(self.model(), self.example, options=given, where=self.settings.layers)

    def network(self, operator: Replacement | None, seed: int) -> nn.Module:
        """Return the network with `operator` in its layers, or as it is. SpecError if it doesn't fit them; see `substitute`."""
        model = self.model(seed)
        if operator is not None:
            model = substitute(model, operator, self.example, seed=seed, layers=self.layers)
        initialize(model, self.settings.training.initialization, seed, is_own=self.is_own)
        return model

    def fault_on_first_batch(self, operator: Replacement) -> str | None:
        """Return in words why the operator cannot be trained, as far as one batch shows; see `syno.train.first_batch`.

        Raises SpecError and TrainingError as `train` does.
        """
        settings, seed = self.settings.training, self.settings.seed
        with on_device(settings.device) as device:
            return fault_on_first_batch(moved_to(self.network(operator, seed), device), self.data, settings, seed)

    def train(
        self,
        operator: Replacement | None = None,
        *,
        seed: int | None = None,
        report: EpochReport | None = None,
        checkpoint: Path | None = None,
        weights: Path | None = None,
        then: Callable[[nn.Module], None] | None = None,
        recent_loss: Callable[[float, float], object] | None = None,
        looks: Sequence[float] = (),
    ) -> TrainingResult:
        """Train the network with `operator` in its layers, or as it is, and return the result.

        Args:
            operator: see `substitute`.
            seed: of weights and order, instead of the settings' seed.
            report: called after each round whose milestone was met; see `syno.train.progress`.
            checkpoint: file of the training's state; see `syno.train.training.train`, also for `weights`, `recent_loss` and
                `looks`.
            then: called with the trained network, unless training broke.

        Raises:
            SpecError: this machine has no such device, or the operator does not fit.
            TrainingError: the device's memory does not suffice.
        """
        chosen, settings = self.settings.seed if seed is None else seed, self.settings.training
        rounds = "epoch" if settings.round_steps is None else "round"
        asked = Milestones(self.settings.milestones, report, metric=self.metric, rounds=rounds)
        with on_device(settings.device) as device:
            network = moved_to(self.network(operator, chosen), device)
            kept: dict[str, Any] = {"checkpoint": checkpoint, "weights": weights, "recent_loss": recent_loss, "looks": looks}
            result = train(network, self.data, settings, seed=chosen, report=asked, **kept)
            if then is not None and not result.broken:
                then(network)
            return result


def _are_equal(one: torch.Tensor, other: torch.Tensor | None) -> bool:
    return other is not None and one.shape == other.shape and torch.allclose(one, other, rtol=0, atol=0, equal_nan=True)


def _mismatch(settings: WorkloadSettings, data: str, model: str, needed: str, models: Iterable[str]) -> str:
    return (
        f'workload: the data set "{settings.data}" is {data}, and the model "{settings.model}" takes {model}; those for '
        f"{needed} are: {', '.join(models)}"
    )
