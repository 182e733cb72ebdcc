"""Commands on a search, its study, and the selection from it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from syno.cli.app import RESULTS, STAGES, app, stopped
from syno.cli.arguments import Config, OutputFile, experiment_of

if TYPE_CHECKING:
    import pandas

    from syno.stages.selection import Selected


@app.command(rich_help_panel=STAGES)
def search(
    config: Config,
    workers: Annotated[int | None, typer.Option(min=1, help="Processes on this machine; by default the config's.")] = None,
    best: Annotated[int, typer.Option(min=0, help="Number of best operators to print.")] = 5,
) -> None:
    """Search a space, and write the trials as a table. Continues where it was stopped."""
    from syno.base.progress import display
    from syno.base.text_tables import markdown
    from syno.report.results import outcomes, search_rows
    from syno.stages.places import FROZEN
    from syno.stages.search import search as searched
    from syno.stages.study import freeze as frozen

    experiment = experiment_of(config)
    try:
        searched(experiment, workers or experiment.study.workers, display())
    except KeyboardInterrupt:
        raise stopped(f"trials so far are in {experiment.storage}") from None
    trials = frozen(experiment)
    rows = search_rows(trials, experiment.name, best)
    typer.echo(markdown(rows) if rows else "No trial has a reward; the column message of the table says why.\n")
    typer.echo(f"{outcomes(trials)} in {experiment.folder / FROZEN}")
    _warn_of_saturation(trials)


def _warn_of_saturation(trials: pandas.DataFrame) -> None:
    from syno.report.saturation import saturation

    if found := saturation(trials):
        typer.echo(f"warning: {found}", err=True)


@app.command(rich_help_panel=STAGES)
def worker(
    config: Config, number: Annotated[int, typer.Option(min=1, help="Number of this worker.")] = 1, output: OutputFile = None
) -> None:
    """Work on a study that several workers share, until it has all its trials, and write a record."""
    from syno.base.progress import display
    from syno.stages.search import work

    experiment = experiment_of(config)
    try:
        record = work(experiment, number, output, display())
    except KeyboardInterrupt:
        raise stopped(f"trials so far are in {experiment.storage}") from None
    typer.echo(f"worker {number}: {record.trials} of the study's trials were this worker's, in {record.seconds:.0f} s")


@app.command(rich_help_panel=STAGES)
def freeze(config: Config, output: OutputFile = None) -> None:
    """Write the trials of a study as a table, and its operators to the operator store."""
    from syno.report.results import outcomes
    from syno.stages.places import FROZEN
    from syno.stages.study import freeze as frozen

    experiment = experiment_of(config)
    trials = frozen(experiment, output)
    typer.echo(f"{outcomes(trials)} in {output or experiment.folder / FROZEN}")
    _warn_of_saturation(trials)


@app.command(rich_help_panel=STAGES)
def shortlist(config: Config, output: OutputFile = None) -> None:
    """List the operators whose latency is measured, for a selection by latency."""
    from syno.stages.places import SHORTLIST
    from syno.stages.select import shortlist as listed
    from syno.stages.selection import why_none

    experiment = experiment_of(config)
    for one in listed(experiment, output):
        typer.echo(_described(one))
    if (reason := why_none(output or experiment.folder / SHORTLIST)) is not None:
        typer.echo(reason)


@app.command(rich_help_panel=STAGES)
def select(config: Config, output: OutputFile = None) -> None:
    """Select the operators that are trained again and measured."""
    from syno.results.goal import NONE_FASTER
    from syno.stages.goal import help_of_search, verdict_in_search
    from syno.stages.places import SELECTED
    from syno.stages.select import select as selected
    from syno.stages.selection import why_none

    experiment = experiment_of(config)
    chosen = selected(experiment, output)
    for one in chosen:
        typer.echo(_described(one))
        if (found := verdict_in_search(experiment, one.metrics)) is not None:
            typer.echo(f"  {found.text} (in the search)")
        for place in one.fastest_on:
            speedup = "" if place.speedup is None else f", {place.speedup:.2f} times as fast as the original"
            is_faster = place.speedup is None or place.speedup > 1
            first = "the fastest" if is_faster else f"{NONE_FASTER}; the fastest"
            typer.echo(f"  {first} with {place.compiler} on {place.device}: {place.latency_ms:.4g} ms{speedup}")
    if (reason := why_none(output or experiment.folder / SELECTED)) is not None:
        typer.echo(reason)
    if (advice := help_of_search(experiment, [one.metrics for one in chosen])) is not None:
        typer.echo(advice)


def _described(one: Selected) -> str:
    """Return an operator of a selection, with its reward and score, in words."""
    from syno.results.metric import METRICS

    scores = [f", {name} {metric.text(one.metrics[name])}" for name, metric in METRICS.items() if name in one.metrics]
    reward = "published" if one.reward is None else f"reward {one.reward:.4f}"
    origin = f"{reward}{''.join(scores)} in the search" if one.metrics or one.reward is not None else "named in the config"
    return f"{one.name} ({one.key}): {origin}"


@app.command(rich_help_panel=RESULTS)
def top(
    given: Annotated[str, typer.Argument(metavar="CONFIG", help="An experiment's file, folder of results, or name.")],
    count: Annotated[int, typer.Option("-n", "--number", min=1, help="Number of operators.")] = 5,
) -> None:
    """Print the best operators of an experiment, finished or not: score, cost and latency as far as known."""
    from syno.stages.top import top as best

    typer.echo(best(given, count), nl=False)
