"""A Python that has some packages, what these need, and nothing else: no Syno, no pytest, no pip."""

from __future__ import annotations

import sys
import venv
from collections.abc import Iterable
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

PACKAGES = ("torch", "triton", "numpy", "pydantic")


def bare_python(folder: Path, packages: Iterable[str] = PACKAGES) -> Path:
    """Make the environment in a folder, with links to the packages that this Python has; return its python."""
    venv.create(folder, symlinks=True)
    (site,) = folder.glob("lib/python*/site-packages")
    for package in _with_what_they_need(packages):
        for top in {file.parts[0] for file in package.files or () if file.parts[0] not in ("..", "__pycache__")}:
            if not (site / top).exists():  # several packages may have one folder
                (site / top).symlink_to(Path(str(package.locate_file(top))))
    return folder / "bin" / "python"


def _with_what_they_need(packages: Iterable[str]) -> list[Distribution]:
    found: dict[tuple[str, frozenset[str]], Distribution] = {}
    waiting = list(map(Requirement, packages))
    while waiting:
        one = waiting.pop()
        key = (one.name, frozenset(one.extras))
        if key in found:
            continue
        try:
            found[key] = distribution(one.name)
        except PackageNotFoundError:  # triton, where PyTorch is for the CPU
            continue
        wanted = map(Requirement, found[key].requires or ())
        extras = ("", *one.extras)
        waiting += [more for more in wanted if more.marker is None or any(more.marker.evaluate({"extra": e}) for e in extras)]
    # An extra of Syno asks for another one of its own: this checkout is not linked, what it asks for is.
    return [one for one in found.values() if canonicalize_name(one.name) != "syno-operators"]


if __name__ == "__main__":
    print(bare_python(Path(sys.argv[1])))
