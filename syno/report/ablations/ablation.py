"""The paper's two ablations as files: tables and pictures that say where their numbers come from.

`canonical` measures what the canonicalization rules leave out, `distance` what the shape distance is worth; how is said in
`syno.report.ablations.canonical` and `syno.report.ablations.guided`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path

from syno.base.files import write_whole
from syno.base.progress import Display
from syno.base.text_tables import Row, csv_text, markdown
from syno.report.ablations.canonical import Rate, canonical_rates, complete_operators
from syno.report.ablations.guided import comparison, run, totals
from syno.report.ablations.parts import shown_on, silent
from syno.report.ablations.pictures import canonical_figure, distance_figure
from syno.report.ablations.provenance import provenance
from syno.report.figures import save
from syno.space.space import Space
from syno.space.spec import OperatorSpec
from syno.space.state_graph import check_not_empty

UNSEEN = ("rejected_by",)  # columns too wide for a page
PAPER_REDUNDANCY = 70


@dataclass(frozen=True)
class Ablation:
    """What was measured.

    Attributes:
        files: that were written.
        text: the tables, to be read, and where the numbers come from.
    """

    files: tuple[Path, ...]
    text: str


def canonical(
    spec: OperatorSpec,
    folder: Path,
    *,
    command: str,
    samples: int = 1000,
    complete: int = 3,
    seed: int = 0,
    display: Display | None = None,
) -> Ablation:
    """The share of random graphs that are canonical, by size; and complete operators with the rules and without.

    Args:
        spec: what is measured, up to its depth.
        folder: where `canonical.csv`, `canonical-complete.csv`, `canonical-paper.csv`, `canonical.svg` and `canonical.png` go.
        command: what is written beside the numbers as their source.
        samples: random graphs of each size.
        complete: the most primitives of complete operators, all of which are found; 0 for none.
        seed: of the random graphs.
        display: is shown how it goes.
    """
    with display or nullcontext():
        show = silent if display is None else shown_on(display)
        rates = canonical_rates(spec, samples, seed=seed, show=show)
        whole = complete_operators(spec, complete, show=show) if complete else []
    notes = provenance(command, spec, seed)
    first = [rate.row() for rate in rates]
    tables: dict[str, Sequence[Row]] = {
        "canonical": first,
        "canonical-complete": [row.row() for row in whole],
        "canonical-paper": beside_the_paper(rates),
    }
    figure = canonical_figure(rates, f"Random graphs that are canonical, {spec.name} ({samples:,} of each size)", notes)
    files = [*_written(folder, tables, notes), *save(figure, folder / "canonical")]
    return Ablation(tuple(files), _text(tables, notes))


def distance(
    spec: OperatorSpec,
    folder: Path,
    *,
    command: str,
    trials: int | None = None,
    seconds: float = 30,
    seed: int = 0,
    display: Display | None = None,
) -> Ablation:
    """Operators that random walks find with the shape distance and without, at equal trials and in equal CPU time.

    Args:
        spec: where to walk.
        folder: where `distance.csv`, `distance-totals.csv`, `distance.svg` and `distance.png` go.
        command: what is written beside the numbers as their source.
        trials, seconds: each side walks until it has had so many trials, or so many CPU-seconds; None for any number.
        seed: of the walks.
        display: is shown how it goes.

    Raises SpecError if the space is empty.
    """
    check_not_empty(Space(spec))
    with display or nullcontext():
        show = silent if display is None else shown_on(display)
        runs = [
            run(spec, use_distance=guided, trials=trials, seconds=seconds, seed=seed, show=show) for guided in (True, False)
        ]
    notes = provenance(command, spec, seed)
    tables = {"distance": comparison(runs), "distance-totals": totals(runs)}
    figure = distance_figure(runs, f"Random walks with the shape distance and without, {spec.name}, depth {spec.depth}", notes)
    files = [*_written(folder, tables, notes), *save(figure, folder / "distance")]
    return Ablation(tuple(files), _text(tables, notes))


def beside_the_paper(rates: Sequence[Rate]) -> list[Row]:
    """How many random graphs there are for each canonical one, at the largest size that has some, and what the paper says.

    Nothing where no graph was canonical. Source of the paper's number: its canonicalization ablation.
    """
    found = [rate for rate in rates if rate.canonical]
    if not found:
        return []
    rate = max(found, key=lambda rate: rate.size)
    low, high = rate.interval
    return [
        {
            "graphs per canonical graph": f"{1 / rate.share:.1f}",
            "95 %": f"{1 / high:.1f} to {1 / low:.1f}",
            "of": f"{rate.graphs:,} random graphs of {rate.size} primitives",
            "origin": "measured",
        },
        {
            "graphs per canonical graph": f"more than {PAPER_REDUNDANCY}",
            "95 %": "",
            "of": "its random graphs",
            "origin": "paper",
        },
    ]


def _written(folder: Path, tables: Mapping[str, Sequence[Row]], notes: Sequence[str]) -> list[Path]:
    paths = []
    for name, rows in tables.items():
        if rows:
            paths.append(folder / f"{name}.csv")
            write_whole(paths[-1], csv_text(rows, notes))
    return paths


def _text(tables: Mapping[str, Sequence[Row]], notes: Sequence[str]) -> str:
    parts = [
        markdown([{name: value for name, value in row.items() if name not in UNSEEN} for row in rows])
        for rows in tables.values()
        if rows
    ]
    return "\n".join([*parts, *(f"- {note}" for note in notes)]) + "\n"
