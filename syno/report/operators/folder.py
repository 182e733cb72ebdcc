"""A folder of operators of one space: a text file for each, one table, and the spec.

resnet18_0c5d1a2b3c4d.txt   an operator, named after its fingerprint
operators.csv               a row for each: file, ids, size, cost in the whole model
spec.yaml                   the space that they are from
"""

from __future__ import annotations

import csv
import time
from collections.abc import Callable, Mapping
from contextlib import nullcontext, suppress
from dataclasses import dataclass
from pathlib import Path
from random import Random

from pydantic import BaseModel, ConfigDict, ValidationError

from syno.base.collection import seldom_collected
from syno.base.errors import SpecError
from syno.base.files import name_from, write_whole
from syno.base.progress import Display, Progress
from syno.base.text_tables import csv_text
from syno.ir.graph import PGraph
from syno.ir.primitives import EXPAND, SHARE
from syno.ir.text import parse
from syno.space.sample import Sampler
from syno.space.space import Space
from syno.space.spec import OperatorSpec
from syno.space.state_graph import check_not_empty, why_empty

TABLE, SPEC = "operators.csv", "spec.yaml"
NAME_DIGITS = 12  # of the fingerprint; two of a million operators share them with a chance of 0.2 %


class StoredOperator(BaseModel):
    """A row of the table: an operator's file, its ids, its size, and its cost in the whole model."""

    model_config = ConfigDict(frozen=True)
    file: str
    id: str
    fingerprint: str
    primitives: int
    reductions: int
    weights: int
    flops: int
    parameters: int
    memory_bytes: int


class OperatorFolder:
    """A folder of operators. Files are written atomically, so it can be opened again after any interruption.

    Attributes:
        path: the folder.
        space: the space that its operators are from.
        operators: the operators in the folder, by fingerprint.
    """

    def __init__(self, path: Path, space: Space) -> None:
        """Open a folder, or prepare a new one.

        Raises SpecError if it holds operators of another spec, ParseError if one of its files holds no operator.
        """
        self.path, self.space = path, space
        self.operators: dict[str, PGraph] = {}
        self._rows: dict[str, StoredOperator] = {}
        self._check_spec()
        known = self._stored_rows()
        for file in sorted(path.glob("*.txt")):
            operator = parse(file.read_text(encoding="utf-8"), str(file))
            row = known.get(file.name)
            if row is None or row.id != operator.id:
                row = self._row(file.name, operator, space.fingerprint(operator))
            self.operators[row.fingerprint], self._rows[row.fingerprint] = operator, row

    def __len__(self) -> int:
        return len(self.operators)

    def add(self, operator: PGraph, fingerprint: str) -> Path:
        """Write an operator's file, named after its space and its fingerprint, and return its path."""
        name = f"{name_from(self.space.spec.name).replace('.', '_')}_{fingerprint[:NAME_DIGITS]}"
        file = self.path / f"{name}.txt"
        if not self.operators:
            write_whole(self.path / SPEC, self.space.spec.dump())
        named = operator.renamed(name)
        write_whole(file, str(named))
        self.operators[fingerprint] = named
        self._rows[fingerprint] = self._row(file.name, named, fingerprint)
        return file

    def write_table(self) -> Path:
        """Write the table of all operators in the folder, and return its path."""
        file = self.path / TABLE
        write_whole(file, csv_text([row.model_dump() for row in self._rows.values()]))
        return file

    def _row(self, file: str, operator: PGraph, fingerprint: str) -> StoredOperator:
        price = self.space.completion.cost(operator)
        return StoredOperator(
            file=file,
            id=operator.id,
            fingerprint=fingerprint,
            primitives=primitives(operator),
            reductions=len(operator.reduces),
            weights=len(operator.weights),
            flops=round(price.flops),
            parameters=round(price.parameters),
            memory_bytes=price.memory_bytes,
        )

    def _check_spec(self) -> None:
        file = self.path / SPEC
        if file.exists() and OperatorSpec.load(file).id != self.space.id:
            raise SpecError(
                f'{self.path} holds operators of another spec than "{self.space.spec.name}" is now; give another folder '
                f"(--output), or go on with that spec: {file}"
            )

    def _stored_rows(self) -> dict[str, StoredOperator]:
        """Return the rows of the table by file; incomplete rows are left out, and are made again."""
        file, found = self.path / TABLE, dict[str, StoredOperator]()
        if file.exists():
            with file.open(encoding="utf-8", newline="") as stream:
                for row in csv.DictReader(stream):
                    with suppress(ValidationError):
                        stored = StoredOperator.model_validate(row)
                        found[stored.file] = stored
        return found


