"""Commands that collect and display results: tables, measurements, figures and the report."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from syno.cli.app import RESULTS, STAGES, app
from syno.cli.arguments import Config, OutputFile, Rename, any_experiment_of, experiment_of, operator_of, sizes

# The command that writes an operator or a trained network, for use without Syno.


@app.command(rich_help_panel=RESULTS)
def get(
    subject: Annotated[
        str, typer.Argument(metavar="OPERATOR|EXPERIMENT", help="An operator; or an experiment, by name or config.")
    ],
    network: Annotated[
        str | None, typer.Argument(metavar="[NETWORK]", help="Of the experiment: an operator's name or id, or original.")
    ] = None,
    output: Annotated[
        Path | None, typer.Option(metavar="PATH", help="File or folder, by default NAME with an ending, here.")
    ] = None,
    to: Annotated[
        str, typer.Option(metavar="module|export|onnx|aoti|native|native-aoti|tvm|te", help="The format.")
    ] = "module",
    values: Annotated[list[str] | None, typer.Option("--set", metavar="NAME=VALUE", help="Sizes, for an operator.")] = None,
    rename: Rename = None,
    seed: Annotated[int | None, typer.Option(help="Of a network's training; by default the best.")] = None,
    run_code: Annotated[
        bool, typer.Option("--run-code", help="Run the code that makes the network, though it came with the results.")
    ] = False,
) -> None:
    """Write an operator, or a whole trained network of an experiment, for use without Syno. The result is checked first.

    An operator: the source of a module, and of TVM tensor expressions (te), is valid for all sizes. A program of torch.export,
    an ONNX file and a TVM library are for the sizes of --set, and have new weights. With --set W=28, an operator of square
    pictures is written for others.

    A network: a folder with its code, its trained weights and a card. With --to also, or instead, a program of torch.export,
    an ONNX file, a package of AOTInductor, or a TVM library of the whole network. A network that was measured with the compiler
    native also gets its kernels as C++, which is compiled at the first call (native), and with aoti a package that holds them
    (native-aoti), both for this kind of processor. If code of one's own makes the network, it is
    run where EXPERIMENT is the experiment's own file, or the code lies in the folder where the command runs or on Python's
    path; with --run-code, wherever it lies: docs/trust.md.
    """
    if network is not None:
        from syno.config.files import is_own_file
        from syno.stages.take_home import take_network
        from syno.stages.top import find_experiment

        for option, value in (("--set", values), ("--rename", rename)):
            if value:
                raise typer.BadParameter("a trained network has its sizes and names already; leave it out", param_hint=option)
        may_run = run_code or is_own_file(subject)
        for line in take_network(find_experiment(subject), network, output, (to,), seed, run_code=may_run):
            typer.echo(line)
        return
    from syno.export import FORMATS, check_own
    from syno.ir.rewriting import for_sizes

    if seed is not None:
        raise typer.BadParameter("it is of a trained network: give EXPERIMENT and NETWORK", param_hint="--seed")
    form, chosen = FORMATS[to], sizes(values) or None
    operator = for_sizes(operator_of(subject, rename), chosen)
    file = output or check_own(Path(f"{operator.name}{form.ending}"))
    typer.echo(f"{file}: {form.write(operator, file, chosen)}")


@app.command(rich_help_panel=STAGES)
def tables(config: Config) -> None:
    """Collect the records of trainings and measurements in tables."""
    from syno.stages.tables import make_tables
    from syno.stages.top import compared

    experiment = experiment_of(config)
    run = make_tables(experiment)
    typer.echo(compared(run), nl=False)
    for line in run.answer:
        typer.echo(line)


@app.command(rich_help_panel=STAGES)
def figure(config: Config, name: Annotated[str, typer.Argument(metavar="FIGURE", help="Name of the figure.")]) -> None:
    """Draw a figure of an experiment."""
    from syno.stages.figures import draw

    for file in draw(any_experiment_of(config), name):
        typer.echo(file)


@app.command(rich_help_panel=STAGES)
def report(config: Config, output: OutputFile = None) -> None:
    """Write the report, one page that opens without a server."""
    from syno.stages.figures import write_report

    typer.echo(write_report(any_experiment_of(config), output))


@app.command(rich_help_panel=RESULTS)
def measurements(config: Config) -> None:
    """Collect all measurements of an experiment in one tidy table."""
    from syno.run import FOLDER, MEASUREMENTS
    from syno.stages.tables import collect

    experiment = experiment_of(config)
    table = collect(experiment)
    typer.echo(f"{len(table)} measurements in {experiment.folder / FOLDER / MEASUREMENTS}.parquet and .csv")
