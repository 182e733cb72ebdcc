"""Export of a trained network of an experiment, with its weights, into a folder of its own."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from syno.base.errors import DataError, RunsCodeError, SpecError
from syno.base.files import ORIGINAL
from syno.base.registry import code_file, own_paths, reading_only
from syno.base.text_tables import markdown, plural
from syno.base.user_code import is_installed
from syno.config import Experiment
from syno.config.kinds import RESULTS
from syno.model.networks import Network
from syno.model.replacements import code_in
from syno.run import FOLDER, SCORES
from syno.stages.data import DataRecord, look
from syno.stages.measure import subject_of
from syno.stages.measurements import KINDS
from syno.stages.operators import network_of
from syno.stages.places import DATA, WEIGHTS, trained_seeds, training_file
from syno.stages.results import StoredRun
from syno.stages.top import summary
from syno.train.metric import METRICS

if TYPE_CHECKING:
    from torch import nn

    from syno.export.network_folder import TrainedNetwork
    from syno.measure.tuning_record import TuningRecord
    from syno.train.settings import WorkloadSettings
    from syno.train.training_record import TrainingRecord


def take_network(
    experiment: Experiment,
    name: str,
    folder: Path | None = None,
    formats: Sequence[str] = ("module",),
    seed: int | None = None,
    *,
    run_code: bool = True,
) -> list[str]:
    """Write a trained network of an experiment into a folder that can be used without Syno; return sentences on the files.

    The network is run, to compare its outputs. User code that makes the network or the data is imported.

    Args:
        experiment: the experiment that trained the network.
        name: "original", a baseline, or an operator's id, name or file.
        folder: the folder to write; by default a folder with the operator's name in the working directory.
        formats: names in `syno.export.network_formats.NETWORK_FORMATS`.
        seed: seed of the training; None: the seed with the best score, if possible among the seeds in the settings.
        run_code: whether user code may run from any place. If false, only code in the working directory or on Python's path may
            run, but not code in a folder of results or in an installed package.

    Raises:
        RunsCodeError: the network needs code that may not run.
        UnknownNameError: there is no such operator or format.
        SpecError: the network was not trained, or its weights were not kept.
        DataError: the weights are damaged.
        LoweringError, WrongOutputError: see `syno.export.network_folder.write_network`.
    """
    from syno.export.network_folder import write_network

    network, record, weights = _training(experiment, name, seed)
    with _code(experiment, network, record, run_code=run_code):
        found = _trained(experiment, network, record, weights)
        return write_network(found, folder or Path(found.name), formats)


def trained_network(experiment: Experiment, name: str, seed: int | None = None) -> nn.Module:
    """Return a trained network of an experiment, in evaluation mode; code of one's own that makes it is imported.

    Args:
        experiment, name, seed: as for `take_network`.

    Raises UnknownNameError, SpecError and DataError as `take_network`.
    """
    network, record, weights = _training(experiment, name, seed)
    experiment.find_code()
    return _trained(experiment, network, record, weights).network


def record_taken(experiment: Experiment, name: str) -> TrainingRecord:
    """Return the record of the training whose network `trained_network` returns. Raises the same errors."""
    return _training(experiment, name, None)[1]


def _code(experiment: Experiment, network: Network, record: TrainingRecord, *, run_code: bool) -> AbstractContextManager[None]:
    """Return the context in which the network is made: imports of user code are blocked, unless the network needs them.

    Raises RunsCodeError if it needs code that may not run.
    """
    made_by = record.workload
    named = list(dict.fromkeys(own_paths([made_by.model, *_of_data(made_by), made_by.layers, *code_in(network.replacement)])))
    if not named:
        return reading_only("`syno get`")
    strange = [] if run_code else [path for path in named if not _is_ours(path, experiment)]
    if strange:
        lies = code_file(strange[0], experiment.code)
        raise RunsCodeError(
            f'{network.key} of {experiment.folder} is made by "{strange[0]}"{"" if lies is None else f" ({lies})"}, and `syno '
            "get` would have to run it; if you trust this code, add --run-code"
        )
    experiment.find_code()
    return nullcontext()


def _of_data(made_by: WorkloadSettings) -> list[str]:
    """Return the names or import paths of the data set or task, of its score, and of the function of example inputs."""
    return [made_by.data, *(path for path in (made_by.score, made_by.example_inputs) if path is not None)]


def _is_ours(path: str, experiment: Experiment) -> bool:
    """Return whether code is the user's own: on Python's path, or in the working directory.

    Code in a folder of results is not, since a stranger may have sent it; nor are installed packages, whose functions a
    stranger's settings could misuse.
    """
    file = code_file(path, experiment.code)
    if file is None or is_installed(file):
        return False
    found = file.resolve()
    here, code = Path.cwd(), experiment.code
    is_elsewhere = code is not None and found.is_relative_to(code.resolve()) and not code.resolve().is_relative_to(here)
    return not is_elsewhere and not any(found.is_relative_to(place.resolve()) for place in (experiment.folder, RESULTS))


def _training(experiment: Experiment, name: str, seed: int | None) -> tuple[Network, TrainingRecord, Path]:
    """Return a network, the record of its training (with `seed`, or the best one), and the file of the weights."""
    from syno.train.training_record import TrainingRecord

    converted = Network.parse(name)
    if converted.precision is not None:
        raise SpecError(
            f"{name} is {converted.name}, {converted.precision.note}, and only its score and its speed are kept; take "
            f"{converted.name}, and convert it for your device (docs/evaluation.md says how it was done here)"
        )
    network = network_of(experiment, name)
    there = trained_seeds(experiment, network.key)
    # Those of the config first: other ones may have been trained with other settings.
    seeds = [one for one in experiment.train.seeds if one in there] or there if seed is None else {seed} & set(there)
    files = [training_file(experiment, network.key, one) for one in seeds]
    if not files and not name.endswith(".txt") and Path(f"{name}.txt").is_file():  # as it was named to train it
        return _training(experiment, f"{name}.txt", seed)
    if not files:
        with_seed = "" if seed is None else f" with seed {seed}"
        others = f"; it was with the seeds {', '.join(map(str, there))}" if there else ""
        raise SpecError(
            f"{name} was not trained{with_seed} in {experiment.folder}{others}; `syno train` and the workflow train it"
        )
    records = [(TrainingRecord.read(file), file.with_suffix(WEIGHTS)) for file in files]
    kept = [(record, weights) for record, weights in records if record.weights is not None and weights.is_file()]
    if not kept:
        raise SpecError(
            f"no training of {name} in {files[0].parent} has kept its weights; with train: weights: all in the config, delete "
            f"{files[0].name} and run `syno train` or the workflow again"
        )
    sign = 1 if METRICS[kept[0][0].metric].more_is_better else -1
    return network, *max(kept, key=lambda pair: sign * pair[0].score)


def _trained(experiment: Experiment, network: Network, record: TrainingRecord, weights: Path) -> TrainedNetwork:
    from syno.export.comparison import Calls
    from syno.export.network_folder import TrainedNetwork
    from syno.model.substitution import substitute
    from syno.train.weights import load_weights

    operator, made = network.replacement, experiment.folder / DATA
    data = DataRecord.read(made) if made.is_file() else look(experiment)
    subject = subject_of(record.workload, data, operator, "eager")
    module, example = subject.backbone(), subject.example(1)
    if operator is not None:
        module = substitute(module, operator, example, where=record.workload.layers)
    load_weights(module, weights, record.weights)
    measured = _measured_with_kernels(experiment, network)
    timing = experiment.tune.latency if measured is None else measured.settings
    return TrainedNetwork(
        name=record.name,
        operator=record.operator,
        network=module.eval(),
        example=example,
        symbols=subject.symbols,
        facts=_facts(experiment, record, data),
        sections=_sections(experiment, record, data),
        score=_score(experiment, record),
        recorded=record.score,
        calls=Calls(batch=timing.batch, threads=timing.threads),
        kernels=measured is not None or _has_a_goal_with_kernels(experiment),
    )


def _has_a_goal_with_kernels(experiment: Experiment) -> bool:
    """Return whether the goal of the experiment is a speedup with native kernels on this machine."""
    goal = experiment.goal
    return goal is not None and (goal.compiler, goal.device) == ("native", "cpu")


def _measured_with_kernels(experiment: Experiment, network: Network) -> TuningRecord | None:
    """Return the record of the network's latency with native kernels on this machine; None if there is none."""
    from syno.measure.tuning_record import TuningRecord

    file = KINDS["tune"].file(experiment, network.key, "native", "cpu")
    with suppress(SpecError):  # damaged
        found = TuningRecord.read(file) if file.is_file() else None
        return found if found is not None and found.latency_ms is not None else None
    return None


