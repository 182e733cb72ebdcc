"""Commands for a search, its study, and the selection of operators."""

from __future__ import annotations

import os
import shutil
import sys
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from syno.cli.app import NOT_THERE, RESULTS, STAGES, app, stopped
from syno.cli.arguments import Config, OutputFile, experiment_of, pairs

if TYPE_CHECKING:
    from collections.abc import Sequence

    from syno.config import AnyExperiment
    from syno.run.values import Trial
    from syno.stages.needs import Need
    from syno.stages.selection import Selected


# `syno run`: the whole workflow of an experiment, by Snakemake.


DEFAULT = "quickstart"
WIDTH = 128  # of a table, where there is no terminal
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
    no_check: Annotated[bool, typer.Option("--no-check", help="Do not try first whether all is there.")] = False,
) -> None:
    """Run all stages of an experiment, by Snakemake, from anywhere: what is done already is not done again.

    It first tries whether everything is there that the jobs will need, as `syno check` does, and stops if something is missing.
    Further options and targets go to Snakemake: `-n` shows what would run, and a file or the name of an experiment is a target.
    """
    from syno.stages.workflow.command import chosen_experiments, command, experiments_to_run, runs_elsewhere

    place = Path.cwd()
    arguments = command(config, profile, cores, context.args, place)
    for experiment in chosen_experiments(config):  # what is wrong is said in a line, before Snakemake says it in many
        experiment.use_code()
    if not no_check and (experiments := experiments_to_run(config, context.args)):
        _stop_if_missing(experiments, elsewhere=runs_elsewhere(profile, context.args))
    sys.stdout.flush()
    os.execv(arguments[0], arguments)  # so that signals reach Snakemake itself


@app.command("check", rich_help_panel=STAGES)
def check_needs(config: Config, profile: Annotated[str, typer.Option(help="As for `syno run`.")] = LOCAL) -> None:
    """Print what a run will need before its first job, and what of it is missing. Exit code 1 if something is."""
    from syno.stages.needs import needs
    from syno.stages.workflow.command import chosen_experiments, runs_elsewhere

    probes = needs(chosen_experiments(config), elsewhere=runs_elsewhere(profile))
    _print_needs(probes)
    if any(need.state == "missing" for need in probes):
        raise typer.Exit(NOT_THERE)


def _print_needs(needs: Sequence[Need]) -> None:
    from syno.base.text_tables import wrapped
    from syno.stages.needs import need_rows

    if not needs:
        typer.echo("all files are there, so nothing is needed")
        return
    typer.echo(wrapped(need_rows(needs), shutil.get_terminal_size((WIDTH, 24)).columns, ("state",)), nl=False)


def _stop_if_missing(experiments: Sequence[AnyExperiment], *, elsewhere: bool) -> None:
    """End the command with a table and an error if something that jobs of these experiments need is missing.

    Otherwise, record which of their optional devices are present.
    """
    from syno.base.text_tables import plural
    from syno.config.left_out import record_devices
    from syno.stages.needs import needs, with_devices

    probes = needs(experiments, elsewhere=elsewhere)
    if missing := [need.subject for need in probes if need.state == "missing"]:
        _print_needs(probes)
        problem = f"{plural(len(missing), 'thing')} that jobs of this run need {'is' if len(missing) == 1 else 'are'} missing"
        typer.echo(
            f"error: {problem}: {', '.join(missing)}; the table says what to do, and --no-check goes on without", err=True
        )
        raise typer.Exit(NOT_THERE)
    for need in probes:
        if need.state == "left out":
            typer.echo(f"left out: {need.subject}, for {', '.join(need.experiments)}: {need.text}", err=True)
    for experiment in with_devices(experiments, probes):
        record_devices(experiment)


# Commands around a search: `plan`, `convert` and `data` before it, and `devices` for remote devices.


convert = typer.Typer(help="Convert data to the form in which trainings read it.", no_args_is_help=True)
app.add_typer(convert, name="convert", rich_help_panel=STAGES)


