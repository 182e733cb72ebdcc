"""Measured schedules on disk: one folder for each target and device, which outlives processes that are killed.

TVM's database appends lines to two files, one of tasks and one of trials. It does not survive a torn line, does not look
at the target when asked, hides trials that failed, and counts none. All of that is done here.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import re
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter, ValidationError

from syno.base.errors import SpecError
from syno.base.files import json_with_checksum, read_json, write_whole
from syno.base.record import Number
from syno.measure.tvm.database_checksums import check_lines, write_checksums

WORKLOADS, RECORDS = "database_workload.json", "database_tuning_record.json"  # names that TVM has for them
EXHAUSTED, ABOUT, LOCK = "exhausted.json", "target.json", "lock"
EXHAUSTIONS = TypeAdapter(dict[str, Number])
LOOK_SECONDS = 0.5


def folder_for(root: Path, target: Any, device_name: str, version: str) -> Path:
    """The folder of a target on a device, by TVM's version; made if it is not there, with a file that says what it is of."""
    about = {"target": json.loads(str(target)), "device": device_name, "tvm": version}
    text = json.dumps(about, indent=1, sort_keys=True)
    kind = re.sub(r"[^0-9A-Za-z]+", "-", str(target.attrs.get("arch") or target.attrs.get("mcpu") or target.kind.name))
    folder = root / f"{kind}-{hashlib.blake2b(text.encode(), digest_size=4).hexdigest()}"
    if not (folder / ABOUT).exists():
        write_whole(folder / ABOUT, text + "\n")
    return folder


@contextmanager
def only_writer(folder: Path, deadline: float) -> Iterator[None]:
    """Within, no other process writes to the folder. Others are waited for, because they measure on the same device.

    Raises SpecError if they are not done at `deadline`, a time of `time.monotonic`.
    """
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / LOCK).open("a", encoding="utf-8") as file:
        while True:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)  # given back when the process ends, however it does
                break
            except BlockingIOError:
                if time.monotonic() > deadline:
                    raise SpecError(
                        f"another process tunes with {folder}, and was not done in time: tune one model after another on a "
                        "device, or with folders of their own"
                    ) from None
                time.sleep(LOOK_SECONDS)
        yield


class TrialDatabase:
    """A folder's trials. To be opened by its only writer. SpecError if its files were damaged or edited.

    Attributes:
        trials: TVM's `JSONDatabase`.
    """

    def __init__(self, folder: Path) -> None:
        from tvm.s_tir import meta_schedule

        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        check_lines(folder, (WORKLOADS, RECORDS))
        repair(folder)
        self.trials = meta_schedule.database.JSONDatabase(work_dir=str(folder))

    def keep_checksums(self) -> None:
        """Write checksums of what there is, which are compared when the folder is opened again."""
        write_checksums(self.folder, (WORKLOADS, RECORDS))

    def counts(self, tasks: list[Any]) -> list[int]:
        """How many trials of each task there are, those that failed among them. Tasks are modules with one PrimFunc."""
        keys = [json.dumps(self.trials.commit_workload(task).as_json()) for task in tasks]
        numbers: dict[str, int] = {}
        for number, line in enumerate(_lines(self.folder / WORKLOADS)):
            numbers.setdefault(json.dumps(json.loads(line)), number)
        counted = Counter(map(_workload_of, _lines(self.folder / RECORDS)))
        return [counted[numbers[key]] if key in numbers else 0 for key in keys]

    def best_ms(self, task: Any, target: Any) -> float | None:
        """The latency of a task's best trial; None if none succeeded."""
        record = self.trials.query_tuning_record(task, target, "main")
        if record is None or not record.run_secs:
            return None
        seconds = [float(value) for value in record.run_secs]
        return 1e3 * sum(seconds) / len(seconds)

    def exhausted(self, task: Any) -> int:
        """For how many trials the task's search was started, and ended with fewer because it found no other schedules."""
        found: int = self._exhausted().get(self._key(task), 0)
        return found

    def exhaust(self, task: Any, trials: int) -> None:
        """Remember that the task has no more schedules than it has trials now, where so many were wanted."""
        write_whole(self.folder / EXHAUSTED, json_with_checksum({**self._exhausted(), self._key(task): trials}))

    def _exhausted(self) -> dict[str, int]:
        path = self.folder / EXHAUSTED
        try:
            return EXHAUSTIONS.validate_python(read_json(path)) if path.exists() else {}
        except ValueError as error:
            said = error.errors()[0]["msg"] if isinstance(error, ValidationError) else error
            raise SpecError(f"{path} holds no numbers of trials: {said}; delete it, and tune again") from error

    def _key(self, task: Any) -> str:
        """The hash that TVM gives the task."""
        return str(self.trials.commit_workload(task).as_json()[0])


def repair(folder: Path) -> int:
    """Remove the torn last lines that a killed process left, and trials of tasks that went with them; how many lines."""
    removed = _cut(folder / WORKLOADS, lambda line: isinstance(json.loads(line), list))
    workloads = sum(1 for _ in _lines(folder / WORKLOADS))
    return removed + _cut(folder / RECORDS, lambda line: _is_record(line, workloads))


def _is_record(line: bytes, workloads: int) -> bool:
    json.loads(line)
    return 0 <= _workload_of(line) < workloads


def _cut(path: Path, is_whole: Callable[[bytes], bool]) -> int:
    """Shorten a file to its whole lines; how many lines that removed.

    Raises SpecError if there are good lines behind bad ones: then it was not a process that was killed.
    """
    if not path.exists():
        return 0
    data = path.read_bytes()
    lines = data.splitlines(keepends=True)
    kept = len(lines)
    while kept and not _is_good(lines[kept - 1], is_whole):
        kept -= 1
    for number, line in enumerate(lines[:kept], 1):
        if not line.strip():
            continue
        if not _is_good(line, is_whole):
            raise SpecError(
                f"line {number} of {path} is damaged, and lines behind it are not: delete the folder, and tune again"
            )
    if kept < len(lines):
        write_whole(path, b"".join(lines[:kept]))
    return len(lines) - kept


def _is_good(line: bytes, is_whole: Callable[[bytes], bool]) -> bool:
    try:
        return line.endswith(b"\n") and is_whole(line)
    except (ValueError, IndexError, RecursionError):
        return False


def _lines(path: Path) -> Iterator[bytes]:
    """The lines of a file that have something in them; none if there is no file."""
    if path.exists():
        with path.open("rb") as file:
            yield from (line for line in file if line.strip())


def _workload_of(line: bytes) -> int:
    """The number of the task of a trial: what its line begins with, as in `[12,[...`."""
    return int(line[1 : line.index(b",")])
