"""The report of `lowering.py` as Markdown."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median

import reports
from cases import Skipped
from measuring import BOTH, COMPILED, FORWARD, FUSED, LAYER, LITERAL, PASSES, Result

NONE = "–"
NOISE = 0.97  # below this ratio literal / fused, fused counts as slower
REQUIRED = {FORWARD: 5.0, BOTH: 3.0}  # literal / fused, of Operator 1 at the shape below
REQUIRED_SHAPE = "64->64 56x56"
OPERATOR_1 = ("operator_1", "published_07889")
REQUIRED_BATCH = 8


def number(value: float) -> str:
    """Three digits or more, no exponent."""
    return f"{value:.{0 if value >= 100 else 1 if value >= 10 else 2 if value >= 1 else 3}f}"


def table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A Markdown table; all columns but the first two are numbers."""
    return "\n".join(reports.table(columns, rows, left=2))


def variants(results: Sequence[Result]) -> list[str]:
    """The columns that some row has an entry for."""
    present = {cell[0] for result in results for cell in result.times_ms} | {name for row in results for name in row.failures}
    return [name for name in (LITERAL, FUSED, COMPILED, LAYER) if name in present]


def times(results: Sequence[Result], kind: str) -> str:
    """One row per operator and shape: milliseconds of every variant, and the ratios."""
    shown = variants(results)
    ratios = [(LITERAL, FUSED), (LAYER, FUSED), *([(FUSED, COMPILED)] if COMPILED in shown else [])]
    columns = ["operator", "shape", *(f"{name}, ms" for name in shown), *(f"{above} / {below}" for above, below in ratios)]
    rows = []
    for result in results:
        cells = [_time(result.times_ms.get((name, kind))) for name in shown]
        quotients = [result.ratio(above, below, kind) for above, below in ratios]
        rows.append([*_name(result), *cells, *(NONE if value is None else number(value) for value in quotients)])
    return table(columns, rows)


def memory(results: Sequence[Result]) -> str:
    """One row per operator and shape: FLOPs, parameters, and MiB at the peak of both passes."""
    shown = variants(results)
    cost = ["MFLOPs", "of the layer", "parameters", "of the layer"]
    columns = ["operator", "shape", *cost, *(f"{name}, {kind}, MiB" for kind in PASSES for name in shown)]
    rows = []
    for result in results:
        flops = [NONE if value is None else number(value / 1e6) for value in (result.flops, result.layer_flops)]
        parameters = [NONE if value is None else f"{value:,}" for value in (result.parameters, result.layer_parameters)]
        peaks = [result.peaks.get((name, kind)) for kind in PASSES for name in shown]
        megabytes = [NONE if peak is None else number(peak / 2**20) for peak in peaks]
        rows.append([*_name(result), flops[0], flops[1], *parameters, *megabytes])
    return table(columns, rows)


def _name(result: Result) -> list[str]:
    return [result.case.operator.label, result.case.label]


def _time(rounds: Sequence[float] | None) -> str:
    if not rounds:
        return NONE
    spread = f" ({number(min(rounds))}..{number(max(rounds))})" if len(rounds) > 1 else ""
    return number(median(rounds)) + spread


def failures(results: Sequence[Result]) -> list[str]:
    """A line for each variant that failed or computes something else."""
    return [f"- {' '.join(_name(result))}, {name}: {reason}" for result in results for name, reason in result.failures.items()]


def skipped(entries: Sequence[Skipped]) -> list[str]:
    """A line for each shape that an operator cannot have."""
    return [f"- {entry.operator.label} {entry.shape}: {entry.reason}" for entry in entries]


def requirement(results: Sequence[Result], batch: int) -> list[str]:
    """What the project asks of Operator 1, and what was measured."""
    measured = [result for result in results if result.case.operator.name in OPERATOR_1 and result.case.label == REQUIRED_SHAPE]
    if not measured or batch != REQUIRED_BATCH:
        return [f"- Operator 1 {REQUIRED_SHAPE} at batch {REQUIRED_BATCH}: not measured in this run"]
    lines = []
    for result in measured:
        found = {kind: result.ratio(LITERAL, FUSED, kind) for kind in PASSES}
        parts = [
            f"{kind} {NONE if ratio is None else number(ratio)} (required {REQUIRED[kind]:g}{_missed(ratio, kind)})"
            for kind, ratio in found.items()
        ]
        lines.append(f"- Operator 1 {REQUIRED_SHAPE} ({result.case.operator.name}): literal/fused {', '.join(parts)}")
    return lines


def _missed(ratio: float | None, kind: str) -> str:
    return "" if ratio is not None and ratio >= REQUIRED[kind] else ": not met"


def slower(results: Sequence[Result]) -> list[str]:
    """A line for each row and pass in which the fused form took longer than the literal one."""
    lines = []
    for result in results:
        for kind in PASSES:
            ratios = result.ratios(LITERAL, FUSED, kind)
            if ratios and median(ratios) < NOISE:
                rounds = sum(ratio < NOISE for ratio in ratios)
                lines.append(
                    f"- {' '.join(_name(result))}, {kind}: literal/fused {number(median(ratios))}, "
                    f"slower in {rounds} of {len(ratios)} rounds"
                )
    return lines or [f"- none (none of {len(results)} rows has a ratio below {NOISE})"]
