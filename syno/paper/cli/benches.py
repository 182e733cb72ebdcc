"""Commands that compare methods on the table of truth."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from syno.cli.app import RESULTS, app, stopped
from syno.cli.arguments import Output

bench = typer.Typer(help="Comparisons on a table of operators that are trained already.", no_args_is_help=True)
app.add_typer(bench, name="bench", rich_help_panel=RESULTS)


@bench.command("policies")
def policies(
    policy: Annotated[
        list[str] | None,
        typer.Option(
            metavar="POLICY",
            help="A name, package.module:MyPolicy, or {name: mcts, exploration: 0.5}; by default all policies.",
        ),
    ] = None,
    seeds: Annotated[int, typer.Option(min=2, help="Searches with each policy.")] = 100,
    trials: Annotated[int, typer.Option(min=1, help="Trials of a search.")] = 100,
    requirements: Annotated[
        bool | None,
        typer.Option(help="Search the operators that meet the requirement, or those of plain random walks; by default both."),
    ] = None,
    stopping: Annotated[
        bool, typer.Option("--stopping", help="Pause trainings and resume the best, as with study: stopping: {keep: auto}.")
    ] = False,
    processes: Annotated[int, typer.Option(min=1, help="Processes that search at the same time.")] = 1,
    table: Annotated[Path | None, typer.Option(help="Folder of another table; by default the one of Syno.")] = None,
    output: Output = None,
) -> None:
    """Compare search policies on operators that are trained already: how soon each finds a good one. Takes seconds.

    Random search is always among them.
    """
    from syno.base.progress import display
    from syno.paper.replay.comparison import BLIND, Contender
    from syno.paper.replay.report import NAME, PARTS, compare, table_in, write
    from syno.paper.replay.table import FOLDER, Subset
    from syno.search.halving import HalvingSettings
    from syno.search.policies import POLICIES

    given = list(dict.fromkeys((BLIND, *(policy or POLICIES))))
    contenders = [Contender.of(text) for text in given]
    parts = {True: [Subset.REQUIRED], False: [Subset.NATURAL], None: [Subset.NATURAL, Subset.REQUIRED]}[requirements]
    folder, source = output or Path("results/bench"), table or FOLDER
    about = table_in(source).about
    try:
        found = compare(
            contenders,
            parts,
            seeds=seeds,
            trials=trials,
            parts=folder / PARTS,
            stopping=HalvingSettings() if stopping else None,
            processes=processes,
            folder=source,
            display=display(),
        )
    except KeyboardInterrupt:
        raise stopped(f"finished searches are in {folder / PARTS}") from None
    note = (
        f"Replayed on {about['operators']} operators that were trained {about['first']} to {about['last']}, {about['machine']}."
    )
    notes = [note, "With stopping: trainings were paused and resumed, as by study: stopping: {keep: auto}."][: 1 + stopping]
    typer.echo(write(found, folder, notes), nl=False)
    typer.echo(f"in {folder}: {NAME}.csv, {NAME}-runs.csv, {NAME}.svg, {NAME}.png")
