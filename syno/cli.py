"""The commands. Each reads its arguments, calls the library, and prints what that returns.

What is wrong with the input is one line on standard error and exit code 2; what was interrupted has exit code 130.
"""

from __future__ import annotations

import shlex
import shutil
import sys
import warnings
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from syno.errors import SynoError

WRONG, NOT_THERE, INTERRUPTED = 2, 1, 130
WIDTH = 120  # characters in a line, where there is no terminal


class Commands(TyperGroup):
    """A group whose errors and warnings are for people."""

    def invoke(self, ctx: Any) -> Any:
        """Run a command; input that is wrong becomes one line."""
        with warnings.catch_warnings():
            warnings.showwarning = lambda message, *_, **__: typer.echo(f"warning: {message}", err=True)
            try:
                return super().invoke(ctx)
            except SynoError as error:
                if ctx.params.get("debug"):
                    raise
                typer.echo(f"error: {' '.join(str(error).split())}", err=True)
                raise typer.Exit(WRONG) from None


HELP = "Find neural-network layer operators, look at them, and measure how they are found."
SHORT = {"help_option_names": ["-h", "--help"]}
app = typer.Typer(
    cls=Commands, help=HELP, no_args_is_help=True, pretty_exceptions_enable=False, add_completion=False, context_settings=SHORT
)
ablate = typer.Typer(help="The paper's two ablations: tables and pictures.", no_args_is_help=True)
app.add_typer(ablate, name="ablate")

Spec = Annotated[str, typer.Argument(metavar="SPEC", help="A preset's name (resnet18, gpt2 ...) or a spec file (YAML).")]
Operator = Annotated[
    str, typer.Argument(metavar="OP", help="A text file, a known operator's name, or a published operator's folder.")
]
Seed = Annotated[int, typer.Option(help="Of the random walks.")]
Depth = Annotated[int | None, typer.Option(min=1, help="Instead of the spec's: the most primitives.")]
Output = Annotated[Path | None, typer.Option(help="Folder of the results.")]
Rename = Annotated[list[str] | None, typer.Option(metavar="OLD=NEW", help="Variables of the operator to those of the spec.")]


@app.callback()
def _common(
    debug: Annotated[bool, typer.Option("--debug", envvar="SYNO_DEBUG", help="Show where an error was raised.")] = False,
) -> None:
    """What all commands share."""


@app.command()
def rules(markdown: Annotated[bool, typer.Option("--markdown", help="As a Markdown page.")] = False) -> None:
    """Print the canonicalization rules."""
    from syno.report.rule_listing import rules_text
    from syno.space.rules.listing import rules_table

    typer.echo(rules_table() if markdown else rules_text(shutil.get_terminal_size((WIDTH, 24)).columns))


@app.command()
def spec(given: Spec) -> None:
    """Print a spec as YAML, to begin a spec file with; or check one."""
    from syno.config import find_spec

    typer.echo(find_spec(given).dump(), nl=False)


@app.command()
def sample(
    given: Spec,
    number: Annotated[int, typer.Option("-n", "--number", min=1, help="Operators the folder is to hold.")] = 100,
    seed: Seed = 0,
    output: Output = None,
    depth: Depth = None,
    without_distance: Annotated[bool, typer.Option("--without-distance", help="Walk blindly, for comparison.")] = False,
    by: Annotated[str, typer.Option(metavar="kind|all", help="Draw a step's kind first, or one of all steps.")] = "kind",
    seconds: Annotated[float | None, typer.Option(help="Stop after so many.")] = None,
) -> None:
    """Draw operators at random into a folder: a text file each, and operators.csv. It goes on where it was stopped."""
    from syno.report.operator_folder import TABLE, OperatorFolder
    from syno.report.sampling import draw_into
    from syno.search.progress import display
    from syno.space.space import Space

    if by not in ("kind", "all"):
        raise typer.BadParameter(f'"{by}" is neither kind nor all', param_hint="--by")
    wanted = _spec(given, depth)
    folder = OperatorFolder(output or Path("results/samples") / wanted.name, Space(wanted, use_distance=not without_distance))
    try:
        walks = draw_into(folder, number, seed=seed, by_kind=by == "kind", seconds=seconds, display=display())
    except KeyboardInterrupt:
        _stopped(f"{len(folder)} of {number} operators are in {folder.path}")
    reason = "" if len(folder) >= number else "; the space holds no more" if walks.is_exhausted else "; the time is up"
    typer.echo(f"{len(folder)} operators in {folder.path}, listed in {TABLE}{reason}")


