"""Recovery of a damaged journal: whole lines keep their effect, and each lost line is replaced by a harmless one.

A whole line states how many lines, trials and studies come before it. So it is known how many lines were lost before it, and
how many of them created trials or studies. Those are replaced by lines that create a failed trial, or the study, so that later
trials keep their numbers; the others are replaced by lines without effect. So every line keeps its number, too, by which
workers remember how far they have read.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import NamedTuple

from optuna.storages.journal._storage import JournalOperation
from optuna.study import StudyDirection
from optuna.trial import TrialState

from syno.search.storage.journal_lines import JournalLine, Log, Position, Stamp, decode, encode

NOTE = {"lost": "this line of the journal was damaged"}
LOST = {"op_code": JournalOperation.SET_TRIAL_USER_ATTR, "worker_id": "", "trial_id": -1, "user_attr": NOTE}  # without effect
BEGINNING = re.compile(rb'\{"op_code":')  # within a string its quotes would be escaped
STUDY_NAME = re.compile(rb'"study_name":\s*"([^"\\]+)"')
MAKES_TRIAL = re.compile(rb'"op_code":\s*4\b|"user_attrs"')
SHOWN = 5  # line numbers in a message


class FoundLine(NamedTuple):
    """A line found in a damaged file.

    Attributes:
        key: the number of the line, as far as it is known.
        line: the whole line; None for a damaged one.
        raw: the bytes.
    """

    key: int
    line: JournalLine | None
    raw: bytes


@dataclass
class Recovered:
    """A journal without damage.

    Attributes:
        logs: its operations.
        raw: its bytes.
        damaged: numbers of the damaged lines in the file, counted from 1.
        lost: how many lines were replaced.
    """

    logs: list[Log] = field(default_factory=list)
    raw: bytes = b""
    damaged: list[int] = field(default_factory=list)
    lost: int = 0

    def __str__(self) -> str:
        more = f" and {len(self.damaged) - SHOWN} more" if len(self.damaged) > SHOWN else ""
        numbers = ", ".join(map(str, self.damaged[:SHOWN])) or "none"
        return f"damaged lines: {numbers}{more}; entries lost: {self.lost}, all others are kept"


def read(data: bytes, position: Position) -> list[Log] | None:
    """Return the operations of lines that begin at a position, which is moved to their end. None if there is any damage."""
    lines = []
    for raw in data.split(b"\n")[:-1]:
        line = decode(raw)
        if line is None or not position.fits(line.stamp):
            return None
        position.pass_over(line.log)
        lines.append(line)
    position.writers |= _writers(lines)
    if any(line.stamp is None and line.log["worker_id"] in position.writers for line in lines):
        return None
    return [line.log for line in lines]


def _writers(lines: Iterable[JournalLine]) -> set[str]:
    """Return the workers that stamp lines. A line without a stamp is then damaged, even if Optuna would read it."""
    return {line.log["worker_id"] for line in lines if line.stamp is not None}


def recover(data: bytes) -> Recovered:
    """Return the recovered content of a journal. Its `logs` are empty if there is no whole line."""
    recovered = Recovered()
    items = sorted(_items(data, recovered.damaged), key=lambda item: item.key)
    if not any(item.line for item in items):
        return recovered
    position, lines, lost = Position(), list[bytes](), list[bytes]()  # `lost`: the damaged lines just before
    stamped = [item.line for item in items if item.line is not None and item.line.stamp is not None]
    studies = {line.log["study_id"]: line.stamp.study for line in stamped if line.stamp and line.stamp.study is not None}

    def add(log: Log, raw: bytes) -> None:
        lines.append(raw)
        recovered.logs.append(log)
        position.pass_over(log)

    def replace(replacements: Iterable[Log]) -> None:
        for log in replacements:
            recovered.lost += 1
            add(log, encode(log, position))

    for index, (_, line, raw) in enumerate(items):
        if line is None:
            lost.append(raw)
            continue
        if line.stamp is None:
            replace(_replacements(lost, position))
        else:
            replace(_missing(line.stamp, position, studies, items[index:]))
        lost.clear()
        # A line of a worker that had lost the lock gets a new stamp.
        add(line.log, line.raw if position.fits(line.stamp) else encode(line.log, position))
    replace(_replacements(lost, position))
    recovered.raw = b"".join(line + b"\n" for line in lines)
    return recovered


def _items(data: bytes, damaged: list[int]) -> Iterator[FoundLine]:
    """Yield the lines of a file in order. JournalLine numbers of what is damaged are added to `damaged`."""
    *whole, tail = data.split(b"\n")
    key, taken = 0, dict[int, bytes]()
    lines = [_whole(raw) for raw in (*whole, tail)]
    writers = _writers(line for some in lines for line in some)
    for number, (raw, some) in enumerate(zip((*whole, tail), lines, strict=True), start=1):
        found = [line for line in some if line.stamp is not None or line.log["worker_id"] not in writers]
        if [line.raw for line in found] != [raw] and (raw or number <= len(whole)):
            damaged.append(number)
        if not found and number <= len(whole):  # an unfinished last line was never stored
            yield FoundLine(key, None, raw)
            key += 1
        for one in found:
            if one.stamp is not None:
                if taken.get(one.stamp.line) == one.raw:  # the line is there twice
                    damaged.append(number)
                    continue
                if one.stamp.line not in taken:
                    key = one.stamp.line
                    taken[key] = one.raw
            yield FoundLine(key, one, one.raw)
            key += 1


def _whole(raw: bytes) -> list[JournalLine]:
    """Return the line, or the whole lines within a damaged one: half a line joined with the next, or bytes around a line."""
    line = decode(raw)
    if line is not None:
        return [line]
    starts = [match.start() for match in BEGINNING.finditer(raw)]
    pieces = [raw[start:end] for start, end in pairwise([*starts, len(raw)])]
    return [line for piece in pieces if (line := decode(piece[: piece.rfind(b"}") + 1])) is not None]


def _missing(stamp: Stamp, position: Position, names: dict[int, str], rest: Sequence[FoundLine]) -> Iterator[Log]:
    """Yield replacements for the lines that are missing before a line with this stamp."""
    for _ in range(stamp.line - position.line):
        if position.studies < stamp.studies:
            yield _study(names.get(position.studies, f"lost study {position.studies}"))
        elif position.trials < stamp.trials:
            yield _trial(_study_of_lost_trial(position, rest))
        else:
            yield LOST


def _replacements(lost: Sequence[bytes], position: Position) -> Iterator[Log]:
    """Yield replacements for damaged lines, chosen by what is left of them."""
    for raw in lost:
        if name := STUDY_NAME.search(raw):
            yield _study(name[1].decode(errors="replace"))
        elif not position.studies:  # a journal begins with a study
            yield _study("lost study 0")
        else:
            yield _trial(max(position.names, default=0)) if MAKES_TRIAL.search(raw) else LOST


def _study_of_lost_trial(position: Position, rest: Sequence[FoundLine]) -> int:
    """Return the id of a study whose next trial has a higher number than it would have without the lost trial."""
    seen = set[int]()
    for item in rest:
        if item.line is not None and item.line.stamp is not None and item.line.stamp.number is not None:
            study = item.line.log["study_id"]
            if study not in seen and item.line.stamp.number > position.numbers.get(study, 0) and study in position.names:
                return int(study)
            seen.add(study)
    return max(position.names, default=0)


def _trial(study: int) -> Log:
    """Return an operation that creates a failed trial without attributes, which no search takes for its own."""
    return {
        "op_code": JournalOperation.CREATE_TRIAL,
        "worker_id": "",
        "study_id": study,
        "datetime_start": None,
        "state": TrialState.FAIL,
        "user_attrs": NOTE,
    }


def _study(name: str) -> Log:
    return {
        "op_code": JournalOperation.CREATE_STUDY,
        "worker_id": "",
        "study_name": name,
        "directions": [StudyDirection.MAXIMIZE],
    }
