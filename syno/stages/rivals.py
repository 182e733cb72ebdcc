"""The rivals of a search with a goal: networks without synthesis, trained and measured like the operators.

Each rival is a job. It first measures the speedup, in turns with the original, and trains only faster rivals. A mixture
was chosen by its speed and is timed again, so that no measurement that chose it is in its verdict. Then the job trains with
each seed of the experiment, and last it tests and measures the trained network in lower precision: 8-bit integers and, on a
GPU, bfloat16. What cannot be pruned, trained or compiled is a record with the reason. Measurements are shared by all
experiments, and so are trainings of the same network on the same data with the same recipe.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime
from math import isfinite
from pathlib import Path
from statistics import mean
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from pydantic import AwareDatetime, BaseModel, ConfigDict

from syno.base.errors import SpecError, SynoError, UnknownNameError
from syno.base.files import ORIGINAL, checksum, write_whole
from syno.base.identity import OWN_CODE, version_of_code
from syno.base.interval import Interval, times_as_fast
from syno.base.record import Amount, Name, PositiveInterval, Record, versions
from syno.config import Experiment
from syno.measure.tuning_record import Line
from syno.model.networks import INT8, NUMBER_FORMATS, Network, NumberFormat, Role
from syno.model.replacements import AnyOperator, as_replacement, code_in
from syno.run.measurement import OK, Measurement
from syno.run.rows import rows_of_training
from syno.run.speedups import APART, IN_TURNS
from syno.run.story import rival_text
from syno.stages.measure import measured, network_to_measure
from syno.stages.mixtures import REPEATS
from syno.stages.networks import converted
from syno.stages.operators import compared_networks, network_of
from syno.stages.places import RIVAL, SELECTED, WEIGHTS, training_file
from syno.stages.provenance import differences_of_training
from syno.stages.selection import Selected, read_selected
from syno.stages.speedups import speedups_of
from syno.stages.train import settings_of_training, train
from syno.train.metric import METRICS

if TYPE_CHECKING:
    import pandas

    from syno.measure.speedup_record import SpeedupRecord
    from syno.train.workload import Workload

STORE = Path("results/rivals")  # of trainings, for all experiments
CONVERTING = "inductor"  # the compiler whose forms of lower precision are used
State = Literal["ok", "slow", "failed"]


class RivalSpeed(BaseModel):
    """The measured speed of a rival.

    Attributes:
        ratio: the rival's speedup over the original with the goal's compiler.
        timed: "in turns", or "apart" because the networks need two compilers.
        latency_ms, original_ms: latency of one call of the rival, and of the original, in ms.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")
    ratio: PositiveInterval
    timed: str
    latency_ms: PositiveInterval
    original_ms: PositiveInterval


