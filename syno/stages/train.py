"""Trainings of selected operators and baselines: a record for each network and seed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

from syno.base.errors import SpecError, UnknownNameError, suggestion
from syno.base.files import ORIGINAL
from syno.base.gpu_leases import leased
from syno.base.identity import OWN_CODE, version_of_code
from syno.base.registry import own_paths
from syno.config import Experiment
from syno.config.stages import RivalSettings
from syno.model.networks import Network, Role
from syno.model.replacements import code_in
from syno.stages.operators import keep_operator, network_of
from syno.stages.places import WEIGHTS, training_file

if TYPE_CHECKING:
    from syno.base.devices import Gpu
    from syno.train.processes import Processes
    from syno.train.settings import TrainingSettings, WorkloadSettings
    from syno.train.training_record import TrainingRecord


def train(experiment: Experiment, name: str | Network, seed: int, output: Path | None = None) -> TrainingRecord:
    """Train the original network, or the network with an operator, and write a record. Resumes an interrupted training.

    Args:
        experiment: the experiment; its `train: training` overrides the workload's.
        name: "original", a baseline, or an operator's id, name or file.
        seed: seed of the weights and of the order of samples.
        output: file of the record; by default in the folder of results.

    Raises SpecError if the operator does not fit the network, UnknownNameError if there is no such operator.
    """
    network = network_of(experiment.use_code(), name)  # which raises what is wrong with it, before a GPU is taken
    if experiment.workload is None:
        experiment.network  # noqa: B018  (raises that there is none)
    settings = settings_of_training(experiment, network, seed)
    _require_trained(experiment, settings, seed)
    keep_operator(experiment, network)
    file = output or training_file(experiment, network.key, seed)
    if settings.training.processes == 1:
        experiment.network  # noqa: B018  (loads the data, before a GPU is taken)
    with _leased(settings.training):
        if settings.training.processes == 1:
            record = _trained(experiment, network, settings, seed, file)
        else:
            from syno.train.processes import together

            arguments = (experiment.model_dump(), network.key, seed, file)
            record = together(_share, arguments, settings.training.processes, settings.training.device)
    record.write(file)
    return record


def _leased(training: TrainingSettings) -> AbstractContextManager[Gpu | None]:
    return leased(training.device, "training.device", count=training.processes)


def _trained(
    experiment: Experiment,
    network: Network,
    settings: WorkloadSettings,
    seed: int,
    file: Path,
    processes: Processes | None = None,
) -> TrainingRecord:
    """Train a network, and return the record of `file`. `processes` train together; None: this process trains alone."""
    from syno.train.processes import ALONE
    from syno.train.training_record import TrainingRecord
    from syno.train.workload import Workload

    of = processes or ALONE
    workload = Workload(settings, experiment.network.data)
    weights, int8 = weights_file(experiment, file, network), experiment.train.int8 and network.is_original
    return TrainingRecord.make(
        workload, network.replacement, seed, file.with_suffix(".checkpoint"), weights=weights, int8=int8, processes=of
    )


def _share(processes: Processes, fields: Mapping[str, Any], key: str, seed: int, file: Path) -> TrainingRecord:
    """Train in one of several processes; `fields` are those of the experiment, which the process makes again."""
    experiment = Experiment(**fields).use_code()
    with processes.first_alone():  # which may have to download the data, or to check it
        experiment.network  # noqa: B018
    network = network_of(experiment, key)
    return _trained(experiment, network, settings_of_training(experiment, network, seed), seed, file, processes)


def weights_file(experiment: Experiment, record: Path, network: Network) -> Path | None:
    """Return the file of the weights of the training with this record; None if the experiment keeps none of this network.

    Weights of the original are kept if another network's training begins with them.
    """
    is_kept = {"all": True, "operators": network.role not in (Role.ORIGINAL, Role.BASELINE), "none": False}
    others = (OPERATOR, *experiment.rival_names)
    is_read = network.is_original and any(begins_trained(experiment, name) for name in others)
    return record.with_suffix(WEIGHTS) if is_read or is_kept[experiment.train.weights] else None


OPERATOR = "operator"  # in place of the key of any network with an operator


def begins_trained(experiment: Experiment, name: str | Network) -> bool:
    """Return whether a network's training needs the trained original: for its weights, or to learn from its outputs."""
    workload, network = experiment.workload, Network.parse(name)
    if workload is None or network.is_original:
        return False
    return network.begins_trained or (experiment.train.training or workload.training).uses_trained


