"""The command that measures the speedup of a network with operators."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from syno.cli.app import NOT_THERE
from syno.cli.arguments import Config, OutputFile, experiment_of
from syno.cli.evaluations import Compiler, Device, print_lines, tune

if TYPE_CHECKING:
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
            failed = failed or record.speedup is None
            print_lines(record.lines(is_known), has_failed=False)  # the others are still to be measured
    if failed:
        raise typer.Exit(NOT_THERE)


@tune.command("selected")
def tune_selected(config: Config, output: OutputFile = None) -> None:
    """Measure the speedups of the selected operators again, for the verdicts on the goal.

    The speedups by which operators were selected are those of the luckiest measurements, and so too high.
    """
    from syno.stages.speedups import measure_selected

    records = measure_selected(experiment_of(config), output).speedups.values()
    lines = [line for record in records for line in record.lines()]
    print_lines(lines, has_failed=any(record.speedup is None for record in records))
