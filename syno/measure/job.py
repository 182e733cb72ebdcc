"""The job of a compiler: its input, and callbacks for its progress."""

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
SHARED_TEMPORARY = "SYNO_SHARED_TEMPORARY"  # environment variable: the temporary folder of the parent of a measuring process


class Int8Settings(BaseModel):
    """The settings of compilers that quantize ONNX models to 8-bit integers.

    Attributes:
        float_layers: layers that stay in floating point, by their names in the network, such as "blocks.0.conv1".
    """

    model_config = ConfigDict(frozen=True, extra="forbid")
    float_layers: tuple[str, ...] = ()


class TrialCount(BaseModel):
    """The progress of tuning one network.

    Attributes:
        task: number of the task (one kernel at one shape) that is being tuned, from 1; 0 before the first.
        tasks: number of tasks.
        trials: number of schedules measured so far, of all tasks, including earlier runs.
        trials_wanted: number of schedules to measure, of all tasks.
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
        module: the module, in evaluation mode, on `device`.
        example: one input, on `device`.
        make_inputs: returns another input.
        device: "cpu", "cuda" or "cuda:1"; or the name of a remote device, where module and example are on the CPU.
        settings: how the compiled module will be measured.
        check: compares outputs of the compiled module with the reference.
        name: a file name for the module; different modules have different names.
        folder: folder for files that a later run may reuse.
        options: the compiler's own settings, an instance of `Compiler.settings`; None if it has none.
        began: `time.monotonic()` at the start of the measuring process.
        time_limit_s: seconds after which the process is stopped.
        begin: callback at the beginning of a phase, with its name.
        note: callback with fields of the record.
        count: callback with the number of trials during tuning.
        lacks: callback with a sentence if the result runs but has a shortcoming, such as untuned parts.
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
