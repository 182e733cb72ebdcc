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
from pathlib import Path
from typing import Any

import reports
import torch
from table_proxies import gradients, naswot, synflow

from syno.base.files import write_whole
from syno.config.files import load_experiment
from syno.ir.graph import PGraph
from syno.space.complete import cost
from syno.space.sample import sample
from syno.space.space import Space
from syno.space.spec import OperatorSpec
from syno.train.tasks import task_of
from syno.train.training import score_only
from syno.train.workload import Workload

CONFIG = "config/quickstart-trained.yaml"
CPU = torch.device("cpu")


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure what is missing, print the page, and write it if asked for."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--records", type=Path, required=True)
    parser.add_argument("--count", type=int, default=32, help="operators; default: %(default)s")
    parser.add_argument("--seed", type=int, default=0, help="of the draw; default: %(default)s")
    options = reports.parse(parser, arguments)
    list(measured(options))
    return 0


def measured(options: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """Yield a record for each operator, from the folder or measured."""
    experiment = load_experiment(CONFIG).use_code()
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
    """Return what is known of an operator before its training, and its scores; or why it is not trained."""
    seed, counted = workload.settings.seed, cost(operator, spec)
    found: dict[str, Any] = {"id": operator.id, "text": str(operator), "FLOPs": counted.flops, "parameters": counted.parameters}
    if (fault := workload.fault_on_first_batch(operator)) is not None:
        return found | {"fault": fault}
    images, labels = next(iter(task_of(workload.data, workload.settings.training, seed, CPU).batches.epoch(1)))
    network = workload.network(operator, seed)
    found |= gradients(network, images, labels) | {"naswot": naswot(network, images)}
    found["synflow"] = synflow(workload.network(operator, seed), images[:1])
    before, network, original = time.process_time(), workload.network(operator, seed), workload.model(seed)
    fits = workload.fit(network, original, operator, seed)
    found |= {"fit seconds": time.process_time() - before, "errors": [(fit.layer, fit.before, fit.after) for fit in fits]}
    found["difference"] = workload.difference(network, original, seed)
    found["accuracy after the fit"] = score_only(network, workload.data, workload.settings.training, seed=seed).score
    before = time.process_time()
    result = workload.train(operator, seed=seed)
    return found | {"score": result.score, "scores": result.scores, "seconds": time.process_time() - before}


if __name__ == "__main__":
    sys.exit(main())
