"""Whole networks with the published operators: parameters and FLOPs are those in the artifact, to the unit."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from itertools import groupby
from pathlib import Path

import pytest
import torch
from torch import nn

from syno.algebra import VariableKind
from syno.model.backbones import BACKBONES, SEQUENCE_BACKBONES
from syno.model.counting import published_flops, published_parameters
from syno.model.extraction import replaceable
from syno.model.layer import Layer
from syno.model.substitution import substitute
from syno.paper.artifact.published_operator import PublishedOperator, read_artifact

NEW_META_FILE = "meta_new.json"  # of ResNet-18's operators, searched in 16 layers and trained again in 19


@dataclass(frozen=True)
class Setting:
    """A network, which of its layers have the operator, and how many samples were counted at once."""

    model: str
    classes: int = 100
    rule: str = "paper"
    batch: int = 128

    def network(self) -> nn.Module:
        return shapes_of(self.model, self.classes)

    def example(self, batch: int) -> torch.Tensor:
        if self.model in SEQUENCE_BACKBONES:
            return torch.zeros(batch, 2048, dtype=torch.long, device="meta")
        return torch.zeros(batch, 3, 224, 224, device="meta")


@cache
def shapes_of(model: str, classes: int) -> nn.Module:
    """Not to be changed."""
    with torch.device("meta"):
        if model in SEQUENCE_BACKBONES:
            return SEQUENCE_BACKBONES[model](vocabulary=50257, context=2048)
        return BACKBONES[model](classes=classes)


@cache
def layers_of(setting: Setting) -> tuple[Layer, ...]:
    return tuple(replaceable(setting.network(), setting.example(setting.batch), setting.rule))


# By folder. What was searched on CIFAR-100 has the figures of its 100 classes in the folders of ImageNet, too.
SETTINGS = {
    "good_kernels_lm1b": Setting("gpt2", batch=1),
    "densenet121": Setting("densenet121"),
    "efficientnet_v2_s": Setting("efficientnet_v2_s"),
    "resnext29_2x64d": Setting("resnext29_2x64d_1000"),
    "resnet18": Setting("resnet18", 1000, batch=1024),
    "resnet34": Setting("resnet34", 1000, batch=1024),
}


def setting_of(operator: PublishedOperator) -> Setting:
    folder = operator.folder.parent.name
    if folder == "resnet":
        return Setting("resnet18", rule={16: "paper-3x3", 19: "paper"}[len(operator.placeholders)])
    return SETTINGS[folder]


def figures(operators: list[PublishedOperator]) -> Iterator[tuple[PublishedOperator, Setting, int, int]]:
    """Operators, where they are, and the parameters and FLOPs of the whole network."""
    for operator in operators:
        yield operator, setting_of(operator), operator.params, operator.flops
        if (again := operator.folder / NEW_META_FILE).exists():
            meta = json.loads(again.read_text(encoding="utf-8"))
            yield operator, Setting("resnet18"), meta["params"], meta["flops"]


@pytest.fixture(scope="module")
def published(artifact: Path) -> list[PublishedOperator]:
    return read_artifact(artifact)


# The published EfficientNet pools the picture ahead of its stem: as many elements as that makes are in all of its figures. The
# authors' rule took the stem, a 3x3 convolution of stride 2, for a layer to replace, which became a pooling and an operator; as
# three channels are too few, it got a convolution back, behind the pooling.
POOLED_PICTURE = {"efficientnet_v2_s": 3 * 112 * 112}


def check(operator: PublishedOperator, setting: Setting, parameters: int, flops: int) -> None:
    values = operator.valuations[0]
    constants = {
        name: values[name] for name, variable in operator.graph.variables.items() if variable.kind is VariableKind.COEFFICIENT
    }
    graph, example = operator.graph.renamed(operator.graph.name, **constants), setting.example(setting.batch)
    substituted = substitute(setting.network(), graph, example, layers=layers_of(setting))
    assert published_parameters(substituted) == parameters, (operator, setting)
    assert published_flops(substituted, example) == flops - POOLED_PICTURE.get(setting.model, 0), (operator, setting)


@pytest.mark.slow
def test_the_layers_are_those_that_were_replaced(published: list[PublishedOperator]) -> None:
    for setting, operators in groupby(sorted(published, key=lambda one: str(setting_of(one))), setting_of):
        for operator in operators:
            for layer, number in zip(layers_of(setting), operator.placeholders, strict=True):
                values = operator.valuations[number]
                assert all(values[name] == value for name, value in layer.values.items() if name in values and name != "N")


@pytest.mark.slow
def test_parameters_and_flops_of_every_operator(published: list[PublishedOperator]) -> None:
    known = {}
    for operator, setting, *counts in figures(published):
        known.setdefault((operator.graph.id, setting), (operator, setting, *counts))
        assert known[operator.graph.id, setting][2:] == tuple(counts)  # the same in the folders of each device
    assert len({setting for _, setting in known}) == 8
    for figure in known.values():
        check(*figure)
