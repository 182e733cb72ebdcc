"""Workloads: a network and a data set, on which operators are evaluated.

>>> from syno.train.settings import WorkloadSettings
>>> workload = Workload.of(WorkloadSettings(data_settings={"preset": "micro"}, width=0.25))
>>> workload.spec().budget.rest_parameters
538.0
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
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
from syno.model.baselines import Replacement
from syno.model.counting import model_cost
from syno.model.extraction import replaceable
from syno.model.layers import LAYER_RULES
from syno.model.spec import rest_cost, spec_for
from syno.model.substitution import substitute
from syno.space.complete import Cost, cost
from syno.space.spec import OperatorSpec
from syno.train.checkpoint import DamagedCheckpointError
from syno.train.making import load_data, make_network
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
        LAYER_RULES.find(settings.layers)
        return cls(settings, load_data(settings.data, settings.data_settings))

    @property
    def metric(self) -> Metric:
        """The metric of its trainings: "loss" for text, "accuracy" for pictures."""
        return "loss" if isinstance(self.data, TokenSet) else "accuracy"

    def model(self, seed: int | None = None) -> nn.Module:
        """Return the original network, with weights of this seed, or of the settings' seed if it is None.

        Raises SpecError if the network doesn't take such data, UserCodeError if the user's own function failed.
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
        """A batch of zeros of the training's shape: pictures [batch, channels, height, width], or tokens [batch, length]."""
        batch = self.settings.training.batch
        if isinstance(self.data, TokenSet):
            return torch.zeros(batch, self.data.length, dtype=torch.int64)
        return torch.zeros(batch, *self.data.image_shape)

    @cached_property
    def original(self) -> Cost:
        """The cost of the original network, for one batch."""
        return model_cost(self.model(), self.example)

    @cached_property
    def rest(self) -> Cost:
        """The cost of the network outside of the layers to replace, for one batch, without memory."""
        model = self.model()
        return rest_cost(model, self.example, replaceable(model, self.example, self.settings.layers))

    def spec(self, options: Mapping[str, Any] | None = None) -> OperatorSpec:
        """Return the spec of operators for its layers. `options` are those that differ from the defaults; see `spec_for`."""
        given = {"name": self.settings.model, **(options or {})}
        return spec_for(self.model(), self.example, options=given, where=self.settings.layers)

    def network(self, operator: Replacement | None, seed: int) -> nn.Module:
        """Return the network with `operator` in its layers, or as it is. SpecError if it doesn't fit them; see `substitute`."""
        model = self.model(seed)
        if operator is not None:
            model = substitute(model, operator, self.example, seed=seed, where=self.settings.layers)
        initialize(model, self.settings.training.initialization, seed)
        return model

    def train(
        self,
        operator: Replacement | None = None,
        *,
        seed: int | None = None,
        report: EpochReport | None = None,
        checkpoint: Path | None = None,
        then: Callable[[nn.Module], None] | None = None,
        recent_loss: Callable[[int, float], object] | None = None,
    ) -> TrainingResult:
        """Train the network with `operator` in its layers, or as it is, and return the result.

        Args:
            operator: see `substitute`.
            seed: of weights and order, instead of the settings' seed.
            report: called after each round whose milestone was met; see `syno.train.progress`.
            checkpoint: file of the training's state; see `syno.train.training.train`, also for `recent_loss`.
            then: called with the trained network, unless training broke.

        Raises:
            SpecError: this machine has no such device, or the operator does not fit.
            TrainingError: the device's memory does not suffice.
        """
        chosen, settings = self.settings.seed if seed is None else seed, self.settings.training
        rounds = "epoch" if settings.round_steps is None else "round"
        asked = Milestones(self.settings.milestones, report, metric=self.metric, rounds=rounds)
        with on_device(settings.device) as device:
            network = self.network(operator, chosen).to(device)
            kept: dict[str, Any] = {"checkpoint": checkpoint, "recent_loss": recent_loss}
            result = train(network, self.data, settings, seed=chosen, report=asked, **kept)
            if then is not None and not result.broken:
                then(network)
            return result


def _mismatch(settings: WorkloadSettings, data: str, model: str, needed: str, models: Iterable[str]) -> str:
    return (
        f'workload: the data set "{settings.data}" is {data}, and the model "{settings.model}" takes {model}; those for '
        f"{needed} are: {', '.join(models)}"
    )


@dataclass(frozen=True)
class ProxyTraining:
    """An evaluation of operators: the score after a short training, and the network's costs for one batch.

    Attributes:
        workload: the network and the data.
        spec: of the operators.
        checkpoints: folder for checkpoints of running and paused trainings; None: none are kept.
    """

    workload: Workload
    spec: OperatorSpec
    checkpoints: Path | None = None

    def __call__(self, operator: PGraph, report: EpochReport) -> Mapping[str, float]:
        """Return metrics by name: "accuracy" or "loss", "epochs" (the number of rounds), and costs.

        A training that was interrupted or paused resumes from its checkpoint. If that is missing or damaged, it begins anew,
        with a warning.

        Args:
            operator: replaces the network's layers.
            report: called after every round with a number of which more is better: the accuracy, or minus the loss. It may
                raise an exception to end the training, or Paused. If it has a method `recent_loss`, that is called before with
                the round and its recent loss; `passed` is the round after which the training paused before, 0 if it did not.

        Raises TrainingError if training produced NaN or infinity, or if the device's memory did not suffice.
        """
        counted = cost(operator, self.spec).metrics(self.workload.original)
        file, passed = self._file(operator.id), getattr(report, "passed", 0)
        if passed and (file is None or not file.exists()):
            place = "" if file is None else f": {file} is not there"
            warnings.warn(f"a training that paused after round {passed} begins anew{place}", stacklevel=2)
        try:
            result = self._train(operator, report, file)
        except DamagedCheckpointError as error:
            warnings.warn(f"a training begins anew: {str(error).partition(';')[0]}", stacklevel=2)
            self.forget(operator)
            result = self._train(operator, report, file)
        if result.broken:
            raise TrainingError(f"training {operator.name} broke: {result.stopped}")
        return {result.metric: result.score, "epochs": float(len(result.scores)), **counted}

    def forget(self, operator: PGraph) -> None:
        """Delete the checkpoint of an operator's training, which will not be resumed."""
        file = self._file(operator.id)
        if file is not None:
            with suppress(OSError):
                file.unlink(missing_ok=True)

    def _file(self, operator_id: str) -> Path | None:
        return None if self.checkpoints is None else self.checkpoints / f"{operator_id}.pt"

    def _train(self, operator: PGraph, report: EpochReport, file: Path | None) -> TrainingResult:
        sign = 1 if self.workload.metric == "accuracy" else -1
        return self.workload.train(
            operator,
            report=lambda number, score: report(number, sign * score),
            checkpoint=file,
            recent_loss=getattr(report, "recent_loss", None),
        )