def _score(experiment: Experiment, record: TrainingRecord) -> Callable[[nn.Module], float] | None:
    """Return a function that scores a network on the test data as in the training; None if the data cannot be read."""
    import torch

    from syno.train.own_task import Task
    from syno.train.tasks import task_of
    from syno.train.training import score_now

    try:
        data = experiment.network.data
    except DataError:
        return None
    settings = record.workload.training.model_copy(update={"channels_last": False, "device": "cpu"})
    if isinstance(data, Task) and data.fits:
        return partial(score_now, task=data)
    return task_of(data, settings, record.seed, torch.device("cpu")).score


def _facts(experiment: Experiment, record: TrainingRecord, data: DataRecord) -> dict[str, object]:
    return {
        "name": record.name,
        "experiment": experiment.name,
        "model": record.workload.model,
        "operator_id": record.operator_id,
        "placed": dict(data.placed),
        "layers": list(data.layers),
        "input": list(data.image_shape or ([data.length] if data.inputs is None else data.shapes)),
        "classes": data.classes,
        "data": record.workload.data,
        "data_hash": record.data_hash,
        "metric": METRICS[record.metric].name,
        "score": record.score,
        "seed": record.seed,
        "weights": record.weights,
        "versions": record.versions,
        "date": record.date.isoformat(),
    }


