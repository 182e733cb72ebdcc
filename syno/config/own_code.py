"""User code that an experiment names, and its folder: that of the experiment's file, if the modules are in it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from syno.base.registry import own_paths


def with_code(content: Mapping[str, Any], file: Path) -> dict[str, Any]:
    """Return the content of a user's file, with the file's folder as `code` if a named module is in it.

    In a file with several experiments, `code` is a common option.
    """
    folder, several = file.parent, "experiments" in content
    options = content.get("common", {}) if several else content
    if not isinstance(options, Mapping) or "code" in options or not any(_is_beside(folder, name) for name in _modules(content)):
        return dict(content)
    return {**content, "common": {"code": str(folder), **options}} if several else {**content, "code": str(folder)}


def _modules(value: object) -> set[str]:
    """Return the names of the top-level modules in all paths `package.module:name` in a value."""
    return {path.partition(":")[0].partition(".")[0] for path in own_paths(value)}


def _is_beside(folder: Path, module: str) -> bool:
    return (folder / f"{module}.py").is_file() or (folder / module).is_dir()
