"""The checks before a training, on the operators of the table, which were all trained: how many each check rejects.

python benchmarks/defaults.py --output docs/measured/defaults.md
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Sequence
from statistics import fmean

import reports

from syno.config import Experiment, load_experiment
from syno.ir.graph import PGraph
from syno.paper.replay import OperatorTable, TableEntry
from syno.space.reads import AUTO
from syno.space.requirements import Requirements

COLUMNS = ("check", "operators", "rejected", "accuracy of these", "accuracy of the others", "CPU-seconds for each")


def main(arguments: Sequence[str] | None = None) -> None:
    """Apply the checks to all operators of the table, and print the report."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--most", type=int, help="operators of the table to check, the first ones; by default all")
    given = reports.parse(parser, arguments)
    found = load_experiment("benchmarks/live.yaml")
    assert not isinstance(found.spec, str)
    experiment = Experiment(**{**found.model_dump(), "spec": {**found.spec, "reads": AUTO}})
    entries = list(OperatorTable.read().entries.values())[: given.most]
    checks = {
        "requirement of the network": Requirements(experiment.operator_spec).unmet,
        "gradients on the first batch": experiment.network.fault_on_first_batch,
    }
    rows = [row(name, entries, check) for name, check in checks.items()]
    lines = [
        *reports.heading("Checks before a training", "benchmarks/defaults.py"),
        f"- Operators: {len(entries)} of the table; accuracies are means over their seeds",
        "",
        *reports.table(COLUMNS, rows),
    ]
    reports.deliver(lines, given.output)


def row(name: str, entries: Sequence[TableEntry], check: Callable[[PGraph], str | None]) -> list[str]:
    """Return the cells of a check."""
    began = time.process_time()
    bad = {entry.operator.id for entry in entries if check(entry.operator) is not None}
    seconds = (time.process_time() - began) / len(entries)
    accuracies = (accuracy(entries, bad, is_bad) for is_bad in (True, False))
    return [name, f"{len(entries)}", f"{len(bad)}", *accuracies, f"{seconds:.3f}"]


def accuracy(entries: Sequence[TableEntry], bad: set[str], is_bad: bool) -> str:
    """Return the mean accuracy, the lowest and the highest of the operators in `bad`, or of the others."""
    found = [entry.accuracy() for entry in entries if (entry.operator.id in bad) == is_bad]
    return f"mean {fmean(found):.3f}, {min(found):.3f} to {max(found):.3f}" if found else "–"


if __name__ == "__main__":
    main()
