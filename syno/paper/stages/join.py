"""The stage `join`: writes the results of several experiments as one table, with a record of joined and missing results."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from pydantic import BaseModel, ConfigDict

from syno.base.errors import SpecError, SynoError, suggestion
from syno.base.files import ORIGINAL
from syno.base.record import Number, Record, versions
from syno.config import AnyExperiment, Experiment, load_experiments
from syno.config.files import parted
from syno.ir.graph import PGraph
from syno.ir.library import OPERATORS
from syno.paper.ablations.parts import read_ablations
from syno.paper.artifact import RECORD
from syno.paper.artifact.imported import MADE_BY as IMPORTED_BY
from syno.paper.artifact.imported import ImportRecord
from syno.paper.experiments import JoinedResults, PublishedData, role_of
from syno.paper.joined import Joined, Part, joined
from syno.paper.numbers import COMPILERS, DEVICES
from syno.paper.places import JOINED
from syno.run import FOLDER, LOSSES, MEASUREMENTS
from syno.run.measurement import OK, Measurement
from syno.run.table import measurements_in, read_losses, read_measurements, write_table
from syno.stages.measurements import KINDS
from syno.stages.opening import keep_config
from syno.stages.operators import compared_networks
from syno.stages.places import training_file
from syno.stages.provenance import read_kept
from syno.stages.rivals import rival_file, with_latencies
from syno.stages.store import ID_DIGITS, OperatorStore
from syno.stages.top import find_any
from syno.train.metric import METRICS

if TYPE_CHECKING:
    import pandas

MADE_BY = "syno join"


class JoinedExperiment(BaseModel):
    """An experiment whose results were joined.

    Attributes:
        name: its name in the column `experiment`.
        folder: its folder of results.
        measurements: the number of its rows in the joined table, by origin; shared rows count for one experiment.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")
    name: str
    folder: str
    measurements: dict[str, Number]


class RenamedOperator(BaseModel):
    """An operator whose name in the joined table differs from its name in an experiment."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    experiment: str
    operator: str
    operator_id: str | None
    name: str


class JoinRecord(Record):
    """The record of a join.

    Attributes:
        experiments: the experiments whose results were joined, in their order; "paper" for the numbers that only the paper has.
        measurements: the number of rows of the joined table.
        operators: the keys of the operators in the operator store, by their names in the table.
        renamed: the operators whose name in the table differs from that in an experiment.
        missing: results that do not exist, so that figures leave them out.
        left_out: the optional devices that experiments leave out, with the reasons.
        versions: the versions of the packages that took part.
    """

    kind_of_record = "record of joined results"
    again = f"run `{MADE_BY}`"

    experiments: tuple[JoinedExperiment, ...]
    measurements: Number
    operators: dict[str, str]
    renamed: tuple[RenamedOperator, ...]
    missing: tuple[str, ...]
    left_out: tuple[str, ...] = ()
    versions: dict[str, str]


def join(experiment: AnyExperiment) -> JoinRecord:
    """Write the results of the experiments that `join` names as one table, the loss curves and the operators.

    Results that do not exist yet are left out, and listed in the record `joined.json`, which is written last and returned.

    Raises SpecError if the experiment is no join, none of its experiments has results, or a table is damaged.
    """
    if not isinstance(experiment, JoinedResults):
        raise SpecError(
            f'experiment "{experiment.name}" joins no results; give join: {{of: all}} to an experiment in the same file, or '
            "join: {of: [FOLDER, ...]}"
        )
    settings = experiment.join
    folders = {folder.resolve(): folder for folder in experiment.sources}  # each one once
    parts, missing = list[tuple[Part, Path]](), list[str]()
    for name, folder in _names_of_folders(list(folders.values())):
        part, problems = _read(name, folder)
        missing += problems
        if part is not None:
            parts.append((part, folder))
    if not parts:
        raise SpecError(f'no experiment that "{experiment.name}" joins has results yet: {"; ".join(missing)}')
    found = joined([part for part, _ in parts], lambda name: role_of(name, settings), with_paper=settings.paper)
    keep_config(experiment)
    operators = _store(found.rows, list(folders.values()), experiment.folder)
    write_table(found.rows, experiment.folder, MEASUREMENTS)
    write_table(found.losses, experiment.folder, LOSSES)
    _join_ablations([(part.name, folder) for part, folder in parts], experiment.folder)
    record = JoinRecord(
        experiments=tuple(_experiments(found, parts)),
        measurements=len(found.rows),
        operators=operators,
        renamed=tuple(RenamedOperator(**vars(one)) for one in found.renamed),
        missing=(*missing, *gaps(found.rows), *_alone([part for part, _ in parts])),
        left_out=tuple(_devices_left_out([folder for _, folder in parts])),
        versions=versions([]),
    )
    record.write(experiment.folder / JOINED)
    return record


def find_join(place: str) -> AnyExperiment:
    """Return the experiment of joined results of a config file or folder; in a file with several, the only such one.

    Raises SpecError if there is none, or several.
    """
    file, name = parted(place)
    if name is not None or not file.is_file():
        return find_any(place)
    joins = [experiment for experiment in load_experiments(file).values() if isinstance(experiment, JoinedResults)]
    if len(joins) != 1:
        shown = (
            f"{len(joins)} experiments join results: {', '.join(one.name for one in joins)}" if joins else "none joins results"
        )
        raise SpecError(f"{file}: {shown}; give one as {file}:NAME, with join: {{of: all}} in the file")
    return joins[0]


def _devices_left_out(folders: Iterable[Path]) -> Iterator[str]:
    """Yield a line for each device that experiments leave out, with its reason; equal lines once."""
    by_reason: dict[tuple[str, str], list[str]] = {}
    for kept in filter(None, map(read_kept, folders)):
        for name, reason in kept.left_out.items():
            by_reason.setdefault((name, reason), []).append(kept.name)
    yield from (f"device {name} of {', '.join(names)}: {reason}" for (name, reason), names in by_reason.items())


def _alone(parts: Sequence[Part]) -> Iterator[str]:
    """Yield a note for each device or compiler in `stands_for` of which no other part has results."""
    names = {part.name: {*part.rows["device"], *part.rows["compiler"], *part.stands_for.values()} for part in parts}
    for part in parts:
        known = {*DEVICES, *COMPILERS}.union(*(found for name, found in names.items() if name != part.name))
        for name, meant in part.stands_for.items():
            if meant not in known:
                yield f"{part.name}: {name} stands for {meant}, of which no other results are here.{suggestion(meant, DEVICES)}"


def _join_ablations(parts: Sequence[tuple[str, Path]], folder: Path) -> None:
    """Write the joined tables of ablations, with the experiment's name in a column, and delete outdated ones."""
    import pandas

    found: dict[str, list[pandas.DataFrame]] = {}
    for name, source in parts:
        for table, rows in read_ablations(source, "syno ablate run").items():
            found.setdefault(table, []).append(rows if "experiment" in rows else rows.assign(experiment=name))
    for table in set(read_ablations(folder, MADE_BY)) - set(found):
        for kind in ("parquet", "csv"):
            (folder / FOLDER / f"{table}.{kind}").unlink(missing_ok=True)
    for table, several in found.items():
        write_table(pandas.concat(several, ignore_index=True), folder, table)


