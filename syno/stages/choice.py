"""The choice of an operator for each layer of the trained original, by the time that it saves and the score that it costs.

The measurements are here; `syno.search.mixtures` chooses by them.

- **Saving**: an operator is put into all layers of one size, and the network is timed in turns with the original.
- **Error**: it is put into one layer and fitted (`syno.train.layer_fit`); the error is the distance between the outputs of the
  network and of the original. Errors alone do not predict scores: separable convolutions have small errors, and learn less.
- **Loss**: the network with the operator in all layers is trained as in the search; the loss of score is shared among the
  layers by their errors. The price of dropping a layer is measured with half of the layers dropped; mixtures may drop at most
  that many, since prices do not extrapolate.

Integer programming finds the mixtures with the least loss at several speeds; if the goal asks for the fastest network, at
increasing speeds. Savings do not add up exactly, so mixtures are timed, and chosen again where they are too slow. They
are trained as in the search, and the best are trained with all seeds (`syno.stages.rivals`). Layers that the settings keep or
fix (`keep`, `fix`) are no part of the choice.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import cached_property
from itertools import product
from math import inf, isfinite, nan
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING

from syno.base.errors import SpecError, SynoError, TrainingError
from syno.base.files import ORIGINAL
from syno.base.gpu_leases import leased
from syno.base.interval import Interval, times_as_fast
from syno.base.progress import Display, Progress, display
from syno.base.record import versions
from syno.config import Experiment
from syno.config.stages import AUTO_SPEEDUP, MixtureSettings
from syno.model.networks import Network, replacement_named
from syno.model.replacements import AnyOperator, KnownLayer, Mixture, NarrowerLayer, NarrowerNetwork, as_replacement
from syno.run.story import no_other_choice
from syno.search.mixtures import ROUNDS, Option, Place, Prices, SpeedSearch
from syno.stages.mixtures import REPEATS, Alternative, ChoiceRecord, ChosenMixture, in_words
from syno.stages.operators import network_of, operators_by_hand
from syno.stages.places import CHOICE, SELECTED
from syno.stages.search import beginning
from syno.stages.selection import Selected, read_selected
from syno.stages.speedups import screening_speedups

if TYPE_CHECKING:
    from syno.measure.speedup_record import SpeedupRecord
    from syno.measure.speedups import Speedups
    from syno.search.goal import Goal
    from syno.train.workload import Workload

DROPPED = KnownLayer("dropped")


def choose_mixtures(experiment: Experiment, output: Path | None = None) -> ChoiceRecord:
    """Choose mixtures, and write a record. Stored timings are reused.

    Args:
        experiment: the experiment, with settings for mixtures and with selected operators.
        output: file of the record; by default in the folder of results.

    Raises SpecError if the settings ask for no mixtures, or no operators are selected yet; DeviceError if the original cannot
    be measured.
    """
    experiment.use_code()
    settings = experiment.mixtures
    if settings == "none" or not experiment.mixture_names or experiment.goal_pair is None:
        raise SpecError(f'experiment "{experiment.name}" asks for no mixtures (mixtures: {{count: 1}})')
    began, workload = datetime.now(UTC), beginning(experiment)
    selected = read_selected(experiment.folder / SELECTED)[: settings.operators]
    operators, by_hand = operators_to_choose(experiment, selected), operators_by_hand(experiment, workload)
    with (
        screening_speedups(experiment) as speedups,
        leased(workload.settings.training.device, "training.device"),
        display() as shown,
    ):
        choice = _Choice(experiment, settings, workload, selected, operators, by_hand, speedups, shown)
        found = choice.best_first()
    count = settings.count
    reason = "" if len(found) >= count else f"{choice.why_few()}: {len(found)} of {count} mixtures were chosen"
    named = [
        one.model_copy(update={"mixture": str(replace(one.replacement, name=name))})
        for one, name in zip(found, experiment.mixture_names, strict=False)
    ]
    record = ChoiceRecord(
        alternatives=tuple(choice.alternatives),
        apart=choice.apart_in_words,
        fast_enough=choice.fast_enough,
        mixtures=tuple(named),
        others=tuple(found[count:]),
        reason=reason,
        by_hand={layer: "" if one is None else one.name for layer, one in by_hand.items()},
        metric=workload.metric.key,
        seconds=(datetime.now(UTC) - began).total_seconds(),
        versions=versions(["torch", "scipy"]),
        date=datetime.now(UTC),
    )
    record.write(output or experiment.folder / CHOICE)
    return record


def operators_to_choose(experiment: Experiment, selected: Iterable[Selected]) -> dict[str, AnyOperator]:
    """Return the alternatives to a layer, by name.

    They are the selected operators, the known layers of the rivals, the layer itself with the share of channels of each pruned
    rival, and the identity.
    """
    settings = experiment.mixtures
    assert settings != "none"
    narrower = [NarrowerLayer(base.share).name for base in _pruned(experiment, settings)]
    keys = [one.key for one in selected]
    names = (*keys, *experiment.rival_operators, *narrower, DROPPED.name)
    given = (network_of(experiment, name).replacement for name in names)
    return {one.name: one for one in given if one is not None and not as_replacement(one).is_whole}


def _pruned(experiment: Experiment, settings: MixtureSettings) -> Iterator[NarrowerNetwork]:
    """Yield the pruned networks among the experiment's rivals, as bases of mixtures."""
    for name in experiment.rival_names if settings.pruned else ():
        base = replacement_named(name) if Network.parse(name).begins_trained else None
        if isinstance(base, NarrowerNetwork):
            yield base


