"""A user's own network and data as the objective of a study: the score after a short training."""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import isfinite
from pathlib import Path
from typing import Any, TypeAlias

import pandas
from pydantic import ValidationError
from torch import nn

from syno.base.errors import SpecError
from syno.base.files import checksum
from syno.base.identity import Identity, identity_of
from syno.base.user_code import unchanged_process, user_code
from syno.base.validation import explained
from syno.data import PictureData, TokenSet
from syno.data.contract import majority_of
from syno.model.execution_paths import ExecutionPaths
from syno.model.extraction import check_network
from syno.model.inputs import of_batch
from syno.model.network_function import make_whole
from syno.model.shared_memory import copy_of
from syno.notebook.study import NetworkObjective, Study
from syno.run import FOLDER, MEASUREMENTS
from syno.run.run import Run
from syno.run.story import majority_warning
from syno.run.table import TRIAL_COLUMNS, complete, latencies_in
from syno.run.values import Latency
from syno.run.views import layers_of as layers_in
from syno.search.reward import compared_scores
from syno.space.spec import OperatorSpec
from syno.stages.places import FROZEN
from syno.stages.results import StoredRun
from syno.stages.study import read_frozen, study_table
from syno.stages.top import find_experiment
from syno.train.data_sets import load_data
from syno.train.own_task import Task, checked
from syno.train.proxy_training import ProxyTraining
from syno.train.settings import TrainingSettings, WorkloadSettings
from syno.train.workload import Workload, things_of_data

# The sources of plots: a study, a table of trials or latencies, or the folder of an experiment's results.


Source: TypeAlias = Study | pandas.DataFrame | str | Path


def trials_of(source: Source) -> pandas.DataFrame:
    """Return the trials of a study, of a table of trials, or of an experiment's results, numbered from 0.

    Raises SpecError if there is no trial, or if the table lacks a column.
    """
    if isinstance(source, Study):
        trials: pandas.DataFrame = source.trials
    elif isinstance(source, pandas.DataFrame):
        trials = source
    else:
        experiment = find_experiment(str(source))
        is_frozen = (experiment.folder / FROZEN).is_file()
        trials = read_frozen(experiment) if is_frozen else study_table(experiment)
    if trials.empty:
        raise SpecError("there is no trial to plot; run the study first")
    return complete(pandas.DataFrame(trials), TRIAL_COLUMNS, "trials")


def run_of(source: Source) -> Run | None:
    """Return the run of an experiment; None for a source of another kind, or for an experiment without tables."""
    if isinstance(source, Study | pandas.DataFrame):
        return None
    experiment = find_experiment(str(source))
    return StoredRun(experiment) if (experiment.folder / FOLDER / f"{MEASUREMENTS}.parquet").is_file() else None


def layers_of(source: pandas.DataFrame | str | Path) -> Sequence[Latency]:
    """Return the latencies of single layers in an experiment's results or a table. SpecError if a column is missing."""
    if isinstance(source, pandas.DataFrame):
        return latencies_in(pandas.DataFrame(source), "layers")
    return layers_in(StoredRun(find_experiment(str(source))).measured)


def one_target(latencies: Sequence[Latency], device: str | None, compiler: str | None) -> list[Latency]:
    """Return the latencies of one device and compiler.

    Raises SpecError if there are none, or several combinations to choose from.
    """
    chosen = [latency for latency in latencies if device in (None, latency.device) and compiler in (None, latency.compiler)]
    targets = {latency.target for latency in chosen}
    if len(targets) == 1:
        return chosen
    there = ", ".join(
        f"{device} with {compiler}" for device, compiler in dict.fromkeys(latency.target for latency in latencies)
    )
    asked = "several" if targets else "none of these"
    raise SpecError(f"there are latencies of {asked} to choose from: {there or 'none'}; give device and compiler")


Make = Callable[[], nn.Module]
Row = tuple[tuple[str, int], ...]  # values of variables


