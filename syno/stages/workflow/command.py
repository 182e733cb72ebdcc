"""The command of `syno run`: the workflow's folder, and the experiments, profiles and arguments for Snakemake."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from itertools import pairwise
from pathlib import Path

from syno.base.devices import usable_cores
from syno.base.errors import MissingPackageError, SpecError, suggestion
from syno.base.release import pip_install
from syno.base.validation import read_yaml
from syno.config import AnyExperiment, load_any, load_experiments
from syno.config.files import parted
from syno.config.kept_file import KEPT
from syno.stages.targets import asked_for

PARTS = ("Snakefile", "workflow", "envs", "config")  # setup.py copies them into the wheel
INSTALLED = "_workflow"
DEFAULT = "config.yaml"  # another name of the quickstart, by which workflow modules find it
LOCAL = "local"
HERE = "local"  # the executor that runs jobs on this machine
# Options with which Snakemake runs no jobs; so do those that begin with --list.
RUN_NOTHING = frozenset({
    "-n", "--dry-run", "--dryrun", "-t", "--touch", "--unlock", "--lint", "-S", "--summary", "-D", "--detailed-summary",
    "--dag", "--rulegraph", "--filegraph", "--d3dag", "--report", "--archive", "--cleanup-metadata", "--delete-all-output",
    "--version", "--help",
})  # fmt: skip


def workflow_folder() -> Path:
    """Return the folder with the Snakefile. SpecError if there is none."""
    package = Path(__file__).resolve().parents[2]
    for folder in (package / INSTALLED, package.parent):
        if (folder / "Snakefile").is_file():
            return folder
    raise SpecError(f"Syno's workflow lies neither in {package / INSTALLED} nor in {package.parent}; install Syno again")


def config_file(name: str, folder: Path) -> Path:
    """Return an experiment's file: the path `name`, or `config/NAME.yaml` in the workflow's folder.

    Raises SpecError if there is neither.
    """
    if Path(name).is_file():
        return Path(name)
    known = {file.stem: file for file in sorted((folder / "config").glob("*.yaml")) if file.name != DEFAULT}
    if name in known:
        return known[name]
    file = name.rpartition(":")[0] or name  # FILE:NAME is an experiment in a file
    raise SpecError(f"{file} is no file; Syno brings the experiments {', '.join(known)}.{suggestion(file, known)}")


def profile_folder(name: str, folder: Path) -> Path:
    """Return the folder of a profile of Snakemake: the path `name`, or `workflow/profiles/NAME` in the workflow's folder.

    Raises SpecError if there is neither.
    """
    for found in (Path(name), folder / "workflow" / "profiles" / name):
        if found.is_dir():
            return found
    names = sorted(found.name for found in (folder / "workflow" / "profiles").iterdir())
    raise SpecError(f'there is no profile "{name}"; give {" or ".join(names)}, or a folder')


def runs_elsewhere(profile: str, more: Sequence[str] = ()) -> bool:
    """Return whether jobs run on other machines: whether a profile, or further arguments of Snakemake, name an executor."""
    files = sorted(profile_folder(profile, workflow_folder()).glob("config*.yaml"))
    settings = [content for file in files if isinstance(content := read_yaml(file), Mapping)]
    named = [str(content.get("executor", HERE)) for content in settings]
    named += [after for word, after in pairwise((*more, HERE)) if word in ("--executor", "-e")]
    named += [word.partition("=")[2] for word in more if word.startswith("--executor=")]
    return any(name != HERE for name in named)


def chosen_experiments(source: str) -> list[AnyExperiment]:
    """Return the experiments of FILE, or FILE:NAME and the experiments it needs; FILE may be the name of a file of Syno's.

    Raises SpecError if there is no such file or experiment, or one is invalid.
    """
    file, name = parted(source)
    if (file / KEPT).is_file():
        file = file / KEPT
    elif not file.is_file():
        file = config_file(source, workflow_folder())
    found = load_experiments(file)
    if name is not None:
        load_any(source)  # raises if there is none of that name
    return asked_for({str(one.folder): one for one in found.values()}, [] if name is None else [name])


def experiments_to_run(config: str, more: Sequence[str]) -> list[AnyExperiment]:
    """Return the experiments whose jobs Snakemake will run; none if it will run no job, as for a dry run.

    Args:
        config: as for `command`.
        more: further arguments of Snakemake. Without the name of an experiment among them, it runs all of the file.
    """
    if any(word.startswith("--list") or word.partition("=")[0] in RUN_NOTHING for word in more):
        return []
    found = load_experiments(config_file(config, workflow_folder()))
    return asked_for({str(one.folder): one for one in found.values()}, [word for word in more if word in found])


def command(config: str, profile: str, cores: int | None, more: Sequence[str], place: Path) -> list[str]:
    """Return the command that runs the workflow in the folder `place`, where results go.

    Args:
        config: the experiment's file, or the name of a file that comes with Syno.
        profile: a profile's name or folder.
        cores: number of processor cores; None: all that this process may use, or for jobs on other machines the profile's.
        more: further arguments of Snakemake.
        place: the folder where it runs.

    Raises SpecError if a file is missing, MissingPackageError without Snakemake.
    """
    if find_spec("snakemake") is None:
        raise MissingPackageError(f"the workflow takes Snakemake, not installed here: {pip_install('workflow')}")
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
