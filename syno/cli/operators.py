"""Commands on spaces, the paper's ablations, and single operators."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from shutil import rmtree
from typing import TYPE_CHECKING, Annotated

import typer

from syno.cli.app import NOT_THERE, RESULTS, SPACES, STAGES, app, stopped
from syno.cli.arguments import (
    SPEC_HELP,
    Config,
    Depth,
    Operator,
    Output,
    Rename,
    Seed,
    Spec,
    command_line,
    experiment_of,
    operator_of,
    read_if_result,
    sizes,
    spec_of,
)

if TYPE_CHECKING:
    from syno.report.ablations.ablation import Measured
    from syno.space.spec import OperatorSpec

ablate = typer.Typer(help="Ablations of rules and distance, and common patterns: tables and pictures.", no_args_is_help=True)
app.add_typer(ablate, name="ablate", rich_help_panel=STAGES)

WIDTH = 120  # characters in a line, without a terminal


@app.command(rich_help_panel=SPACES)
def rules(markdown: Annotated[bool, typer.Option("--markdown", help="Print a Markdown table.")] = False) -> None:
    """Print the canonicalization rules."""
    from syno.report.operators.explanation import rules_text
    from syno.space.rules.listing import rules_table

    typer.echo(rules_table() if markdown else rules_text(shutil.get_terminal_size((WIDTH, 24)).columns))


@app.command(rich_help_panel=SPACES)
def spec(given: Spec) -> None:
    """Print a spec as YAML: of a preset, a spec file (which is checked), or an experiment."""
    typer.echo(spec_of(given).dump(), nl=False)


@app.command(rich_help_panel=SPACES)
def sample(
    given: Spec,
    number: Annotated[int, typer.Option("-n", "--number", min=1, help="Operators in the folder at the end.")] = 100,
    seed: Seed = 0,
    output: Output = None,
    depth: Depth = None,
    without_distance: Annotated[bool, typer.Option("--without-distance", help="Walk without the shape distance.")] = False,
    by: Annotated[str, typer.Option(metavar="kind|all", help="Draw the kind first, or one of all steps.")] = "kind",
    seconds: Annotated[float | None, typer.Option(help="Stop after so many seconds.")] = None,
) -> None:
    """Draw random operators into a folder: a text file for each, and operators.csv. Continues where it was stopped."""
    from syno.base.progress import display
    from syno.report.ablations.sampling import draw_into
    from syno.report.operators.folder import TABLE, OperatorFolder
    from syno.space.space import Space

    if by not in ("kind", "all"):
        raise typer.BadParameter(f'"{by}" is neither kind nor all', param_hint="--by")
    wanted = spec_of(given, depth)
    folder = OperatorFolder(output or Path("results/samples") / wanted.name, Space(wanted, use_distance=not without_distance))
    try:
        walks = draw_into(folder, number, seed=seed, by_kind=by == "kind", seconds=seconds, display=display())
    except KeyboardInterrupt:
        raise stopped(f"{len(folder)} of {number} operators are in {folder.path}") from None
    reason = "" if len(folder) >= number else "; the space holds no more" if walks.is_exhausted else "; the time is up"
    typer.echo(f"{len(folder)} operators in {folder.path}, listed in {TABLE}{reason}")


@ablate.command("canonical")
def canonical(
    given: Spec,
    depth: Depth = None,
    samples: Annotated[int, typer.Option(min=1, help="Random graphs of each size.")] = 1000,
    complete: Annotated[int, typer.Option(min=0, help="Enumerate all complete operators of up to so many primitives.")] = 3,
    rules: Annotated[
        list[str] | None, typer.Option(metavar="RULE", help="A rule to add: an id, or package.module:name.")
    ] = None,
    seed: Seed = 0,
    output: Output = None,
) -> None:
    """Measure the share of random graphs that are canonical, by size."""
    from syno.report.ablations.ablation import canonical as measure

    spec = spec_of(given, depth)
    spec = spec.with_(rules_on=tuple(dict.fromkeys((*spec.rules_on, *(rules or ())))))
    _run(measure, spec, output, samples=samples, complete=complete, seed=seed)


@ablate.command("distance")
def distance(
    given: Spec,
    depth: Depth = None,
    trials: Annotated[int | None, typer.Option(min=1, help="Most walks with each distance.")] = None,
    seconds: Annotated[float, typer.Option(min=0.1, help="Most CPU-seconds with each distance.")] = 30,
    complete: Annotated[int, typer.Option(min=0, help="Look for losses among all operators of up to so many primitives.")] = 5,
    seed: Seed = 0,
    output: Output = None,
) -> None:
    """Count the operators that random walks find with each shape distance and with none, and those that it loses."""
    from syno.report.ablations.ablation import distance as measure

    _run(measure, spec_of(given, depth), output, trials=trials, seconds=seconds, complete=complete, seed=seed)


@ablate.command("requirements")
def requirements(
    given: Spec,
    depth: Depth = None,
    seconds: Annotated[float, typer.Option(min=0.1, help="CPU-seconds of walks on each side.")] = 60,
    seed: Seed = 0,
    output: Output = None,
) -> None:
    """Count the operators that read enough, by random walks with the spec's requirement and without it."""
    from syno.report.ablations.ablation import requirements as measure

    _run(measure, spec_of(given, depth), output, seconds=seconds, seed=seed)


