"""The file beside results that holds their experiment, with all its options."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from syno.config.own_code import with_code
from syno.space.reads import NONE

KEPT = "experiment.yaml"  # the experiment in a folder of results
HEAD = "# What the results beside this file are of.\n"  # the first line of that file


def is_kept(file: Path) -> bool:
    """Return whether a file was written beside results, and is no config of a user."""
    if file.name != KEPT or not file.is_file():
        return False
    with file.open("rb") as opened:
        return opened.read(len(HEAD)) == HEAD.encode()


def completed(content: Mapping[str, Any], file: Path | None) -> dict[str, Any]:
    """Return the content of a file with what follows from its place: for a user's file, the folder of own modules.

    In one that is kept, a search of an earlier version gets the requirement it had: none.
    """
    if file is None:
        return dict(content)
    if not is_kept(file):
        return with_code(content, file)
    spec, select = content.get("spec", {}), content.get("select") or {}
    if content.get("workload") is None or select.get("source") or select.get("operators") or not isinstance(spec, Mapping):
        return dict(content)
    return {**content, "spec": {"reads": NONE, **spec}}
