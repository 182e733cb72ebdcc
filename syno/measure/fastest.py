"""The compiler `fastest`: a network is compiled with several compilers, and the result whose calls are fastest is taken.

Speedups compare the best with the best: the original with the compiler that is fastest for it, and a network with its own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from itertools import cycle
from typing import TYPE_CHECKING, Any, Literal

from pydantic import ConfigDict, field_validator

from syno.base.core_locks import alone
from syno.base.errors import LoweringError, first_line
from syno.base.validation import Settings
from syno.measure.job import Job
from syno.measure.timing import LatencySettings
from syno.measure.tuning_record import CompilerChoice
from syno.measure.turns import in_turns

if TYPE_CHECKING:
    import torch

INPUTS = 4  # different inputs in the comparison, so that no compiler profits from one input in the cache
COMPARISON = LatencySettings(warm_up_ms=20, least_repeats=8, least_ms=80)  # of the choice, not of the measurement


class FastestSettings(Settings):
    """The compilers among which the compiler `fastest` chooses for each network."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)
    compilers: tuple[str, ...] | Literal["auto"] = "auto"
    """names of compilers; auto: on the CPU openvino, onnxruntime, native and inductor, as far as they are installed"""

    @field_validator("compilers")
    @classmethod
    def _is_not_empty(cls, compilers: tuple[str, ...] | Literal["auto"]) -> tuple[str, ...] | Literal["auto"]:
        if not compilers or "fastest" in compilers:
            raise ValueError(f"it is {list(compilers)}; give compilers to choose among, such as [openvino, native]")
        return compilers


def compile_fastest(job: Job, compilers: Mapping[str, Callable[[Job], Callable[..., Any]]]) -> Callable[..., Any]:
    """Return the module of a job, compiled by the compiler with which a call is fastest, and note the choice in the job.

    A compiler that is not installed, fails, or computes something else is left out; the choice says why.

    Args:
        job: the job. Its output check is applied to each compiled module.
        compilers: functions that compile a job, by the names of the compilers.

    Raises LoweringError if none of the compilers compiles the module; the message has the reason of each.
    """
    compiled: dict[str, Callable[..., Any]] = {}
    notes: dict[str, dict[str, Any]] = {}
    failures: dict[str, str] = {}
    for name, compile_job in compilers.items():
        notes[name] = {}
        try:
            made = compile_job(replace(job, note=notes[name].update))
            made(*job.example)
            job.check.require(job.check.of(made))
            compiled[name] = made
        except Exception as error:  # compilers raise anything
            failures[name] = first_line(error)
    if not compiled:
        reasons = "; ".join(f"{name}: {reason}" for name, reason in failures.items())
        raise LoweringError(f"none of the compilers compiles it: {reasons}")
    inputs = cycle([job.make_inputs() for _ in range(INPUTS)])
    calls = [partial(_call, made, inputs) for made in compiled.values()]
    job.begin("waiting")
    with alone(job.device):
        job.begin("measuring")
        turns = in_turns(calls, COMPARISON)
    times = {name: latency.value for name, latency in zip(compiled, turns.latencies, strict=True)}
    winner = min(times, key=times.__getitem__)
    job.note(**notes[winner], choice=CompilerChoice(compiler=winner, latencies_ms=times, failures=failures))
    return compiled[winner]


def _call(function: Callable[..., Any], inputs: Iterator[tuple[torch.Tensor, ...]]) -> None:
    function(*next(inputs))