def notes(record: JoinRecord) -> list[str]:
    """Return the lines for the bottom of the page: joined experiments, renamed operators, and missing results."""
    counts = [
        f"joined: {one.name} ({one.folder}): {', '.join(f'{count:,} {origin}' for origin, count in one.measurements.items())}"
        for one in record.experiments
    ]
    names = [f"{one.name} is {one.operator} in {one.experiment}" for one in record.renamed]
    left_out = [f"left out: {what}" for what in record.left_out]
    return [*counts, *names, *left_out, *(f"missing: {what}" for what in record.missing)]


def operators_of(experiment: AnyExperiment, record: JoinRecord) -> dict[str, PGraph]:
    """Return the operators of joined results by their names in the table."""
    store = OperatorStore(experiment.folder)
    return {name: store.get(key).renamed(name) for name, key in record.operators.items()}


LONGEST_REASON = 160  # characters


def gaps(rows: pandas.DataFrame) -> list[str]:
    """Return a line for each gap in the figures: failed measurements, and networks without latencies or speedups."""
    measured = measurements_in(rows)
    lines = [
        _failure(experiment, one) for experiment, one in zip(rows["experiment"], measured, strict=True) if one.status != OK
    ]
    good = [one for one in measured if one.status == OK and one.layer is None and one.model is not None]
    scored = dict.fromkeys(one.model for one in good if one.metric in METRICS and one.operator != ORIGINAL)
    names: dict[tuple[str | None, ...], set[str]] = {}  # of the operators that were timed, by their place
    for one in good:
        if one.metric == "latency":
            names.setdefault((one.origin, one.model, one.compiler, one.device), set()).add(one.operator)
    known = {model for _, model, _, _ in names}
    lines += [f"{model}: no latency of the network" for model in scored if model not in known]
    for (_, model, compiler, device), operators in names.items():
        if ORIGINAL not in operators:
            lines.append(f"{model}, {compiler} on {device}: no latency of the original, so no speedup")
    return list(dict.fromkeys(lines))


def _failure(experiment: str, one: Measurement) -> str:
    place = [name for name in (one.model, one.data, one.layer) if name is not None]
    if one.compiler is not None:
        place.append(f"{one.compiler} on {one.device}")
    reason = " ".join(one.reason.split())
    shown = reason if len(reason) <= LONGEST_REASON else f"{reason[:LONGEST_REASON]}..."
    return f"{experiment}: {one.metric} of {one.operator} in {', '.join(place)}: {one.status}: {shown}"


