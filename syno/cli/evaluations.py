"""Commands that train and measure, and that show what came of it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from syno.cli.app import NOT_THERE, STAGES, app
from syno.cli.arguments import Config, Operator, OutputFile, experiment_of, network_subject, operator_of, sizes

if TYPE_CHECKING:
    from syno.measure.tuning_record import TuningRecord
    from syno.train.training_record import TrainingRecord

tune = typer.Typer(
    help="Compile and measure, in a process of its own. What fails is a record with the reason, and exit code 1.",
    no_args_is_help=True,
)
app.add_typer(tune, name="tune", rich_help_panel=STAGES)

Candidate = Annotated[
    str,
    typer.Argument(metavar="OP", help="An operator, as for `show`, or a baseline; `original`: the network as it is."),
]
Compiler = Annotated[str, typer.Option(help="eager, inductor, inductor-max-autotune, inductor-int8 or tvm.")]
Device = Annotated[str, typer.Option(help="cpu, cuda, a GPU such as cuda:1, or a remote device of the experiment.")]


@app.command(rich_help_panel=STAGES)
def data(config: Config, output: OutputFile = None) -> None:
    """Make or load the data, check the network, the budget and one step of training: what an experiment begins with."""
    from syno.stages.data import data_text, prepare

    experiment = experiment_of(config)
    record = prepare(experiment, output)
    typer.echo(data_text(experiment, record), nl=False)


@app.command(rich_help_panel=STAGES)
def train(
    config: Config,
    given: Candidate,
    seed: Annotated[int, typer.Option(help="Of weights and of the order of pictures.")] = 0,
    output: OutputFile = None,
) -> None:
    """Train the network with one operator, and write a record of it."""
    from syno.stages.train import train as trained

    record = trained(experiment_of(config), given, seed, output)
    typer.echo(f"{_scored(record)}, {record.cpu_seconds:.1f} CPU-seconds")


@app.command(rich_help_panel=STAGES)
def baseline(
    config: Config,
    names: Annotated[
        list[str] | None, typer.Argument(metavar="NAME...", help="`original`, or baselines of the config; all if not given.")
    ] = None,
    seed: Annotated[int | None, typer.Option(help="Only this one, instead of all that the config trains with.")] = None,
) -> None:
    """Train the network as it is and with the baselines, with every seed; what has a record already is not trained again."""
    from syno.stages.train import train_baselines

    for record, is_new in train_baselines(experiment_of(config), names or (), None if seed is None else (seed,)):
        cost = f"{record.cpu_seconds:.1f} CPU-seconds" if is_new else "trained before"
        typer.echo(f"{_scored(record)}, {cost}")


def _scored(record: TrainingRecord) -> str:
    """What a training has come to."""
    broke = f" ({record.stopped})" if record.stopped else ""
    return f"{record.name}: {record.metric} {record.score:.4f} with seed {record.seed}{broke}"


@tune.command("model")
def tune_model(
    config: Config, given: Candidate, compiler: Compiler = "eager", device: Device = "cpu", output: OutputFile = None
) -> None:
    """Measure the experiment's network with one operator."""
    from syno.stages.tune import tune as tuned

    _tell(tuned(experiment_of(config), given, compiler, device, output))


@tune.command("operator")
def tune_operator(
    given: Operator,
    values: Annotated[list[str], typer.Option("--set", metavar="NAME=VALUE", help="Sizes; the batch is an option of its own.")],
    output: Annotated[Path, typer.Option(metavar="FILE.json", help="Where the record goes.")],
    compiler: Compiler = "eager",
    device: Device = "cpu",
    batch: Annotated[int, typer.Option(min=1, help="Length of the input's first axis.")] = 1,
    threads: Annotated[int, typer.Option(min=1, help="CPU threads.")] = 1,
    time_limit: Annotated[float, typer.Option(help="Seconds for compiling and measuring.")] = 600,
    memory_limit: Annotated[float | None, typer.Option(help="MiB for the process that does it.")] = None,
    target: Annotated[str | None, typer.Option(help="tvm: what to generate code for, if not the device.")] = None,
    trials: Annotated[int | None, typer.Option(min=0, help="tvm: schedules measured of each task.")] = None,
    folder: Annotated[Path | None, typer.Option(metavar="FOLDER", help="tvm: where trials are kept for the next run.")] = None,
) -> None:
    """Measure one operator by itself."""
    from syno.measure.subjects import OperatorSubject
    from syno.measure.tuning import LatencySettings, TvmSettings
    from syno.measure.tuning import tune as tuned
    from syno.measure.tvm.targets import TARGETS
    from syno.stages.tune import shown

    subject = OperatorSubject.of(operator_of(given), sizes(values))
    settings = LatencySettings(batch=batch, threads=threads)
    if target is not None:
        TARGETS[target]
    given_tvm = {"target": target, "trials_per_task": trials}
    with shown(f"{subject.title}, {compiler} on {device}") as progress:
        record = tuned(
            subject,
            compiler,
            device,
            settings,
            time_limit_s=time_limit,
            memory_limit_mib=memory_limit,
            tvm=TvmSettings.model_validate({name: value for name, value in given_tvm.items() if value is not None}),
            folder=folder,
            progress=progress,
        )
    record.write(output)
    _tell(record)


