"""The record of a training of a network with an operator."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Self

from pydantic import AwareDatetime, Field, model_validator
from torch import nn

from syno.base.files import ORIGINAL, checksum
from syno.base.identity import version_of_code
from syno.base.record import Amount, Count, Name, Number, Record, versions
from syno.measure.machine import device_name
from syno.model.counting import count
from syno.model.replacements import AnyOperator, code_in
from syno.train.given_weights import content_of_weights
from syno.train.lower_precision import int8_score
from syno.train.metric import BUILT_IN, METRICS, MetricKey
from syno.train.processes import ALONE, Processes
from syno.train.progress import EpochReport
from syno.train.settings import WorkloadSettings
from syno.train.workload import Workload

Loss = Annotated[float, Field(allow_inf_nan=False)]


class TrainingRecord(Record):
    """The record of one training. On one machine, equal settings and seeds give equal records, except for times (`passing`).

    Attributes:
        name: name of the operator, or "original".
        operator: the operator's text; None for the original network.
        operator_id: id of the operator.
        workload: settings of the network, the data set and the training.
        data_hash: hash of the pictures and labels, or of the tokens; also covers a user's own task and a file of initial
            weights.
        seed: seed of the weights and of the order of the data.
        metric: key of the scores' metric: "accuracy", a fraction of the test pictures; "loss" on the test text, in nats per
            token; or that of a user's own task (`syno.train.metric`).
        score: score of the trained network; if the training diverged, 0 for an accuracy, otherwise the worst score, such as
            infinity.
        scores, losses: score on the test data and training loss after each round; losses are in nats.
        curve_steps, curve_minutes, curve_losses: the loss curve, `syno.train.progress.CurvePoint`. Minutes are those of
            training, without tests.
        stopped: reason why the training ended early; None if it completed.
        micro_batch: size of a micro-batch, also if the setting is `auto`; None: the whole batch.
        int8_score: score of the trained network quantized to 8-bit integers; None if not tested.
        weights: checksum of the file with the trained weights beside the record (`syno.train.weights`); None if not stored.
        initial_weights: checksum of the file of weights that the training began with; None without one, and in older records.
        flops: multiply-adds of the network, for one picture or sequence.
        parameters: number of parameters of the network.
        cpu_seconds: processor time of the training, in all processes.
        threads, device, versions, date: number of threads, device, versions of packages (and of a user's own code in the
            operator), and time of the record.
    """

    kind_of_record = "training record"
    again = "run `syno train`"
    passing = frozenset({"cpu_seconds", "curve_minutes", "date"})

    name: Name
    operator: str | None
    operator_id: str | None
    workload: WorkloadSettings
    data_hash: str
    seed: int
    metric: MetricKey
    score: float
    scores: tuple[float, ...]
    losses: tuple[Loss, ...]
    curve_steps: tuple[Count, ...] = ()
    curve_minutes: tuple[Amount, ...] = ()
    curve_losses: tuple[Loss, ...] = ()
    stopped: str | None
    micro_batch: Count | None = None
    int8_score: float | None = None
    weights: str | None = None
    initial_weights: str | None = None
    flops: Amount
    parameters: Number
    cpu_seconds: Amount
    threads: Count
    device: str
    versions: dict[str, str]
    date: AwareDatetime

    @model_validator(mode="after")
    def _has_scores_in_range(self) -> Self:
        for score in (self.score, *self.scores, *([] if self.int8_score is None else [self.int8_score])):
            METRICS[self.metric].check(score)
        if self.metric in BUILT_IN and (least := min((*self.losses, *self.curve_losses), default=0.0)) < 0:
            raise ValueError(f"a loss of classification or text is 0 or more; given: {least}")
        if (self.losses or self.metric in BUILT_IN) and len(self.scores) != len(self.losses):
            raise ValueError(f"there are {len(self.scores)} scores and {len(self.losses)} losses; each epoch has one of both")
        if not len(self.curve_steps) == len(self.curve_minutes) == len(self.curve_losses):
            raise ValueError("the loss curve has a step, a time and a loss for each point")
        return self

    @classmethod
    def make(
        cls,
        workload: Workload,
        operator: AnyOperator | None,
        seed: int,
        checkpoint: Path | None = None,
        *,
        weights: Path | None = None,
        int8: bool = False,
        report: EpochReport | None = None,
        processes: Processes = ALONE,
    ) -> Self:
        """Train, or resume from the checkpoint, and return the record. SpecError if the operator does not fit the network.

        Trained weights are written to the file `weights`. With `int8`, the trained network is also tested in 8-bit integers.
        `report` is called after every round. In distributed training, each of the `processes` calls this; the record of process
        0 counts.
        """
        settings, in_int8 = workload.settings.training, list[float]()
        batch = workload.batch
        price = count(workload.network(operator, seed), workload.example).cost

        def quantize(network: nn.Module) -> None:
            in_int8.append(int8_score(network, workload.data, settings, seed))

        result = workload.train(
            operator,
            seed=seed,
            report=report,
            checkpoint=checkpoint,
            weights=weights,
            then=quantize if int8 and processes.is_first else None,
            processes=processes,
        )
        is_kept, initial = weights is not None and weights.is_file(), workload.settings.weights
        return cls(
            name=ORIGINAL if operator is None else operator.name,
            operator=None if operator is None else str(operator),
            operator_id=None if operator is None else operator.id,
            workload=workload.settings,
            data_hash=workload.hash,
            seed=seed,
            metric=result.metric,
            score=result.score,
            scores=result.scores,
            losses=result.losses,
            curve_steps=tuple(point.step for point in result.curve),
            curve_minutes=tuple(point.minutes for point in result.curve),
            curve_losses=tuple(point.loss for point in result.curve),
            stopped=result.stopped,
            micro_batch=result.micro_batch,
            int8_score=in_int8[0] if in_int8 else None,
            weights=checksum(weights.read_bytes()) if is_kept and weights is not None else None,
            initial_weights=None if initial is None else checksum(content_of_weights(initial)),
            flops=price.flops / batch,
            parameters=int(price.parameters),
            cpu_seconds=result.cpu_seconds,
            threads=workload.settings.training.threads,
            device=device_name(workload.settings.training.device),
            versions=versions(["torch", "numpy"]) | version_of_code(code_in(operator)),
            date=datetime.now(UTC),
        )
