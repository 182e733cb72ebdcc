"""The breakdown of a network's time: the replaced layers, original and with an operator, and the rest of the network."""

from __future__ import annotations

import ast
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from statistics import median
from types import CodeType, FrameType
from typing import TYPE_CHECKING, Any, Self

import torch
from pydantic import AwareDatetime, BaseModel, ConfigDict, model_validator

from syno.base.core_locks import alone
from syno.base.record import Amount
from syno.measure.latency import pinned
from syno.measure.network_subject import BackboneSubject
from syno.measure.output_check import Inputs
from syno.measure.speedup_measuring import layers_of
from syno.measure.speedup_record import SpeedupRecord
from syno.measure.timing import LatencySettings
from syno.measure.tuning_record import Line, MeasuredSubject, MeasurementRecord, in_ms
from syno.model.module import OperatorModule

if TYPE_CHECKING:
    from syno.measure.speedups import Speedups
    from syno.model.replacements import AnyOperator


# Shares of the statements of `forward` in the time of an operator's generated module. Each line is timed by Python's tracing.
# This does not apply to compiled code, where one kernel may do the work of several lines.
#
# >>> shares = stage_shares(module, (x,), LatencySettings())
# >>> [(part.name, round(part.share, 2)) for part in shares]
# [('conv2d', 0.31), ('conv2d', 0.62), ('other', 0.07)]


LEAST_SHARE = 0.02  # of the layer's time: shorter statements are summed as "other"
OTHER, POOLING, WEIGHTS = "other", "pooling", "weights"
NAMES = {"prepared_weights": WEIGHTS, "dim": OTHER}  # of calls that are no functions of torch


class StageTime(BaseModel):
    """The share of one statement of an operator's code in the time of its layer.

    Attributes:
        name: the function that the statement calls, such as "conv2d"; "weights" for computations on weights alone; "pooling"
            for the pooling by the layer's stride before the operator; "other" for the sum of all short statements.
        code: the statement; "" for "pooling" and "other".
        share: share of the layer's time.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")
    name: str
    code: str = ""
    share: Amount


def stage_shares(layer: torch.nn.Module, inputs: Inputs, settings: LatencySettings) -> tuple[StageTime, ...]:
    """Return the shares of an operator's statements in the time of its layer, in their order; they add up to 1.

    () if the layer contains no operator's generated module.

    Args:
        layer: an operator's module, or one with a pooling before it.
        inputs: an input of the layer.
        settings: after a warm-up of `warm_up_ms`, `least_repeats` calls are timed. A share is the median over the calls.
    """
    operator = next((one for one in layer.modules() if isinstance(one, OperatorModule)), None)
    if operator is None:
        return ()
    is_on_gpu = any(one.is_cuda for one in operator.parameters())
    code, statements = operator.forward.__func__.__code__, _statements(operator.source)

    def call() -> None:
        layer(*inputs)

    ready = time.perf_counter() + settings.warm_up_ms / 1e3
    call()
    while time.perf_counter() < ready:
        call()
    times = [_traced(call, code, statements, is_on_gpu) for _ in range(settings.least_repeats)]
    shares = [median(of[place] / sum(of) for of in times) for place in range(len(statements) + 1)]
    return _parts(statements, [share / sum(shares) for share in shares], is_pooled=operator is not layer)


def _parts(statements: Sequence[ast.stmt], shares: Sequence[float], *, is_pooled: bool) -> tuple[StageTime, ...]:
    """Return the parts of a layer's time from the shares of its statements; the last share is that of the code around."""
    parts = [(_name(statement), ast.unparse(statement), share) for statement, share in zip(statements, shares, strict=False)]
    around = (POOLING if is_pooled else OTHER, "", shares[-1])
    shown = [part for part in (around, *parts) if part[2] >= LEAST_SHARE and part[0] != OTHER]
    rest = 1.0 - sum(share for _, _, share in shown)
    found = [StageTime(name=name, code=text, share=share) for name, text, share in shown]
    return (*found, StageTime(name=OTHER, share=max(0.0, rest)))


def _statements(source: str) -> list[ast.stmt]:
    """Return the statements of `forward` in the source of an operator's module."""
    functions = [node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.FunctionDef)]
    return next(node for node in functions if node.name == "forward").body


def _name(statement: ast.stmt) -> str:
    """Return the name of the outermost function that an assignment calls; "other" for checks and sizes."""
    if not isinstance(statement, ast.Assign | ast.AugAssign):
        return OTHER
    for node in ast.walk(statement.value):
        if isinstance(node, ast.Call):
            called = node.func.attr if isinstance(node.func, ast.Attribute) else ast.unparse(node.func)
            return NAMES.get(called, called)
    return "arithmetic" if any(isinstance(node, ast.BinOp) for node in ast.walk(statement)) else OTHER


