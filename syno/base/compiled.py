"""The compiled modules: where there are some, and they fit, Python imports them instead of the files that they were made from.

`make compiled` builds them, setup.py says how. They are optional, and give the same results. A list of checksums lies beside
them: if a file has changed since, none of them is used, because what is compiled calls the rest by what it was then.
"""

from __future__ import annotations

import json
import os
import sys
import warnings
from collections.abc import Mapping, Sequence
from hashlib import sha256
from importlib.machinery import EXTENSION_SUFFIXES, ExtensionFileLoader, ModuleSpec
from importlib.util import spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import Any

SYNO = Path(__file__).parents[1]
FOLDER = SYNO / "_compiled"  # of the modules, each in a file with its full name, and of the list
LIST = "list.json"
VARIABLE = "SYNO_COMPILED"  # "0": Python's own files are used
PACKAGES = ("algebra", "base", "ir", "lower", "space")  # with compiled modules, and what these import


class _CompiledModules:
    """Finds compiled modules by their full names."""

    def __init__(self, files: Mapping[str, Path]) -> None:
        self.files = files

    def find_spec(self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None) -> ModuleSpec | None:
        """Return where the compiled module is; None for all other modules."""
        file = self.files.get(name)
        return None if file is None else spec_from_file_location(name, file, loader=ExtensionFileLoader(name, str(file)))


def checksums(syno: Path) -> dict[str, str]:
    """Return the checksum of each Python file of `PACKAGES`, by its path below `syno`."""
    files = sorted(file for package in PACKAGES for file in (syno / package).rglob("*.py"))
    return {file.relative_to(syno).as_posix(): sha256(file.read_bytes()).hexdigest() for file in files}


def is_compiled() -> bool:
    """Return whether this process uses the compiled modules."""
    return any(isinstance(finder, _CompiledModules) for finder in sys.meta_path)


def use_compiled() -> None:
    """Let Python find the compiled modules from now on. Warns and changes nothing if they do not fit.

    Changes nothing either if there are none, or if the variable `SYNO_COMPILED` is 0.
    """
    if os.environ.get(VARIABLE) == "0" or is_compiled():
        return
    try:
        known = json.loads((FOLDER / LIST).read_bytes())
    except FileNotFoundError:
        return
    except (OSError, ValueError) as error:
        known, misfit = {}, f"{FOLDER / LIST} cannot be read: {error}"
    else:
        misfit = _misfit(known)
    if misfit:
        warnings.warn(
            f"Syno's compiled modules are not used: {misfit}. `make compiled` builds them again, `make pure` removes them",
            RuntimeWarning,
            stacklevel=3,
        )
        return
    sys.meta_path.insert(0, _CompiledModules({name: FOLDER / file for name, file in known["modules"].items()}))


def _misfit(known: Any) -> str:
    """Return why modules with this list do not fit; empty if they do."""
    if known["suffix"] != EXTENSION_SUFFIXES[0]:
        return f"they are for another Python ({known['suffix']}, this one has {EXTENSION_SUFFIXES[0]})"
    now = checksums(SYNO)
    changed = sorted(name for name in now.keys() | known["sources"].keys() if now.get(name) != known["sources"].get(name))
    if changed:
        more = f" and {len(changed) - 1} more" if len(changed) > 1 else ""
        return f"{SYNO.name}/{changed[0]}{more} changed since they were built"
    return next((f"{FOLDER / file} is missing" for file in known["modules"].values() if not (FOLDER / file).is_file()), "")
