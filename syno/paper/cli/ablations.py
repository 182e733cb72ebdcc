"""Commands of the ablations of rules, distance and requirements, and of common patterns."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from shutil import rmtree
from typing import TYPE_CHECKING, Annotated

import typer

from syno.cli.app import STAGES, app, stopped
from syno.cli.arguments import Config, Depth, Output, Seed, Spec, any_experiment_of, command_line, read_if_result, spec_of

if TYPE_CHECKING:
    from syno.paper.ablations.ablation import Measured
    from syno.space.spec import OperatorSpec

ablate = typer.Typer(help="Ablations of rules and distance, and common patterns: tables and pictures.", no_args_is_help=True)
app.add_typer(ablate, name="ablate", rich_help_panel=STAGES)


@ablate.command("canonical")
def canonical(
    place: Spec,
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
    from syno.paper.ablations.ablation import canonical as measure

    spec = spec_of(place, depth)
    spec = spec.with_(rules_on=tuple(dict.fromkeys((*spec.rules_on, *(rules or ())))))
    _run(measure, spec, output, samples=samples, complete=complete, seed=seed)


@ablate.command("distance")
def distance(
    place: Spec,
    depth: Depth = None,
    trials: Annotated[int | None, typer.Option(min=1, help="Most walks with each distance.")] = None,
    seconds: Annotated[float, typer.Option(min=0.1, help="Most CPU-seconds with each distance.")] = 30,
    complete: Annotated[int, typer.Option(min=0, help="Look for losses among all operators of up to so many primitives.")] = 5,
    seed: Seed = 0,
    output: Output = None,
) -> None:
    """Count the operators that random walks find with each shape distance and with none, and those that it loses."""
    from syno.paper.ablations.ablation import distance as measure

    _run(measure, spec_of(place, depth), output, trials=trials, seconds=seconds, complete=complete, seed=seed)


@ablate.command("requirements")
def requirements(
    place: Spec,
    depth: Depth = None,
    seconds: Annotated[float, typer.Option(min=0.1, help="CPU-seconds of walks on each side.")] = 60,
    seed: Seed = 0,
    output: Output = None,
) -> None:
    """Count the operators that read enough, by random walks with the spec's requirement and without it."""
    from syno.paper.ablations.ablation import requirements as measure

    _run(measure, spec_of(place, depth), output, seconds=seconds, seed=seed)


def _run(measure: Callable[..., Measured], spec: OperatorSpec, output: Path | None, **settings: float | None) -> None:
    from syno.base.progress import display
    from syno.paper.ablations.ablation import provenance, write

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
    place: Annotated[
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
    from syno.paper.ablations.ablation import provenance, write
    from syno.paper.stages.ablations import experiment_of_results, measure_patterns, operators_found, space_of

    read_if_result(place)
    experiment = experiment_of_results(place)
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
    from syno.paper.stages.ablations import run_ablation

    experiment = any_experiment_of(config)
    try:
        record = run_ablation(experiment, name, display())
    except KeyboardInterrupt:
        raise stopped(f"finished parts are in {experiment.folder / 'ablations' / name}") from None
    typer.echo(f"ablation {name} of {experiment.name}: {record.rows} rows, {record.cpu_seconds:.1f} CPU-seconds")
