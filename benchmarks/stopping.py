"""Compare rules of early stopping on the table of truth: what they save, and how many of the best operators they lose.

    python benchmarks/stopping.py --output docs/measured/stopping.md

The trainings of the table's operators are replayed in 100 random orders. The best decile are the operators of the highest
accuracy after the last epoch, in the part of the table that is searched. A rule loses one of them if it does not train it to
the end. It saves the CPU-seconds of the epochs that it does not train; each epoch counts a quarter of its operator's training.
"""

from __future__ import annotations

import argparse
import random
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean, stdev
from typing import TypeAlias

import reports
from stopping_fitted import fitted

from syno.paper.replay import OperatorTable
from syno.paper.replay.entries import PARTS, TableEntry
from syno.paper.replay.stopping import Curves, Rule, Work, brackets, halving, milestones, percentile, promotion
from syno.paper.replay.table import FOLDER, Subset
from syno.search.halving import HalvingSettings

BEST = 0.1  # the share of operators that count as the best
MOST_LOST, LEAST_SAVED = 0.02, 0.5  # what is required
MILESTONES = {1: 0.13, 2: 0.35}  # with the pruner below, what the demo had before `stopping`
KEEP, BY_SCORE = (HalvingSettings(by=by).rungs(4) for by in ("loss", "score"))
GENTLE: Mapping[float, float] = {1: 0.7, 2: 0.4, 3: 0.25}
SHORT = 80  # trials of a short study
DEFAULT, BEFORE = f"**halving, resumed, keep {KEEP}, by loss**", "milestones {1: 0.13, 2: 0.35} and percentile 75"
GENTLE_HALVING = f"halving, resumed, keep {GENTLE}, by loss"

Run: TypeAlias = Callable[[Sequence[TableEntry], int], Work]  # entries in their order, and the seed of their trainings


@dataclass(frozen=True)
class Figures:
    """The figures of merit of one rule in one order of trials.

    Attributes:
        lost: share of the best operators that were not trained to the end.
        saved: share of the CPU-seconds that were saved.
        first: CPU-seconds until the first of the best operators was trained to the end; None if none was.
    """

    lost: float
    saved: float
    first: float | None


def by_accuracy(rule: Rule) -> Run:
    return lambda entries, seed: rule([entry.accuracies[seed] for entry in entries])


def by_loss(keep: Mapping[float, float]) -> Run:
    rule = halving(keep, PARTS)
    return lambda entries, seed: rule(losses(entries, seed))


def losses(entries: Sequence[TableEntry], seed: int) -> Curves:
    return [[-loss for loss in entry.recent_losses[seed]] for entry in entries]


HYPERBAND: tuple[Mapping[float, float], ...] = ({1: 1 / 2, 2: 1 / 4}, {2: 1 / 2}, {1: 1 / 2, 2: 1 / 4}, {})
RULES: Mapping[str, Run] = {
    "none: every training to its end": by_accuracy(milestones({})),
    "milestones {1: 0.13}": by_accuracy(milestones({1: 0.13})),
    "milestones {1: 0.13, 2: 0.35}": by_accuracy(milestones(MILESTONES)),
    "pruner percentile 75, 8 startup trials": by_accuracy(percentile(75, 8)),
    BEFORE: by_accuracy(percentile(75, 8, MILESTONES)),
    "pruner median, 5 startup trials": by_accuracy(percentile(50, 5)),
    "pruner successive_halving, factor 2": by_accuracy(promotion(2)),
    "pruner successive_halving, factor 4": by_accuracy(promotion(4, (1,))),
    "hyperband, resumed, factor 2, by accuracy": by_accuracy(brackets(HYPERBAND)),
    "halving, resumed, factor 2, by accuracy": by_accuracy(halving({1: 1 / 2, 2: 1 / 4})),
    "halving, resumed, factor 2, by loss": by_loss({1: 1 / 2, 2: 1 / 4}),
    "halving, resumed, factor 3, by loss": by_loss({1: 1 / 3, 3: 1 / 9}),
    GENTLE_HALVING: by_loss(GENTLE),
    f"halving, resumed, keep {BY_SCORE}, by accuracy": by_accuracy(halving(BY_SCORE)),
    DEFAULT: by_loss(KEEP),
}


def best_of(entries: Sequence[TableEntry], seed: int | None) -> float:
    """The accuracy from which on an operator is among the best: of one seed, or for None the mean over its seeds."""
    accuracies = sorted((entry.accuracy(seed) for entry in entries), reverse=True)
    return accuracies[max(1, round(BEST * len(entries))) - 1]