@app.command(rich_help_panel=STAGES)
def plan(
    config: Config,
    assume: Annotated[
        list[str] | None, typer.Option(metavar="NAME=VALUE", help="Change an assumption; the last table lists their names.")
    ] = None,
    gpus: Annotated[int | None, typer.Option(min=1, help="Also print the days on a machine with so many GPUs.")] = None,
    profile: Annotated[str, typer.Option(help="As for `syno run`.")] = LOCAL,
) -> None:
    """Print how many jobs, hours, files and bytes an experiment, or all experiments of a file, will take. Runs nothing.

    With FILE:NAME, these are the jobs of one experiment, and those of others that it needs. Jobs on optional devices that are
    not there are left out, as `syno run` leaves them out; only those of an experiment's own file are tried, not of results.
    """
    from pydantic import ValidationError

    from syno.base.errors import SpecError
    from syno.base.validation import explained
    from syno.config.files import is_result, parted
    from syno.stages.needs import with_devices
    from syno.stages.plan import Assumptions, plan_text, plans
    from syno.stages.targets import stages_asked_for
    from syno.stages.workflow.command import chosen_experiments, runs_elsewhere

    try:
        assumed = Assumptions.model_validate(pairs(assume, "--assume"))
    except ValidationError as error:
        raise SpecError(f"--assume: {explained(error, Assumptions)}") from None
    chosen = chosen_experiments(config)
    if not is_result(config):  # reading results asks no machine that they name
        chosen = with_devices(chosen, elsewhere=runs_elsewhere(profile))
    users: dict[tuple[str, str], list[str]] = {}
    for experiment in chosen:
        for left_out in experiment.left_out.items():
            users.setdefault(left_out, []).append(experiment.name)
    for (device, reason), names in users.items():
        typer.echo(f"left out: device {device}, for {', '.join(names)}: {reason}", err=True)
    name = parted(config)[1]
    stages = stages_asked_for({str(experiment.folder): experiment for experiment in chosen}, [] if name is None else [name])
    typer.echo(plan_text(plans(chosen, assumed, stages), assumed, gpus), nl=False)


@convert.command("imagenet")
def convert_imagenet(
    folder: Annotated[Path, typer.Argument(metavar="FOLDER", help="Folder with a folder of pictures for each class.")],
    output: Annotated[Path, typer.Option(metavar="FILE.beton", help="File to write; a record is written beside it.")],
    max_resolution: Annotated[int, typer.Option(min=1, help="Most pixels of the longer side.")] = 400,
    compress_probability: Annotated[float, typer.Option(min=0, max=1, help="Fraction of pictures stored as JPEG.")] = 0.10,
    quality: Annotated[int, typer.Option(min=1, max=100, help="Quality of these JPEGs.")] = 90,
    workers: Annotated[int, typer.Option(min=1, help="Number of processes.")] = 1,
) -> None:
    """Write a folder of pictures into a file for FFCV, which `data: imagenet` reads."""
    from syno.data.beton import convert

    record = convert(
        folder,
        output,
        max_resolution=max_resolution,
        compress_probability=compress_probability,
        quality=quality,
        workers=workers,
    )
    typer.echo(f"{output}: {record.count:,} pictures in {len(record.names)} classes, {record.size:,} bytes, hash {record.hash}")


@app.command(rich_help_panel=STAGES)
def data(config: Config, output: OutputFile = None) -> None:
    """Load or generate the data, and check the network, the budget and one step of training."""
    from syno.stages.data import data_text, prepare

    experiment = experiment_of(config)
    record = prepare(experiment, output)
    typer.echo(data_text(experiment, record), nl=False)


devices = typer.Typer(help="Show the remote devices of an experiment, or serve some to TVM.", no_args_is_help=True)
app.add_typer(devices, name="devices", rich_help_panel=STAGES)


@devices.command()
def check(config: Config) -> None:
    """Print which remote devices of an experiment answer. Exit code 1 if one does not."""
    from syno.base.text_tables import markdown
    from syno.measure.devices import SshSettings
    from syno.measure.ssh import status_by_ssh
    from syno.measure.tvm.tracker import status_of

    described = experiment_of(config).tune.remote_devices
    if not described:
        typer.echo("no remote devices; `tune: remote_devices` describes them")
        return
    by_ssh = [status_by_ssh(name, device) for name, device in described.items() if isinstance(device, SshSettings)]
    at_tracker = {name: device.tvm if isinstance(device, SshSettings) else device for name, device in described.items()}
    by_rpc = [status_of(name, device) for name, device in at_tracker.items() if device is not None]
    tables = [[row.cells() for row in by_rpc], [row.cells() for row in by_ssh]]
    typer.echo("\n".join(markdown(rows, left=9) for rows in tables if rows), nl=False)
    faults = [fault for fault in (*(row.fault for row in by_rpc), *(row.fault for row in by_ssh)) if fault]
    for fault in faults:
        typer.echo(f"error: {fault}", err=True)
    if faults:
        raise typer.Exit(NOT_THERE)


@devices.command()
def gpus() -> None:
    """Print the GPUs of this machine, and which processes have leased them."""
    from syno.base.gpu_leases import usage
    from syno.base.text_tables import markdown

    leases = enumerate(usage())
    rows = [{"device": f"cuda:{n}", "GPU": gpu.name, "model": gpu.model, "in use by": used or "–"} for n, (gpu, used) in leases]
    typer.echo(markdown(rows, left=4) if rows else "NVIDIA's driver lists no GPU that this process may use", nl=not rows)


