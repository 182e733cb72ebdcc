"""The settings that a file of results was made with, and their comparison with the settings of an experiment.

A record carries the settings that it depends on, under their names in an experiment's file: a training its workload, a
measurement its network and its settings of latency. The file `experiment.yaml` beside the results carries the settings of the
whole run, and the study the settings of its trials. Readers of records call `check` once; commands that continue in a folder of
results call `check_goes_on`, and commands that show results `check_shown`. All of them name the settings that differ.

Files are compared by their content, and not by their place: a folder of results may be copied or moved.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from syno.base.addresses import without_passwords
from syno.base.errors import SpecError, SynoError
from syno.base.files import ORIGINAL, checksum, write_whole
from syno.base.registry import is_path, own_paths
from syno.base.validation import named_differences, read_mapping
from syno.config import AnyExperiment, Experiment
from syno.config.files import in_place
from syno.config.kept_file import HEAD, KEPT
from syno.config.left_out import decided
from syno.measure.compilers import compiler_facts
from syno.measure.tuning import tolerant
from syno.model.networks import Network, Role
from syno.model.placed import OPTIONAL
from syno.stages.data import DataRecord
from syno.stages.places import DATA
from syno.stages.train import settings_of_training

if TYPE_CHECKING:
    from syno.measure.speedup_record import SpeedupRecord
    from syno.measure.tuning_record import MeasuredSubject, MeasurementRecord
    from syno.train.settings import WorkloadSettings
    from syno.train.training_record import TrainingRecord

OWNER_ONLY, OF_OTHERS = 0o600, 0o077  # permissions of a file
MAY_CHANGE = ("n_trials", "heartbeat_seconds", "grace_seconds")  # settings of a study that may change later
WHERE = {"device", "threads", "compile"}  # settings of a training that do not change its result
IN_RESULTS = ("train", ORIGINAL)  # where the weights are that later trainings of an experiment begin with


def check(
    file: Path,
    record: TrainingRecord | MeasurementRecord | SpeedupRecord,
    experiment: Experiment,
    network: Network,
    again: str = "",
) -> None:
    """Raise SpecError if the record in a network's file is of another network, or was made with other settings.

    The message names the settings that differ, and the command `again`, which makes the record (by default that of its kind).
    """
    command = f"run `{again}`" if again else record.again
    if not _is_of(record, network):
        raise SpecError(
            f"{file} is the record of {record.name} ({record.operator_id or 'the network as it is'}), not of {network.key}; "
            f"delete it and {command} again"
        )
    differences = () if experiment.workload is None else dict.fromkeys(_differences(record, experiment, network))
    if differences:
        raise SpecError(
            f"{file} is of other settings than the experiment: {'; '.join(differences)}. Take these settings back, or delete "
            f"the file and {command} or the workflow again"
        )


def _is_of(record: TrainingRecord | MeasurementRecord | SpeedupRecord, network: Network) -> bool:
    """Return whether a record describes this network; false if the file was copied into the wrong folder."""
    match network.role:
        case Role.ORIGINAL:
            return record.operator_id is None
        case Role.BASELINE | Role.RIVAL:
            return record.operator_id is not None
        case _:  # by the key of an operator, or the name of a mixture
            return record.operator_id is not None and network.key in (record.operator_id[: len(network.key)], record.name)


def _differences(
    record: TrainingRecord | MeasurementRecord | SpeedupRecord, experiment: Experiment, network: Network
) -> Iterator[str]:
    from syno.measure.speedup_record import SpeedupRecord
    from syno.measure.tuning_record import MeasurementRecord

    if isinstance(record, MeasurementRecord | SpeedupRecord):
        for measured in record.measured:
            yield from _differences_of_measurement(measured, experiment)
        return
    yield from differences_of_training(record, settings_of_training(experiment, network, record.seed))
    if experiment.train.int8 and record.operator is None and record.int8_score is None and record.stopped is None:
        yield from named_differences(False, True, "train.int8")  # the trained original was not tested in 8-bit integers


def differences_of_training(record: TrainingRecord, settings: WorkloadSettings) -> list[str]:
    """Return the differences between a record's settings and a training's settings, in words; [] if the scores are comparable.

    The seed and the device may differ. Initial weights are compared by their checksum; in records without one, weights in the
    folder of results are compared by their path there.
    """
    is_alike = _begin_alike(record, settings)
    ignored: dict[str, Any] = {"seed": True, "milestones": True, "training": WHERE, "weights": is_alike}
    there, here = (one.model_dump(mode="json", exclude=ignored) for one in (record.workload, settings))
    has_changed = not is_alike and record.workload.weights == settings.weights
    changed = [f"workload.weights: the content of {settings.weights} has changed since then"] if has_changed else []
    return [*named_differences(there, here, "workload"), *changed]


def _begin_alike(record: TrainingRecord, settings: WorkloadSettings) -> bool:
    if record.workload.weights is None or settings.weights is None:
        return record.workload.weights == settings.weights
    there, here = Path(record.workload.weights), Path(settings.weights)
    if record.initial_weights is not None and here.is_file():
        return record.initial_weights == checksum(here.read_bytes())
    return there == here or (there.parts[-3:] == here.parts[-3:] and here.parts[-3:-1] == IN_RESULTS)


def _differences_of_measurement(measured: MeasuredSubject, experiment: Experiment) -> list[str]:
    settings, compiler = measured.settings, measured.compiler
    subject = measured.subject.model_dump(mode="json")
    workload = settings_of_training(experiment).model_dump(mode="json", exclude={"weights"})  # no speed depends on weights
    if not compiler:  # PyTorch trained the networks, with all settings of the workload
        there = {"workload": {name: subject.get(name) for name in workload}, "speed": settings.model_dump(mode="json")}
        return named_differences(there, {"workload": workload, "speed": experiment.tune.speed.model_dump(mode="json")})
    names = [name for name in ("model", *OPTIONAL, "width", "layers") if name in subject or name in OPTIONAL]
    latency = tolerant(experiment.tune.latency, compiler_facts(compiler))
    least = getattr(settings, "tolerance", None) or 0.0
    if is_path(compiler) and least > (latency.tolerance or 0.0):
        latency = latency.model_copy(update={"tolerance": least})  # of the compiler, which only its code says
    there = {"workload": {name: subject.get(name) for name in names}, "latency": settings.model_dump(mode="json")}
    here = {"workload": {name: workload.get(name) for name in names}, "latency": latency.model_dump(mode="json")}
    return named_differences(there, here)


def check_same_data(record: TrainingRecord, first: TrainingRecord, experiment: Experiment) -> None:
    """Raise SpecError if two trainings of equal settings do not compare: data, weights or own code changed between them."""
    if record.data_hash != first.data_hash:
        raise SpecError(
            f"the records of {record.name} in {experiment.folder / 'train'} are of another network, data set or training "
            "than others there; delete those that were made with other settings, and train again"
        )


def write_kept(experiment: AnyExperiment) -> Path:
    """Write the experiment into `experiment.yaml` beside its results, without a check; return the file.

    Jobs read the storage's address in it, so a password in this address stays there, and only the file's owner can read it.
    """
    import yaml

    file = experiment.folder / KEPT
    text = f"{HEAD}{yaml.safe_dump(experiment.model_dump(mode='json'), sort_keys=False)}"
    is_secret = without_passwords(text) != text
    is_written = file.is_file() and file.read_bytes() == text.encode()
    if not is_written or (is_secret and file.stat().st_mode & OF_OTHERS):
        write_whole(file, text, mode=OWNER_ONLY if is_secret else None)
    return file


def read_kept(folder: Path) -> AnyExperiment | None:
    """Return the experiment in the file `experiment.yaml` beside results; None if there is no file, or it is damaged."""
    try:
        return read_known(folder / KEPT)
    except SynoError:
        return None


def read_known(file: Path) -> AnyExperiment | None:
    """Return the experiment in a file `experiment.yaml`; None if there is no file, or it is damaged.

    Raises SpecError if it has settings that this version does not know, since their effect on the results is unknown.
    """
    try:
        kept = AnyExperiment.load(file)
    except SynoError as error:
        try:
            read_mapping(file, "an experiment", Experiment)
        except SynoError:
            return None
        raise SpecError(
            f"{file} has settings that this version of Syno does not have: {error}. Take them out of that file to go on "
            "without them, or give the experiment another name to begin a new one"
        ) from None
    return decided(in_place(kept, file.parent))


def check_shown(experiment: AnyExperiment) -> None:
    """Raise SpecError, with the settings that differ, if existing results are of other settings."""
    check_placed(experiment)
    folder, kept = experiment.folder, read_known(experiment.folder / KEPT)
    if kept is None:
        return
    shown = named_differences(_settings_of_results(kept), _settings_of_results(experiment))
    if differences := dict.fromkeys([*differences_of_searches(kept, experiment), *shown]):  # both name the workload
        raise SpecError(
            f"the results in {folder} are of other settings, as {folder / KEPT} says: {'; '.join(differences)}. Give {folder} "
            "in place of the config to see them, or give another name to begin an experiment of these settings"
        )


def check_placed(experiment: AnyExperiment) -> None:
    """Raise SpecError if the network of the results has another operator of an experiment that went first."""
    file = experiment.folder / DATA
    if not isinstance(experiment, Experiment) or experiment.after is None or experiment.workload is None:
        return
    if not (experiment.workload.placed and file.is_file()):
        return
    there = list(dict.fromkeys(DataRecord.read(file).placed.values()))
    here = list(dict.fromkeys(placed.replacement.name for placed in experiment.workload.placed))
    if there and there != here:
        raise SpecError(
            f"the results in {experiment.folder} are of a network with {' and '.join(there)}, and that of the experiment would "
            f"have {' and '.join(here)}. To go on with them, name the operator, as in after: {{source: "
            f"{experiment.after.source}, operator: {there[-1]}}}, or give the experiment another name to begin a new one"
        )


def differences_of_searches(kept: AnyExperiment, current: AnyExperiment) -> list[str]:
    """Return the differences between settings that trials depend on, in words; empty if the study can continue.

    Settings that name user code are compared as text, since looking at results does not import this code.
    """
    if not (isinstance(kept, Experiment) and isinstance(current, Experiment) and kept.searches and current.searches):
        return []
    there, here = _settings_of_search(kept), _settings_of_search(current)
    if there == here or any(own_paths([there, here])):
        return named_differences(there, here)
    try:  # the texts differ, but their meaning may be the same
        return named_differences({**there, **_meaning_of_search(kept)}, {**here, **_meaning_of_search(current)})
    except SynoError:  # for example, the data is not on this machine
        return named_differences(there, here)


def _settings_of_search(experiment: Experiment) -> dict[str, Any]:
    """Return the settings that all trials of a study depend on, as written."""
    whole: dict[str, Any] = json.loads(experiment.part("search"))
    study = {name: value for name, value in whole["study"].items() if name not in MAY_CHANGE}
    goal = {"goal": {**whole["goal"], "most_screened": None}} if whole["goal"] is not None else {}
    return {**whole, "study": study, **goal}


def _meaning_of_search(experiment: Experiment) -> dict[str, Any]:
    """Return the meaning of those settings that can be written in several ways."""
    return {
        "spec": experiment.operator_spec.model_dump(mode="json"),
        "relative_budget": None,  # it is in the spec
        "evaluate": experiment.evaluation,
        "reward": experiment.make_reward().settings(),
        "policy": {"name": experiment.policy_name, **experiment.policy_settings.model_dump(mode="json")},
    }


def _settings_of_results(experiment: AnyExperiment) -> dict[str, Any]:
    """Return the settings on which tables, figures and the page depend, apart from the search's settings."""
    if not isinstance(experiment, Experiment) or experiment.workload is None:
        return {}
    whole = experiment.model_dump(mode="json")
    told = {"workload": whole["workload"], "train": whole["train"], "tune": {"latency": whole["tune"]["latency"]}}
    return {**told, "select": {"source": whole["select"]["source"]}}
