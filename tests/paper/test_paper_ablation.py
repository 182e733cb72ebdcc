"""The redundancy of random graphs beside the paper's."""

from __future__ import annotations

import pytest

from syno.paper.ablations.canonical import Rate
from syno.paper.ablations.parts import wilson
from syno.paper.ablations.tables import beside_the_paper


def test_the_largest_size_that_has_canonical_graphs_is_compared() -> None:
    rates = [Rate(1, graphs=100, canonical=100), Rate(2, graphs=100, canonical=8), Rate(3, graphs=40, canonical=0)]
    measured, paper, by_size = beside_the_paper(rates)
    assert (measured["graphs per canonical graph"], measured["origin"]) == ("12.5", "measured")
    assert measured["of"] == "100 random graphs of 2 primitives"
    low, high = (float(part) for part in str(measured["95 %"]).split(" to "))
    assert (1 / high, 1 / low) == pytest.approx(wilson(8, 100), rel=0.01)
    assert (paper["graphs per canonical graph"], paper["origin"]) == ("more than 70", "paper")
    assert by_size["graphs per canonical graph"] == "1.0; 5.5; 7.2; 22.7; 82.0; 1,250.0; none"


def test_without_canonical_graphs_there_is_nothing_to_compare() -> None:
    assert beside_the_paper([Rate(1, graphs=3)]) == []