def _run(measure: Callable[..., Measured], spec: OperatorSpec, output: Path | None, **settings: float | None) -> None:
    from syno.base.progress import display
    from syno.report.ablations.ablation import provenance, write

    folder, seed = output or Path("results/ablation") / spec.name, int(settings["seed"] or 0)
    parts = folder / f"parts-{measure.__name__}"
    try:
        measured = measure(spec, display=display(), parts=parts, **settings)
    except KeyboardInterrupt:
        raise stopped(f"finished parts are in {parts}") from None
    done = write(measured, folder, provenance(command_line(), spec, seed))
    rmtree(parts, ignore_errors=True)
    typer.echo(f"{done.text}\nin {folder}: {', '.join(file.name for file in done.files)}")


@ablate.command("patterns")
def patterns(
    given: Annotated[
        str, typer.Argument(metavar="CONFIG|FOLDER", help="An experiment, or a folder of results or of an import.")
    ],
    best: Annotated[float, typer.Option(min=0.001, max=1, help="Share of the operators that count as the best.")] = 0.1,
    random: Annotated[int, typer.Option(min=0, help="Random operators of the space to compare with.")] = 100,
    spec: Annotated[str | None, typer.Option(metavar="SPEC", help="Space of the random operators.")] = None,
    seed: Seed = 0,
    output: Output = None,
) -> None:
    """Count primitives and their combinations in the operators found, in the best of them, and in random ones."""
    from syno.base.progress import display
    from syno.report.ablations.ablation import provenance, write
    from syno.stages.ablations import experiment_of_results, measure_patterns, operators_found, space_of

    read_if_result(given)
    experiment = experiment_of_results(given)
    (found, source), space = operators_found(experiment), space_of(experiment, spec)
    folder = output or Path("results/ablation") / experiment.name
    parts = folder / "parts-patterns"
    measured = measure_patterns(found, space, {"best": best, "random": random, "seed": seed}, display(), parts)
    done = write(measured, folder, [*provenance(command_line(), space, seed), f"operators: {source}"])
    rmtree(parts, ignore_errors=True)
    typer.echo(f"{done.text}\nin {folder}: {', '.join(file.name for file in done.files)}")


@ablate.command("run")
def run_stage(config: Config, name: Annotated[str, typer.Argument(metavar="NAME", help="Such as distance.")]) -> None:
    """Make an ablation of an experiment, with its settings and in its folder of results. Continues where it was stopped."""
    from syno.base.progress import display
    from syno.stages.ablations import run_ablation

    experiment = experiment_of(config)
    try:
        record = run_ablation(experiment, name, display())
    except KeyboardInterrupt:
        raise stopped(f"finished parts are in {experiment.folder / 'ablations' / name}") from None
    typer.echo(f"ablation {name} of {experiment.name}: {record.rows} rows, {record.cpu_seconds:.1f} CPU-seconds")


@app.command(rich_help_panel=RESULTS)
def show(
    given: Operator,
    values: Annotated[list[str] | None, typer.Option("--set", metavar="NAME=VALUE", help="Sizes, to count the cost.")] = None,
    spec: Annotated[str | None, typer.Option(metavar="SPEC", help=f"Layers to count the cost of. {SPEC_HELP}")] = None,
    rename: Rename = None,
    drawing: Annotated[Path | None, typer.Option(metavar="FILE.svg|.dot", help="File of a drawing.")] = None,
    te: Annotated[bool, typer.Option("--te", help="Print only Python code of TVM tensor expressions.")] = False,
) -> None:
    """Print an operator: text, index expressions, loops; with sizes also FLOPs, parameters and weights."""
    from syno.lower.tvm import to_te_source
    from syno.report.operators.card import card, write_drawing

    operator = operator_of(given, rename)
    given_sizes, layers = sizes(values) or None, spec_of(spec) if spec else None
    if te:
        text = to_te_source(operator, given_sizes or (layers.valuations if layers else None))
    else:
        text = card(operator, given_sizes, layers)
    if drawing:  # before anything is printed, since the file may be refused
        write_drawing(operator, drawing)
    typer.echo(text, nl=False)


@app.command(rich_help_panel=SPACES)
def explain(
    given: Operator,
    spec: Annotated[str, typer.Option(metavar="SPEC", help=f"The space. {SPEC_HELP}")],
    rename: Rename = None,
    depth: Depth = None,
) -> None:
    """Print the steps to an operator with distances and rules. Exit code 1 and the reason if the space does not have it."""
    from syno.base.errors import UnreachableError
    from syno.report.operators.explanation import explain as explained
    from syno.space.space import Space

    operator, space = operator_of(given, rename), Space(spec_of(spec, depth))
    try:
        typer.echo(explained(space, operator), nl=False)
    except UnreachableError as error:
        typer.echo(str(error))
        raise typer.Exit(NOT_THERE) from None