class InLowerPrecision(BaseModel):
    """The results of a trained network after conversion to int8 or bfloat16.

    Attributes:
        scores: the scores by seed of the training; {} if the network could not be converted.
        speed: the speed with TorchInductor; None if the network could not be compiled.
        reason: why a score or the speed is missing; "" if nothing is missing.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", ser_json_inf_nan="strings")
    scores: dict[int, float] = {}
    speed: RivalSpeed | None = None
    reason: str = ""


class RivalRecord(Record):
    """The record of one rival.

    Attributes:
        name: "pruned_0.5", "narrow_0.5", a known operator's name, "int8" or "bfloat16" for the original in these numbers, or
            the key of a selected operator and "_int8" or "_bfloat16".
        operator: the text of the rival's operator, as in training records; None for the original.
        state: "ok"; "slow": it is not faster than the original, and was not trained; "failed": see `reason`.
        reason: the reason for a state other than "ok".
        speed: the measured speed; None if it could not be measured, and for networks that are only converted (see `formats`).
        seeds: the seeds of the trainings, whose records are with those of all networks.
        formats: the results in lower precision, by number format (`NUMBER_FORMATS`).
        seconds: duration of the job.
        versions, date: versions of the packages, and the time at the end.
    """

    kind_of_record = "record of a rival"
    again = "run `syno rival`"
    passing = frozenset({"seconds", "date"})

    name: Name
    operator: str | None
    state: State
    reason: str = ""
    speed: RivalSpeed | None = None
    seeds: tuple[int, ...] = ()
    formats: Mapping[str, InLowerPrecision] = {}
    seconds: Amount
    versions: dict[str, str]
    date: AwareDatetime

    @property
    def converted(self) -> dict[str, InLowerPrecision]:
        """The results in lower precision, by the key of the converted network, such as `pruned_0.5_int8`."""
        network = Network.parse(self.name)
        return {network.in_precision(NUMBER_FORMATS[name]).key: found for name, found in self.formats.items()}

    @property
    def reasons(self) -> list[str]:
        """The reasons why the speed, trainings or results in lower precision are missing."""
        return [reason for reason in (self.reason, *(one.reason for one in self.formats.values())) if reason]

    def lines(self) -> Iterator[Line]:
        """Yield lines with the speedups, the number of trainings, and the reasons for missing results."""
        if self.speed is not None:
            yield Line(f"{self.name}: {times_as_fast(self.speed.ratio)}, {len(self.seeds)} trainings")
        for key, one in self.converted.items():
            if one.speed is not None:
                yield Line(f"{key}: {times_as_fast(one.speed.ratio)}")
        for reason in self.reasons:
            yield Line(f"{self.name}: {reason}", is_problem=True)


def rival_file(experiment: Experiment, name: str) -> Path:
    """Return the file of a rival's record."""
    return experiment.folder / RIVAL.format(rival=name)


def rivals_of(experiment: Experiment, selected: Sequence[Selected] | None = None) -> dict[str, RivalRecord]:
    """Return the existing records of an experiment's rivals, by name. SpecError if one is damaged.

    `selected` are the selected operators; None reads them.
    """
    names = (*experiment.rival_names, *experiment.mixture_names, *_converted(experiment, selected))
    files = {name: rival_file(experiment, name) for name in names}
    return {name: RivalRecord.read(file) for name, file in files.items() if file.is_file()}


def _converted(experiment: Experiment, selected: Sequence[Selected] | None = None) -> dict[str, Network]:
    """Return the networks with selected operators in lower precision, by their keys."""
    if selected is None:
        file = experiment.folder / SELECTED
        selected = read_selected(file) if file.is_file() else []
    return {network.key: network for network in converted(experiment, [one.key for one in selected])}


def _network(experiment: Experiment, name: str) -> Network:
    """Return the network of a rival, a mixture, or a selected operator in lower precision.

    Raises SpecError if the experiment has none of this name, UnknownNameError for a mixture that was not chosen.
    """
    is_trained = name in experiment.rival_names and name not in NUMBER_FORMATS
    if is_trained or name in experiment.mixture_names:
        return network_of(experiment, name)
    if name in experiment.rival_names or name in _converted(experiment):
        network = Network.parse(name)
        return replace(network_of(experiment, network.name), precision=network.precision)
    known = ", ".join((*experiment.rival_names, *experiment.mixture_names)) or (
        "none (rivals belong to searches with a goal whose operators are trained)"
    )
    raise SpecError(f'experiment "{experiment.name}" has no rival "{name}"; there are: {known}')


