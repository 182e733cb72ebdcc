"""The paper's two ablations as commands."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from syno.cli.app import SPACES, app
from syno.cli.arguments import Depth, Output, Seed, Spec, command_line, spec_of

if TYPE_CHECKING:
    from syno.report.ablation import Ablation

ablate = typer.Typer(help="The paper's two ablations: tables and pictures.", no_args_is_help=True)
app.add_typer(ablate, name="ablate", rich_help_panel=SPACES)
FOLDER = Path("results/ablation")


@ablate.command("canonical")
def canonical(
    given: Spec,
    depth: Depth = None,
    samples: Annotated[int, typer.Option(min=1, help="Random graphs of each size.")] = 1000,
    complete: Annotated[int, typer.Option(min=0, help="Find all complete operators of up to so many primitives.")] = 3,
    seed: Seed = 0,
    output: Output = None,
) -> None:
    """Measure the share of random graphs that are canonical, by size."""
    from syno.report import ablation
    from syno.search.progress import display

    spec = spec_of(given, depth)
    folder = output or FOLDER / spec.name
    line, shown = command_line(), display()
    _tell(ablation.canonical(spec, folder, command=line, samples=samples, complete=complete, seed=seed, display=shown), folder)


@ablate.command("distance")
def distance(
    given: Spec,
    depth: Depth = None,
    trials: Annotated[int, typer.Option(min=1, help="Walks, at least, of each side.")] = 1000,
    seconds: Annotated[float, typer.Option(min=0, help="CPU-seconds, at least, of each side.")] = 30,
    seed: Seed = 0,
    output: Output = None,
) -> None:
    """Count the operators that random walks find with the shape distance and without."""
    from syno.report import ablation
    from syno.search.progress import display

    spec = spec_of(given, depth)
    folder = output or FOLDER / spec.name
    line, shown = command_line(), display()
    _tell(ablation.distance(spec, folder, command=line, trials=trials, seconds=seconds, seed=seed, display=shown), folder)


def _tell(done: Ablation, folder: Path) -> None:
    typer.echo(f"{done.text}\nin {folder}: {', '.join(file.name for file in done.files)}")
