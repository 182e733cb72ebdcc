"""The files of an experiment's results: which stage wrote one, which have a reader, and which are made in seconds."""

from __future__ import annotations

import re
from fnmatch import fnmatch
from pathlib import Path
from typing import TYPE_CHECKING

from syno.stages.workflow_stages import STAGES, WorkflowStage, files_on_the_way

if TYPE_CHECKING:
    from syno.config import AnyExperiment


def derived_files(experiment: AnyExperiment) -> list[Path]:
    """Return the tables, figures and the page in all formats: files that jobs of seconds make from records."""
    return [file for file in files_on_the_way(experiment) if reader_of(experiment, file) is None]


def reader_of(experiment: AnyExperiment, file: Path) -> tuple[WorkflowStage, str] | None:
    """Return the stage that wrote a file that has a reader, and the file's pattern; None if it has no reader."""
    name = file.relative_to(experiment.folder).as_posix()
    for stage in STAGES.values():
        for pattern in stage.readers or ():
            if fnmatch(name, _as_glob(pattern)):
                return stage, pattern
    return None


def record_globs() -> list[str]:
    """Return glob patterns of all files that have a reader."""
    return [_as_glob(pattern) for stage in STAGES.values() for pattern in stage.readers or ()]


def _as_glob(pattern: str) -> str:
    """Return a path with `*` in place of its wildcards."""
    return re.sub(r"\{\w+\}", "*", pattern)
