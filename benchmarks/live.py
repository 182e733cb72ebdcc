"""Count the searches of a small experiment, one for each seed, that find a good operator with trainings of their own.

    python benchmarks/live.py --configs before=benchmarks/live_before.yaml now=benchmarks/live.yaml --records results/live

Each search is a study of its own, which is resumed if it was interrupted. It ends with the part of its trials, a third or two,
in which it succeeded. A search succeeds if one of its operators is at most one point less accurate than the original network,
trained alike, at no more than 45 % of its FLOPs.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pandas
import reports
import torch
import yaml
from scipy.stats import fisher_exact

from syno.base.files import write_whole
from syno.config.files import load_experiment
from syno.train.workload import Workload

LOSES = 0.01  # at most, of the original's accuracy
FLOPS = 0.45  # at most, of the original's
COLUMNS = ("number", "attempt", "outcome", "accuracy", "epochs", "flops")  # of a trial, kept in a record
PARTS = 3  # of a search's trials


def searched(label: str, config: Path, seed: int, trials: int, records: Path, accuracy: float) -> dict[str, Any]:
    """Return the record of one search, which runs now if it has none."""
    place = records / label / str(seed)
    file = place / "record.json"
    if file.is_file():
        return dict(json.loads(file.read_text()))
    place.mkdir(parents=True, exist_ok=True)
    record = dict[str, Any]()
    for part in range(1, PARTS + 1):
        _search(config, seed, trials * part // PARTS, place)
        record = _found(place)
        if first_success(record, accuracy) is not None:
            break
    write_whole(file, json.dumps(record))
    return record


def _search(config: Path, seed: int, trials: int, place: Path) -> None:
    plan = yaml.safe_load(config.read_text())
    plan["study"] = {**plan.get("study", {}), "seed": seed, "n_trials": trials}
    write_whole(place / "experiment.yaml", yaml.safe_dump({**plan, "output": str(place.resolve())}))
    command = [sys.executable, "-m", "syno", "search", str(place / "experiment.yaml")]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)


def _found(place: Path) -> dict[str, Any]:
    experiment = load_experiment(place / "experiment.yaml")
    table = pandas.read_parquet(next(place.rglob("trials.parquet")))
    assert experiment.workload is not None
    trials = table.rename(columns=lambda name: name.removeprefix("metric_"))
    return {
        "original_flops": Workload.of(experiment.workload).original.flops,
        "trials": json.loads(trials.reindex(columns=[*COLUMNS]).to_json(orient="records")),
    }


def original_accuracy(config: Path, records: Path) -> float:
    """The accuracy of the original network with the workload's seed, trained as operators are, without milestones."""
    file = records / "original.json"
    if not file.is_file():
        settings = load_experiment(config).workload
        assert settings is not None
        result = Workload.of(settings.model_copy(update={"milestones": {}})).train(None)
        write_whole(file, json.dumps({"accuracy": result.score}))
    return float(json.loads(file.read_text())["accuracy"])


def first_success(record: dict[str, Any], accuracy: float) -> int | None:
    """Return how many operators were proposed up to the end of the first that succeeds; None if there is none."""
    proposed = 0
    for trial in sorted(record["trials"], key=lambda trial: trial["number"]):
        proposed += trial["attempt"] == 0
        if trial["outcome"] == "complete" and succeeds(trial, record, accuracy):
            return proposed
    return None


def succeeds(trial: dict[str, Any], record: dict[str, Any], accuracy: float) -> bool:
    return trial["accuracy"] >= accuracy - LOSES and trial["flops"] <= FLOPS * record["original_flops"]


def _row(label: str, found: Sequence[dict[str, Any]], accuracy: float) -> list[str]:
    firsts = [first_success(record, accuracy) for record in found]
    numbers = [number for number in firsts if number is not None]
    return [
        label,
        f"{len(numbers)} of {len(firsts)}",
        " ".join("–" if first is None else str(first) for first in firsts),
        f"{sum(t['epochs'] or 0 for r in found for t in r['trials']) / len(found):.0f}",
    ]


def main(arguments: Sequence[str] | None = None) -> int:
    """Search, print the page, and write it if asked for."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--configs", nargs="+", required=True, metavar="LABEL=FILE")
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--trials", type=int, default=22)
    parser.add_argument("--records", type=Path, required=True)
    options = reports.parse(parser, arguments)
    configs = {label: Path(file) for label, _, file in (one.partition("=") for one in options.configs)}
    torch.set_num_threads(1)
    accuracy = original_accuracy(next(iter(configs.values())), options.records)
    found = {}
    for label, config in configs.items():
        found[label] = []
        for seed in range(options.seeds):
            found[label].append(searched(label, config, seed, options.trials, options.records, accuracy))
            print(
                f"{label}, seed {seed}: first success {first_success(found[label][-1], accuracy)}", file=sys.stderr, flush=True
            )
    command = f"benchmarks/live.py --configs {' '.join(options.configs)} --seeds {options.seeds} --trials {options.trials}"
    lines = reports.heading("Searches of the demo, with their own trainings", command)
    lines += [
        f"- torch {torch.__version__}, 1 thread; load average at the end {os.getloadavg()[0]:.2f}",
        f"- A search succeeds with an operator of at least {accuracy - LOSES:.4f} (the original, trained alike: "
        f"{accuracy:.4f}) at no more than {FLOPS:.0%} of the original's FLOPs. Accuracies are those of the "
        "search's own trainings.",
        f"- A search ends with the part of its {options.trials} trials, a third or two, in which it succeeded. Epochs are "
        "those of trials that were trained to their end.",
        "",
    ]
    columns = [
        "search",
        "succeed",
        "operators proposed up to the first success, by seed",
        "epochs trained, mean",
    ]
    lines += reports.table(columns, [_row(label, records, accuracy) for label, records in found.items()])
    if len(found) == 2:
        counts = [[sum(first_success(r, accuracy) is not None for r in one), options.seeds] for one in found.values()]
        pairs = [[good, total - good] for good, total in counts]
        lines += ["", f"Fisher's exact test of the two shares: p = {fisher_exact(pairs).pvalue:.1e}."]
    reports.deliver(lines, options.output)
    return 0


if __name__ == "__main__":
    sys.exit(main())