def _names_of_folders(folders: Sequence[Path]) -> Iterator[tuple[str, Path]]:
    """Yield a name for each folder: the experiment's or, if another has it, the folder's whole path."""
    kept = [read_kept(folder) for folder in folders]
    names = [folder.name if one is None else one.name for one, folder in zip(kept, folders, strict=True)]
    for name, folder in zip(names, folders, strict=True):
        yield (name if names.count(name) == 1 else str(folder)), folder


def _read(name: str, folder: Path) -> tuple[Part | None, list[str]]:
    """Return the results in a folder (None if there are none), and lines on its missing results."""
    kept = read_kept(folder)
    missing = [f"{name}: {what}" for what in _pending(kept)] if isinstance(kept, Experiment) else []
    if not folder.is_dir():
        return None, [f"{name}: {folder} is not there"]
    if not (folder / FOLDER / f"{MEASUREMENTS}.parquet").is_file():
        if isinstance(kept, Experiment) and kept.workload is None:
            return None, [f"{name}: it has no network, so no measurements"]
        command = IMPORTED_BY if isinstance(kept, PublishedData) else "syno tables"
        return None, [*missing, f"{name}: no table of measurements; `{command}` makes it"]
    own = kept if isinstance(kept, Experiment) else None
    workload = None if own is None else own.workload
    made_by = IMPORTED_BY if (folder / RECORD).is_file() else "syno tables"
    rows = read_measurements(folder, made_by)
    part = Part(
        name,
        rows if own is None else with_latencies(rows, own),
        read_losses(folder, made_by),
        data=None if workload is None else workload.data,
        width=1.0 if workload is None else workload.width,
        stands_for={} if own is None else own.tune.stands_for,
    )
    if (folder / RECORD).is_file():
        missing += [f"{name}: {problem}" for problem in ImportRecord.read(folder / RECORD).problems]
    if (folder / JOINED).is_file():
        missing += JoinRecord.read(folder / JOINED).missing
    return part, list(dict.fromkeys(missing))


def _pending(kept: Experiment) -> Iterator[str]:
    """Yield a line for each kind of records of which an experiment still lacks some, with their number."""
    if kept.workload is None:
        return
    try:
        networks = compared_networks(kept)
    except SynoError:
        yield "no operator was selected yet"
        return
    # These are trained if they are faster than the original, and timed in turns with it.
    others = (*kept.rival_names, *kept.mixture_names)
    keys = [one.key for one in networks if one.key not in others]
    trainings = [training_file(kept, key, seed) for key in keys for seed in kept.train.seeds]
    measurements, of_layers = (
        [kept.folder / kind.pattern.format(**job) for job in kind.jobs(kept, keys)] for kind in (KINDS["tune"], KINDS["layers"])
    )
    rivals = [rival_file(kept, name) for name in others]
    for what, files in (
        ("trainings", trainings), ("measurements", measurements), ("measurements of layers", of_layers), ("rivals", rivals),
    ):  # fmt: skip
        if absent := sum(not file.is_file() for file in files):
            yield f"{absent} of {len(files)} {what} are not there yet"


def _experiments(joined: Joined, parts: Sequence[tuple[Part, Path]]) -> Iterator[JoinedExperiment]:
    folders = {part.name: str(folder) for part, folder in parts}
    names = list(dict.fromkeys([*folders, *joined.rows["experiment"]]))  # a join has names of its own
    for name in names:
        counts = joined.rows[joined.rows["experiment"] == name]["origin"].value_counts()
        yield JoinedExperiment(
            name=name,
            folder=folders.get(name, ""),
            measurements={str(origin): int(count) for origin, count in counts.items()},
        )


def _store(rows: pandas.DataFrame, folders: Sequence[Path], output: Path) -> dict[str, str]:
    """Copy the operators of the table into the operator store of the joined results; return their keys by name."""
    ours, known = OperatorStore(output), {make().id: make for make in OPERATORS.values()}
    pairs = rows[rows["operator_id"].notna()].drop_duplicates("operator")[["operator", "operator_id"]]
    keys: dict[str, str] = {}
    for name, operator_id in pairs.itertuples(index=False):
        graph = known[operator_id]() if operator_id in known else _stored(operator_id[:ID_DIGITS], folders)
        if graph is not None:
            keys[str(name)] = ours.add(graph)
    return keys


def _stored(key: str, folders: Sequence[Path]) -> PGraph | None:
    """Return an operator from the first store that has it; None if no store has an undamaged file of it."""
    for folder in folders:
        try:
            return OperatorStore(folder).get(key)
        except SynoError:
            continue
    return None
