"""What the Snakemake workflow does beside starting commands."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from syno.errors import SpecError


def use_this_environment() -> None:
    """Let the commands of rules be those beside the Python that runs now, whatever the PATH says.

    Environments that rules name are activated later, and go before. Threads of a process that wait do not take cores from
    others (OMP_WAIT_POLICY).
    """
    here = str(Path(sys.executable).parent)
    places = os.environ.get("PATH", "").split(os.pathsep)
    if here not in places:
        os.environ["PATH"] = os.pathsep.join([here, *places])
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")


def check_place(folder: Path) -> None:
    """SpecError if there cannot be such a folder, as a file is in its place or above it."""
    for place in (folder, *folder.parents):
        if place.exists() and not place.is_dir():
            raise SpecError(
                f"the results go to the folder {folder}, but {place} is a file; take it away, or give output: FOLDER"
            )
