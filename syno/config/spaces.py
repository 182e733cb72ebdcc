"""The space of operators that a command looks at: a preset, a spec file, or the space of an experiment."""

from __future__ import annotations

from pathlib import Path

from syno.base.errors import SpecError, suggestion
from syno.base.validation import read_mapping
from syno.config.experiment import Experiment
from syno.config.several import load_experiment, parted
from syno.config.specs import find_spec
from syno.space.presets import PRESETS
from syno.space.spec import OperatorSpec

OF_EXPERIMENTS = ({*Experiment.model_fields, "experiments", "common"}) - set(
    OperatorSpec.model_fields
)  # fields that no spec has


def find_space(given: str) -> OperatorSpec:
    """Return the spec that a preset's name, the path of a spec file or an experiment (FILE, or FILE:NAME) means.

    The spec of an experiment has the experiment's name. If it follows from a network and a data set, these are made or loaded.

    Raises SpecError if there is no such thing, it is wrong, or the experiment has no space since its data is published.
    """
    file, name = parted(given)
    if given in PRESETS or not (name is not None or _is_experiment(file)):
        return _spec(given)
    experiment = load_experiment(given)
    if experiment.artifact is not None:
        raise SpecError(
            f'experiment "{experiment.name}" in {file} is of published data, so it has no space of operators; presets are: '
            f"{', '.join(PRESETS)}"
        )
    return experiment.operator_spec.with_(name=experiment.name)


def _spec(given: str) -> OperatorSpec:
    if given not in PRESETS and not Path(given).is_file():
        raise SpecError(
            f'"{given}" is neither a file (of a spec or an experiment) nor a preset; presets are: {", ".join(PRESETS)}.'
            f"{suggestion(given, PRESETS)}"
        )
    return find_spec(given)


def _is_experiment(file: Path) -> bool:
    return file.is_file() and not OF_EXPERIMENTS.isdisjoint(read_mapping(file, "a spec", OperatorSpec))
