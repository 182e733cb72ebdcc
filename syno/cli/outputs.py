"""Commands that collect and show results: tables, measurements, figures and the report."""

from __future__ import annotations

from typing import Annotated

import typer

from syno.cli.app import RESULTS, STAGES, app
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


@app.command(rich_help_panel=RESULTS)
def measurements(config: Config) -> None:
    """Collect all measurements of an experiment in one tidy table."""
    from syno.results import FOLDER, MEASUREMENTS
    from syno.stages.tables import collect

    experiment = experiment_of(config)
    table = collect(experiment)
    typer.echo(f"{len(table)} measurements in {experiment.folder / FOLDER / MEASUREMENTS}.parquet and .csv")
