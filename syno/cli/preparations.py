"""Commands around a search: `plan`, `convert` and `data` before it, and `devices` for remote devices."""

from __future__ import annotations

import time
from collections import Counter
from pathlib import Path
from typing import Annotated

import typer

from syno.cli.app import NOT_THERE, STAGES, app
from syno.cli.arguments import Config, OutputFile, experiment_of, pairs

convert = typer.Typer(help="Convert data to the form in which trainings read it.", no_args_is_help=True)
app.add_typer(convert, name="convert", rich_help_panel=STAGES)


@app.command(rich_help_panel=STAGES)
def plan(
    config: Config,
    assume: Annotated[
        list[str] | None, typer.Option(metavar="NAME=VALUE", help="Change an assumption; the last table lists their names.")
    ] = None,
) -> None:
    """Print how many jobs, hours and files an experiment, or all experiments of a file, will take. Runs nothing."""
    from pydantic import ValidationError

    from syno.base.errors import SpecError
    from syno.base.validation import explained
    from syno.config import load_experiment, load_experiments
    from syno.config.files import parted
    from syno.stages.plan import Assumptions, plan_text, plans

    try:
        assumed = Assumptions.model_validate(pairs(assume, "--assume"))
    except ValidationError as error:
        raise SpecError(f"--assume: {explained(error, Assumptions)}") from None
    file, name = parted(config)
    experiments = load_experiments(file).values() if name is None else [load_experiment(config)]
    typer.echo(plan_text(plans(experiments, assumed), assumed), nl=False)


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
    from syno.data.beton_conversion import convert

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
    from syno.stages.data import prepare
    from syno.stages.data_text import data_text

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
    from syno.measure.ssh.status import status_by_ssh
    from syno.measure.tvm.tracker import status_of

    described = experiment_of(config).tune.remote_devices
    if not described:
        typer.echo("no remote devices; `tune: remote_devices` describes them")
        return
    by_ssh = [status_by_ssh(name, device) for name, device in described.items() if isinstance(device, SshSettings)]
    at_tracker = {name: one.tvm if isinstance(one, SshSettings) else one for name, one in described.items()}
    by_rpc = [status_of(name, device) for name, device in at_tracker.items() if device is not None]
    found = [[row.cells() for row in by_rpc], [row.cells() for row in by_ssh]]
    typer.echo("\n".join(markdown(rows, left=9) for rows in found if rows), nl=False)
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

    found = enumerate(usage())
    rows = [{"device": f"cuda:{n}", "GPU": gpu.name, "model": gpu.model, "in use by": used or "–"} for n, (gpu, used) in found]
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
