"""Literal against fused PyTorch code, with and without torch.compile, and against the layers that operators replace.

    python benchmarks/lowering.py --output docs/measured/lowering-known-operators.md
    python benchmarks/lowering.py --operators operator_1,conv2d --shapes 64,64,56 --compile

The report goes to standard output, and to the file `--output`; progress goes to standard error. The published
operators are measured too if the environment variable SYNO_ARTIFACT names the data folder of the paper's artifact.
Exit status: 0; 1 if some operator failed or its forms disagree; 2 for wrong arguments.
"""

from __future__ import annotations

import argparse
import os
import platform
import shlex
import sys
import time
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from pathlib import Path

import tables
import torch
from cases import ARTIFACT, STAGES, TRANSITIONS, Case, Layer, Operator, Skipped, artifact_folder, cases, operators
from measuring import BOTH, COMPILED, FORWARD, FUSED, LAYER, LITERAL, PASSES, SLOWEST, TOLERANCE, Result, Settings, measure

import syno
from syno.base.errors import SynoError
from syno.base.files import write_whole
from syno.measure.machine import processor

MEMORY_ON_CPU = "the allocations and frees that `torch.profiler` records (`profile_memory=True`) in one call"
MEMORY_ON_CUDA = "`torch.cuda.max_memory_allocated` of one call"


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, print and write the report; the exit status."""
    parser = _parser()
    options = parser.parse_args(arguments)
    if options.device == "cuda" and not torch.cuda.is_available():
        parser.error("--device cuda: torch finds no GPU here")
    try:
        layers = [Layer.parse(text) for text in options.shapes] if options.shapes else list(STAGES)
        chosen = operators(artifact_folder(), [name for name in options.operators.split(",") if name])
    except (SynoError, ValueError) as error:
        parser.error(str(error))
    layers += TRANSITIONS if options.transitions else ()
    torch.set_num_threads(options.threads)
    torch.backends.cudnn.allow_tf32 = False  # it is off for matrix products anyway, and its rounding is no disagreement
    start = _start(options)
    results, skipped = _measure_all(_all_cases(chosen, layers, options), options)
    report = _report(start, results, skipped, options)
    print(report)
    if options.output:
        write_whole(options.output, report)
    return 1 if any(result.wrong for result in results) else 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    add = parser.add_argument
    add("--operators", default="", metavar="A,B", help="names of library operators and of published ones; default: all")
    add("--shapes", nargs="+", metavar="C_IN,C_OUT,H", help="layers; default: the four stages of ResNet-18")
    add("--transitions", action="store_true", help="also the layers between ResNet-18's stages")
    add("--batch", type=_positive, default=8, help="default: %(default)s")
    add("--rounds", type=_positive, default=9, help="how often all variants are timed in turn; default: %(default)s")
    add("--seconds", type=float, default=1.0, help="time per cell of the table, over all rounds; default: %(default)s")
    add("--compile", action="store_true", help="also time the fused form under torch.compile (slow to compile on a CPU)")
    add("--compile-seconds", type=float, default=300.0, help="time limit for compiling one operator; default: %(default)s")
    add("--device", choices=("cpu", "cuda"), default="cpu", help="default: %(default)s")
    add("--threads", type=_positive, default=1, help="default: %(default)s")
    add("--output", type=Path, metavar="FILE", help="where to write the report")
    return parser


def _positive(text: str) -> int:
    if not text.isdecimal() or not int(text):
        raise argparse.ArgumentTypeError(f'"{text}" is no positive number')
    return int(text)


def _all_cases(chosen: Iterable[Operator], layers: Sequence[Layer], options: argparse.Namespace) -> list[Case | Skipped]:
    own_layer = not options.shapes
    return [case for operator in chosen for case in cases(operator, layers, options.batch, own_layer=own_layer)]


def _measure_all(entries: Sequence[Case | Skipped], options: argparse.Namespace) -> tuple[list[Result], list[Skipped]]:
    """One line of progress for each row. An operator that raises becomes a row with the error, not the end."""
    limit = options.compile_seconds if options.compile else None
    settings = Settings(options.device, options.threads, options.rounds, options.seconds, limit)
    todo = [entry for entry in entries if isinstance(entry, Case)]
    results = []
    for position, case in enumerate(todo, 1):
        began = time.perf_counter()
        try:
            result = measure(case, settings)
        except Exception as error:
            result = Result(case, failures={FUSED: f"{type(error).__name__}: {error}"}, wrong=True)
        results.append(result)
        seconds = time.perf_counter() - began
        print(f"[{position}/{len(todo)}] {_progress(result)} ({seconds:.1f} s)", file=sys.stderr, flush=True)
    return results, [entry for entry in entries if isinstance(entry, Skipped)]


def _progress(result: Result) -> str:
    ratios = [
        f"{kind} literal/fused {tables.number(ratio)}"
        for kind in PASSES
        if (ratio := result.ratio(LITERAL, FUSED, kind)) is not None
    ]
    parts = [*ratios, *(f"{name}: {reason}" for name, reason in result.failures.items())]
    return f"{result.case.operator.label} {result.case.label}: {'; '.join(parts)}"


# ---- the report -------------------------------------------------------------------------------------------------


def _start(options: argparse.Namespace) -> list[str]:
    """Lines on when, where and how, as of before the measurements."""
    artifact = artifact_folder()
    gpu = f"; GPU: {torch.cuda.get_device_name()}" if options.device == "cuda" else ""
    published = f"skipped, as {ARTIFACT} is not set" if artifact is None else "read from the paper's artifact"
    return [
        f"- Date: {datetime.now(UTC):%Y-%m-%d %H:%M} UTC",
        f"- Machine: {processor()}, {os.cpu_count()} logical cores, {_memory_gib():.0f} GiB{gpu}; "
        f"load average before the start {os.getloadavg()[0]:.2f}",
        f"- Versions: Python {platform.python_version()}, torch {torch.__version__}, syno {syno.__version__}",
        f"- Settings: {options.device}, {options.threads} thread{'s'[: options.threads != 1]}, float32, batch {options.batch} "
        f"(unless the shape says otherwise), {options.rounds} rounds, {options.seconds:g} s per cell; "
        f"{'compiled too' if options.compile else 'not compiled (--compile)'}",
        f"- Command: `{shlex.join(['python', *sys.orig_argv[1:]])}`",
        f"- Published operators: {published}",
    ]


def _method(options: argparse.Namespace) -> list[str]:
    memory = MEMORY_ON_CUDA if options.device == "cuda" else MEMORY_ON_CPU
    return [
        f"- `{LITERAL}`: each primitive as a torch view, each Share as einsum. `{FUSED}`: the default code. `{COMPILED}`: "
        f"that under `torch.compile`. `{LAYER}`: `nn.Conv2d(C_in, C_out, 3, padding=1, bias=False)`, for sequences "
        "`nn.Linear(bias=False)`; none where the picture's size changes.",
        f"- `{FORWARD}`: without gradients. `{BOTH}`: with those of the input and of all weights; the gradient that comes in "
        "has the memory layout of the result.",
        "- Times: all variants in turn, in rounds, after a warm-up; the median of the rounds' medians (least..most). "
        f"A cell that has taken more than {SLOWEST * options.seconds:g} s has no further rounds. Ratios are the median of "
        "the rounds' own ratios: above 1, what stands after the stroke is faster.",
        f"- Peak memory: {memory}, the result included; input and weights, which are there before, do not count.",
        "- One multiply-add counts as one FLOP.",
        f"- Before the timing, outputs and gradients of both forms agreed to {TOLERANCE:.0e} of their largest value, "
        "with the same weights, unless listed below.",
    ]


def _report(start: list[str], results: list[Result], skipped: list[Skipped], options: argparse.Namespace) -> str:
    sections = {
        "Lowering to PyTorch: literal and fused": [*start, *_method(options)],
        "Forward": [tables.times(results, FORWARD)],
        "Forward and backward": [tables.times(results, BOTH)],
        "Costs and peak memory": [tables.memory(results)],
        "Failed": tables.failures(results),
        "Not measured: sizes that do not fit": tables.skipped(skipped),
        "Required": tables.requirement(results, options.batch),
        "Slower in the fused form": tables.slower(results),
    }
    marks = ["#", *["##"] * (len(sections) - 1)]
    parts = [
        f"{mark} {title}\n\n{chr(10).join(lines)}"
        for mark, (title, lines) in zip(marks, sections.items(), strict=True)
        if lines
    ]
    return "\n\n".join(parts) + "\n"


def _memory_gib() -> float:
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30


if __name__ == "__main__":
    sys.exit(main())
