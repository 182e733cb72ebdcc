"""Sums of what operators save and lose in single layers, beside what random mixtures of them save and lose.

    syno run quickstart-trained
    python benchmarks/mixtures.py results/quickstart-trained --count 30 --output docs/measured/mixtures.md

The experiment has chosen mixtures (`choice.json`). Each layer of a random mixture stays as it is, or has one of the operators
that were tried there. The mixture is timed in turns with the original, and trained once as in the search. What is timed is
stored; scores are kept in FOLDER/mixtures.json, so that a run that was stopped goes on. Exit status: 0; 2 for wrong arguments.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from random import Random
from typing import NamedTuple

import reports
from scipy.stats import spearmanr

from syno.base.files import ORIGINAL, write_whole
from syno.config import Experiment
from syno.config.files import load_experiment
from syno.model.replacements import Mixture
from syno.stages.choice import operators_to_choose
from syno.stages.mixtures import Alternative, choice_of, in_words
from syno.stages.places import SELECTED
from syno.stages.search import beginning
from syno.stages.selection import read_selected
from syno.stages.speedups import speedups_of


class Found(NamedTuple):
    """A mixture: what its parts save and lose together, and what it saves and loses."""

    mixture: str
    expected_saving: float
    saving: float
    expected_loss: float
    score: float


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure what is missing, print the page, and write it if asked for."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--count", type=int, default=30)
    parser.add_argument("--seed", type=int, default=0)
    options = reports.parse(parser, arguments)
    experiment = load_experiment(str(options.folder)).use_code()
    found = list(measured(experiment, options))
    reports.deliver(page(experiment, found, options), options.output)
    return 0


def measured(experiment: Experiment, options: argparse.Namespace) -> list[Found]:
    """Return the mixtures with what was measured."""
    record, workload = choice_of(experiment), beginning(experiment)
    assert record is not None and experiment.goal_pair is not None, "the experiment has no choice.json; run it first"
    assert experiment.mixtures != "none"
    operators = operators_to_choose(experiment, read_selected(options.folder / SELECTED)[: experiment.mixtures.operators])
    layers: dict[str, list[Alternative]] = {}
    for one in record.alternatives:
        if one.base == ORIGINAL and one.loss is not None:
            layers.setdefault(one.layer, []).append(one)
    chance, file = Random(options.seed), options.folder / "mixtures.json"
    scores: dict[str, float] = json.loads(file.read_text()) if file.is_file() else {}
    found, seen = list[Found](), set[str]()
    with speedups_of(experiment, *experiment.goal_pair) as speedups:
        while len(found) < options.count:
            chosen = [one for given in layers.values() if (one := chance.choice([None, *given])) is not None]
            parts = {name: tuple(one.layer for one in chosen if one.operator == name) for name in operators}
            mixture = Mixture("mixture", tuple((operators[name], names) for name, names in parts.items() if names))
            if not chosen or mixture.id in seen:
                continue
            seen.add(mixture.id)
            timed = speedups.of(mixture)
            if timed.status == "misfit":  # an operator may not fit behind a layer with fewer channels
                print(f"does not fit: {in_words(mixture)}", file=sys.stderr, flush=True)
                continue
            assert timed.ratio is not None, timed.reason
            if mixture.id not in scores:
                scores[mixture.id] = workload.train(mixture, seed=workload.settings.seed).score
                write_whole(file, json.dumps(scores))
            sums = sum(one.saving for one in chosen), sum(one.loss or 0.0 for one in chosen)
            found.append(Found(in_words(mixture), sums[0], 1 - 1 / timed.ratio.value, sums[1], scores[mixture.id]))
            print(found[-1], file=sys.stderr, flush=True)
    return found


def page(experiment: Experiment, found: Sequence[Found], options: argparse.Namespace) -> list[str]:
    speed = spearmanr([one.expected_saving for one in found], [one.saving for one in found])
    score = spearmanr([one.expected_loss for one in found], [-one.score for one in found])
    off = sorted(abs(one.expected_saving - one.saving) for one in found)
    lines = reports.heading("Sums over layers beside mixtures", f"benchmarks/mixtures.py FOLDER --count {options.count}")
    lines += reports.paragraph(
        f"- {len(found)} random mixtures of the experiment {experiment.name}: each layer stays, or has one of the operators "
        "that were tried there. Savings are shares of the original network's time; scores are of one training each."
    )
    sums = f"the sum is off by {off[len(off) // 2]:.3f} in the median, {off[-1]:.3f} at most"
    lines += [
        "",
        *reports.table(
            ("quantity", "Spearman's rank correlation of the sum with the truth"),
            [
                ("time saved", f"{speed.statistic:.2f} ({sums})"),
                ("score lost", f"{score.statistic:.2f}"),
            ],
        ),
        "",
        *reports.table(
            ("mixture", "saved, sum", "saved", "lost, sum", "score"),
            [
                (one.mixture, f"{one.expected_saving:.3f}", f"{one.saving:.3f}", f"{one.expected_loss:.4f}", f"{one.score:.4f}")
                for one in found
            ],
        ),
    ]
    return lines


if __name__ == "__main__":
    sys.exit(main())
