"""The choice of an operator for each layer, against all choices."""

from __future__ import annotations

from collections.abc import Collection
from itertools import combinations, product
from random import Random

import pytest

from syno.search.mixtures import Option, cheapest


@pytest.mark.parametrize("seed", range(20))
def test_no_choice_that_saves_as_much_loses_less(seed: int) -> None:
    chance, unit = Random(seed), (1.0, 1e-6)[seed % 2]  # losses may be far below the tolerances of a solver
    names = ["one", "two", "three"]
    options = {
        layer: {name: Option(chance.uniform(-0.05, 0.2), unit * chance.random()) for name in names if chance.random() < 0.8}
        for layer in "abcd"
    }
    places = [(layer, name) for layer, given in options.items() for name in given]
    pairs = [(one, other) for one, other in combinations(places, 2) if one[0] != other[0]]
    less = {pair: chance.uniform(-0.1, 0.2) for pair in pairs if chance.random() < 0.1}
    needed = chance.uniform(0, 0.6)

    def saving(chosen: Collection[tuple[str, str]]) -> float:
        together = sum(lost for pair, lost in less.items() if set(pair) <= set(chosen))
        return sum(options[layer][name].saving for layer, name in chosen) - together

    fixed = {layer for layer in "abcd" if chance.random() < 0.25}
    losses = []
    for choice in product(*([*given] if layer in fixed else [None, *given] for layer, given in options.items())):
        chosen = [(layer, name) for layer, name in zip(options, choice, strict=True) if name is not None]
        if saving(chosen) >= needed:
            losses.append(sum(options[layer][name].loss for layer, name in chosen))
    found = cheapest(options, needed, fixed, less=less)
    assert (found is None) == (not losses)
    if found is not None:
        assert fixed <= found.keys()
        assert saving([*found.items()]) >= needed - 1e-6
        assert sum(options[layer][name].loss for layer, name in found.items()) == pytest.approx(min(losses))


def test_nothing_is_needed() -> None:
    assert cheapest({"a": {"one": Option(0.2, 0.1)}}, 0) == {}
    assert cheapest({}, 0.1) is None
    assert cheapest({}, 0, ["a"]) is None
