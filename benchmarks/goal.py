"""Count the searches that meet a goal: with latency in the loop, and with FLOPs only, at equal CPU-seconds.

    python benchmarks/goal.py --records results/goal --seeds 0 1 2 3 4 5 6 7 8 9

For each seed there are two searches for the same network, data, space and budget of FLOPs. One is that of the config, whose
goal says how fast operators must be. The other one has no goal: it looks for the most accurate operators within the budget, and
is interrupted as soon as it has used as many CPU-seconds as the first. The operators that each selects are then measured in
turns with the original network, apart from the search, and trained with the config's seeds. A search succeeds if one of these
operators is as fast as the goal asks and loses, in the mean of its trainings, no more than the goal allows.

What has a record is not done again, so several runs can share the seeds among them. The page is of the seeds that are given.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from statistics import fmean, median
from tempfile import TemporaryDirectory
from typing import Any

import psutil
import reports
import torch
import yaml
from scipy.stats import fisher_exact

from syno.base.files import ORIGINAL, write_whole
from syno.config import Experiment
from syno.config.files import load_experiment
from syno.run.metric import difference
from syno.stages.select import select
from syno.stages.speedups import speedups_of
from syno.stages.study import freeze
from syno.stages.train import train

ARMS = ("latency in the loop", "FLOPs only")
MANY = 10_000  # trials of a search that is interrupted
LOOK_SECONDS = 0.5  # between two looks at the CPU-seconds that a search has used

Record = dict[str, Any]


def main(arguments: Sequence[str] | None = None) -> int:
    """Search, evaluate, print the page, and write it if asked for."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--config", type=Path, default=Path("benchmarks/goal.yaml"))
    parser.add_argument("--seeds", type=int, nargs="+", default=list(range(10)))
    parser.add_argument("--arms", type=int, choices=(1, 2), default=2, help="1: only searches with latency in the loop")
    parser.add_argument("--records", type=Path, required=True)
    options = reports.parse(parser, arguments)
    torch.set_num_threads(1)
    plan = yaml.safe_load(options.config.read_text())
    arms = ARMS[: options.arms]
    found: dict[str, list[Record]] = {arm: [] for arm in arms}
    for seed in options.seeds:
        limit = None
        for arm in arms:
            record = searched(plan, arm, seed, limit, options.records)
            limit = record["cpu_seconds"]
            found[arm].append(record)
            print(f"seed {seed}, {arm}: {'met' if record['met'] else 'not met'}", file=sys.stderr, flush=True)
    reports.deliver(page(plan, options, found), options.output)
    return 0


def searched(plan: Record, arm: str, seed: int, limit: float | None, records: Path) -> Record:
    """The record of one search and of what it selects. `limit`: CPU-seconds after which the search is interrupted."""
    place = (records / arm.replace(" ", "-") / str(seed)).resolve()
    file = place / "record.json"
    if file.is_file():
        return dict(json.loads(file.read_text()))
    place.mkdir(parents=True, exist_ok=True)
    write_whole(place / "experiment.yaml", yaml.safe_dump(_plan(plan, arm, seed, place)))
    experiment = load_experiment(place / "experiment.yaml")
    searching = place / "search.json"
    if not searching.is_file():
        used = search(place, limit)
        write_whole(searching, json.dumps(used))
    trials = freeze(experiment)
    operators = [_evaluated(plan, experiment, one.key, records) for one in select(experiment)]
    record = {
        **json.loads(searching.read_text()),
        "trials": dict(Counter(trials["outcome"])),
        "operators": operators,
        "met": any(one["met"] for one in operators),
    }
    write_whole(file, json.dumps(record))
    return record


def _plan(plan: Record, arm: str, seed: int, place: Path) -> Record:
    given = {**plan, "output": str(place), "study": {**plan["study"], "seed": seed, "workers": 1}}
    if arm == ARMS[0]:
        return given
    given.pop("goal")
    given["study"]["n_trials"] = MANY
    return {**given, "select": {**plan.get("select", {}), "by": "reward"}}


def search(place: Path, limit: float | None) -> Record:
    """Run the search in a folder; return the seconds and CPU-seconds that it took, with all its processes.

    What PyTorch's compilers keep for later runs is kept for this search only, as on a machine that compiles the first time.
    """
    command = [sys.executable, "-m", "syno", "search", "experiment.yaml"]
    began = time.monotonic()
    with TemporaryDirectory() as cache, (place / "search.log").open("wb") as log:
        own = {**os.environ, "TORCHINDUCTOR_CACHE_DIR": cache, "OMP_NUM_THREADS": "1"}
        process = psutil.Popen(command, cwd=place, env=own, stdout=log, stderr=log, preexec_fn=_heed_interrupts)
        while process.poll() is None:
            if limit is not None and _cpu_seconds(process) >= limit:
                process.send_signal(signal.SIGINT)
                process.wait()
                break
            used = _cpu_seconds(process)
            time.sleep(LOOK_SECONDS)
    if limit is None and process.returncode:
        raise subprocess.CalledProcessError(process.returncode, command)
    return {"cpu_seconds": used, "seconds": time.monotonic() - began}