@app.command()
def search(
    config: Annotated[Path, typer.Argument(metavar="CONFIG", help="A search config (YAML).")],
    workers: Annotated[int, typer.Option(min=1, help="Processes on this machine.")] = 1,
    best: Annotated[int, typer.Option(min=0, help="How many of the best operators to write.")] = 5,
) -> None:
    """Search a space, and write the trials and the best operators. It goes on where it was stopped."""
    from syno.config import SearchConfig
    from syno.report.search_results import save_results
    from syno.search.progress import display

    settings = SearchConfig.load(config)
    try:
        study = settings.run(workers, display())
    except KeyboardInterrupt:
        _stopped(f"trials so far are in {settings.storage}")
    typer.echo(save_results(study, settings.folder, best), nl=False)


@app.command()
def train(
    config: Annotated[Path, typer.Argument(metavar="CONFIG", help="A search config (YAML) with a workload.")],
    given: Annotated[str, typer.Argument(metavar="OP", help="An operator, as for `show`; `original` is the network as it is.")],
    output: Annotated[Path, typer.Option(metavar="FILE.json", help="Where the record goes.")],
    seed: Annotated[int, typer.Option(help="Of weights and of the order of pictures.")] = 0,
) -> None:
    """Train the workload's network with one operator, and write a record of it."""
    from syno.config import SearchConfig
    from syno.evaluate.training_record import ORIGINAL, TrainingRecord

    workload = SearchConfig.load(config).make_workload()
    record = TrainingRecord.make(workload, None if given == ORIGINAL else _operator(given, None), seed)
    record.write(output)
    typer.echo(f"{record.name}: accuracy {record.accuracy:.4f} with seed {seed}, in {output}")


@app.command()
def accuracy(
    records: Annotated[list[Path], typer.Argument(metavar="FILE.json ...", help="What `syno train` wrote.")],
    output: Annotated[Path | None, typer.Option(metavar="FILE.csv", help="Write the table there, too.")] = None,
) -> None:
    """Compare trainings: mean accuracy and spread over seeds, beside what the network costs."""
    from syno.evaluate.training_record import TrainingRecord
    from syno.files import write_whole
    from syno.report.accuracy import accuracy_rows
    from syno.report.tables import csv_text, markdown

    rows = accuracy_rows([TrainingRecord.read(file) for file in records])
    if output:
        write_whole(output, csv_text(rows))
    typer.echo(markdown(rows), nl=False)


@app.command()
def tune(
    given: Operator,
    values: Annotated[list[str], typer.Option("--set", metavar="NAME=VALUE", help="Sizes; the batch is an option of its own.")],
    output: Annotated[Path, typer.Option(metavar="FILE.json", help="Where the record goes.")],
    compiler: Annotated[str, typer.Option(help="eager, inductor or inductor-max-autotune.")] = "eager",
    device: Annotated[str, typer.Option(help="cpu, cuda, or one of several GPUs such as cuda:1.")] = "cpu",
    batch: Annotated[int, typer.Option(min=1, help="Length of the input's first axis.")] = 1,
    threads: Annotated[int, typer.Option(min=1, help="CPU threads.")] = 1,
    time_limit: Annotated[float, typer.Option(help="Seconds for compiling and measuring.")] = 600,
    memory_limit: Annotated[float | None, typer.Option(help="MiB for the process that does it.")] = None,
) -> None:
    """Compile and measure one operator in a process of its own; what fails is a record with the reason, and exit code 1."""
    from syno.evaluate.subjects import OperatorSubject
    from syno.evaluate.tuning import LatencySettings
    from syno.evaluate.tuning import tune as tuned

    sizes = {name: _whole(name, value) for name, value in _pairs(values, "--set").items()}
    settings = LatencySettings(batch=batch, threads=threads)
    subject = OperatorSubject.of(_operator(given, None), sizes)
    record = tuned(subject, compiler, device, settings, time_limit_s=time_limit, memory_limit_mib=memory_limit)
    record.write(output)
    if record.latency_ms is None:
        typer.echo(f"{record.name}, {compiler} on {device}: {record.status}: {record.reason}; in {output}", err=True)
        raise typer.Exit(NOT_THERE)
    interval = f"95 % in {record.latency_low_ms:.4g} to {record.latency_high_ms:.4g}"
    typer.echo(
        f"{record.name}, {compiler} on {record.device.name or device}: {record.latency_ms:.4g} ms ({interval}), in {output}"
    )