@tune.command("inductor")
def tune_inductor(
    given: Candidate,
    output: Annotated[Path, typer.Option(metavar="FILE.json", help="Where the record goes.")],
    model: Annotated[str, typer.Option(help="The backbone: a name, or your own as package.module:function.")] = "resnet18",
    classes: Annotated[int | None, typer.Option(min=1, help="Of a network for pictures; by default 1000.")] = None,
    image: Annotated[
        str | None, typer.Option(metavar="CxHxW", help="Channels, height and width of a picture; by default 3x224x224.")
    ] = None,
    vocabulary: Annotated[int | None, typer.Option(min=1, help="Of a language model; by default 50257.")] = None,
    length: Annotated[int | None, typer.Option(min=1, help="Tokens of a sequence; by default 2048.")] = None,
    width: Annotated[float, typer.Option(help="Multiplies the network's features.")] = 1.0,
    layers: Annotated[
        str | None, typer.Option(help="Which have the operator: spatial (of pictures, by default), paper-3x3, paper (of text).")
    ] = None,
    compiler: Compiler = "inductor",
    device: Device = "cpu",
    batch: Annotated[int, typer.Option(min=1, help="Pictures or sequences in one call.")] = 1,
    threads: Annotated[int, typer.Option(min=1, help="CPU threads.")] = 1,
    channels_last: Annotated[bool | None, typer.Option("--channels-last", help="The memory format of pictures.")] = None,
    time_limit: Annotated[float, typer.Option(help="Seconds for compiling and measuring.")] = 1800,
    memory_limit: Annotated[float | None, typer.Option(help="MiB for the process that does it.")] = None,
) -> None:
    """Measure a network with one operator, on a machine without the experiment: bring the operator's file, take the record.

    A language model of your own is told from a network for pictures by its --length.
    """
    from syno.measure.tuning import LatencySettings
    from syno.measure.tuning import tune as tuned
    from syno.stages.tune import shown
    from syno.train.settings import ORIGINAL

    subject = network_subject(
        model=model,
        width=width,
        classes=classes,
        image=image,
        channels_last=channels_last,
        vocabulary=vocabulary,
        length=length,
        operator=None if given == ORIGINAL else str(operator_of(given)),
        layers=layers,
    )
    settings = LatencySettings(batch=batch, threads=threads)
    with shown(f"{subject.title}, {compiler} on {device}") as progress:
        record = tuned(
            subject,
            compiler,
            device,
            settings,
            time_limit_s=time_limit,
            memory_limit_mib=memory_limit,
            progress=progress,
        )
    record.write(output)
    _tell(record)


def _tell(record: TuningRecord) -> None:
    place = f"{record.name}, {record.compiler} on {record.device.name or record.device.kind}"
    if record.latency_ms is None:
        typer.echo(f"{place}: {record.status}: {record.reason}", err=True)
        raise typer.Exit(NOT_THERE)
    interval = f"95 % in {record.latency_low_ms:.4g} to {record.latency_high_ms:.4g}"
    typer.echo(f"{place}: {record.latency_ms:.4g} ms ({interval})")
    if record.status != "ok":
        typer.echo(f"{place}: {record.status}: {record.reason}", err=True)
        raise typer.Exit(NOT_THERE)


@app.command(rich_help_panel=STAGES)
def tables(config: Config) -> None:
    """Collect the records of trainings and measurements into tables."""
    from syno.base.text_tables import markdown
    from syno.stages.tables import make_tables
    from syno.stages.top import summary

    made = make_tables(experiment_of(config))
    typer.echo(markdown(summary(made)), nl=False)


@app.command(rich_help_panel=STAGES)
def figure(config: Config, name: Annotated[str, typer.Argument(metavar="FIGURE", help="Its name.")]) -> None:
    """Draw one of the figures of an experiment."""
    from syno.stages.figures import draw

    for file in draw(experiment_of(config), name):
        typer.echo(file)


@app.command(rich_help_panel=STAGES)
def report(config: Config, output: OutputFile = None) -> None:
    """Write the page that shows everything; it opens without a server."""
    from syno.stages.report import write_report

    typer.echo(write_report(experiment_of(config), output))
