"""One line of a journal: an entry as Optuna writes it, with what it takes to see that it is whole and in its place.

Optuna replays the entries of a journal in order, and numbers studies and trials by counting the entries that make them. A lost
entry of that kind would give all later results to other trials. So each line also holds, under the key "syno" that Optuna
ignores, how many lines, trials and studies come before it, and a checksum. Lines without that key, of older versions or of
Optuna itself, are read as well.
"""

from __future__ import annotations

import json
import re
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias

from optuna.storages.journal._storage import JournalOperation

Log: TypeAlias = dict[str, Any]  # an entry, as Optuna gives and takes it

KEY = "syno"
CHECKSUM = b',"crc":"%08x"}}'  # ends a line; it is of all bytes before it
CHECKSUM_SIZE = len(CHECKSUM % 0)
CHECKED = re.compile(rb'"crc":"[0-9a-f]{8}"')

FIELDS: Mapping[int, frozenset[str]] = {
    operation: frozenset({"op_code", "worker_id", *fields.split()})
    for operation, fields in {
        JournalOperation.CREATE_STUDY: "study_name directions",
        JournalOperation.DELETE_STUDY: "study_id",
        JournalOperation.SET_STUDY_USER_ATTR: "study_id user_attr",
        JournalOperation.SET_STUDY_SYSTEM_ATTR: "study_id system_attr",
        JournalOperation.CREATE_TRIAL: "study_id datetime_start",
        JournalOperation.SET_TRIAL_PARAM: "trial_id param_name param_value_internal distribution",
        JournalOperation.SET_TRIAL_STATE_VALUES: "trial_id state values",
        JournalOperation.SET_TRIAL_INTERMEDIATE_VALUE: "trial_id step intermediate_value",
        JournalOperation.SET_TRIAL_USER_ATTR: "trial_id user_attr",
        JournalOperation.SET_TRIAL_SYSTEM_ATTR: "trial_id system_attr",
    }.items()
}
OPTIONAL = frozenset(
    {
        *("state", "value", "values", "datetime_start", "datetime_complete"),
        *("distributions", "params", "user_attrs", "system_attrs", "intermediate_values"),
    }
)


@dataclass(frozen=True)
class Mark:
    """The place of a line in its journal, as the line states it.

    Attributes:
        line, trials, studies: how many lines, trials and studies come before it.
        study, number: of a line that makes a trial, the name of its study, and the trial's number there.
    """

    line: int
    trials: int
    studies: int
    study: str | None = None
    number: int | None = None


@dataclass
class Position:
    """A place between two lines: what Optuna has counted there."""

    line: int = 0
    trials: int = 0
    studies: int = 0
    names: dict[int, str] = field(default_factory=dict)  # of the studies that there are, by id
    numbers: dict[int, int] = field(default_factory=dict)  # of trials, by study
    writers: set[str] = field(default_factory=set)  # that mark their lines

    def copy(self) -> Position:
        """Another one at the same place."""
        return replace(self, names=dict(self.names), numbers=dict(self.numbers), writers=set(self.writers))

    def pass_over(self, log: Log) -> None:
        """Go to the end of an entry. It counts what Optuna counts when it replays the entry."""
        self.line += 1
        match log["op_code"]:
            case JournalOperation.CREATE_STUDY if log["study_name"] not in self.names.values():
                self.names[self.studies] = log["study_name"]
                self.studies += 1
            case JournalOperation.DELETE_STUDY:
                self.names.pop(log["study_id"], None)
            case JournalOperation.CREATE_TRIAL if log["study_id"] in self.names:
                self.trials += 1
                self.numbers[log["study_id"]] = self.numbers.get(log["study_id"], 0) + 1

    def mark(self, log: Log) -> Mark:
        """The mark of an entry that is written here."""
        if log["op_code"] != JournalOperation.CREATE_TRIAL:
            return Mark(self.line, self.trials, self.studies)
        study = log["study_id"]
        return Mark(self.line, self.trials, self.studies, self.names.get(study), self.numbers.get(study, 0))

    def fits(self, mark: Mark | None) -> bool:
        """Whether a line with this mark may stand here."""
        return mark is None or (mark.line, mark.trials, mark.studies) == (self.line, self.trials, self.studies)


@dataclass(frozen=True)
class Line:
    """A whole line.

    Attributes:
        raw: its bytes, without the newline.
        log: the entry.
        mark: its place; None if it was written without.
    """

    raw: bytes
    log: Log
    mark: Mark | None


def encode(log: Log, position: Position) -> bytes:
    """An entry as a line for this position, without the newline."""
    mark = {name: value for name, value in vars(position.mark(log)).items() if value is not None}
    body = json.dumps({**log, KEY: mark}, separators=(",", ":")).encode()[:-2]
    return body + CHECKSUM % zlib.crc32(body)


def decode(raw: bytes) -> Line | None:
    """A line, given without its newline. None if it is not whole, or means nothing to Optuna."""
    body = raw[:-CHECKSUM_SIZE]
    is_checked = raw[-CHECKSUM_SIZE:] == CHECKSUM % zlib.crc32(body)
    try:
        log = json.loads(raw)
        mark = log.pop(KEY, None)
        fields = FIELDS[log["op_code"]]
        if not fields <= log.keys() or (mark is None) == is_checked:
            return None
        if not isinstance(log["worker_id"], str) or (mark is None and CHECKED.search(raw)):  # it had a mark
            return None
        if mark is None:
            return Line(raw, log, None) if log.keys() <= fields | OPTIONAL else None
        del mark["crc"]
        return Line(raw, log, Mark(**mark))
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError):
        return None
