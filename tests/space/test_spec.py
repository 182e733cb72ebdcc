"""Specs: what they mean, and what is wrong with them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import small_specs

from syno.base.errors import SpecError
from syno.space import OperatorSpec, Space, preset
from syno.space.presets import PRESETS

LAYERS = {"resnet18": 19, "resnet34": 35, "densenet121": 58, "resnext29_2x64d": 10, "efficientnet_v2_s": 10, "gpt2": 12}


@pytest.mark.parametrize(("model", "layers"), LAYERS.items())
def test_the_papers_specs_replace_so_many_layers(model: str, layers: int) -> None:
    assert len(preset(model).valuations) == layers


def test_every_preset_is_checked() -> None:
    assert set(PRESETS) == set(LAYERS)


def test_a_spec_comes_back_from_its_file(tmp_path: Path) -> None:
    spec = preset("resnet18")
    (tmp_path / "resnet18.yaml").write_text(spec.dump())
    assert OperatorSpec.load(tmp_path / "resnet18.yaml") == spec


def test_the_name_plays_no_part_in_the_id() -> None:
    spec = small_specs.matmul()
    assert spec.with_(name="other").id == spec.id
    assert spec.with_(depth=2).id != spec.id


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"input": "N, M, Q"}, 'unknown variable "Q" in size "Q"; declared are'),
        ({"inptu": "N"}, 'inptu: there is no such option; there are: name, input.*Did you mean "input"'),
        ({"occurrences": {"mergs": 1}}, 'occurrences.mergs: there is no such option; .*Did you mean "merges"'),
        ({"depth": "many"}, "depth: .* given: 'many'"),
        ({"layers": []}, "layers is empty: give the values"),
        ({"layers": [{"N": 4, "M": 64}]}, "no value for K"),
        (
            {"layers": [{"values": {"N": 4, "M": 64, "K": 8}, "count": 99999999999}]},
            "layers.0.count: .* less than or equal to 10000",
        ),
        ({"layers": [{"N": 4, "M": 64, "K": 0}]}, "layers.0.values.K: .* greater than or equal to 1"),
        ({"input": "N, M*K"}, "an axis of the input has one primary variable"),
        ({"output": ""}, "output has no axes; write it as in"),
        ({"input": "N, M: orderless"}, 'marks an axis as "orderless"; the one mark there is: unordered'),
        ({"bound_axes": [(0, 1)]}, "only equal axes can be bound"),
        ({"bound_axes": [(7, 0)]}, "the output has 2 axes"),
        ({"bound_axes": [(0, 0), (0, 0)]}, "binds one axis twice"),
        ({"contractions": {"least_low_rank": 9, "most_low_rank": 8}}, "least_low_rank is 9, above most_low_rank 8"),
        ({"sizes": {"exact_division": False}}, "odd needs sizes: exact_division"),
        ({"budget": {"least_flops": 10, "most_flops": 5}}, "no model fits; raise most_flops"),
        ({"budget": {"most_flops": 5, "rest_flops": 6}}, "has 6 already; raise it"),
        ({"budget": {"most_parameters": 5, "rest_parameters": 6}}, "most_parameters is 5, .* has 6 already"),
    ],
)
def test_a_bad_spec_is_refused_with_what_to_change(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(SpecError, match=message):
        small_specs.matmul(**changes)


def test_a_file_that_is_no_spec_is_named(tmp_path: Path) -> None:
    (tmp_path / "list.yaml").write_text("- 1")
    with pytest.raises(SpecError, match=r"list.yaml: .*fields name, input"):
        OperatorSpec.load(tmp_path / "list.yaml")
    with pytest.raises(SpecError, match=r"none.yaml: cannot be read as YAML"):
        OperatorSpec.load(tmp_path / "none.yaml")


def test_contradictory_rules_are_refused_when_the_space_is_made() -> None:
    with pytest.raises(SpecError, match="rules V11 and V11b are both on"):
        Space(small_specs.matmul(rules_on=["V11b"]))


def test_an_empty_space_has_no_first_step() -> None:
    space = Space(preset("resnet18").with_(depth=1))
    assert not space.is_feasible(space.root)
    assert list(space.enumerate()) == []


@pytest.mark.slow
def test_parameters_and_memory_are_bounded_as_flops_are() -> None:
    """A 1x1 convolution has 1.37 million parameters in ResNet-18's 19 layers."""
    spec = preset("resnet18").with_(depth=2)
    flops = {"least_flops": spec.budget.least_flops, "most_flops": spec.budget.most_flops, "rest_flops": spec.budget.rest_flops}
    assert len(list(Space(spec).enumerate())) == 2
    for bound in ({"most_parameters": 1e6}, {"least_parameters": 1e7}, {"most_memory_bytes": 1e6}):
        assert list(Space(spec.with_(budget={**flops, **bound})).enumerate()) == []