def evaluate_rival(experiment: Experiment, name: str, output: Path | None = None) -> RivalRecord:
    """Measure and train a rival, and write a record. Stored trainings are reused, also trainings of other experiments.

    Args:
        experiment: the experiment; its original network is trained with all seeds.
        name: a name in `experiment.rival_names` or `experiment.mixture_names`, or the key of a selected operator with "_int8"
            or "_bfloat16", whose trained network is converted.
        output: file of the record; by default in the folder of results.

    Raises:
        SpecError: the experiment has no such rival.
        DeviceError: the original itself cannot be measured, or a remote device does not answer.
    """
    began, found = datetime.now(UTC), dict[str, Any](state="ok")
    try:
        network = _network(experiment.use_code(), name)
    except UnknownNameError as error:
        if name not in experiment.mixture_names:
            raise
        return _written(experiment, Network(name), began, {"state": "failed", "reason": str(error)}, output)
    if network.precision is None:
        found |= _speed(experiment, network)
        if found["state"] == "ok":
            found |= _trainings(experiment, network)
    if found["state"] == "ok":
        precisions, speed = _precisions(experiment, network), found.get("speed")
        found["formats"] = {
            precision.name: _in_lower_precision(experiment, network.in_precision(precision), speed) for precision in precisions
        }
    return _written(experiment, network, began, found, output)


def _written(
    experiment: Experiment, network: Network, began: datetime, fields: dict[str, Any], output: Path | None
) -> RivalRecord:
    """Write the record of a rival with these fields, and return it."""
    operator = network.replacement
    record = RivalRecord(
        name=network.key,
        operator=None if operator is None else str(operator),
        seconds=(datetime.now(UTC) - began).total_seconds(),
        versions=versions(["torch", "torch-pruning", "torchao"]) | _code_of(experiment, operator),
        date=datetime.now(UTC),
        **fields,
    )
    record.write(output or rival_file(experiment, network.key))
    return record


def _code_of(experiment: Experiment, operator: AnyOperator | None) -> dict[str, str]:
    """Return {"own code": checksum} of the user's code that a rival depends on, for the record's versions; {} without any."""
    return version_of_code([json.loads(experiment.part("rivals")), code_in(operator)])


def _speed(experiment: Experiment, network: Network) -> dict[str, Any]:
    """Time a rival in turns with the original, and return the fields `speed`, `state` and `reason` of the record."""
    assert experiment.goal_pair is not None and network.replacement is not None
    replacement = as_replacement(network.replacement)
    with speedups_of(experiment, *experiment.goal_pair) as speedups:
        record: SpeedupRecord = speedups.of(replacement.structure, repeat=REPEATS if replacement.is_chosen_by_speed else 0)
    if record.status != "ok" or record.ratio is None or record.latency_ms is None or record.original_ms is None:
        return {"state": "failed", "reason": f"{record.status}: {' '.join(record.reason.split())}"}
    times = {"latency_ms": record.latency_ms, "original_ms": record.original_ms}
    speed = RivalSpeed(ratio=record.ratio, timed=IN_TURNS, **times)
    if record.ratio.high <= 1:
        return {"state": "slow", "reason": "not faster than the original, so it was not trained", "speed": speed}
    return {"state": "ok", "speed": speed}


def _trainings(experiment: Experiment, network: Network) -> dict[str, Any]:
    """Train a rival with each seed, and return the record's fields about the trainings."""
    try:
        for seed in experiment.train.seeds:
            _train(experiment, network, seed)
    except SynoError as error:
        return {"state": "failed", "reason": " ".join(str(error).split())}
    return {"seeds": experiment.train.seeds}


def _train(experiment: Experiment, network: Network, seed: int) -> None:
    """Train a rival with a seed, unless this experiment, or another one with an equal training, has the record."""
    from syno.train.training_record import TrainingRecord
    from syno.train.workload import Workload

    file, settings = training_file(experiment, network.key, seed), settings_of_training(experiment, network, seed)
    workload, operator = Workload(settings, experiment.network.data), network.replacement
    with suppress(SpecError):
        found = TrainingRecord.read(file)
        is_same_code = found.versions.get(OWN_CODE) == version_of_code(code_in(operator)).get(OWN_CODE)
        is_same_network = (found.data_hash, found.operator) == (workload.hash, str(operator)) and is_same_code
        if is_same_network and not differences_of_training(found, settings):
            return
    shared = STORE / f"{_identity(workload, operator, seed)}.json"
    with suppress(SpecError, OSError):
        found = TrainingRecord.read(shared).model_copy(update={"workload": settings})
        if found.weights is not None:
            write_whole(file.with_suffix(WEIGHTS), shared.with_suffix(WEIGHTS).read_bytes())
        found.write(file)
        return
    record = train(experiment, network, seed)
    with suppress(SpecError, OSError):  # if the store cannot be written, other experiments must train again; nothing is lost
        if record.weights is not None:
            write_whole(shared.with_suffix(WEIGHTS), file.with_suffix(WEIGHTS).read_bytes())
        record.write(shared)


