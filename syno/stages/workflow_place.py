"""Where the workflow lies: beside the package in a checkout, in the package where Syno was installed from a wheel."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path

from syno.base.devices import usable_cores
from syno.base.errors import MissingPackageError, SpecError, suggestion

PARTS = ("Snakefile", "workflow", "envs", "config")  # setup.py copies them into the wheel
INSTALLED = "_workflow"
LOCAL = "local"


def workflow_folder() -> Path:
    """Return the folder with the Snakefile. SpecError if there is none."""
    package = Path(__file__).resolve().parents[1]
    for folder in (package / INSTALLED, package.parent):
        if (folder / "Snakefile").is_file():
            return folder
    raise SpecError(f"Syno's workflow lies neither in {package / INSTALLED} nor in {package.parent}; install Syno again")


def config_file(given: str, folder: Path) -> Path:
    """Return an experiment's file: the one given, or the one of this name in `config` of the workflow's folder.

    Raises SpecError if there is neither.
    """
    if Path(given).is_file():
        return Path(given)
    known = {file.stem: file for file in sorted((folder / "config").glob("*.yaml"))}
    if given in known:
        return known[given]
    raise SpecError(f"{given} is no file; Syno brings the experiments {', '.join(known)}.{suggestion(given, known)}")


def profile_folder(given: str, folder: Path) -> Path:
    """Return the folder of a profile of Snakemake: the one given, or the one of this name in the workflow.

    Raises SpecError if there is neither.
    """
    for found in (Path(given), folder / "workflow" / "profiles" / given):
        if found.is_dir():
            return found
    names = sorted(found.name for found in (folder / "workflow" / "profiles").iterdir())
    raise SpecError(f'there is no profile "{given}"; give {" or ".join(names)}, or a folder')


def command(config: str, profile: str, cores: int | None, more: Sequence[str], place: Path) -> list[str]:
    """Return the command that runs the workflow in the folder `place`, where results go.

    Args:
        config: the experiment's file, or the name of one that Syno brings.
        profile: a profile's name or folder.
        cores: of the processor; None: all that this process may use, and as the profile says elsewhere.
        more: further arguments of Snakemake.
        place: the folder where it runs.

    Raises SpecError if a file is missing, MissingPackageError without Snakemake.
    """
    if find_spec("snakemake") is None:
        raise MissingPackageError("the workflow takes Snakemake, not installed here: pip install 'syno[workflow]'")
    folder = workflow_folder()
    count = cores or (usable_cores() if Path(profile).name == LOCAL else None)
    return [
        sys.executable,
        "-m",
        "snakemake",
        *("--snakefile", str(folder / "Snakefile"), "--directory", str(place)),
        *("--configfile", str(config_file(config, folder))),
        *("--profile", str(profile_folder(profile, folder))),
        *(("--cores", str(count)) if count else ()),
        *more,
    ]
