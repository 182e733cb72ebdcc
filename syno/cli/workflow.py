"""`syno run`: the whole workflow of an experiment, by Snakemake."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Annotated

import typer

from syno.cli.app import STAGES, app

DEFAULT = "quickstart"
LOCAL = "local"
AS_SNAKEMAKE = {"allow_extra_args": True, "ignore_unknown_options": True, "help_option_names": ["-h", "--help"]}


@app.command(rich_help_panel=STAGES, context_settings=AS_SNAKEMAKE)
def run(
    context: typer.Context,
    config: Annotated[
        str, typer.Argument(metavar="FILE", help="The experiment's file, or the name of one that Syno brings.")
    ] = DEFAULT,
    cores: Annotated[
        int | None, typer.Option("--cores", "-c", min=1, help="Processor cores; by default all that it may use.")
    ] = None,
    profile: Annotated[str, typer.Option(help="local, slurm, or a folder with a profile of Snakemake.")] = LOCAL,
) -> None:
    """Run all stages of an experiment, by Snakemake, from anywhere: what is done already is not done again.

    Further options and targets go to Snakemake: `-n` shows what would run, and a file or the name of an experiment is a target.
    """
    from syno.stages.workflow_place import command

    place = Path.cwd()
    arguments = command(config, profile, cores, context.args, place)
    sys.stdout.flush()
    os.execv(arguments[0], arguments)  # so that signals reach Snakemake itself
