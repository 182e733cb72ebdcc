"""The choice of an operator for each layer, against all choices."""

from __future__ import annotations

from collections.abc import Collection
from itertools import combinations, product
from math import inf, nan
from random import Random

import pytest

from syno.search.mixtures import CLOSE, LEAST_KEPT, LEAST_LOSS, MORE, Option, Prices, SpeedSearch, cheapest


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


def prices() -> Prices:
    """Two layers; the second operator is the faster one in both, and has the larger error."""
    options = {layer: {"fast": Option(0.2, 1.0), "faster": Option(0.3, 3.0)} for layer in ("a", "b")}
    return Prices(options)


def test_the_loss_of_an_operator_is_shared_by_errors_and_never_zero() -> None:
    found = prices()
    found.charge({"fast": (0.1, ("a", "b")), "faster": (-0.2, ("a",)), "other": (nan, ("a",))})
    assert found.options["b"] == {"fast": Option(0.2, 0.05), "faster": Option(0.3, pytest.approx(3 * LEAST_LOSS))}
    found.charge({"fast": (nan, ("a",)), "faster": (1.0, ())})  # a training that broke, and an operator in no layer
    assert found.options == {"a": {}, "b": {}}


def test_a_mixture_that_is_too_slow_raises_the_target_by_what_it_fell_short() -> None:
    found = prices()
    first = found.target(2.0)
    choice = found.cheapest(first)
    assert first == 0.5 and choice in ({"a": "fast", "b": "faster"}, {"a": "faster", "b": "fast"})
    assert found.promised(choice) == pytest.approx(0.5) and found.expected(choice) == pytest.approx(2.0)
    found.learn(choice, 1 / 0.6)  # it saves 0.4
    assert found.kept == pytest.approx(0.8) and found.target(2.0, first) == pytest.approx(0.625)
    assert found.expected({"a": "faster", "b": "faster"}) == pytest.approx(1 / (1 - 0.8 * 0.6))
    found.learn(choice, 0.5)
    assert found.kept == LEAST_KEPT and found.target(1.01, 0.3) == pytest.approx(0.3 + MORE)
    assert found.cheapest(found.target(2.0)) is None


def test_savings_of_two_options_that_overlap_are_counted_once() -> None:
    found = prices()
    first, second = ("a", "fast"), ("b", "faster")
    assert found.overlap(first, second, 1 / 0.6) and found.promised(dict((first, second))) == pytest.approx(0.4)
    assert not found.overlap(first, second, 1 / 0.5) and not found.overlap(first, second, None)
    assert found.expected({"a": "fast"}) == pytest.approx(1.25)
    assert Prices({"a": {"x": Option(1.5, 0.0)}}).expected({"a": "x"}) == inf


def test_half_of_what_could_be_dropped_is_dropped_where_errors_are_least() -> None:
    options = {layer: {"dropped": Option(0.1, error)} for layer, error in (("a", 3.0), ("b", 1.0), ("c", 2.0), ("d", 4.0))}
    assert set(Prices(options).least_dropped("dropped")) == {"b", "c"}
    assert set(Prices(options, fixed=["d"]).least_dropped("dropped")) == {"b", "d"}
    assert Prices(options).least_dropped("other") == ()


@pytest.mark.parametrize("best", [1.0, 1.3, 2.0, 7.5])
def test_the_search_for_the_highest_speed_ends_near_it(best: float) -> None:
    search, tried = SpeedSearch(good=1.0), list[float]()
    while (speed := search.next()) is not None:
        tried.append(speed)
        search.tell(speed, good=speed <= best)
    assert search.good <= best < search.bad <= CLOSE * search.good and len(tried) <= 12
