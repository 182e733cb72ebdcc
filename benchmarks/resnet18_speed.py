"""List operators that make ResNet-18 faster on this machine, as a search without training finds them.

    syno search config/faster-resnet18.yaml
    python benchmarks/resnet18_speed.py --output docs/measured/resnet18_speed.md

    python benchmarks/resnet18_speed.py --page docs/measured/resnet18_speed.md --output docs/measured/resnet18_speed.md

The second call measures the operators of a page again, as with other kernels.

The search measures with native kernels. The fastest operators that it measured, and Operator 1 of the paper, are measured with
TorchInductor and plain PyTorch here, too, in turns with the original, so that the best compiler of each network is compared
with the best one of the original. Predictions are those of a predictor that has learnt from all other operators that were
measured.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Sequence
from pathlib import Path

import pandas
import reports
import torch

import syno
from syno.base.interval import Interval
from syno.config import Experiment
from syno.config.files import load_experiment
from syno.ir.graph import PGraph
from syno.ir.text import parse_stored
from syno.measure.prediction.predictor import SpeedupPredictor
from syno.measure.speedup_record import SpeedupRecord
from syno.space.complete import cost
from syno.stages.speedups import speedups_of
from syno.stages.study import read_frozen

CONFIG = Path("config/faster-resnet18.yaml")
COMPILERS = ("native", "inductor", "eager")  # the first is the goal's
KNOWN = "operator_1"


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure what the search did not, print the page, and write it if asked for."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--most", type=int, default=8, help="operators that are listed")
    parser.add_argument("--page", type=Path, help="measure the operators of this page, in place of those of the search")
    options = reports.parse(parser, arguments)
    experiment = load_experiment(CONFIG)
    if options.page is None:
        operators, source = of_search(experiment)
    else:
        operators, source = of_page(options.page)
    known = syno.OPERATORS[KNOWN]().renamed(KNOWN, g=4)
    listed = [*operators[: options.most], known]
    records = {compiler: measured(experiment, listed, compiler) for compiler in COMPILERS}
    with speedups_of(experiment, COMPILERS[0], "cpu") as speedups:
        every = {record.operator_id: record for record in speedups.records()}
    predictions = {one.id: predicted(one, every) for one in listed}
    reports.deliver(page(experiment, source, options, listed, records, predictions), options.output)
    return 0


def of_search(experiment: Experiment) -> tuple[list[PGraph], str]:
    """The operators that the search measured, the fastest first, and a sentence about them."""
    goal, trials = experiment.goal, read_frozen(experiment)
    assert goal is not None
    seen = trials[trials["metric_speedup"].notna()].sort_values("metric_speedup", ascending=False)
    names = [f"{experiment.name}_{number}" for number in seen["number"]]
    operators = [parse_stored(text, "a trial", name) for text, name in zip(seen["operator"], names, strict=True)]
    minutes = (pandas.to_datetime(trials["ended"]).max() - pandas.to_datetime(trials["started"]).min()).total_seconds() / 60
    fast = int((seen["metric_speedup"] >= goal.least_speedup).sum())
    return operators, (
        f"The search ({CONFIG}) ended after {minutes:.0f} minutes: {len(seen)} operators measured, of which {fast} are at "
        f"least {goal.least_speedup:g} times as fast."
    )


def of_page(file: Path) -> tuple[list[PGraph], str]:
    """The operators of a page that was written before, and a sentence about them."""
    text = file.read_text(encoding="utf-8")
    operators = [parse_stored(one, str(file), one.split()[1]) for one in re.findall(r"```\n(operator .*?)```", text, re.DOTALL)]
    dates = re.findall(r"on (\d{4}-\d{2}-\d{2})", text) or re.findall(r"Date: (\d{4}-\d{2}-\d{2})", text)
    return operators, f"The operators are those that a search ({CONFIG}) found on {dates[0]}; they were measured again."


def measured(experiment: Experiment, operators: Sequence[PGraph], compiler: str) -> dict[str, SpeedupRecord]:
    """The records of operators with a compiler, by their ids; those that the store has are not measured again."""
    found = {}
    with speedups_of(experiment, compiler, "cpu") as speedups:
        for operator in operators:
            found[operator.id] = speedups.of(operator)
            print(f"{operator.name}, {compiler}: {found[operator.id].speedup}", file=sys.stderr, flush=True)
    return found


def predicted(operator: PGraph, records: dict[str, SpeedupRecord]) -> Interval | None:
    """The speedup that is predicted from the records of the other operators."""
    return SpeedupPredictor().fit(record for key, record in records.items() if key != operator.id).predict(operator)


def page(
    experiment: Experiment,
    source: str,
    options: argparse.Namespace,
    listed: Sequence[PGraph],
    records: dict[str, dict[str, SpeedupRecord]],
    predictions: dict[str, Interval | None],
) -> list[str]:
    """The lines of the page."""
    spec, original = experiment.operator_spec, experiment.network.original
    given = f" --page {options.page}" if options.page else ""
    lines = reports.heading("A faster ResNet-18", f"benchmarks/resnet18_speed.py --most {len(listed) - 1}{given}")
    lines += reports.paragraph(
        f"- torch {torch.__version__}, 1 thread, pictures of 224x224, batch 1. Ratios were measured in turns with the "
        "original; intervals are of 95 %, those of predictions of 90 %."
    )
    lines += reports.paragraph(
        f"- {source} Nothing was trained: what the operators do to the accuracy is not known. All see their neighbours and all "
        "channels."
    )
    measurements = [f"measured, {compiler}" for compiler in COMPILERS]
    columns = ["operator", "FLOPs", "predicted", *measurements, "ms, best", "best against best"]
    rows = []
    for operator in listed:
        own = [records[compiler][operator.id] for compiler in COMPILERS]
        ours, theirs = _least([one.latency_ms for one in own]), _least([one.original_ms for one in own])
        guess = predictions[operator.id]
        rows.append(
            [
                operator.name,
                f"{cost(operator, spec).flops / original.flops:.1%}",
                "–" if guess is None else f"{guess.value:.2f}x ({guess.low:.2f} to {guess.high:.2f})",
                *(_ratio(one) for one in own),
                f"{ours:.1f}",
                f"{theirs / ours:.2f}x",
            ]
        )
    lines += ["", *reports.table(columns, rows), ""]
    lines += reports.paragraph(
        "Predictions are learnt from the other operators that were measured, Operator 1 among them. `best against best` "
        "divides the least latency of the original, of all compilers, by the least latency with the operator."
    )
    for operator in listed[:-1]:
        lines += ["", f"## {operator.name}", "", "```", *str(operator).strip().splitlines(), "```"]
    return lines


def _least(found: Sequence[Interval | None]) -> float:
    return min(one.value for one in found if one is not None)


def _ratio(record: SpeedupRecord) -> str:
    if record.speedup is None:
        return record.status
    return f"{record.speedup:.2f}x ({record.speedup_low:.2f} to {record.speedup_high:.2f})"


if __name__ == "__main__":
    sys.exit(main())