@dataclass(frozen=True)
class OwnWorkload(Workload):
    """A workload whose network is a user's module, or a function that makes a module.

    Attributes:
        own: the module or the function.
        samples: batch size for which costs are counted; None for that of the training.
    """

    own: nn.Module | Make = nn.Identity
    samples: int | None = None

    @property
    def is_own(self) -> bool:
        """True: the network is a user's own."""
        return True

    @cached_property
    def identity(self) -> Identity:
        """Identity of the network with its weights, and of the data, in their current state."""
        data = self.data.things if isinstance(self.data, Task) else things_of_data(self.data)
        return identity_of({"the network": self.own, **data})

    @property
    def _has_own_network(self) -> bool:
        return True

    def _without_placed(self, chosen: int) -> nn.Module:
        """Return a copy of the module with its weights; or the function's result, called with the random seed `chosen`."""
        if isinstance(self.own, nn.Module) or type(self.own).__name__ == "ExportedProgram":
            check_network(self.own, "the network is")
            with unchanged_process(self.settings.seed):
                make_whole(self.own, self._inputs, type(self.own).__name__)  # itself: lazy layers cannot be copied
            return copy_of(self.own)
        source = "the function that makes the network"
        with unchanged_process(chosen), user_code(source):
            made = self.own()
            check_network(made, f"{source} returned")
            make_whole(made, self._inputs, type(made).__name__)
        return made

    @cached_property
    def paths(self) -> ExecutionPaths:
        """The execution paths of the network, see `Workload.paths`. Warns if there are several."""
        paths = super().paths
        if paths.description:
            warnings.warn(paths.description, stacklevel=2)
        return paths

    @property
    def example(self) -> Any:
        """Example inputs of the network, see `Workload.example`."""
        inputs = super().example
        return inputs if self.samples is None else of_batch(inputs, self.samples)