def figures(entries: Sequence[TableEntry], work: Work, seed: int, least: float, by: int | None) -> Figures:
    """Count what was lost and saved, where operators of an accuracy of `least` are the best, by a seed or the mean of all."""
    best = [entry.accuracy(by) >= least for entry in entries]
    values = max(work.epochs)  # of a whole training
    left = [values] * len(entries)
    spent, first = 0.0, None
    for trial in work.order:
        spent += entries[trial].cpu_seconds[seed] / values
        left[trial] -= 1
        if first is None and best[trial] and not left[trial] and trial not in work.pruned:
            first = spent
    lost = sum(one and (more > 0 or trial in work.pruned) for trial, (one, more) in enumerate(zip(best, left, strict=True)))
    whole = sum(entry.cpu_seconds[seed] for entry in entries)
    return Figures(lost / max(sum(best), 1), 1 - spent / whole, first)


def orders(entries: Sequence[TableEntry], count: int, trials: int | None) -> list[list[TableEntry]]:
    """Random orders of the entries, or of as many of them as a study has trials."""
    return [random.Random(order).sample(list(entries), min(trials or len(entries), len(entries))) for order in range(count)]


def measure(
    entries: Sequence[TableEntry], run: Run, seed: int, count: int, trials: int | None, *, of_mean: bool = False
) -> list[Figures]:
    by = None if of_mean else seed
    least = best_of(entries, by)
    return [figures(order, run(order, seed), seed, least, by) for order in orders(entries, count, trials)]


def interval(values: Sequence[float], percent: bool = True) -> str:
    """The mean, with its 95 % interval, over the orders."""
    half = 1.96 * stdev(values) / len(values) ** 0.5 if len(values) > 1 else 0.0
    return f"{100 * fmean(values):.1f} ± {100 * half:.1f} %" if percent else f"{fmean(values):.0f} ± {half:.0f}"


def row(name: str, found: Sequence[Figures]) -> list[str]:
    lost, saved = [one.lost for one in found], [one.saved for one in found]
    first = [one.first for one in found if one.first is not None]
    never = f" ({len(found) - len(first)} never)" if len(first) < len(found) else ""
    fulfils = fmean(lost) <= MOST_LOST and fmean(saved) >= LEAST_SAVED
    reached = f"{interval(first, percent=False)}{never}" if first else "never"
    return [name, interval(lost), interval(saved), reached, "yes" if fulfils else "no"]


COLUMNS = ("rule", "best decile lost", "CPU-seconds saved", "CPU-seconds to the first of the best", "fulfils")


def part(
    entries: Sequence[TableEntry], seed: int, count: int, trials: int | None, rules: Mapping[str, Run], *, of_mean: bool = False
) -> dict[str, list[str]]:
    """The rows of the table of one part of the operators, by rule."""
    found = {}
    for name, run in rules.items():
        found[name] = row(name, measure(entries, run, seed, count, trials, of_mean=of_mean))
        print(f"  {' | '.join(found[name])}", file=sys.stderr)
    return found


def summary(found: Mapping[str, Mapping[str, Sequence[str]]]) -> list[str]:
    """Sentences on what the default rule and the one before it did."""
    lines = []
    for rule, words in (
        (DEFAULT, "`study: stopping: {keep: auto}`"),
        (BEFORE, "Milestones and a pruner, as the quickstart had them before"),
    ):
        parts = "; ".join(f"{name}: {rows[rule][1]} of the best lost, {rows[rule][2]} saved" for name, rows in found.items())
        lines.append(f"- {words}: {parts}.")
    return lines


STEPS: tuple[Mapping[float, float], ...] = (
    KEEP,
    {1: 0.45, 2: 0.25, 3: 0.2},
    {0.5: 0.9, 0.75: 0.6, 1.5: 0.4, 2.25: 0.3, 3: 0.2},
)
POWERS = (0.5, 0.6, 0.7, 0.8, 0.9, 1.0, 1.1, 1.2, 1.35, 1.5, 1.75, 2.0)  # to which all shares are raised
GRID = [{step: share**power for step, share in keep.items()} for keep in STEPS for power in POWERS]


