"""What there is of an experiment that was killed, and whether all is as it must be when it has ended."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from pathlib import Path

from result_tables import read_tables

from syno.config import Experiment
from syno.measure.tuning_record import TuningRecord
from syno.search.storage.records import table
from syno.search.storage.store import read_trials
from syno.stages.data import DataRecord
from syno.stages.figures import FORMATS, names
from syno.stages.measurements import KINDS
from syno.stages.operators import compared_networks
from syno.stages.places import training_file
from syno.stages.search import WorkerRecord, worker_file
from syno.stages.study import read_frozen
from syno.train.training_record import TrainingRecord


def done(results: Path) -> str:
    """What there is, in words."""
    counts = {"trials": _complete_trials(results / "trials.db")}
    for name, pattern in (("trainings", "train/*/*.json"), ("measurements", "tune/*/*.json"), ("figures", "figures/*.svg")):
        counts[name] = len(list(results.glob(pattern)))
    return ", ".join(f"{name} {count}" for name, count in counts.items() if count) or "nothing"


def faults(config: Path, results: Path) -> list[str]:
    """What is lost, doubled or damaged in an experiment that has ended."""
    return _found(config, results, (_wrong_trials, _wrong_files))


def search_faults(config: Path, results: Path) -> list[str]:
    """The same of its search, where that is all that was asked for."""
    return _found(config, results, (_wrong_trials, _wrong_workers))


def _found(config: Path, results: Path, looks: Sequence[Callable[[Experiment], Iterator[str]]]) -> list[str]:
    experiment = Experiment.load(config).model_copy(update={"output": results})
    found: list[str] = []
    for look in looks:
        try:
            found += look(experiment)
        except Exception as error:  # whatever cannot be read is a fault
            found.append(f"{type(error).__name__}: {error}")
    return found


def _wrong_trials(experiment: Experiment) -> Iterator[str]:
    """Trials that are lost, doubled or running."""
    stored = table(read_trials(experiment.storage, experiment.name))
    for name, trials in (("study", stored), ("table", read_frozen(experiment))):
        finished = trials[trials["outcome"].isin(["complete", "pruned", "failed"])]
        running = int((trials["outcome"] == "running").sum())
        found = (len(finished), finished["fingerprint"].nunique(), running)
        if found != (experiment.study.n_trials, experiment.study.n_trials, 0):
            yield f"{name}: {found[0]} trials have ended, of {found[1]} operators, and {running} are running"


def _wrong_workers(experiment: Experiment) -> Iterator[str]:
    """Workers none of which stayed until the study was finished."""
    records = [WorkerRecord.read(worker_file(experiment, number)) for number in range(1, experiment.study.workers + 1)]
    if (most := max(record.finished for record in records)) != experiment.study.n_trials:
        yield f"the last worker ended after {most} trials of the study"


def _wrong_files(experiment: Experiment) -> Iterator[str]:
    """Files that are not there or cut off. Raises whatever reading one raises."""
    DataRecord.read(experiment.folder / "data.json")
    WorkerRecord.read(worker_file(experiment, 1))
    keys = [entry.key for entry in compared_networks(experiment)]
    for key in keys:
        for seed in experiment.train.seeds:
            TrainingRecord.read(training_file(experiment, key, seed))
        TuningRecord.read(KINDS["tune"].file(experiment, key, "eager", "cpu"))
    tables = read_tables(experiment)
    seeds = len(experiment.train.seeds)
    if set(tables.scores["key"]) != set(keys) or set(tables.scores["seeds"]) != {seeds}:
        yield f"the table of scores has other rows than {keys} with {seeds} seeds each"
    pictures = [experiment.folder / "figures" / f"{name}.{ending}" for name in names(experiment) for ending in FORMATS]
    yield from (f"{file} is not there" for file in pictures if not file.is_file() or not file.stat().st_size)
    if "</html>" not in (experiment.folder / "report.html").read_text(encoding="utf-8")[-20:]:
        yield "report.html is cut off"


def _complete_trials(file: Path) -> int:
    if not file.is_file():
        return 0
    try:
        with closing(sqlite3.connect(f"file:{file}?mode=ro", uri=True, timeout=5)) as database:
            return int(database.execute("select count(*) from trials where state = 'COMPLETE'").fetchone()[0])
    except sqlite3.Error:  # its tables are just being made
        return 0
