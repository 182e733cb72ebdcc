"""Lines of a journal: one operation of Optuna each, with a stamp that shows whether the line is whole and in its place.

Optuna replays the operations in order and numbers studies and trials by counting the operations that create them. If such a
line were lost, all later results would go to other trials. So each line has a stamp under the key "syno", which Optuna ignores:
how many lines, trials and studies come before it, and a checksum of the line. Lines without a stamp, of older versions or of
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

Log: TypeAlias = dict[str, Any]  # an operation, as Optuna gives and takes it

KEY = "syno"
CHECKSUM = b',"crc":"%08x"}}'  # the end of a line; it covers all bytes before it
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
class Stamp:
    """The place of a line in its journal, as the line states it.

    Attributes:
        line, trials, studies: how many lines, trials and studies come before the line.
        study, number: for a line that creates a trial, the name of its study and the trial's number in it.
    """

    line: int
    trials: int
    studies: int
    study: str | None = None
    number: int | None = None


@dataclass
class Position:
    """A place between two lines of a journal, and what Optuna has counted up to there.

    Attributes:
        line, trials, studies: how many lines, trials and studies come before it.
        names: names of the existing studies by id.
        numbers: how many trials each study has.
        writers: workers that stamp their lines.
    """

    line: int = 0
    trials: int = 0
    studies: int = 0
    names: dict[int, str] = field(default_factory=dict)
    numbers: dict[int, int] = field(default_factory=dict)
    writers: set[str] = field(default_factory=set)

    def copy(self) -> Position:
        """Return an independent copy."""
        return replace(self, names=dict(self.names), numbers=dict(self.numbers), writers=set(self.writers))

    def pass_over(self, log: Log) -> None:
        """Move behind an operation: count what Optuna counts when it replays the operation."""
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

    def stamp(self, log: Log) -> Stamp:
        """Return the stamp of an operation that is written here."""
        if log["op_code"] != JournalOperation.CREATE_TRIAL:
            return Stamp(self.line, self.trials, self.studies)
        study = log["study_id"]
        return Stamp(self.line, self.trials, self.studies, self.names.get(study), self.numbers.get(study, 0))

    def fits(self, stamp: Stamp | None) -> bool:
        """Return whether a line with this stamp may stand here."""
        return stamp is None or (stamp.line, stamp.trials, stamp.studies) == (self.line, self.trials, self.studies)


@dataclass(frozen=True)
class JournalLine:
    """A whole line.

    Attributes:
        raw: its bytes, without the newline.
        log: the operation.
        stamp: its place; None if the line was written without.
    """

    raw: bytes
    log: Log
    stamp: Stamp | None


def encode(log: Log, position: Position) -> bytes:
    """Return an operation as a line for this position, without the newline."""
    stamp = {name: value for name, value in vars(position.stamp(log)).items() if value is not None}
    body = json.dumps({**log, KEY: stamp}, separators=(",", ":")).encode()[:-2]
    return body + CHECKSUM % zlib.crc32(body)


def decode(raw: bytes) -> JournalLine | None:
    """Return a line, given without its newline. None if it is not whole, or is no operation of Optuna."""
    body = raw[:-CHECKSUM_SIZE]
    is_checked = raw[-CHECKSUM_SIZE:] == CHECKSUM % zlib.crc32(body)
    try:
        log = json.loads(raw)
        stamp = log.pop(KEY, None)
        fields = FIELDS[log["op_code"]]
        if not fields <= log.keys() or (stamp is None) == is_checked:
            return None
        if not isinstance(log["worker_id"], str) or (stamp is None and CHECKED.search(raw)):  # its stamp was damaged
            return None
        if stamp is None:
            return JournalLine(raw, log, None) if log.keys() <= fields | OPTIONAL else None
        del stamp["crc"]
        return JournalLine(raw, log, Stamp(**stamp))
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError):
        return None