def _identity(workload: Workload, operator: AnyOperator | None, seed: int) -> str:
    """Return the cache key of a training: a hash of everything on which its result depends, such as the content of a weights
    file.

    The workload's hash includes the user's own code that makes the network and the data.
    """
    settings = workload.settings.model_dump(mode="json", exclude={"weights"})
    made_by = versions(["torch", "torch-pruning"]) | version_of_code(code_in(operator))
    parts = [settings, workload.hash, str(operator), seed, made_by]
    return checksum(json.dumps(parts, sort_keys=True).encode())


def _precisions(experiment: Experiment, network: Network) -> list[NumberFormat]:
    """Return the number formats in which a network is tested after its training: its own format, or those in the settings.

    8-bit integers are for pruned networks and mixtures: known layers by themselves are slower in them.
    """
    if network.precision is not None:
        return [network.precision]
    is_quantized = network.replacement is not None and as_replacement(network.replacement).is_quantized
    return [NUMBER_FORMATS[name] for name in experiment.number_formats if is_quantized or name != INT8]


def _in_lower_precision(experiment: Experiment, network: Network, speed: RivalSpeed | None) -> InLowerPrecision:
    """Convert a rival's trained networks to the network's number format, test them, and measure their speed."""
    scores: dict[int, float] = {}
    assert network.precision is not None
    try:
        scores = {seed: _converted_score(experiment, network, seed) for seed in experiment.train.seeds}
        return InLowerPrecision(scores=scores, speed=_converted_speed(experiment, network, speed))
    except (SynoError, ImportError) as error:
        return InLowerPrecision(scores=scores, reason=f"in {network.precision.words}: {' '.join(str(error).split())}")


def _converted_score(experiment: Experiment, network: Network, seed: int) -> float:
    """Return the test score of a rival's trained network, converted to the network's number format."""
    from syno.train.lower_precision import converted_score
    from syno.train.weights import load_weights
    from syno.train.workload import Workload

    assert network.precision is not None
    settings = settings_of_training(experiment, network.as_trained, seed)
    workload, file = Workload(settings, experiment.network.data), training_file(experiment, network.name, seed)
    module = workload.network(network.replacement, seed)
    load_weights(module, file.with_suffix(WEIGHTS))
    return converted_score(module, network.precision.name, workload.data, settings.training, seed)


def _converted_speed(experiment: Experiment, network: Network, speed: RivalSpeed | None) -> RivalSpeed:
    """Return a converted network's speed with TorchInductor's kernels for its number format, timed apart from the original.

    The original's latency is taken from a measurement in turns with this rival, or with another; without one it is measured.
    """
    assert experiment.goal_pair is not None and network.precision is not None
    compiler, device = experiment.goal_pair
    others = (record.speed for record in rivals_of(experiment).values())
    known = next((one for one in (speed, *others) if one is not None), None)
    original = _latency(experiment, Network(ORIGINAL), compiler, device) if known is None else known.original_ms
    own = _latency(experiment, network.as_trained, network.precision.compilers[0], device)
    ratio = Interval(original.value / own.value, original.low / own.high, original.high / own.low)
    return RivalSpeed(ratio=ratio, timed=APART, latency_ms=own, original_ms=original)


