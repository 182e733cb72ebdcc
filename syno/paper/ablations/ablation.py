"""The ablations as commands: each measures, and writes tables and figures that name the source of their numbers.

`canonical` measures how many operators the canonicalization rules exclude (`syno.paper.ablations.canonical`), and `distance`
how many operators random walks find with the shape distance, with the two published distances, and without any
(`syno.paper.ablations.guided`). `syno.paper.ablations.tables` describes the table `ablation-NAME` of each ablation.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

from matplotlib.figure import Figure

from syno.base.files import write_whole
from syno.base.progress import Display
from syno.base.record import versions
from syno.base.text_tables import Row, csv_text, markdown
from syno.measure.machine import device_name
from syno.paper.ablations.canonical import canonical_rates, complete_operators
from syno.paper.ablations.drawing import canonical_figure, distance_figure, draw
from syno.paper.ablations.guided import Loss, Run, comparison, losses, run, sampled_losses, totals
from syno.paper.ablations.parts import NO_PARTS, Parts
from syno.paper.ablations.patterns import COLUMNS as PATTERN_COLUMNS
from syno.paper.ablations.patterns import FoundOperators, pattern_rows, random_operators
from syno.paper.ablations.requiring import SHOWN, requirement_rows
from syno.paper.ablations.tables import AblationRow, beside_the_paper, canonical_rows, distance_rows, of_space
from syno.report.figures import save
from syno.report.operators.folder import Show, shown_on
from syno.space.options import DistanceKind
from syno.space.space import Space
from syno.space.spec import OperatorSpec
from syno.space.state_graph import check_not_empty

UNSEEN = ("rejected_by",)  # columns too wide for a page
SHOWN_PATTERNS = (
    "pattern",
    "share",
    "best_share",
    "lift_best",
    "random_share",
    "lift_random",
    "lift_random_low",
    "lift_random_high",
)
DISTANCES: tuple[DistanceKind, ...] = ("exact", "paper", "published", "none")


@dataclass(frozen=True)
class Ablation:
    """The written result of an ablation.

    Attributes:
        files: the files that were written.
        text: the tables as Markdown, with notes on the origin of the numbers.
    """

    files: tuple[Path, ...]
    text: str


@dataclass(frozen=True)
class Measured:
    """The numbers of an ablation.

    Attributes:
        name: the ablation's name.
        rows: rows of the ablation's table.
        tables: further tables, for people, by name.
        figure: a special figure; None for the figure that is drawn from the table.
    """

    name: str
    rows: Sequence[AblationRow]
    tables: Mapping[str, Sequence[Row]]
    figure: Callable[[Sequence[str]], Figure] | None = None


def canonical(
    spec: OperatorSpec,
    *,
    samples: int = 1000,
    complete: int = 3,
    seed: int = 0,
    display: Display | None = None,
    parts: Path | None = None,
) -> Measured:
    """Measure the share of random graphs that are canonical, by size, and count complete operators with the rules and without.

    Args:
        spec: the space to measure, up to its depth.
        samples: the number of random graphs of each size.
        complete: count all complete operators of up to so many primitives; 0 to skip this.
        seed: the seed of the random graphs.
        display: shows the progress.
        parts: a folder for finished parts, from which an interrupted run continues; None to keep none.
    """
    kept = NO_PARTS if parts is None else Parts.of(parts, spec, samples=samples, complete=complete, seed=seed)
    with display or nullcontext(), kept.timed("seconds") as seconds:
        show = shown_on(display)
        rates = canonical_rates(spec, samples, seed=seed, show=show, parts=kept)
        whole = complete_operators(spec, complete, show=show) if complete else []
    tables: dict[str, Sequence[Row]] = {
        "canonical": [rate.row() for rate in rates],
        "canonical-complete": [row.row() for row in whole],
        "canonical-paper": beside_the_paper(rates),
    }
    title = f"Random graphs that are canonical, {spec.name} ({samples:,} of each size)"
    rows = canonical_rows(spec, rates, whole, seed, seconds())
    return Measured("canonical", rows, tables, lambda notes: canonical_figure(rates, title, notes))


def distance(
    spec: OperatorSpec,
    *,
    trials: int | None = None,
    seconds: float = 30,
    complete: int = 5,
    distances: Sequence[DistanceKind] = DISTANCES,
    seed: int = 0,
    display: Display | None = None,
    parts: Path | None = None,
) -> Measured:
    """Count the operators that random walks find with each distance in equal CPU time, and the operators each distance loses.

    Args:
        spec: the space to walk in. Its own distance plays no part.
        trials, seconds: limits of walks and of CPU-seconds for each distance; None for any number of walks.
        complete: look for losses among all operators of up to so many primitives; 0 to skip this.
        distances: the distances to compare.
        seed: the seed of the walks.
        display: shows the progress.
        parts: a folder for finished parts, from which an interrupted run continues; None to keep none.

    Raises:
        SpecError: the space is empty.
    """
    spec = spec.with_(distance="exact")
    check_not_empty(Space(spec))
    settings = {"trials": trials, "seconds": seconds, "complete": complete, "seed": seed}
    kept = NO_PARTS if parts is None else Parts.of(parts, spec, **settings)
    published = [kind for kind in distances if kind in ("paper", "published")] if complete else []
    with display or nullcontext():
        show = shown_on(display)
        runs = [_walked(spec, kind, trials, seconds, seed, show, kept) for kind in distances]
        first = next((one.operators for one in runs if one.name == "exact"), [])
        lost = [
            Loss(*row)
            for kind in published
            for row in kept.get(f"lost-{kind}", partial(losses, spec, kind, complete, show=show))
        ]
        sampled = [
            Loss(*kept.get(f"sampled-{kind}", partial(sampled_losses, spec, kind, first, show=show))) for kind in published
        ]
    tables = {
        "distance": comparison(runs),
        "distance-totals": totals(runs),
        "distance-lost": [one._asdict() for one in (*lost, *sampled)],
    }
    title = f"Random walks with each distance, {spec.name}, depth {spec.depth}"
    rows = distance_rows(spec, runs, lost, sampled, seed)
    return Measured("distance", rows, tables, lambda notes: distance_figure(runs, title, notes))


def _walked(
    spec: OperatorSpec, kind: DistanceKind, trials: int | None, seconds: float, seed: int, show: Show, parts: Parts
) -> Run:
    def walk() -> dict[str, object]:
        return asdict(run(spec, distance=kind, trials=trials, seconds=seconds, seed=seed, show=show))

    return Run(**parts.get(f"walks-{kind}", walk))


def patterns(
    operators: FoundOperators,
    spec: OperatorSpec,
    *,
    best: float = 0.1,
    random: int = 100,
    seed: int = 0,
    display: Display | None = None,
    parts: Path | None = None,
) -> Measured:
    """Count the patterns of primitives in a search's operators, in the best of them, and in random operators of a space.

    Args:
        operators: the operators of the search.
        spec: the space of the random operators.
        best: the share of operators that count as the best.
        random: the number of random operators; 0 for none.
        seed: the seed of the random operators and of the intervals.
        display: shows the progress.
        parts: a folder for finished parts, from which an interrupted run continues; None to keep none.
    """
    kept = NO_PARTS if parts is None else Parts.of(parts, spec, seed=seed)
    with display or nullcontext(), kept.timed("seconds") as seconds:
        drawn = random_operators(spec, random, seed=seed, show=shown_on(display), parts=kept)
        rows = pattern_rows(operators, drawn, best=best, seed=seed)
    table = [{**dict.fromkeys(PATTERN_COLUMNS), **of_space(spec, seed, seconds()), **row} for row in rows]
    short = [{name: row[name] for name in SHOWN_PATTERNS} for row in table if row["family"] != "triple"]
    return Measured("patterns", table, {"patterns": short})


def requirements(
    spec: OperatorSpec, *, seconds: float = 60, seed: int = 0, display: Display | None = None, parts: Path | None = None
) -> Measured:
    """Walk with the spec's requirement on the positions read, and without it (`syno.paper.ablations.requiring`)."""
    kept = NO_PARTS if parts is None else Parts.of(parts, spec, seconds=seconds, seed=seed)
    with display or nullcontext():
        rows = requirement_rows(spec, seconds, seed, shown_on(display), kept)
    return Measured("requirements", rows, {"requirements": [{name: row[name] for name in SHOWN} for row in rows]})


