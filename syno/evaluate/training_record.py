"""What training a network with an operator has shown: a record, and its file."""

from __future__ import annotations

import platform
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Self

import torch
from pydantic import AwareDatetime, BaseModel, ConfigDict, ValidationError

from syno.errors import SpecError
from syno.evaluate.settings import WorkloadSettings
from syno.evaluate.workload import Workload
from syno.files import write_whole
from syno.ir.graph import PGraph
from syno.model.counting import model_cost
from syno.model.substitution import substitute

ORIGINAL = "original"  # stands for the network as it is


class TrainingRecord(BaseModel):
    """One training. Equal arguments give equal records on one machine, but for `cpu_seconds` and `date`.

    Attributes:
        name: the operator's, or "original".
        operator: its text; None for the original network.
        operator_id: of that text.
        workload: the network, the data set, the recipe.
        data_hash: of the pictures and labels.
        seed: of weights and of the order of pictures.
        accuracy: on the test pictures after the last epoch, a fraction; 0 if training broke.
        accuracies, losses: after each epoch; in nats.
        stopped: why it ended early; None if it went through.
        flops: multiply-adds of the network, for one picture.
        parameters: of the network.
        cpu_seconds: of the training.
        threads, device, versions, date: where and when.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str
    operator: str | None
    operator_id: str | None
    workload: WorkloadSettings
    data_hash: str
    seed: int
    accuracy: float
    accuracies: tuple[float, ...]
    losses: tuple[float, ...]
    stopped: str | None
    flops: float
    parameters: int
    cpu_seconds: float
    threads: int
    device: str
    versions: dict[str, str]
    date: AwareDatetime

    @classmethod
    def make(cls, workload: Workload, operator: PGraph | None, seed: int) -> Self:
        """Train. SpecError if the operator does not fit the network."""
        batch = workload.settings.training.batch
        model = workload.model(seed)
        model = model if operator is None else substitute(model, operator, workload.example, seed=seed)
        price = model_cost(model, workload.example)
        result = workload.train(operator, seed=seed)
        return cls(
            name=ORIGINAL if operator is None else operator.name,
            operator=None if operator is None else str(operator),
            operator_id=None if operator is None else operator.id,
            workload=workload.settings,
            data_hash=workload.data.hash,
            seed=seed,
            accuracy=result.accuracy,
            accuracies=result.accuracies,
            losses=result.losses,
            stopped=result.stopped,
            flops=price.flops / batch,
            parameters=int(price.parameters),
            cpu_seconds=result.cpu_seconds,
            threads=workload.settings.training.threads,
            device="cpu",
            versions={"python": platform.python_version(), "torch": torch.__version__, "syno": version("syno")},
            date=datetime.now(UTC),
        )

    def write(self, path: Path) -> None:
        """Write it as JSON, whole. SpecError if that is not possible."""
        write_whole(path, self.model_dump_json(indent=1) + "\n")

    @classmethod
    def read(cls, path: Path) -> Self:
        """The record in a file. SpecError, which names the file, if it cannot be read or holds no record."""
        try:
            return cls.model_validate_json(path.read_bytes())
        except OSError as error:
            raise SpecError(f"{path} cannot be read: {error.strerror or error}") from error
        except ValidationError as error:
            first = error.errors()[0]
            place = ".".join(map(str, first["loc"])) or "the file"
            raise SpecError(f"{path} holds no training record: {place}: {first['msg']}; delete it and train again") from error
