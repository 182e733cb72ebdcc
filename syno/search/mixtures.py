"""The choice of an operator for each layer: the least loss within a limit of time, by integer programming.

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
# The least loss of score per unit of error: where trainings show no loss, errors decide. A dropped layer has large errors, and
# costs nothing only while others make up for it.
LEAST_LOSS = 1e-3

Place: TypeAlias = tuple[str, str]  # the names of a layer and of an operator in it


class Option(NamedTuple):
    """An operator in a layer.

    Attributes:
        saving: the time that it saves, as a share of the original network's; below 0 if it is slower than the layer.
        loss: by how much it is expected to make the network's score worse.
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
    """Return an operator for some of the layers, which together save enough time at the least sum of losses.

    Args:
        options: of each layer, by the operator's name. A layer may also stay as it is, which saves nothing and loses nothing.
        saving: that is needed.
        fixed: layers that do not stay as they are. One that has a single option has that.
        apart: options of which not all are chosen, since they do not fit together.
        most: in how many layers an operator may be, by its name; others in any number.
        less: of two options, by how much less they save together than both alone.

    Returns a name for each layer that changes; None if no choice saves as much.
    """
    import numpy as np
    from scipy.optimize import Bounds, LinearConstraint, milp

    places = [(layer, name) for layer, given in options.items() for name in given]
    if not fixed and (saving <= 0 or not places):
        return {} if saving <= 0 else None
    if not set(fixed) <= options.keys():
        return None
    found, pairs = [options[layer][name] for layer, name in places], [pair for pair in less or {} if set(pair) <= set(places)]

    def row(chosen: Collection[Place], number: int | None = None) -> Any:
        """Return 1 for these options and -2 for the pair with this number: columns are options, then pairs."""
        of_options = [float(place in chosen) for place in places]
        return np.array([*of_options, *(-2.0 * (number == other) for other in range(len(pairs)))])

    def at_most(chosen: Collection[Place], count: int) -> LinearConstraint:
        return LinearConstraint(row(chosen), ub=count)

    savings = np.array([*(one.saving for one in found), *(-(less or {})[pair] for pair in pairs)])
    of_layers = [row([place for place in places if place[0] == layer]) for layer in options]
    limits = [
        LinearConstraint(np.array(of_layers), lb=[1.0 if layer in fixed else -np.inf for layer in options], ub=1),
        LinearConstraint(savings, lb=saving),
        *(at_most(all_of, len(all_of) - 1) for all_of in apart),
        *(at_most([place for place in places if place[1] == name], count) for name, count in (most or {}).items()),
        # A pair is 1 where both of its options are chosen, and else 0.
        *(LinearConstraint(row(pair, number), lb=0, ub=1) for number, pair in enumerate(pairs)),
    ]
    losses = np.array([*(one.loss for one in found), *[0.0] * len(pairs)])
    losses /= np.abs(losses).max(initial=0.0) or 1.0  # the solver takes differences below 1e-6 for none
    made = milp(losses, constraints=limits, bounds=Bounds(0, 1), integrality=1)
    if made.x is None:
        return None
    return {layer: name for (layer, name), chosen in zip(places, made.x, strict=False) if chosen > 0.5}


