"""Commands for spaces and single operators."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Annotated

import typer

from syno.cli.app import NOT_THERE, RESULTS, SPACES, app, stopped
from syno.cli.arguments import (
    SPEC_HELP,
    Depth,
    Operator,
    Output,
    Rename,
    Seed,
    Spec,
    operator_of,
    sizes,
    spec_of,
)

WIDTH = 120  # characters in a line, without a terminal


@app.command(rich_help_panel=SPACES)
def rules(markdown: Annotated[bool, typer.Option("--markdown", help="Print a Markdown table.")] = False) -> None:
    """Print the canonicalization rules."""
    from syno.report.operators.card import rules_text
    from syno.space.rules.listing import rules_table

    typer.echo(rules_table() if markdown else rules_text(shutil.get_terminal_size((WIDTH, 24)).columns))


@app.command(rich_help_panel=SPACES)
def spec(place: Spec) -> None:
    """Print a spec as YAML: of a preset, a spec file (which is checked), or an experiment."""
    typer.echo(spec_of(place).dump(), nl=False)


@app.command(rich_help_panel=SPACES)
def sample(
    place: Spec,
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
    from syno.report.operators.folder import TABLE, OperatorFolder, draw_into
    from syno.space.space import Space

    if by not in ("kind", "all"):
        raise typer.BadParameter(f'"{by}" is neither kind nor all', param_hint="--by")
    wanted = spec_of(place, depth)
    folder = OperatorFolder(output or Path("results/samples") / wanted.name, Space(wanted, use_distance=not without_distance))
    try:
        walks = draw_into(folder, number, seed=seed, by_kind=by == "kind", seconds=seconds, display=display())
    except KeyboardInterrupt:
        raise stopped(f"{len(folder)} of {number} operators are in {folder.path}") from None
    reason = "" if len(folder) >= number else "; the space holds no more" if walks.is_exhausted else "; the time is up"
    typer.echo(f"{len(folder)} operators in {folder.path}, listed in {TABLE}{reason}")


@app.command(rich_help_panel=RESULTS)
def show(
    operator_name: Operator,
    values: Annotated[list[str] | None, typer.Option("--set", metavar="NAME=VALUE", help="Sizes, to count the cost.")] = None,
    spec: Annotated[str | None, typer.Option(metavar="SPEC", help=f"Layers to count the cost of. {SPEC_HELP}")] = None,
    rename: Rename = None,
    drawing: Annotated[Path | None, typer.Option(metavar="FILE.svg|.dot", help="File of a drawing.")] = None,
    te: Annotated[bool, typer.Option("--te", help="Print only Python code of TVM tensor expressions.")] = False,
) -> None:
    """Print an operator: text, index expressions, loops; with sizes also FLOPs, parameters and weights."""
    from syno.lower.tvm import to_te_source
    from syno.report.operators.card import card, write_drawing

    operator = operator_of(operator_name, rename)
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
    operator_name: Operator,
    spec: Annotated[str, typer.Option(metavar="SPEC", help=f"The space. {SPEC_HELP}")],
    rename: Rename = None,
    depth: Depth = None,
) -> None:
    """Print the steps to an operator with distances and rules. Exit code 1 and the reason if the space does not have it."""
    from syno.base.errors import UnreachableError
    from syno.report.operators.card import explain as explained
    from syno.space.space import Space

    operator, space = operator_of(operator_name, rename), Space(spec_of(spec, depth))
    try:
        typer.echo(explained(space, operator), nl=False)
    except UnreachableError as error:
        typer.echo(str(error))
        raise typer.Exit(NOT_THERE) from None
