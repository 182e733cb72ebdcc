"""config/paper.yaml searches in the paper's spaces: those of the presets, in the networks that it names."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from syno.config import Experiment, load_experiments
from syno.model.backbones import BACKBONES, SEQUENCE_BACKBONES
from syno.model.extraction import replaceable
from syno.model.spec import spec_for
from syno.space import preset
from syno.space.spec import OperatorSpec

EXPERIMENTS = load_experiments(Path(__file__).parents[2] / "config" / "paper.yaml")
REPLACED = {"resnet18": 16, "resnet34": 35, "densenet121": 58, "resnext29_2x64d": 10, "efficientnet_v2_s": 10, "gpt2": 12}
REPLACED |= {"imagenet-resnet18": 19, "gpt2-final": 12, "layers-resnet34": 35}
CLASSES = {"cifar100": 100, "imagenet": 1000, "shapes": 1000}


def network(experiment: Experiment) -> tuple[torch.nn.Module, torch.Tensor]:
    """The experiment's network and an example of its input, without data."""
    workload = experiment.workload
    assert workload is not None
    if workload.data == "lm1b":
        tokens = torch.zeros(workload.training.batch, 2048, dtype=torch.long)
        return SEQUENCE_BACKBONES[workload.model](vocabulary=50257, context=2048).to("meta"), tokens.to("meta")
    model = BACKBONES[workload.model](classes=CLASSES[workload.data])
    return model.to("meta"), torch.zeros(workload.training.batch, 3, 224, 224, device="meta")


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name, experiment in EXPERIMENTS.items() if experiment.workload is not None])
def test_as_many_layers_are_replaced_as_in_the_paper(name: str) -> None:
    workload = EXPERIMENTS[name].workload
    assert workload is not None
    expected = REPLACED.get(name, REPLACED.get(name.removeprefix("imagenet-")))
    assert len(replaceable(*network(EXPERIMENTS[name]), workload.layers)) == expected


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name, experiment in EXPERIMENTS.items() if experiment.searches])
def test_a_search_is_in_the_space_of_the_preset(name: str) -> None:
    experiment, chosen = EXPERIMENTS[name], preset(name)
    assert experiment.workload is not None and not isinstance(experiment.spec, str)
    found = spec_for(*network(experiment), options={"name": name, **experiment.spec}, where=experiment.workload.layers)

    def beside_the_network(spec: OperatorSpec) -> dict[str, object]:
        return spec.model_dump(exclude={"budget": True, "layers": {"__all__": {"count"}}})

    assert beside_the_network(found) == beside_the_network(chosen)


def test_rewards_are_the_published_ones() -> None:
    from syno.search.reward import PAPER_REWARDS

    assert {name: one.make_reward() for name, one in EXPERIMENTS.items() if one.searches} == dict(PAPER_REWARDS)