@dataclass
class Prices:
    """What operators save and lose in the layers of one network, and what the measurements of mixtures said about sums of them.

    Attributes:
        options: of each layer, by the operator's name.
        time: of the network without operators, as a share of the original's.
        fixed, apart, most, less: see `cheapest`.
        kept: the share of the promised saving that the last mixture had.
    """

    options: Mapping[str, Mapping[str, Option]]
    time: float = 1.0
    fixed: Collection[str] = ()
    most: Mapping[str, int] = field(default_factory=dict)
    apart: list[tuple[Place, ...]] = field(default_factory=list)
    less: dict[tuple[Place, Place], float] = field(default_factory=dict)
    kept: float = 1.0

    def target(self, speedup: float, before: float | None = None) -> float:
        """Return the sum of savings to ask for, for a mixture of this speedup; `before` is that of the last round."""
        needed = (self.time - 1 / speedup) / self.kept
        return needed if before is None else max(before + MORE * self.time, needed)

    def cheapest(self, saving: float, others: Collection[Collection[Place]] = ()) -> dict[str, str] | None:
        """Return the choice with the least loss that saves so much, without those in `others`; None if there is none."""
        return cheapest(self.options, saving, self.fixed, [*self.apart, *others], self.most, self.less)

    def promised(self, choice: Mapping[str, str]) -> float:
        """Return the sum of what a choice saves."""
        saved = sum(self.options[layer][name].saving for layer, name in choice.items())
        return saved - sum(lost for pair, lost in self.less.items() if set(pair) <= set(choice.items()))

    def loss(self, choice: Mapping[str, str]) -> float:
        """Return the sum of what a choice is expected to lose."""
        return sum(self.options[layer][name].loss for layer, name in choice.items())

    def expected(self, choice: Mapping[str, str]) -> float:
        """Return how many times as fast a choice is expected to be; infinity if it seems to save all of the time."""
        left = self.time - self.kept * self.promised(choice)
        return 1 / left if left > 0 else inf

    def learn(self, choice: Mapping[str, str], speedup: float) -> None:
        """Correct further targets by the speedup of a choice that was measured."""
        promised = self.promised(choice)
        self.kept = max((self.time - 1 / speedup) / promised, LEAST_KEPT) if promised > 0 else 1.0

    def overlap(self, first: Place, second: Place, speedup: float | None) -> bool:
        """Learn the speedup of two options together, None if it is not known. Return whether their sum was wrong."""
        alone = sum(self.options[layer][name].saving for layer, name in (first, second))
        self.less[first, second] = 0.0 if speedup is None else alone - (self.time - 1 / speedup)
        return abs(self.less[first, second]) > MORE * self.time

    def least_dropped(self, name: str) -> tuple[str, ...]:
        """Return the layers with the least errors in which the operator of this name saves half of what it saves in all."""
        found = {layer: {name: given[name]} for layer, given in self.options.items() if name in given}
        half = sum(option.saving for given in found.values() for option in given.values()) / 2
        return tuple(cheapest(found, half, [layer for layer in found if layer in self.fixed]) or found)

    def charge(self, losses: Mapping[str, tuple[float, Collection[str]]]) -> None:
        """Replace the errors of the options by losses of score.

        The loss of an operator is shared among the layers by their errors. An operator without a finite loss is no option.

        Args:
            losses: of each operator, and the layers in which it lost that.
        """
        rates: dict[str, float] = {}
        for name, (loss, layers) in losses.items():
            if layers and isfinite(loss):
                rates[name] = max(LEAST_LOSS, loss / (sum(self.options[layer][name].loss for layer in layers) or 1.0))
        self.options = {
            layer: {name: one._replace(loss=rates[name] * one.loss) for name, one in given.items() if name in rates}
            for layer, given in self.options.items()
        }


@dataclass
class SpeedSearch:
    """The search for the highest speed at which a mixture loses little enough: higher and higher speeds, then speeds between.

    >>> search = SpeedSearch(good=1.0)
    >>> search.next(), search.tell(1.25, good=True), search.next()
    (1.25, None, 1.5625)
    >>> search.tell(1.5625, good=False), f"{search.next():.2f}", search.tell(1.4, good=False), search.next() is None
    (None, '1.40', None, True)

    Attributes:
        good: the highest speed at which a mixture lost little enough.
        bad: the least speed at which one lost too much, or there was none.
    """

    good: float
    bad: float = inf

    def tell(self, speedup: float, *, good: bool) -> None:
        """Learn whether a mixture of this speed loses little enough."""
        self.good, self.bad = (max(self.good, speedup), self.bad) if good else (self.good, min(self.bad, speedup))

    def next(self) -> float | None:
        """Return the next speed to try; None if the fastest is known well enough."""
        if CLOSE * self.good >= self.bad:
            return None
        return FASTER * self.good if self.bad == inf else sqrt(self.good * self.bad)
