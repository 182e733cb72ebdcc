"""Commands on spaces and single operators."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Annotated

import typer

from syno.cli.app import NOT_THERE, RESULTS, SPACES, app, stopped
from syno.cli.arguments import SPEC_HELP, Depth, Operator, Output, Rename, Seed, Spec, operator_of, sizes, spec_of

WIDTH = 120  # characters in a line, where there is no terminal


@app.command(rich_help_panel=SPACES)
def rules(markdown: Annotated[bool, typer.Option("--markdown", help="As a Markdown page.")] = False) -> None:
    """Print the canonicalization rules."""
    from syno.report.operators.explanation import rules_text
    from syno.space.rules.listing import rules_table

    typer.echo(rules_table() if markdown else rules_text(shutil.get_terminal_size((WIDTH, 24)).columns))


@app.command(rich_help_panel=SPACES)
def spec(given: Spec) -> None:
    """Print a spec as YAML, to begin a spec file with; or check one, or see the space of an experiment."""
    typer.echo(spec_of(given).dump(), nl=False)


@app.command(rich_help_panel=SPACES)
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


@app.command(rich_help_panel=RESULTS)
def show(
    given: Operator,
    values: Annotated[list[str] | None, typer.Option("--set", metavar="NAME=VALUE", help="Sizes, for the cost.")] = None,
    spec: Annotated[str | None, typer.Option(metavar="SPEC", help=f"For the cost in all its layers. {SPEC_HELP}")] = None,
    rename: Rename = None,
    drawing: Annotated[Path | None, typer.Option(metavar="FILE.svg|.dot", help="Draw it into this file.")] = None,
    te: Annotated[bool, typer.Option("--te", help="Instead of all else, Python code of TVM tensor expressions.")] = False,
) -> None:
    """Print an operator: text, index expressions, loops; FLOPs, parameters and weights where sizes are given."""
    from syno.lower.tvm import to_te_source
    from syno.report.operators.card import card, write_drawing

    operator = operator_of(given, rename)
    given_sizes, layers = sizes(values) or None, spec_of(spec) if spec else None
    if te:
        text = to_te_source(operator, given_sizes or (layers.valuations if layers else None))
    else:
        text = card(operator, given_sizes, layers)
    if drawing:  # before anything is printed: its file may be refused
        write_drawing(operator, drawing)
    typer.echo(text, nl=False)


@app.command(rich_help_panel=SPACES)
def explain(
    given: Operator,
    spec: Annotated[str, typer.Option(metavar="SPEC", help=f"The space. {SPEC_HELP}")],
    rename: Rename = None,
    depth: Depth = None,
) -> None:
    """Print the steps to an operator: distances, groups, the rules passed. Exit code 1 and the reason if none lead there."""
    from syno.base.errors import UnreachableError
    from syno.report.operators.explanation import explain as explained
    from syno.space.space import Space

    operator, space = operator_of(given, rename), Space(spec_of(spec, depth))
    try:
        typer.echo(explained(space, operator), nl=False)
    except UnreachableError as error:
        typer.echo(str(error))
        raise typer.Exit(NOT_THERE) from None


@app.command(rich_help_panel=RESULTS)
def get(
    given: Operator,
    output: Annotated[Path | None, typer.Option(metavar="FILE", help="By default one in this folder, named after it.")] = None,
    to: Annotated[str, typer.Option(metavar="module|export|onnx|tvm|te", help="The format.")] = "module",
    values: Annotated[
        list[str] | None, typer.Option("--set", metavar="NAME=VALUE", help="Sizes that it is for, or is to be fast for.")
    ] = None,
    rename: Rename = None,
) -> None:
    """Take an operator home: a PyTorch module that needs nothing of Syno, or another format, compared with its meaning before.

    The source of a module, and of TVM tensor expressions (te), holds for all sizes. A program of torch.export, an ONNX file and
    a TVM library are for the sizes of --set, and have new weights.
    """
    from syno.report.take_home import FORMATS, check_own

    operator, form = operator_of(given, rename), FORMATS[to]
    file = output or check_own(Path(f"{operator.name}{form.ending}"))
    typer.echo(f"{file}: {form.write(operator, file, sizes(values) or None)}")
