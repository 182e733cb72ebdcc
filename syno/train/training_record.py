"""What training a network with an operator has shown: a record, and its file."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Self

from pydantic import AwareDatetime, model_validator

from syno.base.names import ORIGINAL
from syno.base.record import Amount, Count, Number, Record, versions
from syno.ir.graph import PGraph
from syno.measure.machine import device_name
from syno.model.counting import model_cost
from syno.train.settings import Metric, WorkloadSettings, check_score
from syno.train.workload import Workload


class TrainingRecord(Record):
    """One training. Equal arguments give equal records on one machine, but for `cpu_seconds` and `date`.

    Attributes:
        name: the operator's, or "original".
        operator: its text; None for the original network.
        operator_id: of that text.
        workload: the network, the data set, the recipe.
        data_hash: of the pictures and labels.
        seed: of weights and of the order of pictures.
        metric: what the scores are: "accuracy", a fraction of the test pictures, or "loss" on the test text, in nats per token.
        score: of the trained network; 0 (a loss: infinite) if training broke.
        scores, losses: after each epoch, on the test data and in training; losses are in nats.
        stopped: why it ended early; None if it went through.
        flops: multiply-adds of the network, for one picture.
        parameters: of the network.
        cpu_seconds: of the training.
        threads, device, versions, date: where and when.
    """

    kind_of_record = "training record"
    again = "run `syno train`"
    passing = frozenset({"cpu_seconds", "date"})

    name: str
    operator: str | None
    operator_id: str | None
    workload: WorkloadSettings
    data_hash: str
    seed: int
    metric: Metric
    score: float
    scores: tuple[float, ...]
    losses: tuple[Amount, ...]
    stopped: str | None
    flops: Amount
    parameters: Number
    cpu_seconds: Amount
    threads: Count
    device: str
    versions: dict[str, str]
    date: AwareDatetime

    @model_validator(mode="after")
    def _has_scores_in_range(self) -> Self:
        for score in (self.score, *self.scores):
            check_score(self.metric, score)
        if len(self.scores) != len(self.losses):
            raise ValueError(f"there are {len(self.scores)} scores and {len(self.losses)} losses; each epoch has one of both")
        return self

    @classmethod
    def make(cls, workload: Workload, operator: PGraph | None, seed: int, checkpoint: Path | None = None) -> Self:
        """Train, or go on from the checkpoint. SpecError if the operator does not fit the network."""
        batch = workload.settings.training.batch
        price = model_cost(workload.network(operator, seed), workload.example)
        result = workload.train(operator, seed=seed, checkpoint=checkpoint)
        return cls(
            name=ORIGINAL if operator is None else operator.name,
            operator=None if operator is None else str(operator),
            operator_id=None if operator is None else operator.id,
            workload=workload.settings,
            data_hash=workload.data.hash,
            seed=seed,
            metric=result.metric,
            score=result.score,
            scores=result.scores,
            losses=result.losses,
            stopped=result.stopped,
            flops=price.flops / batch,
            parameters=int(price.parameters),
            cpu_seconds=result.cpu_seconds,
            threads=workload.settings.training.threads,
            device=device_name(workload.settings.training.device),
            versions=versions(["torch", "numpy"]),
            date=datetime.now(UTC),
        )