@devices.command()
def serve(
    keys: Annotated[list[str] | None, typer.Argument(metavar="KEY", help="A server here for each key; twice for two.")] = None,
    host: Annotated[str, typer.Option(help="Address in a network that you trust: there is no password.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=1, max=65435, help="Port of the tracker, or the next free one.")] = 9190,
) -> None:
    """Run a tracker, and servers of this machine, until Ctrl-C."""
    from syno.measure.tvm.tracker import local_devices

    try:
        with local_devices(Counter(keys or ()), host, port) as address:
            typer.echo(f"tracker {address}; servers here: {', '.join(keys or ('none',))}; Ctrl-C ends them")
            while True:
                time.sleep(3600)
    except KeyboardInterrupt:
        typer.echo("ended")


@app.command(rich_help_panel=STAGES)
def search(
    config: Config,
    workers: Annotated[int | None, typer.Option(min=1, help="Processes on this machine; by default the config's.")] = None,
    best: Annotated[int, typer.Option(min=0, help="Number of best operators to print.")] = 5,
) -> None:
    """Search a space, and write the trials as a table. Continues where it was stopped."""
    from syno.base.progress import display
    from syno.base.text_tables import markdown
    from syno.run.run import outcomes, search_rows
    from syno.run.table import trials_in
    from syno.stages.places import FROZEN
    from syno.stages.search import search as searched
    from syno.stages.study import freeze as frozen

    experiment = experiment_of(config)
    try:
        searched(experiment, workers or experiment.study.workers, display())
    except KeyboardInterrupt:
        raise stopped(f"trials so far are in {experiment.storage}") from None
    trials = trials_in(frozen(experiment))
    rows = search_rows(trials, experiment.name, best)
    typer.echo(markdown(rows) if rows else "No trial has a reward; the column message of the table says why.\n")
    typer.echo(f"{outcomes(trials)} in {experiment.folder / FROZEN}")
    _warn_of_saturation(trials)


def _warn_of_saturation(trials: Sequence[Trial]) -> None:
    from syno.report.search_rewards import saturation

    if warning := saturation(trials):
        typer.echo(f"warning: {warning}", err=True)


@app.command(rich_help_panel=STAGES)
def worker(
    config: Config, number: Annotated[int, typer.Option(min=1, help="Number of this worker.")] = 1, output: OutputFile = None
) -> None:
    """Work on a study that several workers share, until no trial is left to begin, and write a record."""
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
    from syno.run.run import outcomes
    from syno.run.table import trials_in
    from syno.stages.places import FROZEN
    from syno.stages.study import freeze as frozen

    experiment = experiment_of(config)
    trials = trials_in(frozen(experiment, output))
    typer.echo(f"{outcomes(trials)} in {output or experiment.folder / FROZEN}")
    _warn_of_saturation(trials)


@app.command(rich_help_panel=STAGES)
def shortlist(config: Config, output: OutputFile = None) -> None:
    """List the operators whose latency is measured, for a selection by latency or front."""
    from syno.stages.places import SHORTLIST
    from syno.stages.select import shortlist as listed
    from syno.stages.selection import read_selection, why_none

    experiment = experiment_of(config)
    for operator in listed(experiment, output):
        typer.echo(_description(operator))
    if (reason := why_none(read_selection(output or experiment.folder / SHORTLIST))) is not None:
        typer.echo(reason)


@app.command(rich_help_panel=STAGES)
def select(config: Config, output: OutputFile = None) -> None:
    """Select the operators that are trained again and measured."""
    from syno.run.story import fastest_in_selection, verdict_text
    from syno.stages.goal import help_of_search, verdict_in_search
    from syno.stages.places import SELECTED
    from syno.stages.select import select as selected
    from syno.stages.selection import read_selection, why_none

    experiment = experiment_of(config)
    chosen = selected(experiment, output)
    for operator in chosen:
        typer.echo(_description(operator))
        if (verdict := verdict_in_search(experiment, operator.metrics)) is not None:
            typer.echo(f"  {verdict_text(verdict)} (in the search)")
        for place in operator.fastest_on:
            fastest = fastest_in_selection(place.compiler, place.device, place.latency_ms, place.speedup)
            typer.echo(f"  {fastest}")
    if (reason := why_none(read_selection(output or experiment.folder / SELECTED))) is not None:
        typer.echo(reason)
    if (advice := help_of_search(experiment, [operator.metrics for operator in chosen])) is not None:
        typer.echo(advice)


def _description(selected: Selected) -> str:
    """Return a selected operator with its reward and score, as text."""
    from syno.train.metric import METRICS, score_of

    key = score_of(selected.metrics)
    scores = [] if key is None else [f", {METRICS[key].name} {METRICS[key].text(selected.metrics[key])}"]
    reward = "published" if selected.reward is None else f"reward {selected.reward:.4f}"
    origin = (
        f"{reward}{''.join(scores)} in the search" if selected.metrics or selected.reward is not None else "named in the config"
    )
    return f"{selected.name} ({selected.key}): {origin}"


@app.command(rich_help_panel=RESULTS)
def top(
    experiment: Annotated[str, typer.Argument(metavar="CONFIG", help="An experiment's file, folder of results, or name.")],
    count: Annotated[int, typer.Option("-n", "--number", min=1, help="Number of operators.")] = 5,
) -> None:
    """Print the best operators of an experiment, finished or not: score, cost and latency as far as known."""
    from syno.stages.top import top as best

    typer.echo(best(experiment, count), nl=False)
