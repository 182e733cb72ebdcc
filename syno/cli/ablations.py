"""The paper's two ablations as commands."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from syno.cli.app import SPACES, app
from syno.cli.arguments import Depth, Output, Seed, Spec, command_line, spec_of

if TYPE_CHECKING:
    from syno.report.ablations.ablation import Ablation
    from syno.space.spec import OperatorSpec

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
    from syno.report.ablations.ablation import canonical as measure

    _run(measure, spec_of(given, depth), output, samples=samples, complete=complete, seed=seed)


@ablate.command("distance")
def distance(
    given: Spec,
    depth: Depth = None,
    trials: Annotated[int | None, typer.Option(min=1, help="Walks, at most, of each side; else any number.")] = None,
    seconds: Annotated[float, typer.Option(min=0.1, help="CPU-seconds, at most, of each side.")] = 30,
    seed: Seed = 0,
    output: Output = None,
) -> None:
    """Count the operators that random walks find with the shape distance and without."""
    from syno.report.ablations.ablation import distance as measure

    _run(measure, spec_of(given, depth), output, trials=trials, seconds=seconds, seed=seed)


def _run(measure: Callable[..., Ablation], spec: OperatorSpec, output: Path | None, **settings: float | None) -> None:
    from syno.base.progress import display

    folder = output or FOLDER / spec.name
    done = measure(spec, folder, command=command_line(), display=display(), **settings)
    typer.echo(f"{done.text}\nin {folder}: {', '.join(file.name for file in done.files)}")
