"""Distinct operators found by random walks, per CPU-second, with the shape distance and without.

python benchmarks/sampling.py --operators 100 1000 10000 --output docs/measured/sampling.md
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from random import Random

import reports
import yaml

from syno.base.collection import seldom_collected
from syno.space.presets import preset
from syno.space.sample import Sampler
from syno.space.space import Space
from syno.space.spec import OperatorSpec

REQUIRED = 40.0  # distinct operators per CPU-second over the first 1000, start included

# The published implementation on the same spec, measured on another machine: trials, distinct operators, CPU-seconds.
PUBLISHED = [
    ("with its distance", 100_000, 46, 87.0),
    ("with its distance", 1_000_000, 140, 323.0),
    ("with its distance", 5_000_000, 256, 646.0),
    ("without", 5_000_000, 21, 76.0),
]


@dataclass(frozen=True)
class Mark:
    """What had been found when a number of operators was reached, or time was up."""

    operators: int
    walks: int
    dead_ends: int
    duplicates: int
    seconds: float
    memory_mib: float


def spec_of(name: str, reads: str) -> OperatorSpec:
    """The paper's spec of a model, with a requirement if one is given."""
    spec = preset(name)
    return spec.with_(reads=yaml.safe_load(reads)) if reads else spec


def run(
    spec: OperatorSpec, marks: Sequence[int], seed: int, *, use_distance: bool = True, most_seconds: float
) -> tuple[float, list[Mark]]:
    """Draw until every mark is reached or the CPU-seconds are used up. Returns those of the start, and the marks."""
    begin = time.process_time()
    space = Space(spec, use_distance=use_distance)
    space.is_feasible(space.root)
    start = time.process_time() - begin
    sampler, reached, waiting = Sampler(space, Random(seed)), [], sorted(marks)
    begin = time.process_time()

    def mark() -> Mark:
        used = time.process_time() - begin + start
        count = len(sampler.operators)
        return Mark(count, sampler.walks, sampler.dead_ends, sampler.duplicates, used, reports.peak_memory_mib())

    with seldom_collected():
        while waiting and not sampler.is_exhausted and time.process_time() - begin < most_seconds:
            if sampler.draw() is not None and len(sampler.operators) == waiting[0]:
                waiting.pop(0)
                reached.append(mark())
                print(f"{spec.name}: {reached[-1]}", file=sys.stderr)
    return start, reached if not waiting else [*reached, mark()]


def walks(spec: OperatorSpec, count: int, seed: int) -> float:
    """The share of plain random walks, each from the start and whatever was found before, that end in an operator."""
    space, random = Space(spec), Random(seed)
    return sum(space.walk(space.root, random) is not None for _ in range(count)) / count


def rows(title: str, marks: Sequence[Mark]) -> list[list[str]]:
    """A row per mark."""
    return [
        [
            title,
            str(mark.operators),
            f"{mark.seconds:.1f}",
            f"{mark.operators / mark.seconds:.2f}",
            str(mark.walks),
            f"{100 * (1 - mark.dead_ends / max(mark.walks, 1)):.1f} %",
            str(mark.duplicates),
            f"{mark.memory_mib:.0f}",
        ]
        for mark in marks
    ]


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, print, and write the report if asked for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--spec", default="resnet18")
    parser.add_argument("--operators", nargs="+", type=int, default=[100, 1000])
    parser.add_argument("--without-seconds", type=float, default=60, help="CPU-seconds without the distance")
    parser.add_argument("--seconds", type=float, default=3600, help="CPU-seconds with it, at most")
    parser.add_argument("--walks", type=int, default=1000, help="plain walks, for the share that ends in an operator")
    parser.add_argument("--reads", default="", help="a requirement, with which it is measured as well, such as {H: 3}")
    parser.add_argument("--seed", type=int, default=0)
    options = reports.parse(parser, arguments)
    command = (
        f"benchmarks/sampling.py --spec {options.spec} --operators {' '.join(map(str, options.operators))} "
        f"--without-seconds {options.without_seconds:g} --walks {options.walks} --seed {options.seed}"
    ) + (f' --reads "{options.reads}"' if options.reads else "")
    plain = spec_of(options.spec, "")
    lines = reports.heading(f"Random sampling of {options.spec}'s space, depth {preset(options.spec).depth}", command)
    start, found = run(plain, options.operators, options.seed, most_seconds=options.seconds)
    table = rows("with the distance", found)
    shares = [f"{walks(plain, options.walks, options.seed):.1%} ended in an operator"]
    if options.reads:
        spec = spec_of(options.spec, options.reads)
        table += rows(
            f"that, and reads {options.reads}", run(spec, options.operators, options.seed, most_seconds=options.seconds)[1]
        )
        shares.append(f"{walks(spec, options.walks, options.seed):.1%} with the requirement")
    blind = run(plain, options.operators, options.seed, use_distance=False, most_seconds=options.without_seconds)[1]
    measured = ["CPU-seconds", "per CPU-second", "walks", "valid walks", "duplicates", "peak MiB"]
    columns = ["", "distinct operators", *measured]
    lines += [
        "- Distinct: by fingerprint, which is timed. The sampler does not draw again what it has found, nor dead ends it has "
        "met. CPU-seconds include the start; one process, one thread. Peak memory of the process, Python and libraries "
        "included; the rows were measured one after another in it.",
        f"- The start, once: {start:.2f} of these CPU-seconds.",
        f"- Of {options.walks} plain random walks, which remember nothing, {', '.join(shares)}.",
        f"- Required: {REQUIRED:g} distinct operators per CPU-second over the first 1000, start included.",
        "",
        *reports.table(columns, [*table, *rows("without", blind)]),
        "",
        "The published implementation (C++) on the same spec, measured on another machine, after 7 s of start:",
        "",
        *reports.table(
            ["", "trials", "distinct operators", "CPU-seconds", "per CPU-second"],
            [[title, f"{t:,}", str(n), f"{s:g}", f"{n / s:.2f}"] for title, t, n, s in PUBLISHED],
        ),
    ]
    reports.deliver(lines, options.output)
    return 0


if __name__ == "__main__":
    sys.exit(main())