def _sections(experiment: Experiment, record: TrainingRecord, data: DataRecord) -> dict[str, str]:
    """Return the sections of the folder's model card, by heading."""
    if record.name == ORIGINAL:
        replaced = f"The original {record.workload.model}: no layer was replaced."
    else:
        replaced = (
            f"`{record.workload.model}` with the operator `{record.name}` (its text is in operator.txt) in place of "
            f"{plural(len(data.layers), 'layer')}: {', '.join(f'`{name}`' for name in data.layers)}."
        )
    for name in dict.fromkeys(data.placed.values()):
        layers = ", ".join(f"`{layer}`" for layer, operator in data.placed.items() if operator == name)
        replaced += f" An earlier experiment put the operator `{name}` in place of {layers}."
    shape = data.shapes if data.inputs is not None else ["N", *(data.image_shape or [data.length])]
    positions = (
        f" at each position: [{', '.join(map(str, ('N', data.classes, *data.label_shape)))}]" if data.label_shape else ""
    )
    output = f"logits of {data.classes} classes{positions}" if data.metric is None else "what the task scores"
    shown, versions = ", ".join(map(str, shape)), ", ".join(" ".join(pair) for pair in record.versions.items())
    training = (
        f"{METRICS[record.metric].name} {record.score:.6g} on the test data, of the training with seed {record.seed}: the one "
        "with the best score, unless a seed was chosen",
        f"data `{record.workload.data}`, hash {record.data_hash}",
        f"{len(record.scores)} tests; on {record.device}; {versions}; {record.date:%Y-%m-%d}",
    )
    sections = {
        "The network": f"{replaced}\n\nInput: {data.samples} [{shown}], prepared as the data set `{record.workload.data}` "
        f"does it. Output: {output}.",
        "Training": "\n".join(f"- {line}" for line in training),
    }
    if (experiment.folder / FOLDER / f"{SCORES}.parquet").is_file():
        run = StoredRun(experiment)
        rows = [row for row in summary(run) if row["operator"] in (ORIGINAL, record.name)]
        answer = [line for line in run.answer if line.startswith(("Goal:", record.name))]
        sections["Over all seeds"] = "\n\n".join(["\n" + markdown(rows).strip(), *answer])
    return sections
