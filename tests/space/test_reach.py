"""Known operators in the paper's spaces: the way to each, or what keeps it out."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import pytest

from syno import OPERATORS, Builder, PGraph
from syno.base.errors import UnreachableError
from syno.ir.rewriting import normal_form, with_variables
from syno.paper.artifact.published_operator import distinct, read_artifact
from syno.space import Space, preset
from syno.space.reach import reach
from syno.space.refusal import described

MODELS = {"resnet": "resnet18", "good_kernels_lm1b": "gpt2"}  # folders of the artifact that are not named after a space


@cache
def space(model: str) -> Space:
    return Space(preset(model))


def conv2d() -> PGraph:
    build = Builder("N, C_in, C_out, H; k_1=3", name="conv2d")
    n, o, y, x = build.output("N, C_out, H, H")
    c, i, j = build.contract(outer=[o], inner=build.reduce("C_in, k_1, k_1"))
    return build.finish([n, c, build.unfold(y, i), build.unfold(x, j)])


def test_conv2d_is_six_primitives_away_once_the_cap_on_flops_is_lifted() -> None:
    free = Space(preset("resnet18").with_(budget={}, depth=6))
    stages = reach(free, conv2d())
    assert [stage.step.kind for stage in stages] == ["Reduce"] * 3 + ["Contraction", "Unfold", "Unfold", "Finalize"]
    assert [stage.distance for stage in stages] == [1, 2, 3, 2, 1, 0, 0]  # with fewer sums a 1x1 convolution is near


def test_conv2d_is_over_the_budget_of_nine_tenths() -> None:
    with pytest.raises(UnreachableError, match="multiply-adds in the replaced layers are outside .* \\(budget\\)"):
        reach(space("resnet18"), conv2d())


def test_operator_1_takes_ten_primitives_and_no_less() -> None:
    stages = reach(space("resnet18"), OPERATORS["operator_1"]())
    assert len(stages) - 1 == 10
    with pytest.raises(UnreachableError, match="shape distance|depth"):
        reach(Space(preset("resnet18").with_(depth=9)), OPERATORS["operator_1"]())


def test_the_last_step_is_the_operator_itself() -> None:
    operator = OPERATORS["operator_2"]()
    assert reach(space("resnet18"), operator)[-1].step.operator.id == normal_form(operator).id


def test_every_stage_leads_to_the_next() -> None:
    for before, after in zip((stages := reach(space("resnet18"), OPERATORS["operator_1"]()))[:-1], stages[1:], strict=True):
        assert after.candidate.state == before.state
        assert after.distance >= before.distance - 1


@pytest.mark.parametrize(
    ("operator", "reason"),
    [
        ("conv2d", 'the coefficient variable "k"'),
        ("pixel_shuffle", "variable"),
        ("gpt2_projection", "variable|output"),
    ],
)
def test_operators_of_other_shapes_are_told_so(operator: str, reason: str) -> None:
    with pytest.raises(UnreachableError, match=reason):
        reach(space("resnet18"), OPERATORS[operator]())


def test_a_rule_that_excludes_an_operator_is_named() -> None:
    build = Builder("N, C_in, C_out, H; k_1=3", name="twice_shifted")
    n, o, y, x = build.output("N, C_out, H, H")
    (c,) = build.contract(outer=[o], inner=build.reduce("C_in"))
    twice = build.finish([n, c, build.shift(build.shift(y, 1), 1), x])
    with pytest.raises(UnreachableError, match="rule V5 rejects it"):
        reach(space("resnet18"), twice)


def test_weights_that_wait_for_each_other_are_no_way() -> None:
    separable = with_variables(OPERATORS["separable_conv2d"](), {"k": "k_1"})
    with pytest.raises(UnreachableError, match="separable_conv2d is not in the space"):  # depth-wise weights end no axis
        reach(Space(preset("resnet18").with_(budget={})), separable)


def test_described_names_what_is_added() -> None:
    stages = reach(space("resnet18"), OPERATORS["operator_1"]())
    assert described(stages[5].candidate).startswith("Contraction(")
    assert "C_out (outer)" in described(stages[5].candidate)


EXCLUDED = {  # published operators that a mended bug excludes, and the option that lets them in again
    "07961_6401135668858572539": ("is 1 for every layer", {"drop_ones": False}),
    "07966_9231810682201044028": ("is 1 for every layer", {"drop_ones": False}),
    "05675_10993262425417760381": ("occur too often", None),
}


@pytest.mark.slow
def test_published_operators_are_reachable_or_their_exclusion_is_named(artifact: Path) -> None:
    for published in distinct(read_artifact(artifact)):
        folder = published.folder.parts[-2]
        model, name = MODELS.get(folder, folder), published.folder.name
        if name not in EXCLUDED:
            assert reach(space(model), published.graph)[-1].step.operator.id == published.graph.id
            continue
        reason, option = EXCLUDED[name]
        with pytest.raises(UnreachableError, match=reason):
            reach(space(model), published.graph)
        if option is not None:
            spec = preset(model)
            lenient = Space(spec.with_(sizes={**spec.sizes.model_dump(), **option}))
            assert reach(lenient, published.graph)
