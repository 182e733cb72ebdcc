"""The job of a compiler: what it gets to do its work, and what it tells while it works."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from pydantic import BaseModel, ConfigDict

from syno.measure.timing import LatencySettings

if TYPE_CHECKING:
    import torch
    from torch import nn

    from syno.measure.output_check import OutputCheck

Phase: TypeAlias = Literal["connecting", "waiting", "starting", "building", "compiling", "tuning", "measuring"]
SHARED_TEMPORARY = "SYNO_SHARED_TEMPORARY"  # a variable: the folder of temporary files of whoever starts a process to measure


class TrialCount(BaseModel):
    """The progress of a compiler that tunes.

    Attributes:
        task: the task (one kernel at one shape) that is being tuned, from 1; 0 before the first.
        tasks: how many there are.
        trials: schedules measured of all tasks, in earlier runs too.
        trials_wanted: schedules to measure of all tasks.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")
    task: int
    tasks: int
    trials: int
    trials_wanted: int


@dataclass(frozen=True)
class Job:
    """One module to compile.

    Attributes:
        module: in evaluation mode, on `device`.
        example: one input, on `device`.
        make_inputs: makes another one.
        device: "cpu", "cuda" or "cuda:1"; or the name of a remote device, where module and example are on the CPU.
        settings: how the result will be measured.
        check: compares outputs of the compiled module with the reference.
        name: of the module, as a file may be called; different modules have different names.
        folder: for files that a later run may use.
        options: the compiler's own settings, an instance of `Compiler.settings`; None if it has none.
        began: the time of `time.monotonic` when the process began.
        time_limit_s: seconds after which the process is stopped.
        begin: call it with the name of a phase that begins.
        note: call it with fields of the record.
        count: call it with the number of trials while the compiler tunes.
        lacks: call it with a sentence if the result runs, but is not what was asked for.
    """

    module: nn.Module
    example: tuple[torch.Tensor, ...]
    make_inputs: Callable[[], tuple[torch.Tensor, ...]]
    device: str
    settings: LatencySettings
    check: OutputCheck
    name: str
    folder: Path
    options: Any
    began: float
    time_limit_s: float
    begin: Callable[[Phase], None]
    note: Callable[..., None]
    count: Callable[[TrialCount], None]
    lacks: Callable[[str], None]
