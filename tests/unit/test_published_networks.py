"""Whole networks with the published operators: parameters and FLOPs are those in the artifact, to the unit."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest
import torch
from torch import nn

from syno.ir.published import PublishedOperator, read_artifact
from syno.model.backbones import BACKBONES, SEQUENCE_BACKBONES
from syno.model.counting import published_flops, published_parameters
from syno.model.substitution import replaceable, substitute

NEW_META_FILE = "meta_new.json"  # of ResNet-18's operators, searched in 16 layers and trained again in 19


@dataclass(frozen=True)
class Setting:
    """A network, and which of its layers have the operator."""

    model: str
    classes: int = 100
    rule: str = "paper"

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


# By folder. The figures of networks that were searched on CIFAR-100 are not those of ImageNet's 1000 classes there either.
SETTINGS = {
    "good_kernels_lm1b": Setting("gpt2"),
    "densenet121": Setting("densenet121"),
    "efficientnet_v2_s": Setting("efficientnet_v2_s"),
    "resnext29_2x64d": Setting("resnext29_2x64d_1000"),
    "resnet18": Setting("resnet18", 1000),
    "resnet34": Setting("resnet34", 1000),
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


def counted(operator: PublishedOperator, setting: Setting) -> tuple[int, int]:
    values = operator.valuations[0]
    constants = {name: value for name, value in values.items() if name not in ("N", "C_in", "C_out", "H", "seq_len", "H_in")}
    example = setting.example(values["N"])
    graph = operator.graph.renamed(operator.graph.name, **constants)
    substituted = substitute(setting.network(), graph, example, rule=setting.rule)
    return published_parameters(substituted), published_flops(substituted, example)


def test_as_many_layers_are_replaced(published: list[PublishedOperator]) -> None:
    for operator in published:
        setting = setting_of(operator)
        layers = replaceable(setting.network(), setting.example(1), setting.rule)
        assert len(layers) == len(operator.placeholders), operator
        for layer, number in zip(layers, operator.placeholders, strict=True):
            given = operator.valuations[number]
            assert all(layer.values[name] == value for name, value in given.items() if name in layer.values and name != "N")


def test_parameters_and_flops_of_every_network(published: list[PublishedOperator]) -> None:
    known: dict[tuple[str, Setting, int], tuple[int, int]] = {}
    for operator, setting, parameters, flops in figures(published):
        key = (operator.graph.id, setting, operator.valuations[0]["N"])
        if key not in known:
            known[key] = counted(operator, setting)
        assert known[key] == (parameters, flops), (operator, setting)
