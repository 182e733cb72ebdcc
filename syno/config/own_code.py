"""A user's own code that an experiment names, and its folder: that of the experiment's file, if the modules lie there."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from syno.base.registry import own_paths


def with_code(content: Mapping[str, Any], file: Path) -> dict[str, Any]:
    """Return the content of a user's file, with the file's folder as `code` if a module that it names lies there.

    In a file of several experiments, these have `code` in common.
    """
    folder, several = file.parent, "experiments" in content
    given = content.get("common", {}) if several else content
    if not isinstance(given, Mapping) or "code" in given or not any(_is_beside(folder, name) for name in _modules(content)):
        return dict(content)
    return {**content, "common": {"code": str(folder), **given}} if several else {**content, "code": str(folder)}


def _modules(value: object) -> set[str]:
    """Return the outermost packages or modules of all paths in a value."""
    return {path.partition(":")[0].partition(".")[0] for path in own_paths(value)}


def _is_beside(folder: Path, module: str) -> bool:
    return (folder / f"{module}.py").is_file() or (folder / module).is_dir()
