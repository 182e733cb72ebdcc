"""A rule of a user's own, named by its path in `rules_on`, takes part like a built-in one."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest
import small_specs

from syno.base.errors import SynoError, UnreachableError
from syno.ir.graph import PGraph
from syno.ir.primitives import SPLIT
from syno.report.operators.card import explain
from syno.space import OperatorSpec, Space, preset
from syno.space.rules import RULES, RuleSet
from syno.space.rules.listing import rows

RULE = "rules_of_my_own:no_split"
MODULE = """
from syno.space.rules import Rule

no_split = Rule("no-split", "Split", "any Split", "the study looks at sums alone", lambda step: True)
one_sum = Rule(
    "few-sums", ("Reduce", "Split"), "a second sum", "one is enough", lambda step: len(step.state.ends.sums) > 0, exact=True
)
failing = Rule("failing", "Merge", "nothing", "it fails", lambda step: step.nothing_of_the_kind)
taken = Rule("V1", "Merge", "any Merge", "its id is taken", lambda step: True)
twin = Rule("no-split", "Merge", "any Merge", "its id is taken, too", lambda step: True)
number = 3
"""


@pytest.fixture(autouse=True)
def _module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "rules_of_my_own.py").write_text(MODULE, encoding="utf-8")
    (tmp_path / "rules_of_unknown_steps.py").write_text(
        "from syno.space.rules import Rule\nrow = Rule('x', 'Splitt', 'a', 'b', lambda step: True)", encoding="utf-8"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    for name in ("rules_of_my_own", "rules_of_unknown_steps"):
        monkeypatch.delitem(sys.modules, name, raising=False)


def spec(*rules: str, off: tuple[str, ...] = (), depth: int = 4) -> OperatorSpec:
    return preset("resnet18").with_(depth=depth, rules_on=rules, rules_off=off)


def splits(operator: PGraph) -> bool:
    return any(operation.primitive is SPLIT for operation in operator.operations)


@pytest.mark.slow
def test_a_users_rule_takes_away_what_it_rejects_and_nothing_else() -> None:
    without, space = [operator for _, operator in Space(spec()).enumerate()], Space(spec(RULE))
    found = [operator.id for _, operator in space.enumerate()]
    assert found == [operator.id for operator in without if not splits(operator)]
    assert 0 < len(found) < len(without)
    assert space.rules.rejections["no-split"] > 0


def test_the_distance_prunes_no_operator_that_it_leaves() -> None:
    own = small_specs.convolution().with_(rules_on=(RULE,))
    blind = {operator.id for _, operator in Space(own, use_distance=False).enumerate()}
    assert {operator.id for _, operator in Space(own).enumerate()} == blind
    assert 0 < len(blind) < sum(1 for _ in Space(small_specs.convolution()).enumerate())


@pytest.mark.slow
def test_a_users_rule_is_listed_and_named_where_it_excludes_an_operator() -> None:
    split = next(operator for _, operator in Space(spec()).enumerate() if splits(operator))
    space = Space(spec(RULE))
    assert rows(space.rules.rules)[-1][:3] == ("no-split", "Split", "any Split")
    assert "no-split" in {row.id for row in space.rules.of(SPLIT)}
    with pytest.raises(UnreachableError, match=r"rule no-split .*sums alone"):
        space.path(split)


def test_an_explanation_lists_the_users_rule() -> None:
    space = Space(spec("rules_of_my_own:one_sum", depth=2))
    _, operator = next(space.enumerate())
    assert "few-sums  a second sum" in explain(space, operator)


def test_a_spec_with_it_is_written_and_read_back(tmp_path: Path) -> None:
    (tmp_path / "own.yaml").write_text(spec(RULE).dump(), encoding="utf-8")
    read = OperatorSpec.load(tmp_path / "own.yaml")
    assert read.rules_on == (RULE,) and read.id == spec(RULE).id != spec().id


def test_a_users_rule_is_switched_like_the_others() -> None:
    assert RuleSet(off=["all"], on=[RULE]).is_on("no-split")
    assert [row.id for row in RuleSet(off=["all"], on=["rules_of_my_own:one_sum", RULE]).exact().rules] == ["few-sums"]
    assert "no-split" not in RuleSet(off=[RULE]).table and "no-split" not in RuleSet().table and "no-split" not in RULES


@pytest.mark.parametrize(
    ("rules", "message"),
    [
        (["no_such_rules:row"], 'the rule is "no_such_rules:row", which cannot be imported'),
        (["rules_of_my_own:no_spilt"], 'has no "no_spilt". Did you mean "no_split"?'),
        (["rules_of_my_own:number"], 'the rule is "rules_of_my_own:number", which is 3; it must be a syno.space.rules.Rule'),
        (["rules_of_my_own:taken"], 'the rule "rules_of_my_own:taken" has the id "V1", which a built-in rule has already'),
        ([RULE, "rules_of_my_own:twin"], f'"rules_of_my_own:twin" has the id "no-split", which "{RULE}" has already'),
        (["rules_of_unknown_steps:row"], 'rule "x" looks at steps of kind "Splitt"; there are: Reduce,'),
        (["V99"], 'no rule "V99"; there are: C1,'),
    ],
)
def test_a_mistake_is_one_clear_error(rules: list[str], message: str) -> None:
    with pytest.raises(SynoError, match=re.escape(message)):
        Space(spec(*rules))


def test_a_rule_cannot_be_both_on_and_off() -> None:
    with pytest.raises(SynoError, match="rule no-split is in rules_off and in rules_on"):
        Space(spec(RULE, off=(RULE,)))


def test_an_exception_in_it_names_the_rule_and_the_line() -> None:
    with pytest.raises(SynoError, match='the rule "rules_of_my_own:failing" failed: AttributeError.*rules_of_my_own.py'):
        list(Space(spec("rules_of_my_own:failing")).enumerate())
