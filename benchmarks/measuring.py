"""Times and peak memory of one operator: as literal, fused and compiled code, and of the layer that it replaces."""

from __future__ import annotations

import json
import os
import signal
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from math import prod
from pathlib import Path
from statistics import median

import torch
from cases import Case
from torch import Tensor, nn
from torch.utils.benchmark import Timer

from syno.lower.choose import plan
from syno.measure.output_check import relative_error
from syno.model import build

LITERAL, FUSED, COMPILED, LAYER = "literal", "fused", "fused + compile", "layer"
FORWARD, BOTH = "forward", "forward and backward"
PASSES = (FORWARD, BOTH)
TOLERANCE = 1e-4  # of the largest absolute value: what literal and fused code may differ by in float32
SLOWEST = 10  # times `seconds`: a cell that has taken longer has no further rounds
os.environ.setdefault("KINETO_LOG_LEVEL", "99")  # else the profiler writes two lines to standard error at each use

Step = Callable[[], object]


@dataclass(frozen=True)
class Settings:
    """How to measure. `seconds` is the time for one cell of the table, over all rounds (but at least one call in each)."""

    device: str
    threads: int
    rounds: int
    seconds: float
    compile_seconds: float | None  # None: not compiled


@dataclass
class Result:
    """A row. Times and peaks are by variant and pass; a variant that has none is missing or has a reason in `failures`.

    `wrong` says that the literal or fused form failed, or that some form computes different numbers.
    """

    case: Case
    flops: int = 0
    parameters: int = 0
    layer_flops: int | None = None
    layer_parameters: int | None = None
    times_ms: dict[tuple[str, str], list[float]] = field(default_factory=dict)  # one per round: the round's median
    peaks: dict[tuple[str, str], int] = field(default_factory=dict)  # bytes
    failures: dict[str, str] = field(default_factory=dict)
    wrong: bool = False

    def ratios(self, above: str, below: str, kind: str) -> list[float]:
        """How many times longer `above` took than `below`, in each round; empty if one of them was not measured."""
        pairs = zip(self.times_ms.get((above, kind), []), self.times_ms.get((below, kind), []), strict=False)
        return [first / second for first, second in pairs]

    def ratio(self, above: str, below: str, kind: str) -> float | None:
        """The median of `ratios`."""
        return median(found) if (found := self.ratios(above, below, kind)) else None


class DisagreementError(Exception):
    """Two forms of an operator that compute different numbers."""


class CompileTimeoutError(BaseException):  # not an Exception: the compiler catches those and goes on
    """The compiler took too long."""


def measure(case: Case, settings: Settings) -> Result:
    """All variants of one operator at one shape. What fails is told in the result's `failures`."""
    torch.manual_seed(0)
    chosen = plan(case.graph, case.values)
    result = Result(case, chosen.flops(), chosen.parameters(chosen.valuations[0]))
    before, after = case.shapes
    x = torch.randn(before, device=settings.device, requires_grad=True)
    gradient = torch.randn(after, device=settings.device)
    modules: dict[str, nn.Module] = {
        mode: build(case.graph, case.values, mode=mode, seed=0, device=settings.device) for mode in (LITERAL, FUSED)
    }
    modules[FUSED].load_state_dict(modules[LITERAL].state_dict())
    layer = replaced_layer(before, after)
    if layer is not None:
        modules[LAYER] = layer.to(settings.device)
        _gradients(layer, x, gradient)  # a warm-up, as the check of the others is
        result.layer_parameters = sum(weight.numel() for weight in layer.parameters())
        result.layer_flops = result.layer_parameters * prod(before) // before[1 if len(before) == 4 else -1]
    try:
        require_agreement(modules[LITERAL], modules[FUSED], x, gradient)
    except DisagreementError as error:
        result.failures[FUSED], result.wrong = str(error), True
    if settings.compile_seconds is not None:
        _add_compiled(modules, result, x, gradient, settings.compile_seconds)
    steps = {(name, kind): _step(module, kind, x, gradient) for name, module in modules.items() for kind in PASSES}
    result.peaks = {cell: peak_memory_bytes(step, settings.device) for cell, step in steps.items()}
    result.times_ms = interleaved_times_ms(steps, settings)
    return result


def replaced_layer(before: list[int], after: list[int]) -> nn.Module | None:
    """The layer that turns the one shape into the other: a 3x3 convolution, or a linear layer for sequences."""
    if len(before) != 4:
        return nn.Linear(before[-1], after[-1], bias=False)
    if [before[0], *before[2:]] == [after[0], *after[2:]]:
        return nn.Conv2d(before[1], after[1], 3, padding=1, bias=False)
    return None


