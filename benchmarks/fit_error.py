"""How well the error of an operator's fit, its costs and zero-cost scores tell what it scores after its training.

    python benchmarks/fit_error.py --records FOLDER --count 32 --output docs/measured/fit_error.md

Operators are drawn at random from the space of `config/quickstart-trained.yaml`, fitted to the layers of the trained original
and trained, as the search does it. What was trained is kept in the folder, so that a run that was stopped goes on. Exit status:
0; 2 for wrong arguments.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Iterator, Sequence
from math import ceil
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

import numpy as np
import reports
import torch
from scipy.stats import spearmanr
from table_proxies import gradients, naswot, synflow

from syno.base.files import write_whole
from syno.config import Experiment
from syno.config.files import load_experiment
from syno.ir.graph import PGraph
from syno.ir.text import parse_stored
from syno.search.policies.surrogate import Model, SurrogateSettings
from syno.space.complete import cost
from syno.space.features import OperatorFeatures
from syno.space.sample import sample
from syno.space.space import Space
from syno.space.spec import OperatorSpec
from syno.train.tasks import task_of
from syno.train.training import score_only
from syno.train.workload import Workload

CONFIG = "config/quickstart-trained.yaml"
CPU = torch.device("cpu")
QUANTITIES = {  # the key of each in records
    "error of a fit to one layer alone": "layer error",
    "error of the fit, mean over layers": "fit error",
    "error of the fit, largest of a layer": "largest error",
    "difference of the outputs after the fit": "difference",
    "accuracy after the fit": "accuracy after the fit",
    "FLOPs": "FLOPs",
    "parameters": "parameters",
    "norm of the gradient": "gradient_norm",
    "SNIP": "snip",
    "NASWOT": "naswot",
    "SynFlow": "synflow",
}
SHARES = (0.8, 0.65, 0.5)
COLUMNS = ("operator", "FLOPs", "errors of its layers", "their mean", "accuracy after the fit", "accuracy")
CANDIDATES, DRAWS = (4, 8, 16, 24), 2000
SEEDS, TREES = range(8), SurrogateSettings().trees


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure what is missing, print the page, and write it if asked for."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--records", type=Path, required=True)
    parser.add_argument("--count", type=int, default=32, help="operators; default: %(default)s")
    parser.add_argument("--seed", type=int, default=0, help="of the draw; default: %(default)s")
    options = reports.parse(parser, arguments)
    experiment = load_experiment(CONFIG).use_code()
    found = list(measured(experiment, options))
    reports.deliver(page(experiment.operator_spec, found, options), options.output)
    return 0


def measured(experiment: Experiment, options: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """Yield a record for each operator, from the folder or measured."""
    spec, new = experiment.operator_spec, experiment.network
    weights = options.records / "original.safetensors"
    if not weights.is_file():
        options.records.mkdir(parents=True, exist_ok=True)
        score = new.train(seed=new.settings.seed, weights=weights).score
        write_whole(options.records / "original.json", json.dumps({"score": score}))
    workload = Workload(new.settings.model_copy(update={"weights": str(weights)}), new.data)
    for operator in sample(Space(spec), options.count, seed=options.seed):
        file = options.records / f"{operator.id}.json"
        if not file.is_file():
            found = one(workload, spec, operator)
            write_whole(file, json.dumps(found))
            print(f"{operator.name}: {found}", file=sys.stderr, flush=True)
        yield json.loads(file.read_text())


def one(workload: Workload, spec: OperatorSpec, operator: PGraph) -> dict[str, Any]:
    """Return the record of an operator: its quantities and accuracies, or the reason why it is not trained."""
    seed, counted = workload.settings.seed, cost(operator, spec)
    found: dict[str, Any] = {"id": operator.id, "text": str(operator), "FLOPs": counted.flops, "parameters": counted.parameters}
    if (fault := workload.fault_on_first_batch(operator)) is not None:
        return found | {"fault": fault}
    images, labels = next(iter(task_of(workload.data, workload.settings.training, seed, CPU).batches.epoch(1)))
    network = workload.network(operator, seed)
    found |= gradients(network, images, labels) | {"naswot": naswot(network, images)}
    found["synflow"] = synflow(workload.network(operator, seed), images[:1])
    before = time.process_time()
    found |= {"layer error": workload.layer_error(operator), "layer seconds": time.process_time() - before}
    before, network, original = time.process_time(), workload.network(operator, seed), workload.model(seed)
    fits = workload.fit(network, original, operator, seed)
    found |= {"fit seconds": time.process_time() - before, "errors": [(fit.layer, fit.before, fit.after) for fit in fits]}
    found["difference"] = workload.difference(network, original, seed)
    found["accuracy after the fit"] = score_only(network, workload.data, workload.settings.training, seed=seed).score
    before = time.process_time()
    result = workload.train(operator, seed=seed)
    return found | {"score": result.score, "scores": result.scores, "seconds": time.process_time() - before}


def page(spec: OperatorSpec, records: Sequence[dict[str, Any]], options: argparse.Namespace) -> list[str]:
    trained = [with_errors(record) for record in records if "score" in record]
    found = list({(record["fit error"], record["score"]): record for record in trained}.values())
    scores, epochs = np.array([record["score"] for record in found]), len(found[0]["scores"])
    original = json.loads((options.records / "original.json").read_text())["score"]
    layer, fit, training = (fmean(record[key] for record in found) for key in ("layer seconds", "fit seconds", "seconds"))
    command = f"benchmarks/fit_error.py --records FOLDER --count {options.count}"
    lines = reports.heading("The error of an operator's fit, and its score", command)
    for text in (
        f"- {len(records)} operators, drawn at random from the space of `{CONFIG}`. Left out as they cannot learn on the first "
        f"batch: {len(records) - len(trained)}; as they are the same as others with the sizes of this network: "
        f"{len(trained) - len(found)}. The other {len(found)} are trained once, as the search does it: fitted to the layers of "
        f"the trained original, and then for {epochs} epochs with distillation.",
        f"- The original's accuracy is {original:.4f}; those with operators are from {scores.min():.4f} to {scores.max():.4f}.",
        f"- A fit to one layer takes {layer:.2f} CPU-seconds in the mean, one to all layers {fit:.1f}, a training with its fit "
        f"{training:.1f}.",
    ):
        lines += reports.paragraph(text)
    lines += ["", "## Rank correlations with the final accuracy", ""]
    lines += reports.paragraph(
        "Spearman's, with the 95 % interval of 2,000 bootstrap samples. Zero-cost scores are of the network before the fit, on "
        "the first batch. They are said to rise with the accuracy; errors fall with it."
    )
    rows = [(name, *correlation([record[key] for record in found], scores)) for name, key in QUANTITIES.items()]
    for number in range(1, epochs):
        values = [record["scores"][number - 1] for record in found]
        rows.append((f"accuracy after epoch {number}", *correlation(values, scores)))
    lines += ["", *reports.table(("quantity", "correlation", "95 % interval"), rows)]
    lines += ["", "## Candidates that are fitted to one layer", ""]
    lines += reports.paragraph(
        "The policy `surrogate` fits its candidates to the layer with most FLOPs, and proposes the one with the least error. "
        "What that is worth among random operators: the mean accuracy of the one with the least error of so many, over "
        f"{DRAWS:,} draws. The mean of all is {scores.mean():.4f}."
    )
    rows = [(str(count), *of_least_error(found, scores, count)) for count in CANDIDATES]
    lines += ["", *reports.table(("candidates", "accuracy of the chosen one", "worse than the mean of all"), rows)]
    lines += ["", "## Operators that pause after the fit", ""]
    best = set(np.argsort(-scores, kind="stable")[: max(1, len(found) // 4)].tolist())
    order = np.argsort([record["fit error"] for record in found], kind="stable").tolist()
    lines += reports.paragraph(f"If those with the least errors go on, so many of the {len(best)} best are among them.")
    shares = [(f"{share:.0%}", f"{len(best & set(order[: ceil(share * len(found))]))} of {len(best)}") for share in SHARES]
    lines += ["", *reports.table(("share that goes on", "of the best quarter"), shares)]
    lines += ["", "## The model of the policy surrogate", ""]
    lines += reports.paragraph(
        "The rank correlation of predicted with final accuracies, where each operator is predicted by a model of all others: "
        f"the mean over {len(SEEDS)} seeds of its trees, with the standard deviation. The policy does not know the errors of "
        "the operators among which it chooses, so the model predicts these (second row)."
    )
    lines += ["", *reports.table(("model", "correlation"), predictions(spec, found, scores)), "", "## Operators", ""]
    return [*lines, *reports.table(COLUMNS, [row(one) for one in sorted(found, key=lambda one: -one["score"])])]


def with_errors(record: dict[str, Any]) -> dict[str, Any]:
    """Return a record with the mean and the largest error over the layers."""
    errors = [after for *_, after in record["errors"]]
    return record | {"fit error": fmean(errors), "largest error": max(errors)}


def row(record: dict[str, Any]) -> tuple[str, ...]:
    errors = ", ".join(f"{after:.2f}" for *_, after in record["errors"])
    numbers = [f"{record[key]:.4f}" for key in ("fit error", "accuracy after the fit", "score")]
    return f"`{record['id'][:8]}`", f"{record['FLOPs']:.3g}", errors, *numbers


def of_least_error(found: Sequence[dict[str, Any]], scores: np.ndarray, count: int) -> tuple[str, str]:
    """Return the mean accuracy of the operator with the least error of so many, and how often it is below the mean of all."""
    draws, errors = np.random.default_rng(0), np.array([record["layer error"] for record in found])
    drawn = [draws.choice(len(found), count, replace=False) for _ in range(DRAWS)]
    chosen = np.array([scores[one[errors[one].argmin()]] for one in drawn])
    return f"{chosen.mean():.4f}", f"{(chosen < scores.mean()).mean():.0%}"


def correlation(values: Sequence[float], scores: np.ndarray) -> tuple[str, str]:
    """Return the rank correlation and its interval as text."""
    draws, given = np.random.default_rng(0), np.array(values)
    samples = draws.integers(len(given), size=(2000, len(given)))
    found = [spearmanr(given[one], scores[one]).statistic for one in samples]
    low, high = np.nanpercentile(found, [2.5, 97.5])
    return f"{spearmanr(given, scores).statistic:+.2f}", f"{low:+.2f} to {high:+.2f}"


def predictions(spec: OperatorSpec, found: Sequence[dict[str, Any]], scores: np.ndarray) -> list[tuple[str, str]]:
    """Return the rank correlations of predictions, each of one operator by a model of the others, as rows of a table."""
    features = OperatorFeatures(spec)
    rows = np.array([features(parse_stored(record["text"])) for record in found])
    errors = np.log([record["fit error"] for record in found])
    known = np.column_stack([rows, errors])
    models: dict[str, tuple[np.ndarray, np.ndarray | None]] = {
        "without errors": (rows, None),
        "with the errors of the others": (rows, errors),
        "with the errors of all": (known, None),
    }
    table = []
    for name, (given, measured) in models.items():
        values = []
        for seed in SEEDS:
            predicted = []
            for place in range(len(found)):
                others, model = np.arange(len(found)) != place, Model(TREES, seed)
                model.fit(given[others], scores[others], None if measured is None else measured[others])
                predicted.append(float(model.predict(given[~others])[0][0]))
            values.append(spearmanr(predicted, scores).statistic)
        table.append((name, f"{fmean(values):+.2f} ± {stdev(values):.2f}"))
    return table


if __name__ == "__main__":
    sys.exit(main())
