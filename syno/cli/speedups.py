"""The command that tells how many times as fast a network is with operators."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from syno.cli.app import NOT_THERE
from syno.cli.arguments import Config, OutputFile, experiment_of
from syno.cli.evaluations import Compiler, Device, tune

if TYPE_CHECKING:
    from syno.measure.speedup_record import SpeedupRecord
    from syno.measure.speedups import Choice

OPERATORS_HELP = "Operators, as for `show`, baselines, or folders with operators' files."


@tune.command("speedup")
def tune_speedup(
    config: Config,
    operators: Annotated[list[str], typer.Argument(metavar="OP...", help=OPERATORS_HELP)],
    compiler: Compiler = "inductor",
    device: Device = "cpu",
    by: Annotated[str, typer.Option(help="network (the whole one), layers (each distinct size), or auto.")] = "auto",
    store: Annotated[
        Path | None, typer.Option(metavar="FOLDER", help="Where records are kept; by default results/latencies.")
    ] = None,
) -> None:
    """Tell how many times as fast the network of an experiment is with operators, measured in turns with the original.

    What was measured before on this machine, with these settings and versions, is not measured again.
    """
    from syno.stages.speedups import measured_speedups, speedups_of

    choices: dict[str, Choice] = {"auto": "auto", "network": "network", "layers": "layers"}
    if by not in choices:
        raise typer.BadParameter(f'"{by}" is not network, layers or auto', param_hint="--by")
    failed = False
    experiment = experiment_of(config)
    with speedups_of(experiment, compiler, device, measured=choices[by], store=store) as speedups:
        for record, is_known in measured_speedups(experiment, operators, speedups):
            _tell(record, is_known)
            failed = failed or record.speedup is None
    if failed:
        raise typer.Exit(NOT_THERE)


@tune.command("selected")
def tune_selected(config: Config, output: OutputFile = None) -> None:
    """Measure the speedups of the selected operators again, for the verdicts on the goal.

    The speedups by which operators were selected are those of the luckiest measurements, and so too high.
    """
    from syno.stages.speedups import measure_selected

    found = measure_selected(experiment_of(config), output).speedups.values()
    for record in found:
        _tell(record, is_known=False)
    if any(record.speedup is None for record in found):
        raise typer.Exit(NOT_THERE)


def _tell(record: SpeedupRecord, is_known: bool) -> None:
    """Print a record, and on the error stream the reason if there is no speedup, or it is uncertain."""
    place = f"{record.name}, {record.conditions.compiler} on {record.conditions.device.name}"
    if record.ratio is not None and record.latency_ms is not None and record.original_ms is not None:
        ratio, known = record.ratio, " (measured before)" if is_known else ""
        typer.echo(
            f"{place}: {ratio.value:.3f} times as fast (95 % in {ratio.low:.3f} to {ratio.high:.3f}), "
            f"{record.latency_ms.value:.4g} ms, original {record.original_ms.value:.4g} ms{known}"
        )
    for one in record.layers:
        typer.echo(
            f"  {one.name}, {one.count} times: {one.speedup.value:.3f} times as fast (95 % in {one.speedup.low:.3f} to "
            f"{one.speedup.high:.3f}), {one.latency_ms.value:.4g} ms, original {one.original_ms.value:.4g} ms"
        )
    if record.status != "ok":
        typer.echo(f"{place}: {record.status}: {record.reason}", err=True)
    if record.unsteady:
        typer.echo(f"{place}: {record.unsteady}", err=True)