def primitives(operator: PGraph) -> int:
    """Return the size of an operator as depth counts it: a contraction and the Expands of its outer axes are one primitive."""
    views = 0
    for operation in operator.operations:
        below = operation.bottoms[0].operation if operation.bottoms else None
        in_contraction = operation.primitive is EXPAND and below is not None and below.primitive is SHARE
        views += operation.primitive is not SHARE and not in_contraction
    return len(operator.reduces) + len(operator.weights) + views


# Draw operators at random into a folder, and the progress of this and of the ablations. A stopped run is continued.


TOP_RULES = 3  # the rules that reject most are shown
Show = Callable[[str, int, int], None]  # shows a title, how much is done, and the total


@dataclass(frozen=True)
class SamplingProgress(Progress):
    """Progress of drawing operators.

    Attributes:
        walks: random walks since this process began.
        dead_ends: walks that ended without an operator.
    """

    walks: int = 0
    dead_ends: int = 0

    @property
    def valid_rate(self) -> float | None:
        """The share of walks that ended in an operator; None before the first."""
        return 1 - self.dead_ends / self.walks if self.walks else None


def draw_into(
    folder: OperatorFolder,
    count: int,
    *,
    seed: int = 0,
    by_kind: bool = True,
    seconds: float | None = None,
    display: Display | None = None,
) -> Sampler:
    """Draw random operators until the folder holds `count` operators, the space has no others, or the time is up.

    The same seed draws the same operators into an empty folder. Operators that the folder holds already are not drawn again.
    The folder's table is written at the end, also after an error.

    Args:
        folder: the folder of operators.
        count: the number of operators to reach, including those that the folder holds already.
        seed: the seed of the random walks.
        by_kind: whether each step of a walk is drawn in two stages: its kind, then a step of this kind. If not, it is drawn
            from all steps with equal chances.
        seconds: the most seconds; None for any number.
        display: shows the progress.

    Raises:
        SpecError: the space is empty.
    """
    space = folder.space
    if len(folder) < count:
        check_not_empty(space)
    sampler = Sampler(space, Random(f"{seed} {len(folder)}"), by_kind, space.distinct(folder.operators.values()))
    began, before = time.monotonic(), len(folder)
    try:
        with seldom_collected(), display or nullcontext():
            while len(folder) < count and not sampler.is_exhausted:
                found = sampler.draw()
                if found is not None:
                    folder.add(found, space.fingerprint(found))
                passed = time.monotonic() - began
                if display is not None:
                    display.show(_progress(sampler, len(folder), count, before, passed))
                if seconds is not None and passed >= seconds:
                    break
    finally:
        if len(folder):
            folder.write_table()
    if not len(folder) and sampler.is_exhausted:
        raise SpecError(why_empty(space.spec))
    return sampler


def _progress(sampler: Sampler, finished: int, total: int, before: int, seconds: float) -> SamplingProgress:
    return SamplingProgress(
        f"sample {sampler.space.spec.name}",
        finished,
        total,
        valid=finished,
        seconds=seconds,
        rate=(finished - before) / seconds if seconds > 0 else 0.0,
        notes=rejections(sampler.space),
        walks=sampler.walks,
        dead_ends=sampler.dead_ends,
    )


def rejections(space: Space) -> Mapping[str, str]:
    """Return the rules that have rejected the most steps so far, as {heading: text} for the shown progress."""
    found = space.rules.rejections
    if not found:
        return {}
    return {"rejected by": " ".join(f"{rule} {count:,}" for rule, count in found.most_common(TOP_RULES))}


@dataclass(frozen=True)
class Part(Progress):
    """Progress of one part of a benchmark, whose results are not valid or invalid, unlike sampled operators."""

    @property
    def valid_rate(self) -> None:
        """None, since the results of a benchmark's part are not valid or invalid."""
        return None


def silent(title: str, finished: int, total: int) -> None:
    """Ignore the progress of a part: the `Show` for calls without a display."""


def shown_on(display: Display | None) -> Show:
    """Return a function that shows the progress of parts on a display, each with its time and rate; None: `silent`."""
    if display is None:
        return silent
    title_now, began = "", time.monotonic()

    def show(title: str, finished: int, total: int) -> None:
        nonlocal title_now, began
        if title != title_now:
            title_now, began = title, time.monotonic()
        seconds = time.monotonic() - began
        rate = finished / seconds if seconds > 0 else 0.0
        display.show(Part(title, finished, total, valid=0, seconds=seconds, rate=rate))

    return show
