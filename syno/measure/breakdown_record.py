"""The record of where a network's time goes: its replaced layers, as they are and with an operator, and all the rest."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Self

import torch
from pydantic import AwareDatetime, model_validator

from syno.base.core_locks import alone
from syno.base.record import Record
from syno.measure.latency import pinned
from syno.measure.network_subject import BackboneSubject
from syno.measure.speedup_layers import layers_of
from syno.measure.speedup_record import SpeedupRecord
from syno.measure.stage_times import StageTime, stage_shares

if TYPE_CHECKING:
    from syno.measure.speedups import Speedups
    from syno.model.baselines import Replacement

BY_STATEMENT = "eager"  # the compiler with which each statement runs by itself


class BreakdownRecord(Record):
    """Where the time of a network goes, before and after an operator is in its layers.

    Attributes:
        name, operator_id: of the operator.
        speedup: the times of each size of the replaced layers, as they are and with the operator, measured in turns, and of
            the rest of the network; or why they are not known.
        stages: for each size, the shares of the operator's stages in its time. Empty with compilers that fuse them, and for
            baselines that are modules.
        date: when it was made, UTC.
    """

    kind_of_record = "record of where the time goes"
    again = "run `syno tune breakdown`"
    passing = frozenset({"date"})

    name: str
    operator_id: str
    speedup: SpeedupRecord
    stages: tuple[tuple[StageTime, ...], ...] = ()
    date: AwareDatetime

    @model_validator(mode="after")
    def _is_by_layers(self) -> Self:
        if self.speedup.conditions.measured != "layers" or self.speedup.operator_id != self.operator_id:
            raise ValueError("its speedup is not one of the same operator that was measured by layers")
        if self.stages and len(self.stages) != len(self.speedup.layers):
            raise ValueError(f"it has stages of {len(self.stages)} layers, and times of {len(self.speedup.layers)}")
        return self

    @classmethod
    def make(cls, operator: Replacement, speedup: SpeedupRecord, speedups: Speedups) -> Self:
        """Return the record of an operator whose speedup was measured by layers; measure the shares of its stages.

        Args:
            operator: the operator.
            speedup: its speedup.
            speedups: with which it was measured.
        """
        is_known = speedup.layers and speedups.compiler == BY_STATEMENT and speedups.remote is None
        return cls(
            name=operator.name,
            operator_id=operator.id,
            speedup=speedup,
            stages=_stages(operator, speedups) if is_known else (),
            date=datetime.now(UTC),
        )


def _stages(operator: Replacement, speedups: Speedups) -> tuple[tuple[StageTime, ...], ...]:
    """Return the shares of the operator's stages in each size of the layers; () if it is a module of its own."""
    subject, settings, found = speedups.network, speedups.settings, []
    assert isinstance(subject, BackboneSubject)
    for name in layers_of(subject).names:
        changed = subject.model_copy(update={"operator": str(operator), "layer": name})
        material = changed.make(speedups.device, settings.batch)
        given = material.make_inputs()
        with torch.no_grad(), pinned(settings), alone(speedups.device):
            found.append(stage_shares(material.module, given, settings))
    return tuple(found) if all(found) else ()
