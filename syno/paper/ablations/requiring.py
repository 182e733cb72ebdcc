"""Ablation of requirements: random walks in a space with its requirement on the positions read, and without it.

On the side without it, the operators that meet the requirement are counted afterwards. Both sides have the same rules,
distance, budget, memory and seed. Time is the CPU time of one process, including the construction of the space, and without the
check on the side that does not need it. A spec without a requirement gets the usual one (`usual_reads`).

Columns of the table `ablation-requirements`, beside those of all ablations (`syno.paper.ablations.tables`):

    reads                       the requirement
    side                        "with" or "without"
    walks, ended                random walks, and those that ended in an operator
    ended_share, low, high      their share, with its 95 % interval (Wilson)
    operators, meeting          different operators, and those of them that meet the requirement
    per_second, ..._low, _high  the latter per CPU-second, with the 95 % interval of a Poisson rate
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from random import Random
from typing import Any

from matplotlib.figure import Figure

from syno.base.collection import seldom_collected
from syno.paper.ablations.parts import CONFIDENCE, Parts, wilson
from syno.paper.ablations.tables import AblationRow, of_space
from syno.report.figures import BLUE, GREY, finish
from syno.report.operators.folder import Show
from syno.space.reads import usual_reads
from syno.space.requirements import Requirements
from syno.space.sample import Sampler
from syno.space.space import Space
from syno.space.spec import OperatorSpec
from syno.space.state_graph import check_not_empty

WITH, WITHOUT = "with", "without"
COLUMNS = (
    "space", "space_id", "depth", "reads", "side", "walks", "ended", "ended_share", "low", "high", "operators", "meeting",
    "per_second", "per_second_low", "per_second_high", "seed", "seconds", "origin",
)  # fmt: skip
SHOWN = COLUMNS[4:15]


@dataclass
class Walks:
    """The random walks of one side, with or without the requirement.

    Attributes:
        side: "with" or "without".
        walks, dead_ends: numbers of walks and of dead ends.
        operators, meeting: different operators, and those of them that meet the requirement.
        seconds: CPU-seconds.
    """

    side: str
    walks: int = 0
    dead_ends: int = 0
    operators: int = 0
    meeting: int = 0
    seconds: float = 0.0


def requirement_rows(spec: OperatorSpec, seconds: float, seed: int, show: Show, parts: Parts) -> list[AblationRow]:
    """Return the rows of `ablation-requirements`, from walks of `seconds` CPU-seconds on each side.

    Raises SpecError if the space is empty.
    """
    if spec.reads is None:
        bound = {into for _, into in spec.bound_axes}
        free = [size for axis, size in enumerate(spec.input_sizes) if axis not in bound]
        spec = spec.with_(reads=usual_reads(spec.input_sizes, spec.output_sizes, free, spec.valuations))
    check_not_empty(Space(spec))

    def fields_of_walks(side: str) -> dict[str, Any]:
        return asdict(walk(spec, side, seconds, seed, show))

    kept = [parts.get(f"walks-{side}", partial(fields_of_walks, side)) for side in (WITHOUT, WITH)]
    return [_row(spec, Walks(**one), seed) for one in kept]


@seldom_collected()
def walk(
    spec: OperatorSpec, side: str, seconds: float, seed: int, show: Show, clock: Callable[[], float] = time.process_time
) -> Walks:
    """Walk at random for `seconds` CPU-seconds in a space with the spec's requirement or without it; `side` says which."""
    check, found, begin = Requirements(spec), Walks(side), clock()
    asked = spec if side == WITH else spec.with_(reads=None)
    whole, checking = max(1, round(seconds)), 0.0

    def is_over() -> bool:
        found.seconds = clock() - begin - checking
        show(f"walks {side} the requirement", min(int(found.seconds), whole), whole)
        return found.seconds >= seconds

    sampler = Sampler(Space(asked), Random(seed))
    while not sampler.is_exhausted and not is_over():
        operator = sampler.draw(is_over)
        if operator is not None:
            before = clock()
            found.meeting += side == WITH or check.unmet(operator) is None
            checking += clock() - before
    found.walks, found.dead_ends, found.operators = sampler.walks, sampler.dead_ends, len(sampler.operators)
    return found


def _row(spec: OperatorSpec, walks: Walks, seed: int) -> AblationRow:
    from scipy.stats import chi2

    ended, seconds = walks.walks - walks.dead_ends, walks.seconds
    low, high = wilson(ended, walks.walks)
    outside = (1 - CONFIDENCE) / 2
    least = float(chi2.ppf(outside, 2 * walks.meeting)) / 2 if walks.meeting else 0.0
    most = float(chi2.ppf(1 - outside, 2 * walks.meeting + 2)) / 2
    row = of_space(spec, seed, seconds) | {
        "reads": ", ".join(f"{name}: {value}" for name, value in (spec.reads.model_dump() if spec.reads else {}).items()),
        "side": walks.side,
        "walks": walks.walks,
        "ended": ended,
        "ended_share": ended / walks.walks if walks.walks else None,
        "low": low,
        "high": high,
        "operators": walks.operators,
        "meeting": walks.meeting,
        "per_second": walks.meeting / seconds if seconds else None,
        "per_second_low": least / seconds if seconds else None,
        "per_second_high": most / seconds if seconds else None,
    }
    return {name: row[name] for name in COLUMNS}


def requirement_figure(rows: Sequence[AblationRow], notes: Sequence[str]) -> Figure:
    """Draw the share of walks that end in an operator, and the operators that meet the requirement per CPU-second."""
    figure = Figure(figsize=(8, 2.4), layout="constrained")
    panels = list(figure.subplots(1, 2, sharey=True))
    titles = "share of walks that end in an operator", "operators that meet the requirement, per CPU-second"
    columns = ("ended_share", "low", "high"), ("per_second", "per_second_low", "per_second_high")
    for axes, title, (middle, low, high) in zip(panels, titles, columns, strict=True):
        for place, row in enumerate(rows):
            value, least, most = (float(str(row[name] or 0)) for name in (middle, low, high))
            axes.barh(place, value, color=BLUE if row["side"] == WITH else GREY, height=0.6)
            axes.errorbar(value, place, xerr=[[value - least], [most - value]], color="black", capsize=3)
        axes.set_xlabel(title, fontsize=8)
    panels[0].set_yticks(range(len(rows)), [f"{row['side']} the requirement" for row in rows])
    panels[0].set_ylim(len(rows) - 0.5, -0.5)
    finish(figure, panels, f"Walks with a requirement, {rows[0]['space']}, depth {rows[0]['depth']}", notes, columns=0)
    return figure
