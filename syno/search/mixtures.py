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
from typing import Any, NamedTuple, TypeAlias

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