class Training(NetworkObjective):
    """The objective "train this network on this data": the score of the network with an operator in its layers.

    Each operator is trained from the beginning, with the same settings. Its metrics are the score ("accuracy", "loss" for text,
    or that of your own task, such as "IoU (more is better)"), "epochs", and the costs of the network for a batch of the space's
    size: "flops", "parameters", "memory_bytes", and those of the original network, "original_flops" and "original_parameters".

    >>> import syno, torch
    >>> from torch import nn
    >>> network = nn.Sequential(
    ...     *(nn.Conv2d(1, 8, 3, padding=1), nn.ReLU(), nn.Conv2d(8, 8, 3, padding=1), nn.ReLU()),
    ...     *(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 10)),
    ... )
    >>> training = syno.Training(network, "digits", epochs=1)
    >>> training.example.shape, training.data.train_count
    (torch.Size([64, 1, 8, 8]), 1437)
    """

    def __init__(
        self,
        network: nn.Module | Make,
        data: PictureData | TokenSet | Task | str,
        *,
        where: str | Sequence[str] = "spatial",
        seed: int = 0,
        checkpoints: str | Path | None = None,
        check_gradients: bool = True,
        **settings: Any,
    ) -> None:
        """Prepare trainings, without starting one.

        Args:
            network: maps [N, channels, height, width] to [N, classes]; for text, [N, L] to [N, L, vocabulary]; or anything that
                your own task calls. A module: every training starts from a copy of its weights. Or a function without arguments
                that returns a module: it is called for each training, with torch's seed set to `seed`.
            data: a `syno.DataSet`, a name in `syno.DATASETS`, or a `syno.Task` with your own loss and score.
            where: the layers to replace: the name of a rule, or names and patterns of layers; see `syno.substitute`.
            seed: seed of the operators' weights and of the order of the data.
            checkpoints: folder for checkpoints, from which interrupted trainings resume; None: they start anew.
            check_gradients: whether operators that cannot learn on the first batch fail without training.
            settings: settings of the training, such as `epochs=4` or `device="cuda"`; docs/training.md describes them.

        Raises SpecError for unknown or invalid settings, UnknownNameError for an unknown data set, UserCodeError if the network
        fails.
        """
        try:
            training = TrainingSettings(**settings)
        except ValidationError as error:
            raise SpecError(f"training: {explained(error, TrainingSettings)}") from None
        if isinstance(network, nn.Module) and training.initialization == "paper-everywhere":
            warnings.warn(
                'initialization="paper-everywhere" draws all weights of the network anew, so that each training begins without '
                'those it comes with; initialization="keep" keeps them',
                stacklevel=2,
            )
        layers = where if isinstance(where, str) else ", ".join(where)
        self.data: PictureData | TokenSet | Task = load_data(data, {}) if isinstance(data, str) else data
        if isinstance(self.data, Task):
            checked(self.data).named(type(self.data).__name__.lower(), {})
        name = type(network).__name__ if isinstance(network, nn.Module) else getattr(network, "__name__", "network")
        fields = WorkloadSettings(model=name, data=self.data.name, layers=layers, training=training, seed=seed)
        self._workload = OwnWorkload(fields, self.data, network)
        self._checkpoints = None if checkpoints is None else Path(checkpoints)
        self._check_gradients = check_gradients

    @property
    def example(self) -> Any:
        """Example inputs with the training's shape: training samples, for `syno.spec_for` and `syno.substitute`."""
        return self._workload.example

    @property
    def settings(self) -> dict[str, Any]:
        """The settings that trials depend on, as JSON; `identity` has the checksums of code, weights and data."""
        model = self._workload.model()
        settings = self._workload.settings.model_dump(mode="json")
        text = f"{model} {[(name, list(parameter.shape)) for name, parameter in model.named_parameters()]}"
        return {**settings, "model": f"{settings['model']} {checksum(text.encode())[:8]}", "data": self.data.hash}

    @property
    def identity(self) -> Identity:
        """Identity of the network with its initial weights, and of the data."""
        return self._workload.identity

    def spec(self, **options: Any) -> OperatorSpec:
        """Return the spec of operators for the network's layers; `options` are those of `syno.spec_for`."""
        return self._workload.spec(options)

    def train_original(self) -> dict[str, float | str]:
        """Train the original network. Return the name of the metric and the score.

        Warns if the network is not better than always predicting the most frequent label, or if that is nearly always right.
        """
        result = self._workload.train(None)
        if result.broken or not isfinite(result.score):
            raise SpecError(
                f"the training of the network as it is broke: {result.stopped}; change its settings, such as learning_rate"
            )
        most_frequent = majority_of(self.data)
        if most_frequent and (warning := majority_warning(*most_frequent, result.score)):
            warnings.warn(warning, stacklevel=2)
        own = {"chance": self._workload.chance} if isinstance(self.data, Task) else {}
        return {"metric": result.metric, "score": result.score, **own}

    def evaluation(self, spec: OperatorSpec, original: Mapping[str, Any] | None = None) -> ProxyTraining:
        """Return the evaluation of the operators of a spec.

        Args:
            spec: the spec of the searched space.
            original: the result of `train_original`, for rewards that compare with it.

        Raises SpecError if the spec is for other layers, or the original network is not better than chance.
        """
        workload = OwnWorkload(self._workload.settings, self.data, self._workload.own, spec.valuations[0].get("N"))
        own = workload.spec()
        names = _variables_of_layers(own) & _variables_of_layers(spec)
        here, there = _layers(own, names), _layers(spec, names)
        if here != there:
            raise SpecError(
                f"the space is for the layers {_layers_text(there)}, but the network on {self.data.name} has "
                f"{_layers_text(here)}; make the space by spec_for(network, example), with an example of the data's shape and "
                "the same `where`"
            )
        if original is None:
            return ProxyTraining(workload, spec, self._checkpoints, {}, self._check_gradients)
        chance = original.get("chance")
        scores = compared_scores(original["metric"], original["score"], self._workload.chance if chance is None else chance)
        return ProxyTraining(workload, spec, self._checkpoints, scores, self._check_gradients)

    def __repr__(self) -> str:
        settings, epochs = self._workload.settings, self._workload.settings.training.epochs
        return f"<training of {settings.model} on {self.data.name}: {epochs} epoch{'' if epochs == 1 else 's'}>"


def _layers(spec: OperatorSpec, names: frozenset[str]) -> Counter[Row]:
    """Return the number of layers for each combination of values of the variables `names`."""
    counts: Counter[Row] = Counter()
    for layer in spec.layers:
        counts[tuple((name, value) for name, value in sorted(layer.values.items()) if name in names)] += layer.count
    return counts


def _variables_of_layers(spec: OperatorSpec) -> frozenset[str]:
    """Return the names of the variables that have values in layers, except the batch."""
    return frozenset(spec.layers[0].values) - {"N"}


def _layers_text(layers: Counter[Row]) -> str:
    return "; ".join(f"{count} of {', '.join(f'{name}={value}' for name, value in row)}" for row, count in layers.items())