def trained_original(experiment: Experiment, name: str | Network, seed: int) -> Path | None:
    """Return the record of the original's training with whose weights a network's training begins; None if there is none."""
    workload = experiment.workload
    if workload is None or not begins_trained(experiment, name):
        return None
    training = experiment.train.training or workload.training
    is_given = workload.weights is not None and not training.train_original
    return None if is_given else training_file(experiment, ORIGINAL, seed)


def _require_trained(experiment: Experiment, settings: WorkloadSettings, seed: int) -> None:
    """Raise SpecError if a training begins with the original's weights, and their file is missing."""
    file = training_file(experiment, ORIGINAL, seed).with_suffix(WEIGHTS)
    if settings.weights == str(file) and not file.is_file():
        raise SpecError(
            f"{file} is not there, and this training begins with the trained original; train that first (`syno baseline "
            f"{experiment.folder} {ORIGINAL}`), or run the workflow"
        )


def train_baselines(
    experiment: Experiment, names: Sequence[str] = (), seeds: Sequence[int] | None = None
) -> Iterator[tuple[TrainingRecord, bool]]:
    """Train the original network and baselines; yields each record and whether it is new.

    Existing records are kept, unless the user's own code or data in them has changed.

    Args:
        experiment: the experiment.
        names: "original" and names of baselines; by default the original and all baselines.
        seeds: seeds of the trainings; by default `train: seeds`.

    Raises UnknownNameError for an unknown name, before anything is trained.
    """
    from syno.train.training_record import TrainingRecord

    known = (ORIGINAL, *experiment.baselines)
    for name in names:
        if name not in known:
            raise UnknownNameError(
                f'experiment "{experiment.name}" has no baseline "{name}"; there are: {", ".join(known)}.'
                f"{suggestion(name, known)} Others are added under train: baselines"
            )
    with ExitStack() as stack:
        for name in names or known:
            for seed in experiment.train.seeds if seeds is None else seeds:
                file = training_file(experiment, name, seed)
                is_new = not file.exists() or not _is_of_this_code(experiment, name, seed, file)
                if is_new:  # all trainings of this process are on one GPU
                    stack.enter_context(_leased(settings_of_training(experiment).training))
                yield train(experiment, name, seed) if is_new else TrainingRecord.read(file), is_new


def _is_of_this_code(experiment: Experiment, name: str, seed: int, file: Path) -> bool:
    """Return whether a record was made with the user's own code as it is now; true if network and data are built in."""
    from syno.train.training_record import TrainingRecord
    from syno.train.workload import Workload

    settings, operator = settings_of_training(experiment, name, seed), network_of(experiment, name).replacement
    own = [settings.model_dump(mode="json"), code_in(operator)]
    if not any(own_paths(own)):
        return True
    record, code = TrainingRecord.read(file), version_of_code(code_in(operator))
    is_same = Workload(settings, experiment.network.data).hash == record.data_hash
    return is_same and record.versions.get(OWN_CODE) == code.get(OWN_CODE)


def settings_of_training(experiment: Experiment, name: str | Network = ORIGINAL, seed: int = 0) -> WorkloadSettings:
    """Return the workload with the settings of `train: training`, without milestones. The experiment has a workload.

    A pruned network begins with the original's weights, those of its training with this seed or those it came with, and gets
    a lower learning rate. With `training: initialization: fit` or `distill`, other networks begin with them at the usual rate.
    """
    workload, training = experiment.workload, experiment.train.training
    assert workload is not None
    training = training or workload.training
    changes: dict[str, object] = {"training": training, "milestones": {}}  # milestones stop trials of a search
    if Network.parse(name).begins_trained:
        factor = RivalSettings().learning_rate if experiment.rivals == "none" else experiment.rivals.learning_rate
        changes["training"] = training.model_copy(update={"learning_rate": factor * training.learning_rate})
    if (original := trained_original(experiment, name, seed)) is not None:
        changes["weights"] = str(original.with_suffix(WEIGHTS))
    return workload.model_copy(update=changes)
