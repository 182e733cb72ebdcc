"""The table of trained operators: operators of one network, each trained completely with several seeds, with its costs.

`benchmarks/table.py` makes it; docs/measured/table.md describes it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Any, Self

from syno.base.errors import SpecError, suggestion
from syno.paper.replay.entries import Latency, Original, Reading, TableEntry, TrainedRow
from syno.paper.replay.stopping import TableTree
from syno.space.spec import OperatorSpec

if TYPE_CHECKING:
    import pandas

FOLDER = Path(__file__).with_name("resnet8")  # the table that comes with Syno
OPERATORS, STEPS, ABOUT = "operators.parquet", "steps.parquet", "about.json"
SPEC = "spec.yaml"
ORIGINAL = "original"  # the id in the row of the network itself
COMPILERS = ("eager", "inductor")


class Subset(StrEnum):
    """A part of a table's operators."""

    NATURAL = "natural"
    """operators as random walks draw them"""
    REQUIRED = "required"
    """operators that meet the requirement on what is read, however drawn"""
    ALL = "all"
    """both"""


@dataclass(frozen=True)
class OperatorTable:
    """The trained operators of a table.

    Attributes:
        entries: the operators by id.
        original: the row of the original network.
        about: how the table was made: experiment, date, machine, versions, seeds.
        spec: the spec of the operators; None in a folder without it.
        frame: all columns as stored: a row for each operator, and a row with the id "original".
    """

    entries: Mapping[str, TableEntry]
    original: Original
    about: Mapping[str, Any]
    frame: pandas.DataFrame = field(repr=False)
    spec: OperatorSpec | None
    _operators: Mapping[int, TableEntry] = field(repr=False)
    _steps: tuple[tuple[int, str, str, int], ...] = field(repr=False)

    @classmethod
    def read(cls, folder: Path = FOLDER) -> Self:
        """Return the table in a folder; by default the one that comes with Syno.

        Raises SpecError if a file is missing or damaged.
        """
        try:
            about = json.loads((folder / ABOUT).read_text())
            frame, steps = _frame(folder / OPERATORS), _frame(folder / STEPS)
            seeds = [int(seed) for seed in about["seeds"]]
            rows: list[dict[str, Any]] = [
                dict(zip(map(str, frame.columns), cells, strict=True)) for cells in frame.itertuples(index=False)
            ]
            by_node = {int(row["node"]): _entry(row, seeds) for row in rows if row["id"] != ORIGINAL}
            original = Original(**_trained(next(row for row in rows if row["id"] == ORIGINAL), seeds))
            spec = OperatorSpec.load(folder / SPEC) if (folder / SPEC).exists() else None
            taken = tuple(zip(*(steps[name].tolist() for name in ("before", "kind", "id", "after")), strict=True))
        except (OSError, ValueError, KeyError, StopIteration) as error:
            reason = " ".join(str(error).split()) or type(error).__name__
            raise SpecError(
                f"{folder} holds no table of operators: {reason}; `python benchmarks/table.py pack` makes one"
            ) from None
        return cls({entry.id: entry for entry in by_node.values()}, original, about, frame, spec, by_node, taken)

    def subset(self, subset: Subset | str = Subset.ALL) -> dict[str, TableEntry]:
        """Return a part of the operators by id. Raises SpecError for an unknown name."""
        if subset not in list(Subset):
            raise SpecError(f'"{subset}" is no part of the table; there are: {", ".join(Subset)}.{suggestion(subset, Subset)}')
        return {
            id_: entry
            for id_, entry in self.entries.items()
            if subset == Subset.ALL or (entry.natural if subset == Subset.NATURAL else entry.meets)
        }

    def tree(self, subset: Subset | str = Subset.ALL) -> TableTree:
        """Return the search tree of a part of the operators."""
        return TableTree(self._operators, self._steps, self.subset(subset), self.spec)

    def metrics(self, entry: TrainedRow, seed: int | None, epochs: int | None = None) -> dict[str, float]:
        """Return the metrics that a search would measure, from which rewards are computed.

        Args:
            entry: a row of the table.
            seed: seed of the training; None: the mean over the seeds.
            epochs: number of epochs trained; by default all.
        """
        curves = list(entry.accuracies.values()) if seed is None else [entry.accuracies[seed]]
        of_original = self.original.accuracy(seed)
        return {
            "accuracy": fmean(curve[-1 if epochs is None else epochs - 1] for curve in curves),
            "flops": entry.flops,
            "parameters": entry.parameters,
            "memory_bytes": entry.memory_bytes,
            "original_accuracy": of_original,
            "original_flops": self.original.flops,
            "original_parameters": self.original.parameters,
        }

    def succeeds(self, entry: TableEntry, seed: int | None = None, *, lose: float = 0.01, flops: float = 0.45) -> bool:
        """Return whether an operator is within `lose` of the original's accuracy at no more than `flops` of its FLOPs.

        Both accuracies are of training seed `seed`, or if it is None, means over the seeds that the operator was trained with.
        """
        seeds = entry.accuracies if seed is None else (seed,)
        least = fmean(self.original.accuracy(one) for one in seeds) - lose
        return entry.flops <= flops * self.original.flops and entry.accuracy(seed) >= least


def _frame(file: Path) -> pandas.DataFrame:
    import pandas

    return pandas.read_parquet(file)


def _trained(row: Mapping[str, Any], seeds: list[int]) -> dict[str, Any]:
    known = [seed for seed in seeds if _is_there(row[f"accuracies_{seed}"])]
    return {
        "accuracies": {seed: tuple(map(float, row[f"accuracies_{seed}"])) for seed in known},
        "recent_losses": {seed: tuple(map(float, row[f"recent_losses_{seed}"])) for seed in known},
        "losses": {seed: tuple(map(float, row[f"losses_{seed}"])) for seed in known},
        "cpu_seconds": {seed: float(row[f"cpu_seconds_{seed}"]) for seed in known},
        **{name: float(row[name]) for name in ("flops", "parameters", "memory_bytes")},
    }


def _is_there(cell: Any) -> bool:
    return cell is not None and not isinstance(cell, float)


def _entry(row: Mapping[str, Any], seeds: list[int]) -> TableEntry:
    latency = {
        name: Latency(*(float(row[f"{name}_{part}"]) for part in ("ms", "original_ms", "speedup", "low", "high")))
        for name in COMPILERS
        if row[f"{name}_ms"] == row[f"{name}_ms"]  # not NaN
    }
    return TableEntry(
        **_trained(row, seeds),
        id=str(row["id"]),
        fingerprint=str(row["fingerprint"]),
        text=str(row["text"]),
        natural=bool(row["natural"]),
        meets=bool(row["meets"]),
        once=_reading(row, "once"),
        twice=_reading(row, "twice"),
        latency=latency,
        proxies={name[6:]: float(row[name]) for name in row if name.startswith("proxy_") and row[name] == row[name]},
    )


def _reading(row: Mapping[str, Any], times: str) -> Reading:
    counts = {name: int(row[f"{times}_{name}"]) for name in ("rows", "columns", "positions", "channels")}
    return Reading(**counts, centred=bool(row[f"{times}_centred"]))
