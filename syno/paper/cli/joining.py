"""The command that joins the results of several experiments."""

from __future__ import annotations

import typer

from syno.cli.app import STAGES, app
from syno.cli.arguments import Config


@app.command(rich_help_panel=STAGES)
def join(config: Config) -> None:
    """Put the results of other experiments together in one table, and list what is not there yet."""
    from syno.paper.stages.join import join as joined
    from syno.stages.places import JOINED
    from syno.stages.top import find_join

    experiment = find_join(config)
    record = joined(experiment)
    for line in (f"missing: {what}" for what in record.missing):
        typer.echo(line)
    names = ", ".join(one.name for one in record.experiments if one.measurements)
    typer.echo(
        f"{record.measurements:,} measurements of {names} in {experiment.folder}; {experiment.folder / JOINED} lists them"
    )
