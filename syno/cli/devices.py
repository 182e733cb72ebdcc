"""Commands for remote devices, which TVM's RPC reaches."""

from __future__ import annotations

import time
from collections import Counter
from typing import Annotated

import typer

from syno.cli.app import NOT_THERE, STAGES, app
from syno.cli.arguments import Config, experiment_of

devices = typer.Typer(help="Remote devices, on which TVM tunes and measures.", no_args_is_help=True)
app.add_typer(devices, name="devices", rich_help_panel=STAGES)


@devices.command()
def check(config: Config) -> None:
    """Print which remote devices of an experiment answer. Exit code 1 if one does not."""
    from syno.base.text_tables import markdown
    from syno.measure.tvm.tracker import status_of

    rows = [status_of(name, device) for name, device in experiment_of(config).tune.remote_devices.items()]
    if not rows:
        typer.echo("no remote devices; `tune: remote_devices` describes them")
        return
    typer.echo(markdown([row.cells() for row in rows], left=4), nl=False)
    faults = [row.fault for row in rows if row.fault]
    for fault in faults:
        typer.echo(f"error: {fault}", err=True)
    if faults:
        raise typer.Exit(NOT_THERE)


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
