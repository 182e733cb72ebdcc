"""Commands that train and measure networks, and that show the results."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from syno.cli.app import NOT_THERE, STAGES, app
from syno.cli.arguments import Config, Operator, OutputFile, experiment_of, network_subject, replacement_of, sizes

if TYPE_CHECKING:
    from syno.measure.tuning_record import AnySubject, TuningRecord
    from syno.train.training_record import TrainingRecord

tune = typer.Typer(
    help="Compile and measure in a separate process. A failure is a record with the reason, and exit code 1.",
    no_args_is_help=True,
)
app.add_typer(tune, name="tune", rich_help_panel=STAGES)

NETWORK_HELP = "An operator, as for `show`, or a baseline, such as nas_pte_1; `original` for the original network."
NetworkOperator = Annotated[str, typer.Argument(metavar="OP", help=NETWORK_HELP)]
RecordFile = Annotated[Path, typer.Option("--output", metavar="FILE.json", help="File of the record.")]
Threads = Annotated[int, typer.Option(min=1, help="CPU threads.")]
TimeLimit = Annotated[float, typer.Option(help="Seconds for compiling and measuring.")]
MemoryLimit = Annotated[float | None, typer.Option(help="MiB for the process that compiles and measures.")]
Compiler = Annotated[str, typer.Option(help="A compiler, such as eager, inductor or tvm: docs/evaluation.md lists all.")]
Device = Annotated[str, typer.Option(help="cpu, cuda, a GPU such as cuda:1, or a remote device of the experiment.")]


@app.command(rich_help_panel=STAGES)
def train(
    config: Config,
    given: NetworkOperator,
    seed: Annotated[int, typer.Option(help="Seed of the weights and of the order of samples.")] = 0,
    output: OutputFile = None,
) -> None:
    """Train the network with one operator, and write a record."""
    from syno.stages.train import train as trained

    record = trained(experiment_of(config), given, seed, output)
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


def _scored(record: TrainingRecord) -> str:
    """Return the score of a training in words."""
    broke = f" ({record.stopped})" if record.stopped else ""
    return f"{record.name}: {record.metric} {record.score:.4f} with seed {record.seed}{broke}"


@tune.command("model")
def tune_model(
    config: Config, given: NetworkOperator, compiler: Compiler = "eager", device: Device = "cpu", output: OutputFile = None
) -> None:
    """Measure the network of an experiment with one operator."""
    from syno.stages.tune import tune as tuned

    _tell(tuned(experiment_of(config), given, compiler, device, output))


@tune.command("layers")
def tune_layers(
    config: Config, given: NetworkOperator, compiler: Compiler = "eager", device: Device = "cpu", output: OutputFile = None
) -> None:
    """Measure each distinct replaced layer of the network of an experiment by itself, as it is or as one operator."""
    from syno.stages.layers import tune_layers as tuned

    record = tuned(experiment_of(config), given, compiler, device, output)
    for layer in record.layers:
        found, place = layer.record, f"{record.name}, {layer.name}, {compiler} on {device}"
        if found.latency_ms is not None:
            typer.echo(f"{place}: {found.latency_ms:.4g} ms")
        if found.status != "ok":
            typer.echo(f"{place}: {found.status}: {found.reason}", err=True)
    if any(layer.record.status not in ("ok", "misfit") for layer in record.layers):
        raise typer.Exit(NOT_THERE)


@tune.command("breakdown")
def tune_breakdown(
    config: Config,
    given: Annotated[str, typer.Argument(metavar="OP", help="An operator, as for `show`, or a baseline.")],
    compiler: Compiler = "eager",
    device: Annotated[str, typer.Option(help="cpu, cuda, or a GPU such as cuda:1.")] = "cpu",
    output: OutputFile = None,
) -> None:
    """Measure where the time of the network goes, by replaced layer and stage, as it is and with one operator."""
    from syno.stages.breakdown import measure_breakdown

    record = measure_breakdown(experiment_of(config), given, compiler, device, output)
    found, place = record.speedup, f"{record.name}, {compiler} on {device}"
    if found.ratio is None:
        typer.echo(f"{place}: {found.status}: {found.reason}", err=True)
        raise typer.Exit(NOT_THERE)
    for number, layer in enumerate(found.layers):
        stages = record.stages[number] if record.stages else ()
        typer.echo(
            f"{place}, {layer.count} x {layer.name}: {layer.original_ms.value:.4g} ms before, {layer.latency_ms.value:.4g} ms "
            f"after{''.join(f', {stage.name} {100 * stage.share:.0f} %' for stage in stages)}"
        )
    typer.echo(f"{place}, the rest: {found.rest_ms:.4g} ms")


@tune.command("training")
def tune_training(
    config: Config,
    given: Annotated[str, typer.Argument(metavar="OP", help="An operator, as for `show`, or a baseline.")],
    device: Annotated[str, typer.Option(help="cpu, cuda, or a GPU such as cuda:1.")] = "cpu",
    output: OutputFile = None,
) -> None:
    """Measure how fast the network with one operator trains, and the original in turns with it."""
    from syno.stages.speed import measure_speed

    record = measure_speed(experiment_of(config), given, device, output)
    for name, speed in (("original", record.original), (record.name, record.changed)):
        found = speed.samples_per_second
        typer.echo(
            f"{name} on {record.device}: {found.value:,.1f} {record.sample}s per second (95 % in {found.low:,.1f} to "
            f"{found.high:,.1f}), forward {speed.forward_ms.value:.4g} ms, both passes {speed.forward_backward_ms.value:.4g} ms"
        )
    ratio = record.ratio
    typer.echo(f"{record.name} trains {ratio.value:.3f} times as fast (95 % in {ratio.low:.3f} to {ratio.high:.3f})")


@tune.command("operator")
def tune_operator(
    given: Operator,
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

    operator, chosen = replacement_of(given), sizes(values)
    subject = OperatorSubject.of(for_sizes(operator, chosen) if isinstance(operator, PGraph) else operator, chosen)
    if target is not None:
        TARGETS[target]
    given_tvm = {"target": target, "trials_per_task": trials}
    tvm = TvmSettings.model_validate({name: value for name, value in given_tvm.items() if value is not None})
    limits = {"time_limit_s": time_limit, "memory_limit_mib": memory_limit}
    _measure(subject, output, compiler, device, batch, threads, **limits, tvm=tvm, folder=folder)


@tune.command("network")
def tune_network(
    given: NetworkOperator,
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
        operator=None if given == ORIGINAL else str(replacement_of(given)),
        layers=layers,
    )
    limits = {"time_limit_s": time_limit, "memory_limit_mib": memory_limit}
    _measure(subject, output, compiler, device, batch, threads, **limits)


def _measure(subject: AnySubject, output: Path, compiler: str, device: str, batch: int, threads: int, **options: Any) -> None:
    """Measure a subject with these options of `syno.measure.tuning.tune`, write the record, and print it."""
    from syno.base.gpu_leases import leased
    from syno.measure.tuning import LatencySettings
    from syno.measure.tuning import tune as tuned
    from syno.stages.tune import shown

    with leased(device), shown(f"{subject.title}, {compiler} on {device}") as progress:
        latency = LatencySettings(batch=batch, threads=threads)
        record = tuned(subject, compiler, device, latency, **options, progress=progress)
    record.write(output)
    _tell(record)


def _tell(record: TuningRecord) -> None:
    """Print a measurement. Exits with code 1, after the reason, if it did not succeed."""
    place = f"{record.name}, {record.compiler} on {record.device.name or record.device.kind}"
    if record.latency_ms is not None:
        interval = f"95 % in {record.latency_low_ms:.4g} to {record.latency_high_ms:.4g}"
        typer.echo(f"{place}: {record.latency_ms:.4g} ms ({interval})")
    if record.latency_ms is None or record.status != "ok":
        typer.echo(f"{place}: {record.status}: {record.reason}", err=True)
        raise typer.Exit(NOT_THERE)
