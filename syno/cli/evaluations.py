"""Commands that train and measure networks, and print the results."""

from __future__ import annotations

from collections.abc import Iterable
from inspect import Parameter, Signature
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from syno.cli.app import NOT_THERE, STAGES, app
from syno.cli.arguments import Config, Operator, OutputFile, experiment_of, network_subject, replacement_of, sizes
from syno.stages.measurements import KINDS, MeasurementKind, measure
from syno.train.metric import METRICS

if TYPE_CHECKING:
    from syno.measure.tuning_record import AnySubject, Line
    from syno.train.training_record import TrainingRecord

tune = typer.Typer(
    help="Compile and measure in a separate process. A failure is a record with the reason, and exit code 1.",
    no_args_is_help=True,
)
app.add_typer(tune, name="tune", rich_help_panel=STAGES)

NETWORK_HELP = "An operator, as for `show`, or a baseline, such as nas_pte_1; `original` for the original network."
NetworkOperator = Annotated[str, typer.Argument(metavar="OP", help=NETWORK_HELP)]
ChangedOperator = Annotated[str, typer.Argument(metavar="OP", help="An operator, as for `show`, or a baseline.")]
RecordFile = Annotated[Path, typer.Option("--output", metavar="FILE.json", help="File of the record.")]
Threads = Annotated[int, typer.Option(min=1, help="CPU threads.")]
TimeLimit = Annotated[float, typer.Option(help="Seconds for compiling and measuring.")]
MemoryLimit = Annotated[float | None, typer.Option(help="MiB for the process that compiles and measures.")]
Compiler = Annotated[str, typer.Option(help="A compiler, such as eager, inductor or tvm: docs/evaluation.md lists all.")]
Device = Annotated[str, typer.Option(help="cpu, cuda, a GPU such as cuda:1, or a remote device of the experiment.")]
LocalDevice = Annotated[str, typer.Option(help="cpu, cuda, or a GPU such as cuda:1.")]


@app.command(rich_help_panel=STAGES)
def train(
    config: Config,
    network: NetworkOperator,
    seed: Annotated[int, typer.Option(help="Seed of the weights and of the order of samples.")] = 0,
    output: OutputFile = None,
) -> None:
    """Train the network with one operator, and write a record."""
    from syno.stages.train import train as trained

    record = trained(experiment_of(config), network, seed, output)
    typer.echo(f"{_scored(record)}, {record.cpu_seconds:.1f} CPU-seconds")


@app.command(rich_help_panel=STAGES)
def baseline(
    config: Config,
    names: Annotated[
        list[str] | None, typer.Argument(metavar="NAME...", help="`original`, or baselines of the config; by default all.")
    ] = None,
    seed: Annotated[int | None, typer.Option(help="One seed, instead of all seeds of the config.")] = None,
) -> None:
    """Train the original network and the baselines with every seed. Existing records are kept."""
    from syno.stages.train import train_baselines

    for record, is_new in train_baselines(experiment_of(config), names or (), None if seed is None else (seed,)):
        cost = f"{record.cpu_seconds:.1f} CPU-seconds" if is_new else "trained before"
        typer.echo(f"{_scored(record)}, {cost}")


@app.command(rich_help_panel=STAGES)
def choose(config: Config, output: OutputFile = None) -> None:
    """Choose an operator for each layer: the mixture with the least error that is as fast as the goal asks for."""
    from syno.stages.choice import choose_mixtures

    print_lines(choose_mixtures(experiment_of(config), output).lines(), has_failed=False)


@app.command(rich_help_panel=STAGES)
def rival(
    config: Config,
    name: Annotated[
        str,
        typer.Argument(metavar="NAME", help="pruned_SHARE, narrow_SHARE, known operator, int8, bfloat16, or mixture_NUMBER."),
    ],
    output: OutputFile = None,
) -> None:
    """Measure and train a mixture, or what a user would do without synthesis: pruning, known layers, 8-bit integers."""
    from syno.stages.rivals import evaluate_rival

    print_lines(evaluate_rival(experiment_of(config), name, output).lines(), has_failed=False)


def _scored(record: TrainingRecord) -> str:
    """Return the score of a training as text."""
    broke = f" ({record.stopped})" if record.stopped else ""
    metric = METRICS[record.metric]
    return f"{record.name}: {metric.name} {metric.text(record.score)} with seed {record.seed}{broke}"


def _add_command(kind: MeasurementKind) -> None:
    """Register the command that makes a kind of measurement (`syno.stages.measurements`)."""

    def command(**arguments: Any) -> None:
        experiment, compiler, device = experiment_of(arguments["config"]), arguments.get("compiler", ""), arguments["device"]
        record = measure(kind.name, experiment, arguments["network"], compiler, device, arguments["output"])
        print_lines(record.lines(f"{compiler} on {device}"), has_failed=record.has_failed)

    options: dict[str, tuple[Any, Any]] = {
        "config": (Config, Parameter.empty),
        "network": (NetworkOperator if kind.of_original else ChangedOperator, Parameter.empty),
        "compiler": (Compiler, "eager"),
        "device": (Device if kind.of_original else LocalDevice, "cpu"),
        "output": (OutputFile, None),
    }
    if not kind.has_compiler:
        del options["compiler"]
    parameters = [
        Parameter(name, Parameter.POSITIONAL_OR_KEYWORD, annotation=annotation, default=default)
        for name, (annotation, default) in options.items()
    ]
    command.__signature__ = Signature(parameters)  # type: ignore[attr-defined]  # typer reads both
    command.__annotations__ = {name: annotation for name, (annotation, _) in options.items()}
    tune.command(kind.command, help=kind.help)(command)