def _latency(experiment: Experiment, network: Network, compiler: str, device: str) -> Interval:
    subject = network_to_measure(experiment, network, compiler, device)
    record = measured(experiment, subject, compiler, device, f"{network.key}, {compiler} on {device}")
    if record.status != "ok" or record.latency_ms is None:
        raise SpecError(record.reason)
    low, high = (record.latency_ms if end is None else end for end in (record.latency_low_ms, record.latency_high_ms))
    return Interval(record.latency_ms, low, high)


class TrainedRival(NamedTuple):
    """The original or a rival that was timed and trained: a network without synthesis.

    Attributes:
        name: the network's key.
        speedup: its speedup over the original.
        scores: the scores of its trainings, one for each seed.
    """

    name: str
    speedup: Interval
    scores: tuple[float, ...]


def trained_rivals(experiment: Experiment) -> list[TrainedRival]:
    """Return the original network and the rivals, including those in lower precision, that were timed and trained.

    Raises SpecError, which names the command to run, if a record of a rival or a training is missing, or of other settings.
    """
    missing = [name for name in experiment.rival_names if not rival_file(experiment, name).is_file()]
    if missing:
        raise SpecError(
            f"the search begins with the records of its rivals, and {rival_file(experiment, missing[0])} is not there; run "
            f"`syno baseline CONFIG {ORIGINAL}`, and `syno rival CONFIG NAME` for {', '.join(missing)}; or run all with "
            "`syno run CONFIG`"
        )
    found = [TrainedRival(ORIGINAL, Interval(1.0), _scores(experiment, ORIGINAL))]
    for name in experiment.rival_names:
        file = rival_file(experiment, name)
        record = RivalRecord.read(file)
        if record.versions.get(OWN_CODE) != _code_of(experiment, _network(experiment, name).replacement).get(OWN_CODE):
            raise SpecError(
                f"{file} was made with other code than {experiment.name} has now; the search begins with "
                f"its rivals: run `syno rival CONFIG {name}` again, or all with `syno run CONFIG`"
            )
        if record.speed is not None and record.seeds:
            found.append(TrainedRival(name, record.speed.ratio, _scores(experiment, name)))
        for key, one in record.converted.items():
            if one.speed is not None and one.scores:
                _scores(experiment, Network.parse(key).name)  # raises if these are not the trainings that were converted
                found.append(TrainedRival(key, one.speed.ratio, tuple(one.scores.values())))
    return [one for one in found if all(map(isfinite, one.scores))]


def _scores(experiment: Experiment, name: str) -> tuple[float, ...]:
    """Return the scores of a network after the trainings with all seeds. SpecError if one is missing, or of other settings."""
    from syno.train.training_record import TrainingRecord
    from syno.train.workload import Workload

    scores = []
    for seed in experiment.train.seeds:
        file, settings = training_file(experiment, name, seed), settings_of_training(experiment, name, seed)
        record, data = TrainingRecord.read(file) if file.is_file() else None, Workload(settings, experiment.network.data).hash
        if record is None or record.data_hash != data or differences_of_training(record, settings):
            what = "is not there" if record is None else "is of other settings than the search, so delete it"
            raise SpecError(
                f"{file} {what}; the search begins with the scores of its rivals: run `syno train CONFIG {name} --seed "
                f"{seed}`, or all with `syno run CONFIG`"
            )
        scores.append(record.score)
    return tuple(scores)


def speeds_of_rivals(rivals: Mapping[str, RivalRecord]) -> dict[str, tuple[str, Interval]]:
    """Return for each rival, by its key, how it was timed (in turns or separately), and its speedup."""
    found: dict[str, tuple[str, Interval]] = {}
    for record in rivals.values():
        if record.speed is not None:
            found[record.name] = (record.speed.timed, record.speed.ratio)
        for key, one in record.converted.items():
            if one.speed is not None:
                found[key] = (one.speed.timed, one.speed.ratio)
    return found


