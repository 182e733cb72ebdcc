"""Measured schedules on disk: one folder for each target and device, which outlives processes that are killed.

TVM's database appends lines to two files, one of tasks and one of trials. It does not survive a torn line, ignores the target
in queries, hides trials that failed, and counts none. All of that is done here.

A file beside them has checksums of their lines. Those written at the end of a tuning are compared when the folder is opened
the next time. Lines behind them come from a process that was killed, and an incomplete last line was torn.
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
from syno.base.files import checksum, json_with_checksum, read_json, write_whole
from syno.base.record import Number

WORKLOADS, RECORDS = "database_workload.json", "database_tuning_record.json"  # names that TVM has for them
EXHAUSTED, CHECKSUMS, ABOUT, LOCK = "exhausted.json", "checksums.json", "target.json", "lock"
EXHAUSTIONS = TypeAdapter(dict[str, Number])
CHECKSUMS_OF_LINES = TypeAdapter(dict[str, list[str]])  # of the lines of each file
LOOK_SECONDS = 0.5


def folder_for(root: Path, target: Any, device_name: str, version: str) -> Path:
    """Return the folder of a target on a device, by TVM's version. A new one gets a file that says what it is of."""
    about = {"target": json.loads(str(target)), "device": device_name, "tvm": version}
    text = json.dumps(about, indent=1, sort_keys=True)
    kind = re.sub(r"[^0-9A-Za-z]+", "-", str(target.attrs.get("arch") or target.attrs.get("mcpu") or target.kind.name))
    folder = root / f"{kind}-{hashlib.blake2b(text.encode(), digest_size=4).hexdigest()}"
    if not (folder / ABOUT).exists():
        write_whole(folder / ABOUT, text + "\n")
    return folder


@contextmanager
def only_writer(folder: Path, deadline: float) -> Iterator[None]:
    """Hold the folder's lock within the context. Other writers are waited for, because they measure on the same device.

    Raises SpecError if they are not done at `deadline`, a time of `time.monotonic`.
    """
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / LOCK).open("a", encoding="utf-8") as file:
        while True:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)  # the lock ends with the process, however that ends
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
    """A folder's trials, for its only writer. Opening it raises SpecError if its files were damaged or edited.

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
        """Write the checksums of all lines, which are compared when the folder is opened again."""
        write_checksums(self.folder, (WORKLOADS, RECORDS))

    def counts(self, tasks: list[Any]) -> list[int]:
        """Return the number of trials of each task, failed ones among them. Tasks are modules with one PrimFunc."""
        keys = [json.dumps(self.trials.commit_workload(task).as_json()) for task in tasks]
        numbers: dict[str, int] = {}
        for number, line in enumerate(_lines(self.folder / WORKLOADS)):
            numbers.setdefault(json.dumps(json.loads(line)), number)
        counted = Counter(map(_workload_of, _lines(self.folder / RECORDS)))
        return [counted[numbers[key]] if key in numbers else 0 for key in keys]

    def best_ms(self, task: Any, target: Any) -> float | None:
        """Return the latency of a task's best trial; None if none succeeded."""
        record = self.trials.query_tuning_record(task, target, "main")
        if record is None or not record.run_secs:
            return None
        seconds = [float(value) for value in record.run_secs]
        return 1e3 * sum(seconds) / len(seconds)

    def exhausted(self, task: Any) -> int:
        """Return the wanted trials of a search that ended with fewer because it found no other schedules; 0 if none did."""
        found: int = self._exhausted().get(self._key(task), 0)
        return found

    def exhaust(self, task: Any, trials: int) -> None:
        """Note that the task has no more schedules than it has trials now, where so many were wanted."""
        write_whole(self.folder / EXHAUSTED, json_with_checksum({**self._exhausted(), self._key(task): trials}))

    def _exhausted(self) -> dict[str, int]:
        path = self.folder / EXHAUSTED
        try:
            return EXHAUSTIONS.validate_python(read_json(path)) if path.exists() else {}
        except ValueError as error:
            said = error.errors()[0]["msg"] if isinstance(error, ValidationError) else error
            raise SpecError(f"{path} holds no numbers of trials: {said}; delete it, and tune again") from error

    def _key(self, task: Any) -> str:
        """Return TVM's hash of the task."""
        return str(self.trials.commit_workload(task).as_json()[0])


def repair(folder: Path) -> int:
    """Remove the torn last lines of a killed process, and trials of tasks that went with them; return the number of lines."""
    removed = _cut(folder / WORKLOADS, lambda line: isinstance(json.loads(line), list))
    workloads = sum(1 for _ in _lines(folder / WORKLOADS))
    return removed + _cut(folder / RECORDS, lambda line: _is_record(line, workloads))


def _is_record(line: bytes, workloads: int) -> bool:
    json.loads(line)
    return 0 <= _workload_of(line) < workloads


def _cut(path: Path, is_whole: Callable[[bytes], bool]) -> int:
    """Shorten a file to its whole lines, and return the number of removed lines.

    Raises SpecError if there are good lines behind bad ones, which a killed process does not leave.
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
    """Yield the lines of a file that are not empty; none if there is no file."""
    if path.exists():
        with path.open("rb") as file:
            yield from (line for line in file if line.strip())


def _workload_of(line: bytes) -> int:
    """Return the number of a trial's task, with which its line begins, as in `[12,[...`."""
    return int(line[1 : line.index(b",")])


def write_checksums(folder: Path, names: tuple[str, ...]) -> None:
    """Write the checksums of the lines in these files of a folder, as they are now."""
    lines = {name: [checksum(line) for line in _all_lines(folder / name)] for name in names}
    write_whole(folder / CHECKSUMS, json_with_checksum(lines))


def check_lines(folder: Path, names: tuple[str, ...]) -> None:
    """Raise SpecError if a line of these files has changed since it was written. Older folders have no checksums."""
    if not (folder / CHECKSUMS).exists():
        return
    try:
        written = CHECKSUMS_OF_LINES.validate_python(read_json(folder / CHECKSUMS))
    except (OSError, ValueError) as error:
        said = error.errors()[0]["msg"] if isinstance(error, ValidationError) else error
        raise SpecError(f"{folder / CHECKSUMS} holds no checksums: {said}; delete the folder, and tune again") from error
    for name in names:
        lines, checksums = _all_lines(folder / name), written.get(name, [])
        whole = sum(line.endswith(b"\n") for line in lines)
        if whole < len(checksums) - 1:  # a process that is killed tears one at most
            raise SpecError(
                f"{folder / name} has {whole} lines of the {len(checksums)} that were written; delete the folder and tune again"
            )
        for number, (line, expected) in enumerate(zip(lines, checksums, strict=False), 1):
            if line.endswith(b"\n") and checksum(line) != expected:
                raise SpecError(
                    f"line {number} of {folder / name} is damaged: it has changed since it was written; delete the folder, and "
                    "tune again"
                )


def _all_lines(path: Path) -> list[bytes]:
    return path.read_bytes().splitlines(keepends=True) if path.exists() else []
