"""Commands on the data that the paper's authors published."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from syno.cli.app import RESULTS, STAGES, app
from syno.cli.arguments import Config

if TYPE_CHECKING:
    from syno.paper.artifact.imported import ImportRecord


@app.command(rich_help_panel=STAGES)
def join(config: Config) -> None:
    """Put the results of other experiments together in one table, and list what is not there yet."""
    from syno.paper.places import JOINED
    from syno.paper.stages.join import find_join
    from syno.paper.stages.join import join as joined

    experiment = find_join(config)
    record = joined(experiment)
    for line in (f"missing: {what}" for what in record.missing):
        typer.echo(line)
    names = ", ".join(one.name for one in record.experiments if one.measurements)
    typer.echo(
        f"{record.measurements:,} measurements of {names} in {experiment.folder}; {experiment.folder / JOINED} lists them"
    )


artifact = typer.Typer(
    help="Import the data that the paper's authors published, and draw the paper's figures from it.",
    no_args_is_help=True,
)
app.add_typer(artifact, name="artifact", rich_help_panel=RESULTS)

FOLDER = Path("results/artifact")
Artifact = Annotated[Path, typer.Argument(metavar="DIR", help="A checkout of the paper's artifact, or its data folder.")]
Output = Annotated[Path, typer.Option("--output", metavar="FOLDER", help="Folder of the results.")]


@artifact.command("import")
def import_(checkout: Artifact, output: Output = FOLDER) -> None:
    """Import the authors' measurements and operators into a folder of results."""
    from syno.paper.stages.artifact import import_artifact

    _tell(import_artifact(checkout, output), output)


@artifact.command()
def figures(
    source: Annotated[Path, typer.Argument(metavar="DIR", help="As for import, or a folder that an import has written.")],
    output: Annotated[Path | None, typer.Option("--output", metavar="FOLDER", help=f"By default {FOLDER}.")] = None,
    only: Annotated[list[str] | None, typer.Option(metavar="FIGURE", help="One figure, such as figure-5.")] = None,
) -> None:
    """Import the data, draw the paper's figures, and print the headline numbers beside those of the paper."""
    from syno.paper.artifact import RECORD
    from syno.paper.stages.artifact import import_artifact
    from syno.paper.stages.figures import draw_paper

    if (source / RECORD).is_file():
        if output is not None:
            raise typer.BadParameter(
                f"{source} was written by an import already; figures are drawn there", param_hint="--output"
            )
        folder = source
    else:
        folder = output or FOLDER
        _tell(import_artifact(source, folder), folder)
    for file in draw_paper(folder, only or ()):
        if file.suffix == ".pdf":
            typer.echo(f"{file} (also as SVG and PNG)")
    typer.echo()
    headlines(folder)


@artifact.command()
def headlines(
    folder: Annotated[Path, typer.Argument(metavar="FOLDER", help="Folder that an import has written.")] = FOLDER,
) -> None:
    """Print the headline numbers beside those of the paper, and write them as a table."""
    from syno.base.text_tables import markdown
    from syno.paper.figures.headlines import headline_texts
    from syno.paper.stages.figures import write_headlines

    table, notes = headline_texts(write_headlines(folder))
    typer.echo(markdown(table, left=2))
    for note in notes:
        typer.echo(note)


@artifact.command()
def report(
    folder: Annotated[Path, typer.Argument(metavar="FOLDER", help="Folder that an import has written.")] = FOLDER,
) -> None:
    """Write the report of an import: figures, deviations from the paper, operators. It opens without a server."""
    from syno.paper.stages.figures import write_page

    typer.echo(f"{write_page(folder)}")


def _tell(record: ImportRecord, output: Path) -> None:
    known = sum(operator.key is not None for operator in record.operators)
    typer.echo(
        f"{record.measurements} measurements and {len(record.operators)} operators, {known} of them with their graph, "
        f"in {output}"
    )
    if record.problems:
        first = record.problems[0]
        more = f", and {len(record.problems) - 1} more" if len(record.problems) > 1 else ""
        typer.echo(f"warning: not whole: {first}{more}; {output / 'artifact.json'} lists them", err=True)