@app.command()
def show(
    given: Operator,
    values: Annotated[list[str] | None, typer.Option("--set", metavar="NAME=VALUE", help="Sizes, for the cost.")] = None,
    spec: Annotated[str | None, typer.Option(metavar="SPEC", help="For the cost in all its layers.")] = None,
    rename: Rename = None,
    drawing: Annotated[Path | None, typer.Option(metavar="FILE.svg|.dot", help="Draw it into this file.")] = None,
    pytorch: Annotated[Path | None, typer.Option(metavar="FILE.py", help="Write its PyTorch module.")] = None,
) -> None:
    """Print an operator: text, index expressions, loops; FLOPs, parameters and weights where sizes are given."""
    from syno.report.operator_card import card, write_drawing, write_pytorch

    operator = _operator(given, rename)
    sizes = {name: _whole(name, value) for name, value in _pairs(values, "--set").items()}
    typer.echo(card(operator, sizes or None, _spec(spec) if spec else None), nl=False)
    if drawing:
        write_drawing(operator, drawing)
    if pytorch:
        write_pytorch(operator, pytorch, sizes or None)


@app.command()
def explain(
    given: Operator,
    spec: Annotated[str, typer.Option(metavar="SPEC", help="The space: a preset's name or a spec file.")],
    rename: Rename = None,
    depth: Depth = None,
) -> None:
    """Print the steps to an operator: distances, groups, the rules passed. Exit code 1 and the reason if none lead there."""
    from syno.errors import UnreachableError
    from syno.report.explanation import explain as explained
    from syno.space.space import Space

    operator, space = _operator(given, rename), Space(_spec(spec, depth))
    try:
        typer.echo(explained(space, operator), nl=False)
    except UnreachableError as error:
        typer.echo(str(error))
        raise typer.Exit(NOT_THERE) from None


@ablate.command("canonical")
def ablate_canonical(
    given: Spec,
    depth: Depth = None,
    samples: Annotated[int, typer.Option(min=1, help="Random graphs of each size.")] = 1000,
    complete: Annotated[int, typer.Option(min=0, help="Find all complete operators of up to so many primitives.")] = 3,
    seed: Seed = 0,
    output: Output = None,
) -> None:
    """Measure the share of random graphs that are canonical, by size."""
    from syno.report.ablation import canonical
    from syno.search.progress import display

    wanted = _spec(given, depth)
    folder = output or _ablation_folder(wanted.name)
    done = canonical(wanted, folder, command=_command(), samples=samples, complete=complete, seed=seed, display=display())
    typer.echo(f"{done.text}\nin {folder}: {', '.join(file.name for file in done.files)}")


@ablate.command("distance")
def ablate_distance(
    given: Spec,
    depth: Depth = None,
    trials: Annotated[int, typer.Option(min=1, help="Walks, at least, of each side.")] = 1000,
    seconds: Annotated[float, typer.Option(min=0, help="CPU-seconds, at least, of each side.")] = 30,
    seed: Seed = 0,
    output: Output = None,
) -> None:
    """Count the operators that random walks find with the shape distance and without."""
    from syno.report.ablation import distance
    from syno.search.progress import display

    wanted = _spec(given, depth)
    folder = output or _ablation_folder(wanted.name)
    done = distance(wanted, folder, command=_command(), trials=trials, seconds=seconds, seed=seed, display=display())
    typer.echo(f"{done.text}\nin {folder}: {', '.join(file.name for file in done.files)}")


def _spec(given: str, depth: int | None = None) -> Any:
    from syno.config import find_spec

    found = find_spec(given)
    return found if depth is None else found.with_(depth=depth)


def _operator(given: str, rename: list[str] | None) -> Any:
    from syno.ir.lookup import find_operator
    from syno.ir.renaming import with_variables

    return with_variables(find_operator(given), _pairs(rename, "--rename"))


def _pairs(given: list[str] | None, option: str) -> dict[str, str]:
    """`A=1 B=2` or `A=1,B=2` as a mapping."""
    pairs = [part.partition("=") for text in given or () for part in text.split(",")]
    for name, equals, value in pairs:
        if not (name and equals and value):
            raise typer.BadParameter(f'"{name}{equals}{value}" is not NAME=VALUE', param_hint=option)
    return {name.strip(): value.strip() for name, _, value in pairs}


def _whole(name: str, value: str) -> int:
    if not value.isdecimal():
        raise typer.BadParameter(f'{name} is "{value}"; a size is a positive whole number', param_hint="--set")
    return int(value)


def _ablation_folder(name: str) -> Path:
    return Path("results/ablation") / name


def _command() -> str:
    """What was typed, as it is written beside what it measured."""
    return shlex.join(["syno", *sys.argv[1:]])


def _stopped(what: str) -> None:
    typer.echo(f"stopped: {what}; the same command goes on", err=True)
    raise typer.Exit(INTERRUPTED)


def main() -> None:
    """The entry point."""
    app()
