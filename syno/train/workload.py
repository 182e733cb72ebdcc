"""Workloads: a network on a data set, in which operators are tried out.

>>> from syno.train.settings import WorkloadSettings
>>> workload = Workload.of(WorkloadSettings(data_settings={"preset": "micro"}, width=0.25))
>>> workload.spec().budget.rest_parameters
319.0
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Self

import torch
from torch import nn

from syno.base.errors import SpecError, TrainingError
from syno.data import PictureData, TokenSet
from syno.ir.graph import PGraph
from syno.model.backbones import BACKBONES, SEQUENCE_BACKBONES
from syno.model.counting import model_cost
from syno.model.spec import rest_cost
from syno.model.substitution import LAYER_RULES, spec_for, substitute
from syno.space.complete import Cost, cost
from syno.space.spec import OperatorSpec
from syno.train.making import load_data, make_network
from syno.train.optimization import initialize, on_device
from syno.train.pruning import EpochReport, Milestones
from syno.train.settings import Metric, WorkloadSettings
from syno.train.training import TrainingResult, train


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
            UserCodeError: the user's own function of the data failed.
        """
        if settings.model not in SEQUENCE_BACKBONES:  # before the data, which may take long
            BACKBONES.find(settings.model)
        LAYER_RULES.find(settings.layers)
        return cls(settings, load_data(settings.data, settings.data_settings))

    @property
    def metric(self) -> Metric:
        """What its trainings are scored by."""
        return "loss" if isinstance(self.data, TokenSet) else "accuracy"

    def model(self, seed: int | None = None) -> nn.Module:
        """The original network, with weights of this seed.

        SpecError if it takes something else than the data is; UserCodeError if the user's own function failed.
        """
        settings, data = self.settings, self.data
        width, chosen = settings.width, settings.seed if seed is None else seed
        if isinstance(data, TokenSet):
            if settings.model in BACKBONES:
                raise SpecError(_mismatch(settings, "text", "pictures", "text", SEQUENCE_BACKBONES))
            sizes = {"vocabulary": data.vocabulary, "context": data.length}
            return make_network(SEQUENCE_BACKBONES, settings.model, {**sizes, "width": width, "seed": chosen})
        if settings.model in SEQUENCE_BACKBONES:
            raise SpecError(_mismatch(settings, "pictures", "text", "pictures", BACKBONES))
        shape = {"classes": data.classes, "channels": data.image_shape[0]}
        return make_network(BACKBONES, settings.model, {**shape, "width": width, "seed": chosen})

    @cached_property
    def example(self) -> torch.Tensor:
        """A batch of zeros, as large as those of the training: pictures, or tokens [batch, length]."""
        batch = self.settings.training.batch
        if isinstance(self.data, TokenSet):
            return torch.zeros(batch, self.data.length, dtype=torch.int64)
        return torch.zeros(batch, *self.data.image_shape)

    @cached_property
    def original(self) -> Cost:
        """What the original network costs, for one batch."""
        return model_cost(self.model(), self.example)

    @cached_property
    def rest(self) -> Cost:
        """What the network has outside of the layers to replace, for one batch; its memory is not counted."""
        return rest_cost(self.model(), self.example, rule=self.settings.layers)

    def spec(self, options: Mapping[str, Any] | None = None) -> OperatorSpec:
        """The spec of operators for its layers; `options` differ from the defaults, see `spec_for`."""
        given = {"name": self.settings.model, **(options or {})}
        return spec_for(self.model(), self.example, options=given, rule=self.settings.layers)

    def network(self, operator: PGraph | None, seed: int) -> nn.Module:
        """The network with `operator` in its layers, or as it is. SpecError if it does not fit them; see `substitute`."""
        model = self.model(seed)
        if operator is not None:
            model = substitute(model, operator, self.example, seed=seed, rule=self.settings.layers)
        initialize(model, self.settings.training.initialization, seed)
        return model

    def train(
        self,
        operator: PGraph | None = None,
        *,
        seed: int | None = None,
        report: EpochReport | None = None,
        checkpoint: Path | None = None,
    ) -> TrainingResult:
        """Train the network with `operator` in its layers, or as it is.

        Args:
            operator: see `substitute`, which says what it may be.
            seed: of weights and order, instead of that of the settings.
            report: is asked after the milestones.
            checkpoint: see `syno.train.training.train`.

        Raises:
            SpecError: there is no such device here, or the operator does not fit.
            TrainingError: the device's memory does not suffice.
        """
        chosen, settings = self.settings.seed if seed is None else seed, self.settings.training
        rounds = "epoch" if settings.round_steps is None else "round"
        asked = Milestones(self.settings.milestones, report, metric=self.metric, rounds=rounds)
        with on_device(settings.device) as device:
            network = self.network(operator, chosen).to(device)
            return train(network, self.data, settings, seed=chosen, report=asked, checkpoint=checkpoint)


def _mismatch(settings: WorkloadSettings, data: str, model: str, needed: str, models: Iterable[str]) -> str:
    return (
        f'workload: the data set "{settings.data}" is {data}, and the model "{settings.model}" takes {model}; those for '
        f"{needed} are: {', '.join(models)}"
    )


@dataclass(frozen=True)
class ProxyTraining:
    """An evaluation: the score after a short training, beside the costs of the network. Costs are for one batch.

    Attributes:
        workload: the network and the data.
        spec: of the operators.
        checkpoints: a folder for the states of trainings that are under way; None to keep none.
    """

    workload: Workload
    spec: OperatorSpec
    checkpoints: Path | None = None

    def __call__(self, operator: PGraph, report: EpochReport) -> Mapping[str, float]:
        """Metrics by name: "accuracy" or "loss", "epochs" (rounds, that is), costs.

        Args:
            operator: to train with.
            report: called after every round with a number of which more is better: the accuracy, or minus the loss. It may
                raise to end the training.

        Raises TrainingError if training broke, or the device's memory did not suffice.
        """
        counted = cost(operator, self.spec).metrics(self.workload.original)
        sign = 1 if self.workload.metric == "accuracy" else -1
        file = None if self.checkpoints is None else self.checkpoints / f"{operator.id}.pt"
        result = self.workload.train(operator, report=lambda number, score: report(number, sign * score), checkpoint=file)
        if result.broken:
            raise TrainingError(f"training {operator.name} broke: {result.stopped}")
        return {result.metric: result.score, "epochs": float(len(result.scores)), **counted}