def write(measured: Measured, folder: Path, notes: Sequence[str]) -> Ablation:
    """Write the ablation's non-empty tables as CSV, and its figure, all with the notes on the origin of the numbers."""
    whole = f"ablation-{measured.name}"
    tables = {**measured.tables, whole: measured.rows}
    files, texts = [], []
    for name, rows in tables.items():
        if not rows:
            continue
        files.append(folder / f"{name}.csv")
        write_whole(files[-1], csv_text(rows, notes))
        if name != whole:
            texts.append(markdown([{key: value for key, value in row.items() if key not in UNSEEN} for row in rows]))
    figure = draw(measured.name, measured.rows, notes) if measured.figure is None else measured.figure(notes)
    files += save(figure, folder / measured.name)
    return Ablation(tuple(files), "\n".join([*texts, *(f"- {note}" for note in notes)]) + "\n")


def provenance(command: str, spec: OperatorSpec, seed: int) -> list[str]:
    """Return lines with the command, the space, the machine and the date, printed above tables and below figures."""
    packages = ", ".join(f"{name} {version}" for name, version in versions(["numpy"]).items())
    return [
        f"command: {command}",
        f"spec: {spec.name}, depth {spec.depth}, id {spec.id}; seed {seed}",
        f"measured on {datetime.now(UTC):%Y-%m-%d %H:%M} UTC, one process, on {device_name('cpu')}, "
        f"{os.cpu_count()} logical cores",
        f"versions: {packages}",
    ]