def _heed_interrupts() -> None:
    """Let SIGINT interrupt this process: a shell starts programs in the background with the signal ignored."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def _cpu_seconds(process: psutil.Process) -> float:
    """CPU-seconds of a process, those below it, and those that ended."""
    total = 0.0
    try:
        for one in [process, *process.children(recursive=True)]:
            times = one.cpu_times()
            total += times.user + times.system + times.children_user + times.children_system
    except psutil.NoSuchProcess:  # it ended just now, and its time is counted at the next look
        pass
    return total


def _evaluated(plan: Record, experiment: Experiment, key: str, records: Path) -> Record:
    """An operator's speedup and losses, measured for this; operators that are too slow are not trained."""
    goal = plan["goal"]
    with speedups_of(experiment, goal["compiler"], goal["device"], store=experiment.folder / "latencies") as speedups:
        found = speedups.of(experiment_operator(experiment, key))
    record: Record = {"name": found.name, "speedup": found.speedup, "low": found.speedup_low, "high": found.speedup_high}
    if found.speedup is None or found.speedup < goal["speedup"]:
        return {**record, "lost": None, "met": False}
    scores = [train(experiment, key, seed).score for seed in experiment.train.seeds]
    lost = [-one for one in difference(scores, _originals(experiment, records))]
    return {**record, "scores": scores, "lost": [lost[0], lost[2], lost[1]], "met": lost[0] <= goal["lose_at_most"]}


def experiment_operator(experiment: Experiment, key: str) -> Any:
    """The operator of an experiment with this key."""
    from syno.stages.operators import network_of

    return network_of(experiment, key).replacement


def _originals(experiment: Experiment, records: Path) -> list[float]:
    """The scores of the original network with the same seeds, which all searches are compared with."""
    file = records / "original.json"
    if not file.is_file():
        write_whole(file, json.dumps([train(experiment, ORIGINAL, seed).score for seed in experiment.train.seeds]))
    return list(json.loads(file.read_text()))


# ---- the page ----------------------------------------------------------------------------------------------------------


def page(plan: Record, options: argparse.Namespace, found: dict[str, list[Record]]) -> list[str]:
    """The lines of the page."""
    goal, original = plan["goal"], json.loads((options.records / "original.json").read_text())
    seeds, arms = " ".join(map(str, options.seeds)), "" if len(found) > 1 else " --arms 1"
    command = f"benchmarks/goal.py --config {options.config} --seeds {seeds} --records FOLDER{arms}"
    lines = reports.heading("Searches that meet a goal", command)
    lines += reports.paragraph(
        f"- torch {torch.__version__}, 1 thread. Network, data, space and goal are those of `{options.config}`: "
        f"{goal['speedup']:g} times as fast with {goal['compiler']}, at most {100 * goal['lose_at_most']:g} points less "
        f"accurate than the original, whose accuracies are {', '.join(f'{one:.4f}' for one in original)}."
    )
    both = "Both searches of a seed use as many CPU-seconds, of all their processes and" if len(found) > 1 else "Searches begin"
    lines += reports.paragraph(
        f"- {both} with empty caches of compilers. "
        f"The best {plan['select']['count']} operators of each are measured again and trained with the seeds "
        f"{', '.join(map(str, plan['train']['seeds']))}; those that are too slow are not trained. Intervals are of 95 %."
    )
    rows = []
    for arm, records in found.items():
        met = sum(record["met"] for record in records)
        counts = [sum(record["trials"].get(outcome, 0) for record in records) for outcome in ("complete", "paused", "screened")]
        cpu, seconds = (median(record[name] for record in records) for name in ("cpu_seconds", "seconds"))
        per = [f"{count / len(records):.1f}" for count in counts]
        rows.append([arm, f"{met} of {len(records)}", f"{cpu:.0f}", f"{seconds:.0f}", *per])
    columns = [
        "search",
        "goal met",
        "CPU-seconds, median",
        "seconds, median",
        "trained, mean",
        "paused, mean",
        "too slow, mean",
    ]
    lines += ["", *reports.table(columns, rows), ""]
    if len(found) > 1:
        met = [sum(record["met"] for record in records) for records in found.values()]
        table = [[one, len(options.seeds) - one] for one in met]
        lines += [f"Fisher's exact test of the two shares: p = {fisher_exact(table).pvalue:.1e}.", ""]
    columns = ["seed", "search", "goal met", "operators selected: speedup; points lost"]
    rows = [
        [str(seed), arm, "yes" if record["met"] else "no", "<br>".join(map(_words, record["operators"]))]
        for place, seed in enumerate(options.seeds)
        for arm, record in ((arm, records[place]) for arm, records in found.items())
    ]
    lines += reports.table(columns, rows, left=4)
    if len(found) > 1:
        operators = (one for record in found[ARMS[1]] for one in record["operators"])
        slow = [one["speedup"] for one in operators if one["speedup"]]
        lines += ["", f"Mean speedup of what the search by FLOPs only selects: {fmean(slow):.2f}."]
    return lines


def _words(one: Record) -> str:
    if one["speedup"] is None:
        return "not measured"
    speed = f"{one['speedup']:.2f} ({one['low']:.2f} to {one['high']:.2f})"
    if one["lost"] is None:
        return f"{speed}; too slow"
    lost, low, high = (100 * number for number in one["lost"])
    return f"{speed}; {lost:.1f} ({low:.1f} to {high:.1f})"


if __name__ == "__main__":
    sys.exit(main())
