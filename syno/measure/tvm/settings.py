"""How models are tuned with TVM: settings alone, so that a config is read without loading TVM."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, field_validator

from syno.base.errors import SynoError
from syno.measure.tvm.targets import TARGETS


class TvmSettings(BaseModel):
    """How MetaSchedule looks for schedules. A task is one kernel at one shape; a network has some dozens of them."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    target: str | Mapping[str, Any] | None = Field(
        default=None, description="a preset's name, or attributes such as {kind: llvm, mcpu: znver4}; if not given, the device"
    )
    trials_per_task: int = Field(
        default=64,
        ge=0,
        description="schedules measured of each task, those of earlier runs among them; hundreds for a fair figure",
    )
    trials_per_iteration: int = Field(default=16, ge=1, description="schedules that are chosen, built and measured in one go")
    cost_model: Literal["xgb", "random"] = Field(default="xgb", description="what guesses which schedules are worth measuring")
    builders: int = Field(default=1, ge=1, description="processes that build schedules")
    build_seconds: float = Field(default=60, gt=0, description="for building one schedule")
    run_seconds: float = Field(default=30, gt=0, description="for measuring one schedule")
    least_ms: int = Field(default=50, ge=1, description="least milliseconds that a schedule is timed for")
    share: float = Field(
        default=0.75, gt=0, lt=1, description="of the time limit, after which tuning makes room for compiling and measuring"
    )
    seed: int = Field(default=0, ge=0, description="of the search; measurements make it differ all the same")

    @field_validator("target")
    @classmethod
    def _known(cls, given: str | Mapping[str, Any] | None) -> str | Mapping[str, Any] | None:
        if isinstance(given, str):
            try:
                TARGETS[given]
            except SynoError as error:
                raise ValueError(str(error)) from None
        return given