for _kind in KINDS.values():
    _add_command(_kind)


@tune.command("operator")
def tune_operator(
    operator_name: Operator,
    values: Annotated[list[str], typer.Option("--set", metavar="NAME=VALUE", help="Sizes; the batch has its own option.")],
    output: RecordFile,
    compiler: Compiler = "eager",
    device: Device = "cpu",
    batch: Annotated[int, typer.Option(min=1, help="Length of the first axis of the input.")] = 1,
    threads: Threads = 1,
    time_limit: TimeLimit = 600,
    memory_limit: MemoryLimit = None,
    target: Annotated[str | None, typer.Option(help="tvm: what to generate code for, if not the device.")] = None,
    trials: Annotated[int | None, typer.Option(min=0, help="tvm: schedules to measure of each task.")] = None,
    folder: Annotated[Path | None, typer.Option(metavar="FOLDER", help="tvm: where to keep trials for the next run.")] = None,
) -> None:
    """Measure one operator by itself."""
    from syno.ir.graph import PGraph
    from syno.ir.rewriting import for_sizes
    from syno.measure.subjects import OperatorSubject
    from syno.measure.tvm.targets import TARGETS, TvmSettings

    operator, chosen = replacement_of(operator_name), sizes(values)
    subject = OperatorSubject.of(for_sizes(operator, chosen) if isinstance(operator, PGraph) else operator, chosen)
    if target is not None:
        TARGETS[target]
    given_tvm = {"target": target, "trials_per_task": trials}
    tvm = TvmSettings.model_validate({name: value for name, value in given_tvm.items() if value is not None})
    limits = {"time_limit_s": time_limit, "memory_limit_mib": memory_limit}
    _measure(subject, output, compiler, device, batch, threads, **limits, tvm=tvm, folder=folder)


@tune.command("network")
def tune_network(
    network: NetworkOperator,
    output: RecordFile,
    model: Annotated[str, typer.Option(help="The backbone: a name, or your own as package.module:function.")] = "resnet18",
    classes: Annotated[int | None, typer.Option(min=1, help="Classes of a network for pictures; by default 1000.")] = None,
    image: Annotated[
        str | None,
        typer.Option(
            metavar="CxHxW", help="Channels, height and width; by default 3x224x224. CxL for some models of your own."
        ),
    ] = None,
    vocabulary: Annotated[int | None, typer.Option(min=1, help="Tokens of a language model; by default 50257.")] = None,
    length: Annotated[int | None, typer.Option(min=1, help="Length of a sequence; by default 2048.")] = None,
    width: Annotated[float, typer.Option(help="Factor for the number of the network's features.")] = 1.0,
    layers: Annotated[
        str | None, typer.Option(help="Layers to replace: spatial (pictures, the default), paper-3x3, paper (text).")
    ] = None,
    compiler: Compiler = "inductor",
    device: Device = "cpu",
    batch: Annotated[int, typer.Option(min=1, help="Pictures or sequences in one call.")] = 1,
    threads: Threads = 1,
    channels_last: Annotated[bool | None, typer.Option("--channels-last", help="Memory format of pictures.")] = None,
    time_limit: TimeLimit = 1800,
    memory_limit: MemoryLimit = None,
) -> None:
    """Measure a network with one operator, without an experiment: on a machine that has only the operator's file, for example.

    A language model of your own needs --length, which tells it from a network for pictures.
    """
    from syno.base.files import ORIGINAL

    subject = network_subject(
        model=model,
        width=width,
        classes=classes,
        image=image,
        channels_last=channels_last,
        vocabulary=vocabulary,
        length=length,
        operator=None if network == ORIGINAL else str(replacement_of(network)),
        layers=layers,
    )
    limits = {"time_limit_s": time_limit, "memory_limit_mib": memory_limit}
    _measure(subject, output, compiler, device, batch, threads, **limits)


def _measure(subject: AnySubject, output: Path, compiler: str, device: str, batch: int, threads: int, **options: Any) -> None:
    """Measure a subject with options of `syno.measure.tuning.tune`, write the record, and print it."""
    from syno.base.gpu_leases import leased
    from syno.measure.tuning import LatencySettings
    from syno.measure.tuning import tune as tuned
    from syno.stages.measure import shown

    with leased(device), shown(f"{subject.title}, {compiler} on {device}") as progress:
        latency = LatencySettings(batch=batch, threads=threads)
        record = tuned(subject, compiler, device, latency, **options, progress=progress)
    record.write(output)
    print_lines(record.lines(), has_failed=record.has_failed)


def print_lines(lines: Iterable[Line], *, has_failed: bool) -> None:
    """Print lines, problems on stderr. Exit with code 1 if a measurement has failed."""
    for line in lines:
        typer.echo(line.text, err=line.is_problem)
    if has_failed:
        raise typer.Exit(NOT_THERE)
