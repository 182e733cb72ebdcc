"""The record of the choice of an operator for each layer, and the mixtures in it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from pydantic import AwareDatetime, BaseModel, ConfigDict, field_validator

from syno.base.errors import UnknownNameError
from syno.base.interval import times_as_fast
from syno.base.record import Amount, PositiveInterval, Record
from syno.measure.tuning_record import Line
from syno.model.networks import read_replacement
from syno.model.replacements import Mixture
from syno.stages.places import CHOICE
from syno.train.metric import METRICS, MetricKey

if TYPE_CHECKING:
    from syno.config import Experiment

# Number of measurements of a pruned network for a choice, since an error of its time is in the saving of each operator in it.
# With a single measurement, whose standard deviation is 1 % for a network of 2 ms, hardly any operator seemed to save time in
# one network. Repeats 0, 1, ... are for the choice; the next one is for the mixture's verdict.
REPEATS = 4


class Alternative(BaseModel):
    """An operator in place of one layer.

    Attributes:
        base: the network around it: "original", or the name of a pruned network.
        layer: the layer's name.
        operator: the operator's name.
        saving: the saved time as a share of the original network's time.
        error: the distance of the network's outputs from the base's, with only this operator, after its fit
            (`Workload.difference`).
        fit: the fit's error in the layer; see `syno.train.layer_fit.LayerFit`. None for a narrower layer, which is not fitted.
        loss: the expected loss of score; None if there was no training: it failed, or a fixed operator does not fit the base.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")
    base: str
    layer: str
    operator: str
    saving: float
    error: float
    fit: float | None
    loss: float | None = None


class ChosenMixture(BaseModel):
    """A mixture that was chosen, with its expected and measured speedup and score.

    Attributes:
        mixture: the text of the mixture.
        expected: the expected speedup by the sum of its operators' savings; infinity if the sum is 1 or more.
        speedup: the measured speedup, in turns with the original; the verdict uses another measurement.
        loss: the sum of the expected losses of its operators.
        score: the score after a training with the search's settings.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", ser_json_inf_nan="strings")
    mixture: str
    expected: float
    speedup: PositiveInterval
    loss: float
    score: float

    @field_validator("mixture")
    @classmethod
    def _is_a_mixture(cls, name: str) -> str:
        if not isinstance(read_replacement(name), Mixture):
            raise ValueError("it is an operator or a whole network, and no mixture")
        return name

    @property
    def replacement(self) -> Mixture:
        """The mixture as a value, parsed from its text."""
        found = read_replacement(self.mixture)
        assert isinstance(found, Mixture)
        return found


class ChoiceRecord(Record):
    """The choice of an operator for each layer.

    Attributes:
        alternatives: all alternatives to each layer.
        mixtures: the chosen mixtures, the best first; `mixture_1` is the first one.
        others: mixtures that were timed and trained, but not chosen.
        apart: sentences about alternatives that do not fit together in one network.
        fast_enough: speedups of the pruned networks that alone reach the goal's speed, in which no operators were tried.
        reason: the reason why there are fewer mixtures than the settings ask for; "" if there are enough.
        by_hand: layers that the settings keep or fix (`keep`, `fix`), with the operator's name; "" for kept layers.
        metric: the metric of the scores.
        seconds: the duration of the choice.
        versions, date: versions of the packages, and the time at the end.
    """

    kind_of_record = "record of the choice of operators for layers"
    again = "run `syno choose`"
    passing = frozenset({"seconds", "date"})

    alternatives: tuple[Alternative, ...]
    mixtures: tuple[ChosenMixture, ...]
    others: tuple[ChosenMixture, ...] = ()
    apart: tuple[str, ...] = ()
    fast_enough: Mapping[str, float] = {}
    reason: str = ""
    by_hand: Mapping[str, str] = {}
    metric: MetricKey
    seconds: Amount
    versions: dict[str, str]
    date: AwareDatetime

    def lines(self) -> Iterator[Line]:
        """Yield a line for each mixture, in words."""
        metric = METRICS[self.metric]
        for one in self.mixtures:
            found = one.replacement
            score = f"{metric.name} {metric.text(one.score)} in a training as in the search"
            yield Line(f"{found.name}: {times_as_fast(one.speedup)}, {score}: {in_words(found)}")
        for name, speedup in self.fast_enough.items():
            yield Line(f"{name} is {times_as_fast(speedup)} by itself, which is enough: no operators were tried in it")
        if self.reason:
            yield Line(self.reason, is_problem=not self.mixtures)


def in_words(mixture: Mixture) -> str:
    """Return a mixture in words: each operator with its layers."""
    parts = [f"{one.name} in {', '.join(names)}" for one, names in mixture.parts]
    return "; ".join([*([] if mixture.base is None else [f"the network {mixture.base.name}"]), *parts])


def choice_of(experiment: Experiment) -> ChoiceRecord | None:
    """Return the record of an experiment's choice of mixtures; None before the choice. SpecError if it is damaged."""
    file: Path = experiment.folder / CHOICE
    return ChoiceRecord.read(file) if experiment.mixture_names and file.is_file() else None


def mixture_of(experiment: Experiment, name: str) -> Mixture:
    """Return a mixture by its name. Raises UnknownNameError if it was not chosen."""
    found = choice_of(experiment)
    if found is None:
        raise UnknownNameError(f"there is no choice of operators for layers yet, so there is no {name}; `syno choose` makes it")
    by_name = {one.replacement.name: one.replacement for one in found.mixtures}
    if name not in by_name:
        raise UnknownNameError(f"there is no {name}: {found.reason or 'no such mixture was asked for'}")
    return by_name[name]
