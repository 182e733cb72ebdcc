"""How many operators a space holds, by number of primitives, and what finding all of them takes.

python benchmarks/enumeration.py --limits 4 5 6 7 8 9 --counts --output docs/measured/enumeration.md
"""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import reports

from syno.space.presets import PRESETS, preset
from syno.space.space import Space
from syno.space.spec import OperatorSpec
from syno.space.state import State

# The published implementation, measured on another machine: operators found and CPU-seconds at these limits.
PUBLISHED = {"resnet18": {7: (480, 13.5), 9: (3400, 154.0)}}


@dataclass(frozen=True)
class Found:
    """What one limit gave."""

    limit: int
    operators: dict[int, int]  # by number of primitives
    distinct: int
    states: int
    seconds: float
    distinct_seconds: float  # with operators of equal meaning left out


def two_axes() -> OperatorSpec:
    """`[H, W] -> [H, W]` under the default options."""
    return OperatorSpec(
        name="two_axes",
        input="H, W",
        output="H, W",
        variables="H:2, W:2; s_1=2:2, s_2=3:2",
        layers=[{"H": 32, "W": 32}, {"H": 16, "W": 16}, {"H": 16, "W": 16}],
        occurrences={"reductions": 3},
    )


def explore(spec: OperatorSpec, limit: int) -> Found:
    """Find every operator of up to `limit` primitives; then only those of different meaning, as `Space.enumerate` does."""
    start = time.process_time()
    space = Space(spec.with_(depth=limit))
    found: Counter[int] = Counter()
    states, frontier = 0, [space.root]
    for size in range(limit + 1):
        above: dict[State, None] = {}
        for state in frontier:
            found[size] += len(space.operators(state))
            above.update((child, None) for _, child in space.children(state))
        states += len(frontier)
        frontier = list(above)
    seconds = time.process_time() - start
    start = time.process_time()
    distinct = sum(1 for _ in Space(spec.with_(depth=limit)).enumerate(distinct=True))
    return Found(limit, dict(found), distinct, states, seconds, time.process_time() - start)


def report(name: str, results: Sequence[Found], is_timed: bool) -> list[str]:
    """A table, one limit per row."""
    sizes = sorted({size for result in results for size, count in result.operators.items() if count})
    columns = ["limit", "operators", "distinct", "equal to others", "states"]
    columns += ["CPU-seconds", "CPU-seconds, distinct"] if is_timed else []
    columns += [f"of {size}" for size in sizes]
    columns += ["published: operators", "published: CPU-seconds"][: 1 + is_timed]
    rows = []
    for result in results:
        counts = [str(result.operators.get(size, 0)) for size in sizes]
        published = PUBLISHED.get(name, {}).get(result.limit)
        known = ["–", "–"] if published is None else [str(published[0]), f"{published[1]:g}"]
        total = sum(result.operators.values())
        equal = f"{100 * (1 - result.distinct / max(total, 1)):.1f} %"
        seconds = [f"{result.seconds:.1f}", f"{result.distinct_seconds:.1f}"] if is_timed else []
        row = [str(result.limit), str(total), str(result.distinct), equal, str(result.states)]
        rows.append([*row, *seconds, *counts, *known[: 1 + is_timed]])
    return ["", f"## {name}", "", *reports.table(columns, rows)]


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, print, and write the report if asked for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--spec", nargs="+", default=["resnet18", "two_axes"], help=f"two_axes, or of {', '.join(PRESETS)}")
    parser.add_argument("--limits", nargs="+", type=int, default=[4, 5, 6, 7])
    parser.add_argument("--counts", action="store_true", help="no times, as on a machine that has other work")
    options = reports.parse(parser, arguments)
    command = f"benchmarks/enumeration.py --spec {' '.join(options.spec)} --limits {' '.join(map(str, options.limits))}"
    lines = reports.heading("Exhaustive enumeration", command + (" --counts" if options.counts else ""))
    lines += [
        "- `limit`: the most primitives of an operator (a contraction is one). `operators`: complete ones within the budget, "
        "as the published system counts them. `distinct`: those that mean different things, by fingerprint, which is what "
        "`Space.enumerate(distinct=True)` yields: of these none equals another. `equal to others`: the share that it leaves "
        "out. `states`: partial operators gone through. `of n`: operators of n primitives.",
        "- `published`: the authors' implementation (C++), measured on another machine. It loses operators near the limit, "
        "because its distance is no lower bound.",
    ]
    if not options.counts:
        lines += [
            "- One process, one thread; each limit starts anew, the start included; `CPU-seconds, distinct` with telling equal "
            "operators apart.",
        ]
    for name in options.spec:
        spec = two_axes() if name == "two_axes" else preset(name)
        results = []
        for limit in options.limits if name != "two_axes" else [limit for limit in options.limits if limit <= 6]:
            results.append(explore(spec, limit))
            print(
                f"{name}, limit {limit}: {sum(results[-1].operators.values())} in {results[-1].seconds:.1f} s", file=sys.stderr
            )
        lines += report(name, results, not options.counts)
    reports.deliver(lines, options.output)
    return 0


if __name__ == "__main__":
    sys.exit(main())
