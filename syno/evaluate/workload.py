"""Workloads: a network on a data set, in which operators are tried out.

>>> from syno.evaluate.settings import WorkloadSettings
>>> workload = Workload.of(WorkloadSettings(data_settings={"preset": "micro"}, width=0.25))
>>> workload.spec().budget.rest_parameters
319.0
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Self

import torch
from torch import nn

from syno.errors import DataError, SpecError
from syno.evaluate.datasets import DATASETS, PictureData, TokenSet
from syno.evaluate.pruning import EpochReport, Milestones
from syno.evaluate.settings import WorkloadSettings
from syno.evaluate.training import TrainingResult, train
from syno.ir.graph import PGraph
from syno.model.backbones import BACKBONES
from syno.model.counting import model_cost
from syno.model.substitution import LAYER_RULES, spec_for, substitute
from syno.space.complete import Cost, cost
from syno.space.spec import OperatorSpec


@dataclass(frozen=True)
class Workload:
    """A network on a data set.

    Attributes:
        settings: what it is made from.
        data: the pictures, or the text.
    """

    settings: WorkloadSettings
    data: PictureData | TokenSet

    @classmethod
    def of(cls, settings: WorkloadSettings) -> Self:
        """Load or make the data.

        Raises:
            UnknownNameError: there is no such backbone, rule or data set; it lists those that there are.
            SpecError: a setting of the data that there is not.
            DataError: the data is missing or damaged.
        """
        BACKBONES.find(settings.model)  # before the data, which may take long
        LAYER_RULES.find(settings.layers)
        try:
            data = DATASETS.find(settings.data)(**settings.data_settings)
        except DataError:
            raise
        except (TypeError, ValueError) as error:
            raise SpecError(f'workload.data_settings, of the data set "{settings.data}": {error}') from error
        return cls(settings, data)

    @property
    def pictures(self) -> PictureData:
        """The data, if it is pictures. SpecError if it is text, which networks for pictures cannot take."""
        if isinstance(self.data, TokenSet):
            raise SpecError(
                f'workload: the data set "{self.settings.data}" is text, and the model "{self.settings.model}" takes pictures'
            )
        return self.data

    def model(self, seed: int | None = None) -> nn.Module:
        """The original network, with weights of this seed."""
        channels = self.pictures.image_shape[0]
        make, chosen = BACKBONES.find(self.settings.model), self.settings.seed if seed is None else seed
        return make(classes=self.data.classes, channels=channels, width=self.settings.width, seed=chosen)

    @cached_property
    def example(self) -> torch.Tensor:
        """A batch of zeros, as large as those of the training."""
        return torch.zeros(self.settings.training.batch, *self.pictures.image_shape)

    @cached_property
    def original(self) -> Cost:
        """What the original network costs, for one batch."""
        return model_cost(self.model(), self.example)

    def spec(self, options: Mapping[str, Any] | None = None) -> OperatorSpec:
        """The spec of operators for its layers; `options` differ from the defaults, see `spec_for`."""
        given = {"name": self.settings.model, **(options or {})}
        return spec_for(self.model(), self.example, options=given, rule=self.settings.layers)

    def network(self, operator: PGraph | None, seed: int) -> nn.Module:
        """The network with `operator` in its layers, or as it is. SpecError if it does not fit them; see `substitute`."""
        model = self.model(seed)
        if operator is None:
            return model
        return substitute(model, operator, self.example, seed=seed, rule=self.settings.layers)

    def train(
        self, operator: PGraph | None = None, *, seed: int | None = None, report: EpochReport | None = None
    ) -> TrainingResult:
        """Train the network with `operator` in its layers, or as it is.

        Args:
            operator: see `substitute`, which says what it may be.
            seed: of weights and order, instead of that of the settings.
            report: is asked after the milestones.
        """
        chosen = self.settings.seed if seed is None else seed
        asked = Milestones(self.settings.milestones, report)
        return train(self.network(operator, chosen), self.pictures, self.settings.training, seed=chosen, report=asked)


@dataclass(frozen=True)
class ProxyTraining:
    """An evaluation: the accuracy after a short training, beside the costs of the network. Costs are for one batch."""

    workload: Workload
    spec: OperatorSpec

    def __call__(self, operator: PGraph, report: EpochReport) -> Mapping[str, float]:
        """Metrics by name. `report` is called after every epoch, and may raise to end the training."""
        counted = cost(operator, self.spec).metrics(self.workload.original)
        result = self.workload.train(operator, report=report)
        return {result.metric: result.score, "epochs": float(len(result.scores)), **counted}
