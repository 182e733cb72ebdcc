"""The file beside results that stores their experiment with all options."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from syno.config.own_code import with_code

KEPT = "experiment.yaml"  # file of the experiment in a folder of results
HEAD = "# What the results beside this file are of.\n"  # the first line of that file


def is_kept(file: Path) -> bool:
    """Return whether a settings file was written by Syno beside results, not by a user."""
    if file.name != KEPT or not file.is_file():
        return False
    with file.open("rb") as opened:
        return opened.read(len(HEAD)) == HEAD.encode()


def completed(content: Mapping[str, Any], file: Path | None) -> dict[str, Any]:
    """Return the content of a settings file; for a user's file, with the folder of user modules as `code`."""
    return dict(content) if file is None or is_kept(file) else with_code(content, file)
