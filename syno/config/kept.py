"""An experiment as it is kept beside its results, in `experiment.yaml`."""

from __future__ import annotations

from pathlib import Path

from syno.config.experiment import Experiment

FILE = "experiment.yaml"  # in the folder of results
HEAD = "# What the results beside this file are of.\n"  # its first line


def is_kept(file: Path) -> bool:
    """Return whether a file is one that was written beside results, and no config that somebody wrote."""
    if file.name != FILE or not file.is_file():
        return False
    with file.open("rb") as opened:
        return opened.read(len(HEAD)) == HEAD.encode()


def in_place(experiment: Experiment, folder: Path) -> Experiment:
    """Return the experiment with `folder` as its folder of results, whatever that was called when the experiment was kept."""
    if experiment.folder.resolve() == folder.resolve():
        return experiment
    here, given = Path.cwd(), Path.cwd() / folder
    return experiment.model_copy(update={"output": given.relative_to(here) if given.is_relative_to(here) else given})