def chosen_elsewhere(parts: Sequence[Sequence[TableEntry]], seed: int, splits: int = 20, count: int = 5) -> list[list[str]]:
    """Choose the shares on a random half of the operators of all parts, and measure them on the other half.

    Of the shares that lose at most 1 % of the best in every part, those are chosen that save most.
    """
    found: list[list[Figures]] = [[] for _ in parts]
    for split in range(splits):
        halves = [random.Random(split).sample(list(entries), len(entries)) for entries in parts]
        seen = [entries[: len(entries) // 2] for entries in halves]
        unseen = [entries[len(entries) // 2 :] for entries in halves]

        def worth(keep: Mapping[int, float], seen: Sequence[Sequence[TableEntry]] = seen) -> tuple[bool, float, float]:
            runs = [measure(entries, by_loss(keep), seed, count, None) for entries in seen]
            lost = max(fmean(one.lost for one in run) for run in runs)
            saved = fmean(one.saved for run in runs for one in run)
            return lost <= MOST_LOST / 2, saved if lost <= MOST_LOST / 2 else -lost, saved

        keep = max(GRID, key=worth)
        for place, entries in enumerate(unseen):
            found[place] += measure(entries, by_loss(keep), seed, count, None)
    return [row(name, figures) for name, figures in zip(SUBSETS, found, strict=True)]


SUBSETS = {"natural": Subset.NATURAL, "required": Subset.REQUIRED, "all": Subset.ALL}
WORDS = {
    "natural": "Operators as random walks draw them",
    "required": "Operators that meet the requirement",
    "all": "Both",
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Replay, print the page, and return the exit status."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--table", type=Path, default=FOLDER, help="folder of the table")
    parser.add_argument("--orders", type=int, default=100, help="random orders of trials")
    parser.add_argument("--splits", type=int, default=20, help="random halves for the choice of the shares")
    options = reports.parse(parser, arguments)
    table = OperatorTable.read(options.table)
    parts = {name: list(table.subset(subset).values()) for name, subset in SUBSETS.items()}
    command = "benchmarks/stopping.py" + (f" --orders {options.orders}" if options.orders != 100 else "")
    lines, found = list[str](), dict[str, dict[str, list[str]]]()
    for name, entries in parts.items():
        print(name, file=sys.stderr)
        rules = {**RULES, **fitted(parts, name, best_of)}
        found[name] = part(entries, 0, options.orders, None, rules)
        lines += ["", f"## {WORDS[name]}: {len(entries)} trials", "", *reports.table(COLUMNS, list(found[name].values()))]
    default = {name: RULES[name] for name in (BEFORE, DEFAULT, GENTLE_HALVING)}
    for name, entries in parts.items():
        rows = list(part(entries, 0, options.orders, SHORT, default).values())
        lines += ["", f"## Studies of {SHORT} trials: {WORDS[name].lower()}", "", *reports.table(COLUMNS, rows)]
    lines += ["", *elsewhere(parts, table, options.orders, options.splits, default)]
    head = [*reports.heading("Early stopping, replayed on the table", command), *intro(table, options.orders)]
    reports.deliver([*head, "", *summary(found), *lines], options.output)
    return 0


def intro(table: OperatorTable, count: int) -> list[str]:
    of = table.about
    return [
        f"- Table: {of['operators']} operators, trained {of['first']} to {of['last']} on {of['machine']}; the first seed",
        f"- {count} random orders of the trials; 95 % intervals of the mean over them; the operators are the same.",
        f"- Required: at most {MOST_LOST:.0%} of the best decile lost, at least {LEAST_SAVED:.0%} of the CPU-seconds saved",
        "- One worker; orders are random, as of a policy that does not learn. Where later trials are better than earlier ones, "
        "more of them go on, and less is saved. A training that is resumed costs nothing twice. Accuracies are those after "
        "each epoch; losses are means over the quarter of an epoch before the step at which trials are compared.",
        "- `fitted` rules stop a trial for good if a logistic regression finds it unlikely to end among the best. They are "
        "fitted on other operators than those that they stop (10 folds), or on those of the other part of the table.",
    ]


def elsewhere(
    parts: Mapping[str, Sequence[TableEntry]], table: OperatorTable, count: int, splits: int, default: Mapping[str, Run]
) -> list[str]:
    """The checks that the shares were not fitted to these operators, or to these trainings."""
    lines = [
        "## Shares chosen on other operators",
        "",
        f"The shares were chosen from {len(GRID)} on a random half of the operators and measured on the other half, "
        f"{splits} times.",
        "",
        *reports.table(COLUMNS, chosen_elsewhere(list(parts.values()), 0, splits)),
    ]
    second = {name: [entry for entry in entries if 1 in entry.accuracies] for name, entries in parts.items()}
    for name, entries in second.items():
        if len(entries) >= 20:
            lines += ["", f"## Trained with another seed: {WORDS[name].lower()}, {len(entries)} trials", ""]
            lines += reports.table(COLUMNS, list(part(entries, 1, count, None, default).values()))
    for name, entries in second.items():
        if len(entries) >= 20:
            lines += ["", f"## The best by the mean of both trainings: {WORDS[name].lower()}", ""]
            for seed, words in enumerate(("first", "second")):
                rows = list(part(entries, seed, count, None, default, of_mean=True).values())
                lines += [f"Stopped by the {words} training:", "", *reports.table(COLUMNS, rows), ""]
    return lines


if __name__ == "__main__":
    sys.exit(main())
