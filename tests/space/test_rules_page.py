"""The rules' page shows the rules as they are."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from syno.base.errors import SpecError
from syno.ir.graph import PGraph
from syno.space import Space, preset
from syno.space.rules import RULES, RuleSet
from syno.space.rules.listing import rows, rules_table

PAGE = Path(__file__).parents[2] / "docs" / "rules.md"
HEAD = """# The rules

A canonicalization rule rejects a step if another way leads to its result, exactly or approximately. Each rule is a row of
a table: it can be switched off (`rules_off` in a spec) or on (`rules_on`), and counts what it rejects. `all` stands for
every built-in rule. Your own rules are named by their path in `rules_on`: [The space](space.md#rules-of-your-own).

Each rule has an example in `syno/space/rules/listing.py`. The example proves an exact rule: both forms have the same
fingerprint. For an approximate rule, the table gives the share of summands for which both forms of its example read the
same element; it grows with the sizes. A policy rejects operators that are equal to no other operator, because they are
assumed to be of little use. If a rule of the published system is exact for some steps only, a second row, whose id ends
in p, rejects the other steps as a policy; both rows together are the published rule. Without its exact rules, a space
holds the same functions. This was compared in seven small spaces, up to four primitives, with the other rules at their
defaults. V1p alone removes 14 of 21 functions from a space of `C -> D`, and V17p removes 4.

"""


def test_the_page_is_up_to_date() -> None:
    text = HEAD + rules_table() + "\n"
    if os.environ.get("UPDATE_GOLDEN"):
        PAGE.write_text(text, encoding="utf-8")
    assert PAGE.read_text(encoding="utf-8") == text


def test_every_rule_of_the_published_system_is_listed() -> None:
    listed = {row[0] for row in rows()}
    assert {f"V{i}" for i in range(1, 22)} | {f"C{i}" for i in range(1, 15)} | {f"U{i}" for i in range(1, 8)} <= listed


def test_two_rules_that_cut_off_both_forms_are_refused() -> None:
    with pytest.raises(SpecError, match="V11 and V11b are both on"):
        RuleSet(on=["V11b"])
    assert RuleSet(off=["V11"], on=["V11b"]).is_on("V11b")


def test_an_unknown_rule_is_refused_with_the_known_ones() -> None:
    with pytest.raises(SpecError, match='no rule "V99"; there are: '):
        RuleSet(off=["V99"])


def test_rules_can_be_switched_off_one_by_one_or_all() -> None:
    assert not RuleSet(off=["V1"]).is_on("V1")
    assert [row.id for row in RuleSet(off=["all"], on=["V1"]).rules] == ["V1"]


def test_rejections_are_counted() -> None:
    space = Space(preset("resnet18").with_(depth=3))
    list(space.enumerate())
    assert set(space.rules.rejections) <= set(RULES)
    assert space.rules.rejections["U1"] > 0


def symmetric(*rules: str) -> Space:
    return Space(preset("resnet18").with_(depth=4, rules_on=list(rules)))


@pytest.fixture(scope="module")
def all_of_them() -> list[PGraph]:
    return [operator for _, operator in symmetric().enumerate()]


@pytest.mark.slow
def test_shifts_of_whole_axes_are_recognised_where_asked_for(all_of_them: list[PGraph]) -> None:
    space = symmetric("S1")
    without = [operator for _, operator in space.enumerate()]
    assert 0 < len(without) < len(all_of_them)
    assert {space.fingerprint(operator) for operator in all_of_them} == {space.fingerprint(o) for o in without}


@pytest.mark.slow
def test_one_of_an_operator_and_its_mirror_image_is_found_where_asked_for(all_of_them: list[PGraph]) -> None:
    space = symmetric("S2")
    found = [operator for _, operator in space.enumerate()]
    assert len(found) < len(all_of_them)
    names = [space.fingerprint(operator) for operator in found]
    assert len(set(names)) == len(names)
    assert set(names) == {space.fingerprint(operator) for operator in all_of_them}
