"""The command that tells what experiments will take."""

from __future__ import annotations

from typing import Annotated

import typer

from syno.cli.app import STAGES, app
from syno.cli.arguments import Config, pairs


@app.command(rich_help_panel=STAGES)
def plan(
    config: Config,
    assume: Annotated[
        list[str] | None, typer.Option(metavar="NAME=VALUE", help="Instead of what is assumed; the last table has the names.")
    ] = None,
) -> None:
    """Print how many jobs, GPU hours and files an experiment takes, or all of a file. Nothing has to have been run."""
    from pydantic import ValidationError

    from syno.base.errors import SpecError
    from syno.base.validation import explained
    from syno.config import load_experiment, load_experiments
    from syno.config.files import parted
    from syno.stages.plan import Assumptions, plans
    from syno.stages.plan_text import plan_text

    try:
        assumed = Assumptions.model_validate(pairs(assume, "--assume"))
    except ValidationError as error:
        raise SpecError(f"--assume: {explained(error, Assumptions)}") from None
    file, name = parted(config)
    experiments = load_experiments(file).values() if name is None else [load_experiment(config)]
    typer.echo(plan_text(plans(experiments, assumed), assumed), nl=False)