def _inside(base: NarrowerNetwork | None) -> str:
    return "" if base is None else f" of {base.name}"


def _with_loss(one: Alternative, options: Mapping[str, Mapping[str, Option]]) -> Alternative:
    found = options[one.layer].get(one.operator)
    return one if found is None else one.model_copy(update={"loss": found.loss})


@dataclass(frozen=True)
class Step(Progress):
    """The progress of a choice, whose number of steps is not known in advance."""

    def __str__(self) -> str:
        return self.title


@dataclass
class _Choice:
    """One run of the choice for an experiment, with the prices, scores and alternatives that it has measured so far."""

    experiment: Experiment
    settings: MixtureSettings
    workload: Workload
    selected: Sequence[Selected]
    operators: Mapping[str, AnyOperator]  # to choose from, by name
    by_hand: Mapping[str, AnyOperator | None]
    speedups: Speedups
    shown: Display

    def __post_init__(self) -> None:
        assert self.experiment.goal is not None
        self.asked: Goal = self.experiment.goal
        self.alternatives: list[Alternative] = []
        self._prices: dict[NarrowerNetwork | None, Prices] = {}  # by the base
        self._scores = self._scores_of_search()
        self.fast_enough: dict[str, float] = {}
        self._narrowable: dict[tuple[NarrowerLayer, NarrowerNetwork | None], tuple[str, ...]] = {}
        self._to_time: dict[NarrowerNetwork | None, list[Mixture]] = {}
        self._done = 0

    @cached_property
    def goal(self) -> float:
        """The speedup over the original that mixtures are chosen for: the goal's, or a default if the goal has none."""
        return self.asked.speedup or AUTO_SPEEDUP

    @cached_property
    def least(self) -> float:
        """The speedup of the experiment's goal; 1 if it has none."""
        return self.asked.speedup or 1.0

    @cached_property
    def seed(self) -> int:
        """Seed of the trainings: the search's, which differs from the seeds of the final comparison."""
        return self.workload.settings.seed

    def _scores_of_search(self) -> dict[str, float]:
        """Return scores by the id of the mixture with one operator in all layers: the search trained it with the same seed."""
        layers, metric = tuple(layer.name for layer in self.workload.layers), self.workload.metric.key
        return {
            Mixture(one.name, ((self.operators[one.name], layers),)).id: one.metrics[metric]
            for one in self.selected
            if one.trial is not None and metric in one.metrics and one.name in self.operators
        }

    @cached_property
    def fixed(self) -> dict[str, AnyOperator]:
        """The operators that the settings fix (`fix`), by layer."""
        return {layer: one for layer, one in self.by_hand.items() if one is not None}

    @cached_property
    def all_operators(self) -> dict[str, AnyOperator]:
        """The operators to choose from and the fixed operators, by name."""
        return {**self.operators, **{one.name: one for one in self.fixed.values()}}

    def bases(self) -> Iterator[tuple[NarrowerNetwork | None, float]]:
        """Yield the base networks of mixtures, None for the original, with their time as a share of the original's.

        A pruned network that alone reaches the goal's speed is no base: if the most accurate network is wanted, operators could
        only make it worse.
        """
        yield None, 1.0
        fastest = self.goal * max(self.settings.margins)
        may_be_enough = self.asked.find == "most_accurate" and not self.fixed
        for base in _pruned(self.experiment, self.settings):
            if self._speed(base.structure) is None:  # nor could it be timed again, and each try may take as long as is allowed
                continue
            speeds = [self._speed(base.structure, repeat) for repeat in range(REPEATS)]
            time = fmean(1 / speed.value for speed in speeds if speed is not None)
            if may_be_enough and 1 / time >= fastest:
                self.fast_enough[base.name] = 1 / time
            else:
                yield base, time

    def best_first(self) -> list[ChosenMixture]:
        """Return all mixtures that were timed and trained, the best first."""
        found: dict[str, ChosenMixture] = {}
        pruned = [base.structure for base in _pruned(self.experiment, self.settings)]
        self._begin([*(one.structure for one in self._networks_to_time(None)), *pruned])
        bases = self.bases()
        coming = next(bases, None)
        while coming is not None:
            base, time = coming
            tried = len(self.alternatives)
            prices = self._prices[base] = Prices(self._options(base, time), time, self.fixed.keys())
            coming = next(bases, None)
            if coming is not None:  # timed while networks with operators in this one are trained
                self._begin(one.structure for one in self._networks_to_time(coming[0]))
            if not self.fixed.keys() <= prices.options.keys():  # no place for them here, so no need to train
                continue
            self._charge(prices, base)
            self.alternatives[tried:] = [_with_loss(one, prices.options) for one in self.alternatives[tried:]]
            for one in self._at_speeds(prices, base):
                found.setdefault(one.replacement.id, one)
        fast = [one for one in found.values() if one.speedup.value >= self.least]
        if not fast and found:  # the one that misses the goal by the least
            fast = [max(found.values(), key=lambda one: one.speedup.value)]
        good = [one for one in fast if self._is_expected_to_lose_little(one)] or fast
        scored = [one.model_copy(update={"score": self._score(one.replacement)}) for one in good]
        return sorted((one for one in scored if isfinite(one.score)), key=self._place)

    def why_few(self) -> str:
        """Return the reason why no further mixture was chosen, as a clause of a message."""
        timed = {one.layer for one in self.alternatives}
        trained = {one.layer for one in self.alternatives if one.loss is not None}
        for known, what in ((timed, "timed"), (trained, "trained")):
            if lost := [f"{one.name} in {layer}" for layer, one in self.fixed.items() if layer not in known]:
                return f"mixtures: fix: {', '.join(lost)} cannot be {what}"
        if not self.alternatives:
            return f"no operator saves time in any{' other' if self.by_hand else ''} layer"
        return no_other_choice(self.goal, self.apart_in_words, is_by_hand=bool(self.by_hand))

    @property
    def apart_in_words(self) -> tuple[str, ...]:
        """Sentences about alternatives that do not fit together in one network."""
        return tuple(
            f"{' and '.join(f'{name} in {layer}' for layer, name in places)}{_inside(base)} do not fit together"
            for base, prices in self._prices.items()
            for places in prices.apart
        )

    def _place(self, one: ChosenMixture) -> tuple[bool, float, float]:
        """Return the sort key: mixtures that meet the goal first, by speed or score as the goal asks; then by score."""
        quality, speed = -self.workload.metric.quality(one.score), -one.speedup.value
        misses = one.speedup.value < self.least or not self._loses_little(one)
        return (misses, *((speed, quality) if self._finds_fastest and not misses else (quality, speed)))

    def _loses_little(self, one: ChosenMixture) -> bool:
        """Whether a mixture's loss of score, by its training with the search's settings, is within the goal."""
        if not self._is_expected_to_lose_little(one):
            return False
        return self._best - self.workload.metric.quality(self._score(one.replacement)) <= self._most_lost

    def _is_expected_to_lose_little(self, one: ChosenMixture) -> bool:
        """Whether the sum of its operators' expected losses is within the goal; true unless the fastest network is wanted.

        Otherwise a mixture with one lucky training would win. If the most accurate network is wanted, trainings alone decide.
        """
        return not self._finds_fastest or one.loss <= self._most_lost

    @cached_property
    def _most_lost(self) -> float:
        return inf if self.asked.lose_at_most is None else self.asked.lose_at_most

    @property
    def _finds_fastest(self) -> bool:
        return self.asked.find == "fastest"

    def _options(self, base: NarrowerNetwork | None, time: float) -> dict[str, dict[str, Option]]:
        """Time and fit the operators in a base network of latency `time` (share of the original's).

        Returns {layer: {operator: its saving and error}}; the loss of score is not known yet.
        """
        found: dict[str, dict[str, Option]] = {}
        for mixture in self._networks_to_time(base):
            ((operator, names),), title = mixture.parts, mixture.name
            self._show(f"{title} in {', '.join(names)}{_inside(base)}")
            speed = self._speed(mixture.structure)
            saving = None if speed is None else time - 1 / speed.value
            if saving is None or (saving <= 0 and names[0] not in self.fixed):
                continue
            for name in names:
                error, fit = self._error(replace(mixture, parts=((operator, (name,)),)))
                option = Option(saving / len(names), error)
                found.setdefault(name, {})[title] = option
                place = ORIGINAL if base is None else base.name
                self.alternatives.append(
                    Alternative(base=place, layer=name, operator=title, saving=option.saving, error=error, fit=fit)
                )
        return found

    def _networks_to_time(self, base: NarrowerNetwork | None) -> list[Mixture]:
        """Return the networks to time for a base: one for each alternative and layer size."""
        if base not in self._to_time:
            try:
                sizes = self.workload.equal_layers(base)
            except SynoError:  # a pruned network may have no such layers
                sizes = []
            found = [
                Mixture(title, ((operator, names),), base)
                for alike, operators in self._groups(sizes, base)
                for title, operator in operators.items()
                if (names := self._where(operator, alike, base))
            ]
            self._to_time[base] = [one for one in found if self._fits(one)]
        return self._to_time[base]

    def _begin(self, networks: Iterable[NarrowerNetwork | Mixture]) -> None:
        """Start to time networks in the background, if this process's trainings pause during measurements."""
        if self.workload.settings.training.device == "cpu":
            self.speedups.begin(networks)

    def _groups(
        self, sizes: Iterable[tuple[str, ...]], base: NarrowerNetwork | None
    ) -> Iterator[tuple[tuple[str, ...], Mapping[str, AnyOperator]]]:
        """Yield groups of layers of one size with the same alternatives, and these alternatives. Kept layers have none."""
        free = {
            title: one
            for title, one in self.operators.items()
            if base is None or not isinstance(one, NarrowerLayer)  # there, all layers are narrower already
        }
        for names in sizes:
            groups: dict[str | None, list[str]] = {}
            for name in names:
                if name not in self.by_hand:
                    groups.setdefault(None, []).append(name)
                elif name in self.fixed:
                    groups.setdefault(self.fixed[name].name, []).append(name)
            for title, alike in groups.items():
                yield tuple(alike), free if title is None else {title: self.all_operators[title]}

    def _where(self, operator: AnyOperator, layers: tuple[str, ...], base: NarrowerNetwork | None) -> tuple[str, ...]:
        """Return the layers that an alternative can replace: a narrower layer only if its channels are not tied to others."""
        if not isinstance(operator, NarrowerLayer):
            return layers
        if (operator, base) not in self._narrowable:
            try:
                self._narrowable[operator, base] = self.workload.narrowable_layers(operator.share, base)
            except SynoError:  # its channels cannot be followed
                self._narrowable[operator, base] = ()
        return tuple(layer for layer in layers if layer in self._narrowable[operator, base])

    def _error(self, mixture: Mixture) -> tuple[float, float | None]:
        """Return the error of the network's outputs with one fitted operator, and the fit's error (None without a fit)."""
        network, original = self.workload.network(mixture, self.seed), self.workload.trained(self.seed)
        fits = self.workload.fit(network, original, mixture, self.seed)
        without = self.workload.base_of(replace(mixture, parts=()), original, self.seed)
        return self.workload.difference(network, without, self.seed), fits[0].after if fits else None

    def _charge(self, prices: Prices, base: NarrowerNetwork | None) -> None:
        """Set the price of each alternative: train the operator in all its layers, and share the loss of score by errors.

        The identity (DROPPED) is trained in half of the layers, since a network without all of them may learn nothing.
        """
        dropped, losses = prices.least_dropped(DROPPED.name), dict[str, tuple[float, tuple[str, ...]]]()
        for title, operator in self.all_operators.items():
            names = tuple(layer for layer, given in prices.options.items() if title in given)
            names = dropped if operator == DROPPED else names
            score = self._score(Mixture(title, ((operator, names),), base)) if names else nan
            losses[title] = (self._best - self.workload.metric.quality(score) if isfinite(score) else nan), names
        prices.most = {DROPPED.name: len(dropped)}
        prices.charge(losses)

    @cached_property
    def _best(self) -> float:
        """The quality (higher is better) of the trained original's score."""
        return self.workload.metric.quality(self.workload.score_of_trained(self.seed))

    def _at_speeds(self, prices: Prices, base: NarrowerNetwork | None) -> Iterator[ChosenMixture]:
        """Yield mixtures for the goal's speed times each margin; for the goal "fastest", also for a `SpeedSearch`'s speeds."""
        alone = 1 / prices.time
        speeds, search = [margin * self.goal for margin in self.settings.margins], SpeedSearch(max(self.least, alone))
        while speeds:
            last, wanted = None, speeds.pop(0)
            for last in self._chosen(prices, base, wanted):
                yield last
            if not self._finds_fastest:
                continue
            if last is not None and self._loses_little(last):
                search.tell(max(wanted, last.speedup.value), good=True)
            elif wanted > alone:  # else the network is as fast without operators
                search.tell(wanted, good=False)
            if not speeds and (following := search.next()) is not None:
                speeds.append(following)

    def _chosen(self, prices: Prices, base: NarrowerNetwork | None, speedup: float) -> Iterator[ChosenMixture]:
        """Yield the mixtures solved and timed for this speedup; the solver's target rises until a mixture is fast enough.

        Fast enough is the smaller of `speedup` and the goal's speedup. At most `ROUNDS` rounds.
        """
        single = [] if self.by_hand or base is not None else self._single(prices.options)
        target = prices.target(speedup)
        for _ in range(ROUNDS):
            while choice := prices.cheapest(target, single):
                mixture = self._mixture(choice, base)
                if not (misfits := self._misfits(mixture)):
                    break
                prices.apart += misfits
            if not choice:
                return
            self._show(f"a mixture that is to be {times_as_fast(speedup)}")
            speed = self._speed(mixture.structure)
            if speed is None:
                return
            expected, loss = prices.expected(choice), prices.loss(choice)
            yield ChosenMixture(mixture=str(mixture), expected=expected, speedup=speed, loss=loss, score=nan)
            is_enough = speed.value >= min(self.goal, speedup)
            if not is_enough and base is None and self._compare_pairs(mixture, prices):
                continue  # with corrected sums
            prices.learn(choice, speed.value)
            if is_enough:
                return
            target = prices.target(speedup, target)

    def _compare_pairs(self, mixture: Mixture, prices: Prices) -> bool:
        """Time each narrower layer of a mixture together with the layers that read it; return whether sums change.

        Part of a narrower layer's saving is in the layer that reads it, which has fewer inputs. If an operator replaces that
        layer, the saving is smaller.
        """
        is_wrong = False
        for layer, narrower in mixture.narrower.layers.items():
            assert isinstance(narrower, NarrowerLayer)
            for behind in self.workload.layers_behind(narrower, layer):
                operator = mixture.layers.get(behind)
                if operator is None:
                    continue
                pair = (layer, narrower.name), (behind, operator.name)
                both = Mixture("pair", ((narrower, (layer,)), (operator, (behind,))))
                if pair in prices.less or operator.name not in prices.options[behind] or not self._fits(both):
                    continue
                self._show(f"{narrower.name} in {layer} and {operator.name} in {behind}")
                speed = self._speed(both.structure)
                is_wrong |= prices.overlap(*pair, None if speed is None else speed.value)
        return is_wrong

    def _single(self, options: Mapping[str, Mapping[str, Option]]) -> list[tuple[Place, ...]]:
        """Return the choices that the solver must exclude: those with one operator in all layers, which are no mixtures."""
        layers = [layer.name for layer in self.workload.layers]
        names = [title for title in self.operators if all(title in options.get(layer, ()) for layer in layers)]
        return [tuple((layer, title) for layer in layers) for title in names]

    def _misfits(self, mixture: Mixture) -> list[tuple[Place, ...]]:
        """Return the parts of a mixture that do not fit together, such as an operator behind a narrower layer."""
        layers = mixture.layers.items()
        narrower = mixture.narrower.layers.items()
        if not narrower or self._fits(mixture):
            return []
        pairs = [
            ((layer, one.name), (other, another.name))
            for (layer, one), (other, another) in product(narrower, layers)
            if layer != other and not self._fits(Mixture("", ((one, (layer,)), (another, (other,))), mixture.base))
        ]
        return [*pairs] or [tuple((layer, one.name) for layer, one in layers)]

    def _fits(self, mixture: Mixture) -> bool:
        try:
            self.workload.network(mixture, self.seed)
        except SynoError:
            return False
        return True

    def _mixture(self, choice: Mapping[str, str], base: NarrowerNetwork | None) -> Mixture:
        parts = {title: tuple(layer for layer, name in choice.items() if name == title) for title in self.all_operators}
        return Mixture("mixture", tuple((self.all_operators[title], names) for title, names in parts.items() if names), base)

    def _score(self, mixture: Mixture) -> float:
        """Return the score of a mixture after a training with the search's settings; NaN if the training fails."""
        if mixture.id not in self._scores:
            self._show(f"a training of {in_words(mixture)}")
            try:
                result = self.workload.train(mixture, seed=self.seed)
                self._scores[mixture.id] = nan if result.broken else result.score
            except TrainingError:
                self._scores[mixture.id] = nan
        return self._scores[mixture.id]

    def _speed(self, replacement: NarrowerNetwork | Mixture, repeat: int = 0) -> Interval | None:
        """Return the speedup of a network over the original; None if it cannot be timed."""
        record: SpeedupRecord = self.speedups.of(replacement, repeat=repeat)
        return record.ratio if record.status == "ok" else None

    def _show(self, what: str) -> None:
        self._done += 1
        self.shown.show(Step(f"{self.experiment.name}, choice of operators for layers: {what}", self._done, self._done, 0))