def _traced(call: Callable[[], object], code: CodeType, statements: Sequence[ast.stmt], is_on_gpu: bool) -> list[float]:
    """Return the seconds that each statement takes in one call, and those of the code before the first and after the last."""
    seconds = [0.0] * (len(statements) + 1)
    at = {line: place for place, one in enumerate(statements) for line in range(one.lineno, (one.end_lineno or one.lineno) + 1)}
    now, since = len(statements), 0.0

    def clock() -> float:
        if is_on_gpu:
            torch.cuda.synchronize()
        return time.perf_counter()

    def line(frame: FrameType, event: str, _: Any) -> Any:
        nonlocal now, since
        reached = clock()
        seconds[now] += reached - since
        now = at.get(frame.f_lineno, now) if event == "line" else len(statements)
        since = clock()
        return line

    def enter(frame: FrameType, event: str, _: Any) -> Any:
        return line if frame.f_code is code else None

    before = sys.gettrace()
    sys.settrace(enter)
    since = clock()
    try:
        call()
    finally:
        sys.settrace(before)
    seconds[now] += clock() - since
    return seconds


BY_STATEMENT = "eager"  # the compiler with which each statement runs by itself


class BreakdownRecord(MeasurementRecord):
    """The breakdown of a network's time, for the original and for the network with an operator.

    Attributes:
        speedup: the times of each size of the replaced layers, original and operator measured in turns, and the time of the
            rest of the network; or the reason why they are not known.
        stages: for each size, the shares of the operator's statements in the layer's time. Empty for compilers that fuse them,
            and for module baselines.
        date: the time of its creation, UTC.
    """

    kind_of_record = "record of where the time goes"
    again = "run `syno tune breakdown`"
    passing = frozenset({"date"})

    operator_id: str  # the original is measured beside each operator
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

    @property
    def measured(self) -> tuple[MeasuredSubject, ...]:
        """The measured subject: the original network, with the settings of the measurement."""
        return self.speedup.measured

    @property
    def has_failed(self) -> bool:
        """Whether the speedup, and with it the breakdown, is not known."""
        return self.speedup.ratio is None

    def lines(self, place: str) -> Iterator[Line]:
        """Yield a line for each size of the layers, with the shares of the operator's statements, and a line for the rest."""
        found, here = self.speedup, f"{self.name}, {place}"
        if self.has_failed:
            yield Line(f"{here}: {found.status}: {found.reason}", is_problem=True)
            return
        for number, layer in enumerate(found.layers):
            stages = self.stages[number] if self.stages else ()
            before, after = (
                in_ms(layer.original_ms.value, layer.original_limit_ms),
                in_ms(layer.latency_ms.value, layer.limit_ms),
            )
            shares = "".join(f", {stage.name} {100 * stage.share:.0f} %" for stage in stages)
            yield Line(f"{here}, {layer.count} x {layer.name}: {before} before, {after} after{shares}")
        yield Line(f"{here}, the rest: {found.rest_ms:.4g} ms")

    @classmethod
    def make(cls, operator: AnyOperator, speedup: SpeedupRecord, speedups: Speedups) -> Self:
        """Return the record of an operator whose speedup was measured by layers, after measuring the shares of its stages.

        Args:
            operator: the operator.
            speedup: the record of its speedup.
            speedups: the measurement that made this record.
        """
        is_known = speedup.layers and speedups.compiler == BY_STATEMENT and speedups.remote is None
        return cls(
            name=operator.name,
            operator_id=operator.id,
            speedup=speedup,
            stages=_stages(operator, speedups) if is_known else (),
            date=datetime.now(UTC),
        )


def _stages(operator: AnyOperator, speedups: Speedups) -> tuple[tuple[StageTime, ...], ...]:
    """Return the shares of the operator's stages in each size of the layers; () if it is a module baseline."""
    subject, settings, found = speedups.network, speedups.settings, []
    assert isinstance(subject, BackboneSubject)
    for name in layers_of(subject).names:
        changed = subject.model_copy(update={"operator": str(operator), "layer": name})
        material = changed.make(speedups.device, settings.batch)
        given = material.make_inputs()
        with torch.no_grad(), pinned(settings), alone(speedups.device):
            found.append(stage_shares(material.module, given, settings))
    return tuple(found) if all(found) else ()
