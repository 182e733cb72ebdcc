"""Choice of an operator for each layer (a mixture): the least expected loss within a time limit, by integer programming.

>>> options = {"a": {"fast": Option(0.3, 0.2), "faster": Option(0.4, 0.5)}, "b": {"fast": Option(0.2, 0.1)}}
>>> cheapest(options, 0.45)
{'a': 'fast', 'b': 'fast'}
>>> cheapest(options, 0.55)
{'a': 'faster', 'b': 'fast'}
>>> cheapest(options, 0.7) is None
True
>>> cheapest(options, 0.1, fixed=["a"])
{'a': 'fast'}
>>> cheapest(options, 0.45, apart=[(("a", "fast"), ("b", "fast"))])
{'a': 'faster', 'b': 'fast'}
>>> cheapest(options, 0.45, most={"fast": 1})
{'a': 'faster', 'b': 'fast'}
>>> cheapest(options, 0.45, less={(("a", "fast"), ("b", "fast")): 0.1})
{'a': 'faster', 'b': 'fast'}
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from math import inf, isfinite, sqrt
from typing import Any, NamedTuple, TypeAlias

# Savings are sub-additive: the sum over layers overstates a mixture's saving by up to 1.5x. If a mixture is too slow, solve
# again with a larger target, up to ROUNDS times: larger by at least MORE of the time, and by at most 1 / LEAST_KEPT, since a
# mixture may save nothing.
ROUNDS, MORE, LEAST_KEPT = 4, 0.01, 0.25
FASTER, CLOSE = 1.25, 1.12  # steps of the search for the fastest mixture, and the ratio of two speeds at which it ends
# The least loss of score per unit of error: if trainings show no loss, the errors decide. A dropped layer has a large error,
# even if other layers compensate for it.
LEAST_LOSS = 1e-3

Place: TypeAlias = tuple[str, str]  # the names of a layer and of an operator in it


class Option(NamedTuple):
    """An operator in a layer, with its saving of time and its loss of score.

    Attributes:
        saving: the time that the operator saves, as a share of the original network's; below 0 if it is slower than the layer.
        loss: the expected loss of the network's score.
    """

    saving: float
    loss: float


def cheapest(
    options: Mapping[str, Mapping[str, Option]],
    saving: float,
    fixed: Collection[str] = (),
    apart: Collection[Collection[Place]] = (),
    most: Mapping[str, int] | None = None,
    less: Mapping[tuple[Place, Place], float] | None = None,
) -> dict[str, str] | None:
    """Return operators for some layers, which together save enough time at the least sum of losses.

    Args:
        options: for each layer, the possible operators by name. A layer may also stay unchanged, which saves and loses nothing.
        saving: the required saving, as a share of the original network's time.
        fixed: layers that must be replaced.
        apart: sets of (layer, operator) pairs that must not be chosen together.
        most: largest number of layers with an operator, by its name; other operators are unlimited.
        less: for two (layer, operator) pairs, the amount by which their joint saving falls short of the sum of both.

    Returns {layer: operator} for each layer that changes; None if no choice saves as much.
    """
    import numpy as np
    from scipy.optimize import Bounds, LinearConstraint, milp

    places = [(layer, name) for layer, choices in options.items() for name in choices]
    if not fixed and (saving <= 0 or not places):
        return {} if saving <= 0 else None
    if not set(fixed) <= options.keys():
        return None
    values, pairs = [options[layer][name] for layer, name in places], [pair for pair in less or {} if set(pair) <= set(places)]

    def row(chosen: Collection[Place], number: int | None = None) -> Any:
        """Return a row of the integer program: 1 for the `chosen` options, -2 for the pair with this number.

        Columns are options, then pairs of options.
        """
        of_options = [float(place in chosen) for place in places]
        return np.array([*of_options, *(-2.0 * (number == other) for other in range(len(pairs)))])

    def at_most(chosen: Collection[Place], count: int) -> LinearConstraint:
        return LinearConstraint(row(chosen), ub=count)

    savings = np.array([*(option.saving for option in values), *(-(less or {})[pair] for pair in pairs)])
    of_layers = [row([place for place in places if place[0] == layer]) for layer in options]
    limits = [
        LinearConstraint(np.array(of_layers), lb=[1.0 if layer in fixed else -np.inf for layer in options], ub=1),
        LinearConstraint(savings, lb=saving),
        *(at_most(all_of, len(all_of) - 1) for all_of in apart),
        *(at_most([place for place in places if place[1] == name], count) for name, count in (most or {}).items()),
        # A pair is 1 where both of its options are chosen, and else 0.
        *(LinearConstraint(row(pair, number), lb=0, ub=1) for number, pair in enumerate(pairs)),
    ]
    losses = np.array([*(option.loss for option in values), *[0.0] * len(pairs)])
    losses /= np.abs(losses).max(initial=0.0) or 1.0  # the solver ignores differences below 1e-6
    made = milp(losses, constraints=limits, bounds=Bounds(0, 1), integrality=1)
    if made.x is None:
        return None
    return {layer: name for (layer, name), chosen in zip(places, made.x, strict=False) if chosen > 0.5}


@dataclass
class Prices:
    """Savings and losses of operators in the layers of one network, corrected by measurements of mixtures.

    Attributes:
        options: for each layer, the options by the operator's name.
        time: time of the network without operators, as a share of the original's.
        fixed, apart, most, less: see `cheapest`.
        kept: measured share of the predicted saving, for the last mixture.
    """

    options: Mapping[str, Mapping[str, Option]]
    time: float = 1.0
    fixed: Collection[str] = ()
    most: Mapping[str, int] = field(default_factory=dict)
    apart: list[tuple[Place, ...]] = field(default_factory=list)
    less: dict[tuple[Place, Place], float] = field(default_factory=dict)
    kept: float = 1.0

    def target(self, speedup: float, before: float | None = None) -> float:
        """Return the sum of savings to demand of a mixture for this speedup; `before` is the demand in the last round."""
        needed = (self.time - 1 / speedup) / self.kept
        return needed if before is None else max(before + MORE * self.time, needed)

    def cheapest(self, saving: float, others: Collection[Collection[Place]] = ()) -> dict[str, str] | None:
        """Return the choice with the least loss that saves this much, except the choices in `others`; None if there is none."""
        return cheapest(self.options, saving, self.fixed, [*self.apart, *others], self.most, self.less)

    def promised(self, choice: Mapping[str, str]) -> float:
        """Return the predicted saving of a choice: the sum over its layers."""
        saved = sum(self.options[layer][name].saving for layer, name in choice.items())
        return saved - sum(lost for pair, lost in self.less.items() if set(pair) <= set(choice.items()))

    def loss(self, choice: Mapping[str, str]) -> float:
        """Return the expected loss of a choice: the sum over its layers."""
        return sum(self.options[layer][name].loss for layer, name in choice.items())

    def expected(self, choice: Mapping[str, str]) -> float:
        """Return the expected speedup of a choice; infinity if its predicted saving exceeds the whole time."""
        left = self.time - self.kept * self.promised(choice)
        return 1 / left if left > 0 else inf

    def learn(self, choice: Mapping[str, str], speedup: float) -> None:
        """Correct later targets by the measured speedup of a choice."""
        promised = self.promised(choice)
        self.kept = max((self.time - 1 / speedup) / promised, LEAST_KEPT) if promised > 0 else 1.0

    def overlap(self, first: Place, second: Place, speedup: float | None) -> bool:
        """Record the joint speedup of two options (None if unknown).

        Return whether their joint saving differs from the sum of both.
        """
        alone = sum(self.options[layer][name].saving for layer, name in (first, second))
        self.less[first, second] = 0.0 if speedup is None else alone - (self.time - 1 / speedup)
        return abs(self.less[first, second]) > MORE * self.time

    def least_dropped(self, name: str) -> tuple[str, ...]:
        """Return the layers with the least errors in which this operator has half of its total saving, to measure its loss."""
        alone = {layer: {name: choices[name]} for layer, choices in self.options.items() if name in choices}
        half = sum(option.saving for choices in alone.values() for option in choices.values()) / 2
        return tuple(cheapest(alone, half, [layer for layer in alone if layer in self.fixed]) or alone)

    def charge(self, losses: Mapping[str, tuple[float, Collection[str]]]) -> None:
        """Replace the layer errors in the options by losses of score.

        An operator's loss is divided among its layers in proportion to their errors. Operators without a finite loss are
        removed.

        Args:
            losses: by operator: the measured loss of score, and the layers in which the operator stood.
        """
        rates: dict[str, float] = {}
        for name, (loss, layers) in losses.items():
            if layers and isfinite(loss):
                rates[name] = max(LEAST_LOSS, loss / (sum(self.options[layer][name].loss for layer in layers) or 1.0))
        self.options = {
            layer: {name: option._replace(loss=rates[name] * option.loss) for name, option in choices.items() if name in rates}
            for layer, choices in self.options.items()
        }


@dataclass
class SpeedSearch:
    """Line search for the highest speed at which a mixture loses little enough: growing by a factor, then geometric bisection.

    >>> search = SpeedSearch(good=1.0)
    >>> search.next(), search.tell(1.25, good=True), search.next()
    (1.25, None, 1.5625)
    >>> search.tell(1.5625, good=False), f"{search.next():.2f}", search.tell(1.4, good=False), search.next() is None
    (None, '1.40', None, True)

    Attributes:
        good: the highest speed of a mixture that lost little enough.
        bad: the least speed at which the mixture lost too much, or no mixture exists.
    """

    good: float
    bad: float = inf

    def tell(self, speedup: float, *, good: bool) -> None:
        """Record whether the mixture of this speed loses little enough score."""
        self.good, self.bad = (max(self.good, speedup), self.bad) if good else (self.good, min(self.bad, speedup))

    def next(self) -> float | None:
        """Return the next speed to try; None once `good` and `bad` are close."""
        if CLOSE * self.good >= self.bad:
            return None
        return FASTER * self.good if self.bad == inf else sqrt(self.good * self.bad)
