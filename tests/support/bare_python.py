"""A Python that has PyTorch, NumPy and pydantic, what these need, and nothing else: no Syno, no pytest, no pip."""

from __future__ import annotations

import sys
import venv
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from pathlib import Path

from packaging.requirements import Requirement

PACKAGES = ("torch", "triton", "numpy", "pydantic")


def bare_python(folder: Path) -> Path:
    """Make the environment in a folder, with links to the packages that this Python has; return its python."""
    venv.create(folder, symlinks=True)
    (site,) = folder.glob("lib/python*/site-packages")
    for package in _with_what_they_need(PACKAGES):
        for top in {file.parts[0] for file in package.files or () if file.parts[0] not in ("..", "__pycache__")}:
            (site / top).symlink_to(Path(str(package.locate_file(top))))
    return folder / "bin" / "python"


def _with_what_they_need(names: tuple[str, ...]) -> list[Distribution]:
    found: dict[str, Distribution] = {}
    waiting = list(names)
    while waiting:
        name = waiting.pop()
        if name in found:
            continue
        try:
            found[name] = distribution(name)
        except PackageNotFoundError:  # triton, where PyTorch is for the CPU
            continue
        wanted = map(Requirement, found[name].requires or ())
        waiting += [one.name for one in wanted if one.marker is None or one.marker.evaluate({"extra": ""})]
    return list(found.values())


if __name__ == "__main__":
    print(bare_python(Path(sys.argv[1])))
