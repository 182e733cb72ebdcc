"""The tables of the page. Each cell has a text, a number to sort by, and a tooltip."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import isfinite, isnan, nan

from syno.base.text_tables import shown
from syno.run.run import Run, metrics_of
from syno.run.speedups import IN_SEARCH
from syno.run.story import SELECTED_BY, goal_speedup, reason
from syno.run.values import Latency, Score, Target, Trial, best_first
from syno.train.metric import CHANCE, OF_ORIGINAL, Metric

NOTHING = "–"
OF_LIMIT = "share of the limit"  # a heading
LIMIT = (
    "the time that the device takes at its peak for so many multiply-adds, or to move so many bytes, whichever is longer, as a "
    "share of this time; algorithms that do fewer multiply-adds than are counted, as Winograd's, can have more than 100 %"
)
PREFIXES = ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"))
ROUNDED_UP = 0.9995  # of a unit and above, three digits show the whole unit
MOST_TRIALS = 1000  # rows of the table of trials: nobody reads more
SHOWN_METRICS = ("flops", "original_flops", "parameters", "original_parameters")  # not once more at the end


@dataclass(frozen=True)
class Cell:
    """A cell of a table.

    Attributes:
        text: The text that is shown.
        value: The number that rows are sorted by; None for texts and unknown numbers.
        note: The tooltip.
        card: The operator whose card it links to; "" for none.
        is_number: Whether it is aligned like a number.
        warns: Whether it is highlighted, because the number is not to be trusted.
    """

    text: str
    value: float | None = None
    note: str = ""
    card: str = ""
    is_number: bool = True
    warns: bool = False


@dataclass(frozen=True)
class Table:
    """A table of the page: the column headings, and rows of cells."""

    columns: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]


def summary(run: Run) -> Table:
    """Return a row for each operator and the original: score, cost, and latency on each device with each compiler, if any."""
    metric, measured = run.metric, latencies(run)
    reached, judged = targets(measured.values()), any(row.verdict for row in run.scores)
    limited = {row.target for row in run.latencies if row.of_limit is not None}
    fast = any(not isnan(row.speedup.value) for row in run.scores)
    rows = []
    for row in score_rows(run):
        name = row.operator
        times = measured.get(name, {})
        rows.append((
            word(name, card=name if name in run.operators else ""), word(row.role),
            score(row, metric), difference(row, metric),
            *((speedup(row),) if fast else ()), *((verdict(row),) if judged else ()),
            quantity(row.flops, row.flops_share), quantity(row.parameters, row.parameters_share),
            *(cell for target in reached for cell in (
                latency(times.get(target)), *((of_limit(times.get(target)),) if target in limited else ()),
            )),
        ))  # fmt: skip
    asked = (*(("speedup",) if fast else ()), *(("goal",) if judged else ()))
    timed = [
        heading
        for device, compiler in reached
        for heading in (
            f"{compiler} on {device}",
            *((f"{OF_LIMIT}, {compiler} on {device}",) if (device, compiler) in limited else ()),
        )
    ]
    columns = ("operator", "role", metric.heading, "difference", *asked, "FLOPs", "parameters", *timed)
    known = [place for place in range(len(columns)) if run.scores or any(row[place].text != NOTHING for row in rows)]
    return Table(tuple(columns[place] for place in known), tuple(tuple(row[place] for place in known) for row in rows))


def trial_lines(run: Run) -> Table:
    """Return a row for each trial; if there are too many, for those with the highest rewards and the first without one."""
    metric, operators, rows = run.metric, run.trial_operators, []
    of_original = (f"{OF_ORIGINAL}{metric.key}", f"{CHANCE}{metric.key}")  # the same in every row
    more = [name for name in metrics_of(run.trials) if name not in (*SHOWN_METRICS, metric.key, *of_original)]
    for trial in shown_trials(run.trials):
        (name, id_), known = operators[trial.number], trial.metrics
        flops, original = known.get("flops"), known.get(f"{OF_ORIGINAL}flops")
        rows.append((
            plain(trial.number), word(trial.outcome), plain(trial.reward), plain(known.get(metric.key)),
            share(flops / original if flops is not None and original else None), quantity(known.get("parameters")),
            plain(trial.seconds), word(name, card=name if name in run.operators else "", note=id_),
            word(trial.message), *(plain(known.get(name)) for name in more),
        ))  # fmt: skip
    headings = (
        "trial", "outcome", "reward", metric.heading, "FLOPs of original", "parameters", "seconds", "operator", "message",
    )  # fmt: skip
    return Table((*headings, *(name.replace("_", " ") for name in more)), tuple(rows))


def shown_trials(trials: Sequence[Trial]) -> list[Trial]:
    """Return the trials that the table shows, sorted by number: all, or the best if there are too many."""
    first = [*best_first(trials), *(trial for trial in trials if not trial.is_rewarded)][:MOST_TRIALS]
    return list(trials) if len(trials) <= MOST_TRIALS else sorted(first, key=lambda trial: trial.number)


def score_rows(run: Run) -> list[Score]:
    """Return the scores of the run, and a score without numbers for each operator that has only a latency."""
    seen = {row.operator for row in run.scores}
    firsts = [next(iter(times.values())) for name, times in latencies(run).items() if name not in seen]
    return [*run.scores, *(Score(first.operator, first.role) for first in firsts)]


def latencies(run: Run) -> dict[str, dict[Target, Latency]]:
    """Return the latencies of each operator, by device and compiler."""
    found: dict[str, dict[Target, Latency]] = {}
    for row in run.latencies:
        found.setdefault(row.operator, {})[row.target] = row
    return found


def targets(measured: Iterable[Mapping[Target, Latency]]) -> list[Target]:
    """Return all pairs (device, compiler) of the measurements, each once."""
    return sorted({target for times in measured for target in times})


def word(text: str, card: str = "", note: str = "") -> Cell:
    """Return a cell with a text, a link to the card of an operator, and a tooltip."""
    return Cell(text, note=note, card=card, is_number=False)


def plain(value: float | None) -> Cell:
    """Return a cell with a number. An infinite loss, of a training that diverged, is shown without a number to sort by."""
    if value is None:
        return Cell(NOTHING)
    known = float(value)
    return Cell(shown(int(known) if known.is_integer() else known), known if isfinite(known) else None)


def quantity(known: float | None, of_original: float | None = None) -> Cell:
    """Return a cell with a large number, such as `1.28 M (41 %)`. The share is of the original; the tooltip has all digits."""
    part = share(of_original)
    if known is None:
        return Cell(NOTHING)
    size, prefix = next(((size, prefix) for size, prefix in PREFIXES if abs(known) >= ROUNDED_UP * size), (1.0, ""))
    text = f"{known / size:.3g} {prefix}".strip() + (f" ({part.text})" if part.value is not None else "")
    return Cell(text, known, f"{known:,.0f}")


def share(known: float | None) -> Cell:
    """Return a cell with a share as a percentage; empty if it is unknown."""
    return Cell(NOTHING) if known is None else Cell(f"{100 * known:.3g} %", known)


def verdict(row: Score) -> Cell:
    """Return a cell with the verdict on an operator by the goal of the search; the tooltip has the reason."""
    return Cell(row.state or NOTHING, note=reason(row), is_number=False)


def speedup(row: Score) -> Cell:
    """Return a cell with the speedup of the goal's verdict, and its interval."""
    notes = ["by the compiler and on the device of the goal", SELECTED_BY if row.timed == IN_SEARCH else row.timed]
    value = None if isnan(row.speedup.value) else row.speedup.value
    return Cell(goal_speedup(row) or NOTHING, value, "; ".join(filter(None, notes)))


