"""The page on the table of truth, docs/measured/table.md, with its figures: what was measured, and what it says."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from statistics import fmean, stdev

import numpy
import reports
from table_policies import SEARCHES, TRIALS, contenders, policies
from table_statistics import spearman

from syno.base.files import write_whole
from syno.base.progress import display
from syno.paper.replay.comparison import FLOPS, LOSE, quartiles
from syno.paper.replay.entries import TableEntry
from syno.paper.replay.report import compare, draw, table_in
from syno.paper.replay.table import COMPILERS, OperatorTable, Subset
from syno.report.figures import save

PAGE, FIGURE = Path("docs/measured/table.md"), Path("docs/images/table-policies")
GOOD = 0.9  # accuracy
Group = tuple[str, Callable[[TableEntry], bool]]
GROUPS: tuple[Group, ...] = (
    ("all", lambda one: True),
    ("natural", lambda one: one.natural),
    ("required", lambda one: one.meets),
)


def page(folder: Path, parts: Path, processes: int) -> Iterator[str]:
    """Write the page and its figure; yields what was written."""
    table = table_in(folder)
    searches = compare(
        contenders(),
        [Subset.NATURAL, Subset.REQUIRED],
        seeds=SEARCHES,
        trials=TRIALS,
        parts=parts,
        processes=processes,
        folder=folder,
        display=display(),
    )
    save(
        draw(searches, [f"{table.about['operators']} operators, trained {table.about['first']} to {table.about['last']}."]),
        FIGURE,
        ("svg",),
    )
    lines = reports.heading("A table of truth: operators of ResNet-8, each trained to the end", "benchmarks/table.py pack page")
    for section in (made, reads, seeds, epochs, latency, proxies):
        lines += ["", *section(table)]
    write_whole(PAGE, "\n".join([*lines, "", *policies(table, searches)]) + "\n")
    yield f"{PAGE}, {FIGURE}.svg, {FIGURE}.png"


def members(table: OperatorTable, group: Group) -> list[TableEntry]:
    return [one for one in table.entries.values() if group[1](one)]


def made(table: OperatorTable) -> list[str]:
    about, original = table.about, table.original
    trained = ", ".join(f"{count} with seed {seed}" for seed, count in about["trained"].items())
    accuracies = " and ".join(f"{curve[-1]:.4f}" for curve in original.accuracies.values())
    torch = about["versions"]["torch"]
    return [
        "## How it was made",
        "",
        *reports.paragraph(
            f"- Trained {about['first']} to {about['last']} UTC on {about['machine']}, one thread each; torch {torch}."
        ),
        *reports.paragraph(
            f"- {about['operators']} operators of a space of ResNet-8 ([table.yaml](../../benchmarks/table.yaml)), "
            f"no two of which "
            f"mean the same: {about['natural']} *natural* ones, as random walks draw them, and others that random "
            f"walks drew and "
            f"that were kept because they meet the requirement. {about['required']} are *required* ones, which meet "
            f"it: applied "
            "twice, the operator reads the 3x3 positions around its own and all channels."
        ),
        *reports.paragraph(
            f"- Trainings: {trained} (the original network included), without milestones or pruner. Accuracy is that "
            f"after an epoch "
            "on the test pictures. CPU-seconds are those of the whole training, with tests; other work ran on the machine."
        ),
        *reports.paragraph(
            f"- The original: accuracy {accuracies}, {original.flops:,.0f} FLOPs for a batch of 64, "
            f"{original.parameters:,.0f} parameters."
        ),
        f"- *Success*: at most {LOSE} less accurate than the original at no more than {FLOPS:.0%} of its FLOPs.",
        "",
        "The table is in `syno/paper/replay/resnet8`; `syno.paper.replay.OperatorTable.read()` returns it, and",
        "`OperatorTable.read().frame` is a pandas frame.",
    ]


def reads(table: OperatorTable) -> list[str]:
    def kind(one: TableEntry) -> str:
        return ("one position", "a line", "a square")[(one.once.rows > 1) + (one.once.columns > 1)]

    rows = []
    for name in ("one position", "a line", "a square"):
        for meets in (False, True):
            for natural in (True, False):
                found = [one for one in table.entries.values() if (kind(one), one.meets, one.natural) == (name, meets, natural)]
                if not found:
                    continue
                values = sorted(one.accuracy(0) for one in found)
                low, middle, high = quartiles(numpy.array(values))
                good, both = sum(value >= GOOD for value in values), sum(table.succeeds(one, 0) for one in found)
                words = ["yes" if meets else "no", "natural" if natural else "kept"]
                numbers = [f"{fmean(values):.3f}", f"{middle:.3f}", f"{low:.3f} to {high:.3f}", f"{values[-1]:.3f}"]
                rows.append([name, *words, str(len(found)), *numbers, str(good), str(both)])
    columns = [
        "reads",
        "meets the requirement",
        "drawn",
        "operators",
        "mean",
        "median",
        "quartiles",
        "best",
        f">= {GOOD}",
        "succeed",
    ]
    return [
        "## Accuracy by what is read",
        "",
        *reports.paragraph(
            "What one application of the operator reads, and whether two applications meet the requirement. Accuracy "
            "after the last "
            "epoch, seed 0."
        ),
        "",
        *reports.table(columns, rows, left=3),
    ]


def seeds(table: OperatorTable) -> list[str]:
    lines = ["## Two seeds", "", "Rank correlation of the last accuracies of both seeds, with 95 % bootstrap intervals.", ""]
    rows = []
    for group in (*GROUPS, (f"required, {GOOD} or more", lambda one: one.meets and one.accuracy(0) >= GOOD)):
        both = [one for one in members(table, group) if len(one.accuracies) > 1]
        if len(both) > 1:
            pairs = [(one.accuracy(0), one.accuracy(1)) for one in both]
            gaps = [first - second for first, second in pairs]
            found = spearman(*zip(*pairs, strict=True))
            rows.append([group[0], str(len(both)), str(found), f"{stdev(gaps) / 2**0.5:.4f}"])
    if not rows:
        return [*lines, "Not measured yet."]
    return [*lines, *reports.table(["operators", "count", "rank correlation", "std. dev. of one training"], rows)]


def epochs(table: OperatorTable) -> list[str]:
    last = len(table.original.accuracies[0])
    rows = []
    for group in GROUPS:
        found = members(table, group)
        finals = [one.accuracy(0) for one in found]
        best = set(sorted(range(len(found)), key=lambda place: -finals[place])[: max(1, len(found) // 10)])
        for epoch in range(1, last):
            early = [one.accuracies[0][epoch - 1] for one in found]
            order = sorted(range(len(found)), key=lambda place: -early[place])
            kept = [len(best & set(order[: int(len(found) * share)])) / len(best) for share in (0.25, 0.5)]
            rows.append([group[0], str(epoch), str(spearman(early, finals)), *(f"{share:.0%}" for share in kept)])
    return [
        f"## Epochs before the last ({last})",
        "",
        *reports.paragraph(
            "Rank correlation of the accuracy after an epoch with the last one, same seed, and the share of the best "
            "decile that is "
            "in the best quarter and in the best half after that epoch."
        ),
        "",
        *reports.table(["operators", "epoch", "rank correlation", "in the best quarter", "in the best half"], rows),
    ]


def latency(table: OperatorTable) -> list[str]:
    lines = ["## FLOPs and latency", ""]
    found = [one for one in table.entries.values() if one.latency]
    if len(found) < 10:
        return [*lines, "Not measured yet."]
    rows = []
    for compiler in COMPILERS:
        times = [one.latency[compiler].ms for one in found]
        speedups = [one.latency[compiler].speedup for one in found]
        correlations = [
            spearman([getattr(one, cost) for one in found], times) for cost in ("flops", "parameters", "memory_bytes")
        ]
        fast = sum(one.latency[compiler].low >= 1.5 for one in found)
        low, middle, high = quartiles(numpy.array(speedups))
        numbers = [f"{middle:.2f} ({low:.2f} to {high:.2f})", f"{max(speedups):.2f}", str(fast)]
        rows.append([compiler, str(len(found)), *map(str, correlations), *numbers])
    columns = ["compiler", "count", "FLOPs", "parameters", "memory", "speedup, median (quartiles)", "best", "1.5x or more"]
    return [
        *lines,
        *reports.paragraph(
            "Rank correlation of costs with the latency of the network (batch 64, one thread), and the speedup over "
            "the original, "
            "timed in turns with it. The last column counts operators whose 95 % interval is at 1.5 or above. "
            f"Timed {' to '.join(table.about.get('timed', ()))} UTC, with the code that Syno generated then; other work ran on "
            "the machine."
        ),
        "",
        *reports.table(columns, rows),
    ]


def proxies(table: OperatorTable) -> list[str]:
    lines = ["## Zero-cost proxies", ""]
    names = sorted({name for one in table.entries.values() for name in one.proxies})
    if not names:
        return [*lines, "Not computed yet."]
    rows = []
    for group in GROUPS:
        found = members(table, group)
        accuracy = [one.accuracy() for one in found]
        costs = [[one.flops for one in found], [one.parameters for one in found]]
        for name, values in zip(("FLOPs", "parameters"), costs, strict=True):
            rows.append([group[0], name, str(spearman(values, accuracy)), "–"])
        for name in names:
            values = [one.proxies.get(name, numpy.nan) for one in found]
            plain, partial = spearman(values, accuracy), spearman(values, accuracy, costs)
            rows.append([group[0], name.replace("_", " "), str(plain), str(partial)])
    return [
        *lines,
        "Rank correlation with the accuracy (mean of the seeds), with 95 % bootstrap intervals, and the part beyond FLOPs and",
        "parameters (partial rank correlation). The proxies are computed on one batch with the weights of seed 0: the "
        "norm of the",
        "loss's gradient, SNIP, NASWOT and SynFlow.",
        "",
        *reports.table(["operators", "score", "rank correlation", "beyond FLOPs and parameters"], rows, left=2),
    ]
