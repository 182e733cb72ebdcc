"""What synthesis is worth beside pruning, narrower networks, known layers and 8-bit integers, in several settings and seeds.

    python benchmarks/rivals.py --records FOLDER --seeds 0 1 2 --output docs/measured/rivals.md

A setting is the demo's experiment (config/quickstart.yaml) or an example, with changes. For each seed, it is a whole run of the
workflow, with its own seeds of search and trainings. The runs are in the folder; one that was stopped goes on where it was. The
last table pools the gains of a setting's seeds. Exit status: 0; 1 if a run failed; 2 for wrong arguments.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import exp, isnan, log, nan, sqrt
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

import reports
import yaml
from scipy.stats import t

from syno.base.files import write_whole
from syno.base.interval import Interval
from syno.config.files import load_experiment
from syno.config.specs import merged
from syno.run.rivals import best_of, compared
from syno.run.story import with_numbers
from syno.run.values import Score
from syno.search.goal import Goal
from syno.stages.results import StoredRun
from syno.train.metric import ACCURACY

DEMO = Path("config/quickstart.yaml")
RIVALS = {"rivals": {"shares": [0.5, 0.35]}}  # one more than in the demo, so that the front is nearer to what could be had
KINDS = ("mixture", "operator", "rival")
SEED_STEP = 100  # between the seeds of trainings of two runs


@dataclass(frozen=True)
class Setting:
    """An experiment's file, changes of it, and what they are about."""

    about: str
    changes: Mapping[str, Any]
    file: Path = DEMO


def _with_mixtures(example: str, more: Mapping[str, Any]) -> Setting:
    """Return an example in which the fastest network is looked for, also with an operator for each layer."""
    changes = {
        "goal": {"find": "fastest"}, "study": {"n_trials": 3, "workers": 1}, "select": {"count": 1},
        "mixtures": {"count": 2, "margins": [1.03]},
    }  # fmt: skip
    about = f"{example}, an operator for each layer; goal: the fastest that loses no more than in the example"
    return Setting(about, merged(changes, more), Path(f"examples/{example}/experiment.yaml"))


SETTINGS = {
    "demo": Setting("the demo", {}),
    "noise": Setting("noise of 0.5 in place of 0.1, 4 epochs", {
        "workload": {"data_settings": {"noise": 0.5}, "training": {"epochs": 4}},
    }),
    "long": Setting("noise of 0.5, 16 epochs", {
        "workload": {"data_settings": {"noise": 0.5}, "training": {"epochs": 16}},
    }),
    "classes": Setting("40 classes, noise of 0.3, 8 epochs", {
        "workload": {"data_settings": {"noise": 0.3, "classes": 40}, "training": {"epochs": 8}},
    }),
    "small": Setting("ResNet-8 of half the width, noise of 0.3, 6 epochs; goal: 2 times as fast, 3 points", {
        "workload": {"model": "resnet8", "width": 0.5, "data_settings": {"noise": 0.3}, "training": {"epochs": 6}},
        "goal": {"speedup": 2, "lose_at_most": 0.03}, "relative_budget": {"least_flops": 0.2, "most_flops": 0.4},
    }),
    "fast": Setting("4 epochs; goal: 5 times as fast, 3 points", {
        "workload": {"training": {"epochs": 4}},
        "goal": {"speedup": 5, "lose_at_most": 0.03}, "relative_budget": {"least_flops": 0.08, "most_flops": 0.15},
        "rivals": {"shares": [0.4, 0.25]},
    }),
    "mixtures": Setting("an operator for each layer, noise of 0.5; goal: the fastest that loses 1 point", {
        "goal": {"find": "fastest", "speedup": 2.5}, "rivals": {"shares": [0.5, 0.35, 0.25], "int8": True},
        "mixtures": {"count": 2, "margins": [1.03]},
    }, Path("config/quickstart-trained.yaml")),
    "keyword_mixtures": _with_mixtures("keyword_spotting", {"mixtures": {"pruned": False}}),
    # Between half of the channels and 42 % of them, pruned networks begin to miss the goal. Other known layers, such as
    # low_rank_2 with 1.15 times the original's speed, are too slow, or lose too much.
    "segmentation_mixtures": _with_mixtures("segmentation", {
        "rivals": {"shares": [0.5, 0.42], "narrowing": False, "operators": ["separable", "grouped_2"]},
    }),
    "keyword_spotting": Setting("this example: words as sound, 17 taps in one dimension; goal: 4 times as fast, 1 point", {},
        Path("examples/keyword_spotting/experiment.yaml")),
    "segmentation": Setting("this example: a label for each pixel, by a U-Net; goal: 2 times as fast, 2 points", {
        "workload": {"training": {"initialization": "fit", "distill": {}}},
        "goal": {"speedup": 2, "compiler": "native"}, "relative_budget": {"least_flops": 0.15, "most_flops": 0.45},
        "study": {"n_trials": 4}, "select": {"count": 2}, "train": {"seeds": [1, 2, 3]}, "rivals": {"shares": [0.7, 0.5]},
        "tune": {"compilers": ["eager"], "baselines": False},
    }, Path("examples/segmentation/experiment.yaml")),
}  # fmt: skip


