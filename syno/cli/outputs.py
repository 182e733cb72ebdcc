"""Commands that collect, join and show results: tables, joined results, figures and the report."""

from __future__ import annotations

from typing import Annotated

import typer

from syno.cli.app import STAGES, app
from syno.cli.arguments import Config, OutputFile, experiment_of


@app.command(rich_help_panel=STAGES)
def tables(config: Config) -> None:
    """Collect the records of trainings and measurements in tables."""
    from syno.stages.goal import answer_of
    from syno.stages.tables import make_tables
    from syno.stages.top import compared

    experiment = experiment_of(config)
    tables = make_tables(experiment)
    typer.echo(compared(tables), nl=False)
    for line in answer_of(experiment, *tables):
        typer.echo(line)


@app.command(rich_help_panel=STAGES)
def join(config: Config) -> None:
    """Put the results of other experiments together in one table, and list what is not there yet."""
    from syno.stages.join import join as joined
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


@app.command(rich_help_panel=STAGES)
def figure(config: Config, name: Annotated[str, typer.Argument(metavar="FIGURE", help="Name of the figure.")]) -> None:
    """Draw a figure of an experiment."""
    from syno.stages.figures import draw

    for file in draw(experiment_of(config), name):
        typer.echo(file)


@app.command(rich_help_panel=STAGES)
def report(config: Config, output: OutputFile = None) -> None:
    """Write the report, one page that opens without a server."""
    from syno.stages.figures import write_report

    typer.echo(write_report(experiment_of(config), output))