def _step(module: nn.Module, kind: str, x: Tensor, gradient: Tensor) -> Step:
    """One call: without gradients, or with those of the input and of all weights."""
    if kind == FORWARD:
        return lambda: _forward(module, x)
    given = torch.empty_like(_forward(module, x)).copy_(gradient)  # laid out as the result is: so an activation hands it on
    return lambda: _gradients(module, x, given)


def _forward(module: nn.Module, x: Tensor) -> Tensor:
    with torch.no_grad():
        return module(x)


# ---- whether they compute the same ------------------------------------------------------------------------------


def require_agreement(first: nn.Module, second: nn.Module, x: Tensor, gradient: Tensor) -> None:
    """Raise DisagreementError if outputs, or gradients of the input or of a weight, differ by more than TOLERANCE."""
    names = ["output", "gradient of the input", *(f"gradient of {name}" for name, _ in first.named_parameters())]
    tensors = [[_forward(module, x), *_gradients(module, x, gradient)] for module in (first, second)]
    for name, one, other in zip(names, *tensors, strict=True):
        difference = relative_error(other, one)
        if not difference <= TOLERANCE:
            raise DisagreementError(f"disagrees: {name} by {difference:.1e} of its largest value, allowed is {TOLERANCE:.0e}")


def _gradients(module: nn.Module, x: Tensor, gradient: Tensor) -> tuple[Tensor, ...]:
    return torch.autograd.grad(module(x), [x, *module.parameters()], gradient)


def _add_compiled(modules: dict[str, nn.Module], result: Result, x: Tensor, gradient: Tensor, seconds: float) -> None:
    """Enter the fused module, compiled, or the reason why it could not be."""
    torch.compiler.reset()
    compiled = torch.compile(modules[FUSED], dynamic=False)
    try:
        with _time_limit(seconds):
            require_agreement(modules[LITERAL], compiled, x, gradient)
        modules[COMPILED] = compiled
    except CompileTimeoutError:
        result.failures[COMPILED] = f"not compiled within {seconds:g} s"
    except DisagreementError as error:
        result.failures[COMPILED], result.wrong = str(error), True
    except Exception as error:
        result.failures[COMPILED] = f"{type(error).__name__}: {str(error).strip().splitlines()[0]}"


@contextmanager
def _time_limit(seconds: float) -> Iterator[None]:
    def stop(number: int, frame: object) -> None:
        raise CompileTimeoutError

    previous = signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, previous)


# ---- time and memory --------------------------------------------------------------------------------------------


def interleaved_times_ms(steps: dict[tuple[str, str], Step], settings: Settings) -> dict[tuple[str, str], list[float]]:
    """Every step in turn, `rounds` times, so that what slows the machine down for a while slows all of them down."""
    timers = {cell: Timer("step()", globals={"step": step}, num_threads=settings.threads) for cell, step in steps.items()}
    times: dict[tuple[str, str], list[float]] = {cell: [] for cell in steps}
    for _ in range(settings.rounds):
        for kind in PASSES:
            for cell, timer in timers.items():
                if cell[1] == kind and sum(times[cell]) < 1e3 * SLOWEST * settings.seconds:
                    times[cell].append(_time_ms(timer, settings.seconds / settings.rounds))
    return times


def _time_ms(timer: Timer, seconds: float) -> float:
    """The time of one call if that takes longer than `seconds`, else the median over as many as fit in."""
    once = float(timer.timeit(1).median)
    return 1e3 * (once if once >= seconds else float(timer.blocked_autorange(min_run_time=seconds).median))


def peak_memory_bytes(step: Step, device: str) -> int:
    """The most that `step` has allocated at any time, its result included; what was there before it does not count."""
    if device == "cuda":
        torch.cuda.synchronize()
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        step()
        torch.cuda.synchronize()
        return int(torch.cuda.max_memory_allocated() - before)
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], profile_memory=True) as profiler:
        kept = step()
    del kept
    peak = allocated = 0
    for change in _allocations(profiler):
        allocated += change
        peak = max(peak, allocated)
    return peak


def _allocations(profiler: torch.profiler.profile) -> list[int]:
    """Bytes allocated (or freed: negative) on the CPU, in order of time."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "trace.json"
        profiler.export_chrome_trace(str(file))
        trace = json.loads(file.read_text(encoding="utf-8"))
    events = [event for event in trace["traceEvents"] if event.get("name") == "[memory]"]
    return [int(event["args"]["Bytes"]) for event in sorted(events, key=lambda event: event["ts"])]
