"""The choice of an operator for each layer, against all choices."""

from __future__ import annotations

from itertools import product
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
    needed = chance.uniform(0, 0.6)
    fixed = {layer for layer in "abcd" if chance.random() < 0.25}
    losses = []
    for choice in product(*([*given] if layer in fixed else [None, *given] for layer, given in options.items())):
        chosen = [given[name] for given, name in zip(options.values(), choice, strict=True) if name is not None]
        if sum(one.saving for one in chosen) >= needed:
            losses.append(sum(one.loss for one in chosen))
    found = cheapest(options, needed, fixed)
    assert (found is None) == (not losses)
    if found is not None:
        assert fixed <= found.keys()
        assert sum(options[layer][name].saving for layer, name in found.items()) >= needed - 1e-6
        assert sum(options[layer][name].loss for layer, name in found.items()) == pytest.approx(min(losses))


def test_nothing_is_needed() -> None:
    assert cheapest({"a": {"one": Option(0.2, 0.1)}}, 0) == {}
    assert cheapest({}, 0.1) is None
    assert cheapest({}, 0, ["a"]) is None