def score(row: Score, metric: Metric) -> Cell:
    """Return a cell with a mean score and its standard deviation."""
    mean, seeds = row.score, row.seeds
    if mean is None:
        return Cell(NOTHING)
    note = "" if seeds is None else "one seed" if seeds == 1 else f"mean and standard deviation of {seeds} seeds"
    text = metric.text(mean, nan if row.spread is None else row.spread)
    return Cell(text, mean if isfinite(mean) else None, note)


def difference(row: Score, metric: Metric) -> Cell:
    """Return a cell with the difference of a score from the original's and its interval, if they are known."""
    text = metric.difference_text(*row.difference)
    note = "score minus the original's; Welch's interval over seeds"
    return Cell(NOTHING) if text is None else Cell(text, row.difference.value, note)


def latency(row: Latency | None) -> Cell:
    """Return a cell with a latency and its speedup, or why there is none."""
    if row is None:
        return Cell(NOTHING)
    time, low, high = row.ms
    if not row.is_ok or isnan(time):
        return Cell("partial" if row.status == "partial" else "failed", note=row.reason, warns=True)
    notes = [] if isnan(low) or isnan(high) else [f"95 % interval {digits(low)} to {digits(high)} ms"]
    if row.is_checked is False:
        notes.append("its output was not compared with a reference")
    if row.is_suspicious:
        notes.append("faster than the device's peak speed: not to be trusted")
    of_original = "" if row.speedup is None else f" ({row.speedup:.2f}×)"
    text = f"{digits(time)} ms{of_original}{' ?' if row.is_suspicious else ''}"
    return Cell(text, time, "; ".join(notes), warns=row.is_suspicious)


def of_limit(row: Latency | None) -> Cell:
    """Return a cell with the device's shortest possible time as a percentage of the latency; empty if it is unknown."""
    known = None if row is None else row.of_limit
    return Cell(NOTHING) if known is None else Cell(f"{100 * known:.0f} %", known, LIMIT)


def digits(value: float) -> str:
    """Return a number as text with at least three significant digits."""
    return f"{value:.0f}" if value >= 1000 else f"{value:#.3g}".rstrip(".")