@dataclass(frozen=True)
class Outcome:
    """What a run found.

    Attributes:
        found, rival, gain: the best synthesized network, the front without synthesis, and the gain.
        best: the best of all.
        fastest: the fastest mixture that meets the goal, or may meet it; of single operators and of rivals, the fastest network
            that is as accurate.
        seconds: of all jobs.
    """

    found: str
    rival: str
    gain: Interval
    best: str
    fastest: Mapping[str, Score]
    seconds: float


def main(arguments: Sequence[str] | None = None) -> int:
    """Run what is missing, print the page, and write it if asked for."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--records", type=Path, required=True)
    parser.add_argument("--settings", nargs="+", choices=list(SETTINGS), default=list(SETTINGS))
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1, 2])
    options = reports.parse(parser, arguments)
    found: dict[str, dict[int, Outcome]] = {name: {} for name in options.settings}
    for seed in options.seeds:
        for name in options.settings:
            found[name][seed] = outcome(run(name, seed, options.records))
            print(f"{name}, seed {seed}: {found[name][seed]}", file=sys.stderr, flush=True)
    reports.deliver(page(found, options), options.output)
    return 0


def run(name: str, seed: int, records: Path) -> Path:
    """Run the workflow of a setting with a seed, or what is missing of it; return its folder."""
    folder, setting = (records / name / str(seed)).resolve(), SETTINGS[name]
    more = RIVALS if setting.file == DEMO else {"code": str(setting.file.parent.resolve())}
    experiment = merged(merged(yaml.safe_load(setting.file.read_text()), more), setting.changes)
    seeds = [SEED_STEP * seed + one for one in experiment["train"]["seeds"]]
    changes = {"name": name, "study": {"seed": seed}, "train": {"seeds": seeds}, "workload": {"seed": seed}}
    write_whole(folder / f"{name}.yaml", yaml.safe_dump(merged(experiment, changes)))
    with (folder / "run.log").open("ab") as log:
        subprocess.run([sys.executable, "-m", "syno", "run", f"{name}.yaml"], cwd=folder, stdout=log, stderr=log, check=True)
    return folder / "results" / name


def described(network: Score) -> str:
    return with_numbers(network, ACCURACY, network.speedup)


def outcome(folder: Path) -> Outcome:
    """Return the outcome of a run, by the tables in its folder."""
    experiment = load_experiment(str(folder))
    scores = StoredRun(experiment).scores
    assert experiment.goal is not None
    best, pair = best_of(scores, experiment.goal, ACCURACY), compared(scores, experiment.goal, ACCURACY)
    times = (file.read_text().splitlines()[1].split("\t")[0] for file in folder.glob("benchmark/**/*.tsv"))
    seconds = sum(map(float, times))
    shown = "none" if best is None else f"{described(best)}, {best.state}"
    fastest = fastest_of_kinds(scores, experiment.goal.model_copy(update={"find": "fastest"}))
    if pair is None:
        return Outcome("none", "none", Interval(nan), shown, fastest, seconds)
    ends = [pair.slower] if pair.faster in (None, pair.slower) else [pair.slower, pair.faster]
    rival = " to ".join(described(one) for one in ends)
    if pair.faster is None:
        rival += ", and none is as fast"
    elif len(ends) > 1:
        rival += f": {ACCURACY.text(pair.score)} at this speed"
    return Outcome(described(pair.synthesized), rival, pair.gain, shown, fastest, seconds)


def fastest_of_kinds(scores: Sequence[Score], goal: Goal) -> dict[str, Score]:
    """Return the fastest mixture that meets the goal, or may, and of each other kind the fastest that is as accurate."""
    kinds: dict[str, list[Score]] = {kind: [] for kind in KINDS}
    for one in scores:
        if one.role != "original" and one.score is not None and not isnan(one.speedup.value):
            kinds["mixture" if one.key.startswith("mixture_") else "operator" if one.role == "found" else "rival"].append(one)
    mixture = best_of([one for one in kinds.pop("mixture") if one.state in ("meets", "may meet")], goal, ACCURACY)
    if mixture is None:
        return {}
    found, least = {"mixture": mixture}, mixture.score or 0.0
    for kind, given in kinds.items():
        if as_accurate := [one for one in given if (one.score or 0.0) >= least]:
            found[kind] = max(as_accurate, key=lambda one: one.speedup.value)
    return found


def page(found: Mapping[str, Mapping[int, Outcome]], options: argparse.Namespace) -> list[str]:
    seeds = " ".join(map(str, options.seeds))
    command = f"benchmarks/rivals.py --records FOLDER --seeds {seeds} --settings {' '.join(found)}"
    lines = reports.heading("Synthesis beside its rivals", command)
    for text in (
        "- Each row is a whole run of the workflow: the search, the rivals, and three trainings of each network that is shown. "
        "Speedups are timed in turns with the original, with native kernels; intervals are of 95 %.",
        "- `Gain`: the accuracy of the best synthesized operator minus that of the front without synthesis at its speed, on "
        "the line between two rivals, in points, with Welch's interval over the trainings. The best of all is what the goal "
        "asks for, whatever made it.",
    ):
        lines += reports.paragraph(text)
    columns = ("setting", "seed", "synthesized", "front without", "gain", "best of all", "job seconds")
    rows = [
        (name, str(seed), one.found, one.rival, _text(one.gain), one.best, f"{one.seconds:.0f}")
        for name, seeds in found.items()
        for seed, one in seeds.items()
    ]
    lines += ["", *reports.table(columns, rows, left=6), "", "## All seeds together", ""]
    pooled = [
        (name, SETTINGS[name].about, str(len(gains)), _text(_mean(gains)), str(sum(gain > 0 for gain in gains)))
        for name, seeds in found.items()
        if (gains := [one.gain.value for one in seeds.values() if not isnan(one.gain.value)])
    ]
    columns = ("setting", "changes of the demo", "runs with both", "mean gain, points", "gains above zero")
    return [*lines, *reports.table(columns, pooled, left=2), *_of_mixtures(found)]


def _of_mixtures(found: Mapping[str, Mapping[int, Outcome]]) -> list[str]:
    """Return a table of the fastest networks of each kind that meet the goal, for settings with mixtures."""
    lines = []
    for name, outcomes in found.items():
        if not any("mixture" in one.fastest for one in outcomes.values()):
            continue
        shown: list[tuple[str, ...]] = [
            (str(seed), *(described(one.fastest[kind]) if kind in one.fastest else "none" for kind in KINDS))
            for seed, one in outcomes.items()
        ]
        lines += ["", f"## The fastest mixture of {name}, and the fastest networks that are as accurate", ""]
        lines += [*reports.table(("seed", *KINDS), shown, left=4), ""]
        for kind in KINDS[1:]:
            both = [one.fastest for one in outcomes.values() if {"mixture", kind} <= one.fastest.keys()]
            if both:
                ratio = _mean([log(one["mixture"].speedup.value / one[kind].speedup.value) for one in both])
                mean, *ends = (f"{exp(end):.2f}" for end in ratio)
                between = f" ({' to '.join(ends)})" if ratio.is_certain else ""
                lines.append(f"- Mixture beside {kind}: {mean}{between} times as fast, geometric mean over {len(both)} seeds.")
    return lines


def _mean(values: Sequence[float]) -> Interval:
    """Return the mean with Student's 95 % interval; without one for a single value."""
    if len(values) < 2:
        return Interval(fmean(values))
    half = float(t.ppf(0.975, len(values) - 1)) * stdev(values) / sqrt(len(values))
    return Interval(fmean(values), fmean(values) - half, fmean(values) + half)


def _text(gain: Interval) -> str:
    if isnan(gain.value):
        return "–"
    points = [f"{100 * one:+.1f}" for one in gain]
    return f"{points[0]} ({points[1]} to {points[2]})" if gain.is_certain else points[0]


if __name__ == "__main__":
    sys.exit(main())
