"""config/paper.yaml searches in the paper's spaces: those of the presets, in the networks that it names."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from syno.config import Experiment, load_experiments
from syno.model.backbones import BACKBONES, SEQUENCE_BACKBONES
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
    with torch.device("meta"):
        if workload.data == "lm1b":
            tokens = torch.zeros(workload.training.batch, 2048, dtype=torch.long)
            return SEQUENCE_BACKBONES[workload.model](vocabulary=50257, context=2048), tokens
        return BACKBONES[workload.model](classes=CLASSES[workload.data]), torch.zeros(workload.training.batch, 3, 224, 224)


def of_one_network() -> list[list[str]]:
    """The experiments that replace the same layers of the same network, those that search first."""
    found: dict[tuple[str, str], list[str]] = {}
    for name, experiment in sorted(EXPERIMENTS.items(), key=lambda item: not item[1].searches):
        if isinstance(experiment, Experiment) and experiment.workload is not None:
            found.setdefault((experiment.workload.model, str(experiment.workload.layers)), []).append(name)
    return list(found.values())


@pytest.mark.slow
@pytest.mark.parametrize("names", of_one_network(), ids=lambda names: names[0])
def test_as_many_layers_are_replaced_as_in_the_paper_and_searches_are_in_the_space_of_the_preset(names: list[str]) -> None:
    name, experiment = names[0], EXPERIMENTS[names[0]]
    assert experiment.workload is not None and not isinstance(experiment.spec, str)
    assert not any(EXPERIMENTS[other].searches for other in names[1:])
    options = {"name": name, **experiment.spec} if experiment.searches else None
    found = spec_for(*network(experiment), options=options, where=experiment.workload.layers)
    expected = {REPLACED.get(other, REPLACED.get(other.removeprefix("imagenet-"))) for other in names}
    assert {sum(layer.count for layer in found.layers)} == expected

    def beside_the_network(spec: OperatorSpec) -> dict[str, object]:
        return spec.model_dump(exclude={"budget": True, "layers": {"__all__": {"count"}}})

    if experiment.searches:
        assert beside_the_network(found) == beside_the_network(preset(name))


def test_rewards_are_the_published_ones() -> None:
    from syno.search.reward import PAPER_REWARDS

    assert {name: one.make_reward() for name, one in EXPERIMENTS.items() if one.searches} == dict(PAPER_REWARDS)