def rows_of_rivals(experiment: Experiment, *, converted_only: bool = True) -> Iterator[Measurement]:
    """Yield the scores and costs in rivals' records: of converted networks only, or of all rivals.

    Trained rivals are in the table by the records of their trainings already.
    """
    from syno.train.training_record import TrainingRecord

    for record in rivals_of(experiment).values():
        for seed in () if converted_only else record.seeds:
            file = training_file(experiment, record.name, seed)
            yield from rows_of_training(TrainingRecord.read(file), file.name, key=record.name, role=Role.RIVAL.value)
        source = rival_file(experiment, record.name).relative_to(experiment.folder).as_posix()
        trained, is_rival = Network.parse(record.name).as_trained, record.name in experiment.rival_names
        roles = {} if is_rival else {network.name: network.role for network in compared_networks(experiment)}
        role = Role.RIVAL if is_rival else roles.get(trained.name) or Role.FOUND
        for name, in_precision in record.formats.items():
            network = replace(trained, precision=NUMBER_FORMATS[name], role=role)
            for seed, score in in_precision.scores.items():
                file = training_file(experiment, network.name, seed)
                if file.is_file():
                    before = TrainingRecord.read(file)
                    shown = Network(before.name, network.precision).key
                    after = before.model_copy(update={"name": shown, "score": score, "int8_score": None})
                    yield from rows_of_training(after, source, **network.columns, note=NUMBER_FORMATS[name].note)


def with_latencies(rows: pandas.DataFrame, experiment: Experiment) -> pandas.DataFrame:
    """Add the latencies of an experiment's rivals, which are in their records only, to its table of measurements.

    Each row copies device and settings from the original's latency with the same compiler; without one, the rival has no row.
    """
    import pandas

    if experiment.goal_pair is None:
        return rows
    compiler, device = experiment.goal_pair
    is_original = (rows["key"] == ORIGINAL) & (rows["metric"] == "latency") & (rows["status"] == OK) & rows["layer"].isna()
    originals = rows[is_original & (rows["device_setting"] == device)].drop_duplicates("compiler")
    originals = originals.set_index("compiler", drop=False)
    known = (
        rows[(rows["role"] == Role.RIVAL.value) & rows["metric"].isin(list(METRICS))]
        .drop_duplicates("key")
        .set_index("key", drop=False)
    )
    found = [rows]
    for record in rivals_of(experiment).values():
        converted = [(key, CONVERTING, one.speed) for key, one in record.converted.items()]
        for key, by, speed in ((record.name, compiler, record.speed), *converted):
            if speed is not None and key in known.index and by in originals.index:
                own: dict[str, Any] = {
                    **known.loc[key, ["operator", "operator_id", "key", "role"]],
                    **speed.latency_ms._asdict(),
                }
                source = rival_file(experiment, record.name).relative_to(experiment.folder).as_posix()
                own |= {"source": source, "when": record.date, "note": f"timed {speed.timed}"}
                own |= {"repeats": pandas.NA, "checked": pandas.NA}
                found.append(originals.loc[[by]].assign(**own))
    return pandas.concat(found, ignore_index=True)


def rival_lines(experiment: Experiment) -> list[str]:
    """Return a line with speedup and score for each rival, the most accurate first; [] where none was trained yet."""
    known = speeds_of_rivals(rivals_of(experiment))
    scores: dict[str, list[float]] = {}
    metric = None
    for row in rows_of_rivals(experiment, converted_only=False):
        if row.metric in METRICS and row.value is not None and row.key is not None:
            metric = METRICS[row.metric]
            scores.setdefault(row.key, []).append(row.value)
    if metric is None:
        return []
    found = [(metric.quality(mean(given)), key, metric.text(mean(given)), len(given)) for key, given in scores.items()]
    return [
        rival_text(key, known[key][1] if key in known else None, f"{metric.name} {text}", count)
        for _, key, text, count in sorted(found, reverse=True)
    ]
