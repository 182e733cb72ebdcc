"""Finished parts of an ablation, stored in files so that an interrupted ablation continues."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from shutil import rmtree
from typing import TYPE_CHECKING, Any

from syno.base.files import json_with_checksum, read_json, write_whole
from syno.base.record import versions
from syno.ir.dim import content_id
from syno.paper.places import ABLATION_TABLES
from syno.run import FOLDER
from syno.run.parquet import read_parquet
from syno.space.spec import OperatorSpec

if TYPE_CHECKING:
    import pandas


# Intervals of shares.


CONFIDENCE = 0.95


def wilson(hits: int, trials: int) -> tuple[float, float]:
    """Return the 95 % interval of the share hits / trials (Wilson, 1927); (0, 1) without trials."""
    from scipy.stats import binomtest

    if not trials:
        return 0.0, 1.0
    interval = binomtest(hits, trials).proportion_ci(CONFIDENCE, "wilson")
    return float(interval.low), float(interval.high)


# The tables of ablations in a folder of results (`tables/ablation-NAME`).


def read_ablations(folder: Path, made_by: str) -> dict[str, pandas.DataFrame]:
    """Return the tables of ablations in a folder of results, by name (`ablation-canonical`); none if there are none."""
    files = sorted((folder / FOLDER).glob(f"{ABLATION_TABLES}*.parquet"))
    return {file.stem: read_parquet(file, made_by) for file in files}


@dataclass(frozen=True)
class Parts:
    """The finished parts of one ablation.

    Attributes:
        folder: the folder of the files; None to store none.
        key: hash of everything that the parts depend on. Parts with another key are made anew.
    """

    folder: Path | None = None
    key: str = ""

    @classmethod
    def of(cls, folder: Path, spec: OperatorSpec, **settings: Any) -> Parts:
        """Return the parts of an ablation of a spec with these settings, by this version of the library."""
        return cls(folder, content_id(spec.id, json.dumps(settings, sort_keys=True), versions([]).get("syno", "")))

    def get(self, name: str, make: Callable[[], Any]) -> Any:
        """Return a stored part; without it, call `make`, store the result, and return it as read back from JSON."""
        found = self.peek(name)
        return self.put(name, make()) if found is None else found

    def peek(self, name: str) -> Any:
        """Return a stored part; None if there is none, or its file is damaged or has another key."""
        if self.folder is None or not (file := self.folder / f"{name}.json").is_file():
            return None
        try:
            kept = read_json(file)
        except ValueError:
            return None
        return kept["part"] if isinstance(kept, dict) and kept.get("key") == self.key else None

    def put(self, name: str, part: Any) -> Any:
        """Store a part, replacing an earlier one, and return it as read back from JSON."""
        if self.folder is not None:
            write_whole(self.folder / f"{name}.json", json_with_checksum({"key": self.key, "part": part}))
        return json.loads(json.dumps(part))

    @contextmanager
    def timed(self, name: str) -> Iterator[Callable[[], float]]:
        """Yield a function that returns the CPU-seconds so far, including interrupted runs, which are stored as part `name`."""
        begin, before = time.process_time(), float(self.peek(name) or 0)

        def used() -> float:
            return before + time.process_time() - begin

        try:
            yield used
        finally:
            self.put(name, used())

    def remove(self) -> None:
        """Delete the files of all parts, after the whole result has been written."""
        if self.folder is not None:
            rmtree(self.folder, ignore_errors=True)


NO_PARTS = Parts()
