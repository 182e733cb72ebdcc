"""Patterns of operators: what counts as one, and how often they occur beside the best and random operators."""

from __future__ import annotations

from pathlib import Path

import pytest
import small_specs

from syno import OPERATORS
from syno.ir.builder import Builder
from syno.paper.ablations.parts import Parts
from syno.paper.ablations.patterns import (
    LOW_RANK,
    SHARED_WINDOW,
    UNWEIGHTED,
    FoundOperators,
    lift_of_best,
    lift_of_found,
    pattern_rows,
    patterns,
    random_operators,
)
from syno.space import Space


def names(operator: str, family: str) -> set[str]:
    return {name for of, name in patterns(OPERATORS[operator]()) if of == family}


def test_the_patterns_of_a_convolution() -> None:
    assert names("conv2d", "pair") == {"Expand on Share", "Share on Reduce", "Unfold(window) on Share"}
    assert names("conv2d", "triple") == {"Share on Reduce; Unfold(window) on Share"}
    assert names("conv2d", "count") == {"1 weight", "2 x Unfold", "3 x Reduce"}
    assert names("conv2d", "reads") == {"reads a square"}
    assert names("conv2d", "structure") == set()


def test_operator_1_shares_a_window_and_a_low_rank_sum() -> None:
    assert names("operator_1", "structure") == {LOW_RANK, SHARED_WINDOW}
    assert "shifts around the border" in names("operator_2", "reads")


def test_a_sum_without_a_weight() -> None:
    build = Builder("C, H; s=2", name="pooled")
    channel, row = build.output("C, H")
    (part,) = build.reduce("s")
    pooled = build.finish([channel, build.split(row, part)])
    assert ("structure", UNWEIGHTED) in patterns(pooled)


def test_patterns_do_not_depend_on_names_and_sizes() -> None:
    operators = [operator for _, operator in Space(small_specs.convolution(depth=3)).enumerate()]
    renamed = [operator.renamed("other") for operator in operators]
    assert list(map(patterns, operators)) == list(map(patterns, renamed))


def test_lifts_are_ratios_of_shares() -> None:
    has, best = [True, True, False, False], [True, False, False, False]
    lift, low, high = lift_of_best(has * 25, best * 25, seed=0)
    assert lift == 2.0 and low is not None and high is not None and 1.5 < low < 2 < high < 2.7
    assert lift_of_best(has, [False] * 4, seed=0) == (None, None, None)
    lift, low, high = lift_of_found(30, 100, 10, 100)
    assert lift == pytest.approx(3) and low == pytest.approx(1.55, abs=0.01) and high == pytest.approx(5.80, abs=0.01)
    assert lift_of_found(3, 10, 0, 10) == (None, None, None)


def test_rows_compare_all_the_best_and_random_ones() -> None:
    operators = tuple(operator for _, operator in Space(small_specs.convolution()).enumerate())
    rewards = tuple(float(("count", "2 weights") in patterns(operator)) for operator in operators)
    rows = pattern_rows(FoundOperators(operators, rewards), operators[:5], best=0.1, seed=3)
    assert rows == pattern_rows(FoundOperators(operators, rewards), operators[:5], best=0.1, seed=3)
    (two,) = [row for row in rows if row["pattern"] == "2 weights"]
    assert (two["operators"], two["best"], two["best_share"], two["random"]) == (len(operators), 3, 1.0, 5)
    assert two["lift_best"] == pytest.approx(len(operators) / sum(rewards))


def test_random_operators_continue_where_they_were(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("syno.paper.ablations.patterns.CHUNK", 3)
    spec, texts = small_specs.convolution(), lambda found: [str(operator) for operator in found]
    whole = texts(random_operators(spec, 6, seed=1))
    assert len(set(whole)) == 6 and whole != texts(random_operators(spec, 6, seed=2))
    parts, asked = Parts(tmp_path / "parts"), []

    def interrupted(title: str, finished: int, total: int) -> None:
        asked.append(finished)
        if finished == 4:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        random_operators(spec, 6, seed=1, parts=parts, show=interrupted)
    asked.clear()
    assert texts(random_operators(spec, 6, seed=1, parts=parts, show=lambda _, finished, __: asked.append(finished))) == whole
    assert min(asked) == 3
