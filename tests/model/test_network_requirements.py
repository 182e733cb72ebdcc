"""The requirement that follows from a network, and the experiment's option that chooses it."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest
import torch
from small_experiment import FIELDS
from torch import nn

import syno
from syno.base.errors import SpecError
from syno.base.validation import named_differences
from syno.config import Experiment
from syno.model.backbones import BACKBONES, SEQUENCE_BACKBONES
from syno.model.extraction import replaceable
from syno.model.requirement import requirement
from syno.model.spec import spec_for
from syno.space import Space
from syno.space.reads import Reads
from syno.space.requirements import Requirements
from syno.space.sample import Sampler

SQUARE = Reads(H=3, applied=2, centred=True, channels="all", along="every")
LINE = Reads(H=2, applied=2, centred=False, channels="all", along="any")


POINTWISE = """
operator pointwise
variables C_in, C_out, L, N
output i0:N, i1:C_out, i2:L
r0:C_in = Reduce()
d0:C_out = Share(i1, w1[0])
d1:C_in = Share(r0, w1[1])
Expand(d0)
input i0:N, d1:C_in, i2:L
weight w1[C_out, C_in]
"""


def asked(model: nn.Module, where: Any = "spatial", size: int = 16) -> Reads | None:
    example = torch.zeros(1, 3, size, size, device=next(model.parameters()).device)
    return spec_for(model, example, options={"reads": "auto"}, where=where).reads


def convolution(into: int, out: int, **options: Any) -> nn.Conv2d:
    return nn.Conv2d(into, out, 3, padding=1, bias=False, **options)


class TestRule:
    @pytest.mark.slow
    @pytest.mark.parametrize(
        ("name", "where", "expected"),
        [
            ("resnet8", "spatial", SQUARE),
            ("resnext29_2x64d", "paper", LINE.model_copy(update={"channels": "none"})),  # it replaces layers with groups
            pytest.param("resnet18", "paper-3x3", SQUARE, marks=pytest.mark.slow),
            pytest.param("densenet121", "paper", LINE, marks=pytest.mark.slow),
            pytest.param("efficientnet_v2_s", "paper", LINE, marks=pytest.mark.slow),
        ],
    )
    def test_requirements_of_the_papers_networks(self, name: str, where: str, expected: Reads) -> None:
        """As the published operators do it: squares in ResNets, lines in the others."""
        with torch.device("meta"):
            assert asked(BACKBONES[name](classes=10), where, size=128) == expected

    def test_layers_that_go_on_mixing_make_a_line_enough(self) -> None:
        layers = [convolution(3, 8), *(convolution(8, 8) for _ in range(4)), convolution(8, 64), convolution(64, 64)]
        model = nn.Sequential(*layers)
        assert asked(model) == SQUARE
        assert asked(model, where=["6"]) == LINE  # most of the FLOPs, and five others mix

    @pytest.mark.parametrize(("size", "expected"), [(4, SQUARE), (2, {"H": 2}), (1, {})])
    def test_small_pictures_ask_for_fewer_positions(self, size: int, expected: Reads | dict[str, int]) -> None:
        found = asked(nn.Sequential(convolution(3, 8), convolution(8, 8)), size=size)
        assert found is not None
        assert found == expected if isinstance(expected, Reads) else (found.positions, found.centred) == (expected, False)

    def test_one_layer_with_a_single_position_leaves_the_axis_to_the_others(self) -> None:
        """Their windows may not fit there, so that operators mix by shifts; they are found."""
        layers = [nn.Conv1d(3, 16, 3, padding=1), *(nn.Conv1d(16, 16, 3, 2, 1) for _ in range(4))]
        model, example = nn.Sequential(*layers), torch.zeros(1, 3, 16)
        assert model(example).shape == (1, 16, 1)
        spec = spec_for(model, example, options={"reads": "auto", "depth": 8})
        assert spec.reads == Reads(L=2, applied=2, centred=False, channels="all", along="every")
        sampler = Sampler(Space(spec), Random(0))
        operator = next(found for found in iter(sampler.draw, sampler) if found is not None)
        pointwise = syno.parse(POINTWISE)
        unmet = Requirements(spec).unmet
        assert unmet(operator) is None and "reads 1 positions along L" in str(unmet(pointwise))

    @pytest.mark.parametrize(
        ("height", "width", "expected"), [(64, 1, {"H": 9}), (64, 8, {"H": 9}), (5, 1, {"H": 5}), (1, 1, {})]
    )
    def test_tall_windows_ask_for_neighbours_along_their_own_axis(
        self, height: int, width: int, expected: dict[str, int]
    ) -> None:
        layers = [nn.Conv2d(into, 16, (side, 1), padding="same") for into, side in ((3, 9), (16, 64), (16, 9))]
        example = torch.zeros(1, 3, height, width)
        model = nn.Sequential(*layers)
        layers_to_replace = replaceable(model, example)
        found = requirement(model, example, layers_to_replace, 0.9)
        assert found.reads is not None and found.reads.positions == expected
        assert ("no other layer mixes positions along H" in found.reason) == bool(expected)
        window = {64: "k_1=3:2, k_2=63:2", 5: "k_1=3:2, k_2=5:2", 1: "k_1=3:2"}[
            height
        ]  # of the layer with 64, as far as it fits
        assert f"; {window}, s=2:2" in spec_for(model, example).variables

    def test_nothing_is_asked_of_projections(self) -> None:
        tokens = torch.zeros(1, 16, dtype=torch.long)
        model = SEQUENCE_BACKBONES["gpt_tiny"](vocabulary=16, context=16)
        assert spec_for(model, tokens, options={"reads": "auto"}, where="paper").reads is None


class TestOption:
    def test_the_default_follows_from_the_network(self) -> None:
        made = Experiment(**{**FIELDS, "spec": {"depth": 6}})
        assert made.operator_spec.reads == SQUARE
        assert "replaced layers have" in made.network.requirement.reason

    def test_reads_none_is_the_space_without_a_requirement(self) -> None:
        made = Experiment(**{**FIELDS, "spec": {"depth": 6, "reads": "none"}})
        assert made.operator_spec.reads is None
        assert made.operator_spec.id == made.network.spec({"depth": 6}).id

    def test_a_mapping_is_taken_as_it_is(self) -> None:
        made = Experiment(**{**FIELDS, "spec": {"depth": 6, "reads": {"H": 2, "along": "any"}}})
        assert made.operator_spec.reads == Reads(H=2, along="any")

    @pytest.mark.parametrize(("given", "said"), [("auto", "there is none; give a mapping"), ("autto", 'Did you mean "auto"')])
    def test_texts_that_mean_nothing_without_a_network(self, given: str, said: str) -> None:
        with pytest.raises(SpecError, match=said):
            Experiment(name="x", spec={"preset": "resnet18", "reads": given})

    def test_a_study_names_it_where_it_differs(self) -> None:
        assert named_differences({"reads": None}, {"reads": {"H": 3}}, "spec") == ["spec.reads is None there, {'H': 3} here"]
