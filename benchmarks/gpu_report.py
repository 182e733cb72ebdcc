"""The report of what was measured on a GPU, as Markdown."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import reports
import training
from gpu_rows import GOOD, ORIGINAL, Row

MOST_DATA = 0.05  # the share of a step that loading may take
NAMES = {
    "machine": "Machine", "gpu": "GPU", "memory": "memory", "capability": "compute capability", "driver_version": "driver",
    "clocks.sm": "clock at the start", "clocks.max.sm": "highest clock", "power.limit": "power limit",
    "temperature.gpu": "°C", "utilization.gpu": "load at the start",
}  # fmt: skip
VERSIONS = ("python", "syno", "commit", "torch", "cuda", "cudnn", "triton")
Kept = Mapping[str, Any]  # a row of the file


def report(
    about: Mapping[str, str], command: str, kept: Mapping[str, Kept], rows: Sequence[Row], *, pretended: bool
) -> list[str]:
    """The lines of the report: all rows in the file, ordered as `rows`, and which of these it has not."""
    places = {row.key: place for place, row in enumerate(rows)}
    kept = {key: kept[key] for key in sorted(kept, key=lambda key: places.get(key, len(places)))}
    lines = [*heading(about, command, kept, pretended=pretended)]
    sections = {
        name: {key: one for key, one in kept.items() if one["section"] == name} for name in ("tests", "training", "latency")
    }
    lines += tests(sections["tests"].values())
    lines += trainings(sections["training"].values())
    lines += latencies(sections["latency"].values())
    said = {key: f"- {one['title']}: {one['status']}: {_one_line(one['reason'])}" for key, one in kept.items()}
    failed = [said[key] for key, one in kept.items() if one["status"] not in GOOD]
    if failed:
        lines += ["", "## Failed", "", *failed]
    missing = [f"- {row.title}" for row in rows if row.key not in kept]
    if missing:
        lines += ["", "## Not measured", "", "No time was left for these; the same command measures them next.", "", *missing]
    skipped = [said[key] for key, one in kept.items() if one["status"] == "skipped"]
    if skipped:
        lines += ["", "## Not possible here", "", *skipped]
    return lines


def heading(about: Mapping[str, str], command: str, kept: Mapping[str, Kept], *, pretended: bool) -> list[str]:
    """The title, when and where rows were measured, and with what."""
    dates = sorted(one["date"] for one in kept.values()) or ["nothing"]
    details = [f"{NAMES[name]} {about[name]}" for name in NAMES if name in about and name not in ("machine", "gpu")]
    lines = ["# A pretended GPU" if pretended else f"# {about['gpu']}", ""]
    if pretended:
        lines += ["**Pretended: the program ran on the CPU in miniature, to try it. Its numbers say nothing of any GPU.**", ""]
    return [
        *lines,
        f"- Date: {dates[0]}" + (f" to {dates[-1]}" if dates[-1] != dates[0] else ""),
        f"- GPU: {', '.join([about['gpu'], *details])}",
        f"- Machine: {about['machine']}",
        f"- Versions: {', '.join(f'{name} {about[name]}' for name in VERSIONS if name in about)}",
        f"- Command: `python {command}`",
    ]


def tests(kept: Iterable[Kept]) -> list[str]:
    """The outcome of each test."""
    found = [test for one in kept for test in one["values"].get("tests", [])]
    if not found:
        return []
    counts = {outcome: sum(test["outcome"] == outcome for test in found) for outcome in ("PASS", "FAIL", "SKIP")}
    cells = [[test["test"], test["outcome"], _one_line(test["note"]), f"{test['seconds']:.1f}"] for test in found]
    numbers = f"{counts['PASS']} passed, {counts['FAIL']} failed, {counts['SKIP']} skipped."
    return ["", "## Tests", "", numbers, "", *reports.table(["test", "outcome", "note", "seconds"], cells, left=3)]


def trainings(kept: Iterable[Kept]) -> list[str]:
    """Speeds of trainings, original and operator in turns, and the shares of loading data."""
    found = [
        (title, training.Speeds(**speeds), one["about"]["arguments"])
        for one in kept
        for title, speeds in one["values"].get("rows", {}).items()
    ]
    if not found:
        return []
    cells = [[title, f"`{arguments}`", *speeds.cells] for title, speeds, arguments in found]
    below = sum(speeds.data_share < MOST_DATA for _, speeds, _ in found)
    return [
        *["", "## Training", ""],
        "Forward, backward and the optimizer's step; the original and the operator in turns, in one run of",
        "`benchmarks/training.py` with these arguments. data: what making a batch takes with nothing beside it, as a share of",
        "the original's step; waiting: the share of the original's training in which it asked for a batch; host: the most",
        "memory of the machine that the run had by then, all processes added up: what to ask a cluster for.",
        *["", f"Data takes less than {MOST_DATA:.0%} of a step in {below} of {len(found)} rows.", ""],
        *reports.table([training.COLUMNS[0], "arguments", *training.COLUMNS[1:]], cells, left=2),
    ]


def latencies(kept: Iterable[Kept]) -> list[str]:
    """Tables of latencies, one for each batch and for TF32 on or off."""
    found = [one for one in kept if one["status"] == "ok"]
    lines: list[str] = []
    for batch, tf32 in sorted({(one["about"]["batch"], one["about"]["tf32"]) for one in found}):
        here = [one for one in found if (one["about"]["batch"], one["about"]["tf32"]) == (batch, tf32)]
        compilers = list(dict.fromkeys(one["about"]["compiler"] for one in here))
        by_place = {tuple(one["about"][name] for name in ("network", "operator", "compiler")): one["values"] for one in here}
        cells = [
            [network, operator, *(_latency(by_place, network, operator, compiler) for compiler in compilers)]
            for network, operator in dict.fromkeys(place[:2] for place in by_place)
        ]
        columns = ["network", "operator", *compilers]
        lines += ["", f"## Latency, batch {batch}, float32, TF32 {'on' if tf32 else 'off'}", ""]
        lines += reports.table(columns, cells, left=2)
    if lines:
        lines += [
            "",
            "Milliseconds by the GPU's events: the median and its 95 % interval; in brackets how many times faster than the",
            "original with the same compiler. Each was measured in a process of its own, and its outputs were compared with",
            "double precision on the CPU. Operators stand in the layers of the rule `paper`. GPT-2 has batch 1 only: the",
            "logits of 128 sequences take 53 GB. `!`: faster than the GPU's own peak, so not to be trusted.",
        ]
    return lines


def _latency(found: Mapping[tuple[str, ...], Kept], network: str, operator: str, compiler: str) -> str:
    one, base = found.get((network, operator, compiler)), found.get((network, ORIGINAL, compiler))
    if one is None:
        return "–"
    text = f"{one['latency_ms']:.4g} [{one['latency_low_ms']:.4g}, {one['latency_high_ms']:.4g}]{'!' * one['suspicious']}"
    return text if operator == ORIGINAL or base is None else f"{text} ({base['latency_ms'] / one['latency_ms']:.2f}x)"


def _one_line(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return (lines[-1] if lines else "").replace("|", "\\|")[:300]
