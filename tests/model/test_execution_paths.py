"""Networks whose `forward` looks at values: their layers, FLOPs and latencies are those of real samples, and it is said."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional
from torch.utils.data import DataLoader, TensorDataset

import syno
from syno.base.errors import SpecError
from syno.config import Experiment
from syno.model.counting import count
from syno.model.execution_paths import check_same_modules, find_paths
from syno.model.inputs import len_of_batch
from syno.model.shared_memory import copy_of
from syno.stages.data import DataRecord, data_text, look
from syno.stages.measure import subject_of

LOUD, QUIET = 1.0, -1.0


class Branching(nn.Module):  # type: ignore[misc]
    """Two convolutions and a head. The second runs where `takes_long` says so."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Conv2d(1, 4, 3, padding=1), nn.Conv2d(4, 4, 3, padding=1)
        self.head = nn.Linear(4, 2)

    def takes_long(self, x: torch.Tensor) -> bool:
        return True

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        made = self.first(x).relu()
        if self.takes_long(x):
            made = self.second(made).relu()
        return self.head(made.mean((2, 3)))


class BranchOfMean(Branching):
    def takes_long(self, x: torch.Tensor) -> bool:
        return bool(x.mean() > 0)


class SilenceGate(Branching):
    """Zeros, and the random numbers that latencies are measured on, are silence."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if x.abs().mean() < 2:
            return self.head(x.new_zeros(len(x), 4))
        return super().forward(x)


class Refusing(Branching):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if x.mean() < 0:
            raise ValueError("too quiet")
        return super().forward(x)


class OfBatch(Branching):
    """A batch takes another path than a sample."""

    def takes_long(self, x: torch.Tensor) -> bool:
        return len(x) > 1


class BranchOfFeatures(Branching):
    """The first layer, which an operator may replace, decides."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        made = self.first(x).abs()
        return self.head((self.second(made) if made.mean() > 0.5 else made).mean((2, 3)))


def make(**_: object) -> nn.Module:
    return BranchOfMean()


def make_task() -> syno.Task:
    """Batches in a random order, of which one sample in four is loud."""
    x, y = samples(*[QUIET, QUIET, QUIET, LOUD] * 8), torch.arange(32) % 2
    loader = DataLoader(TensorDataset(x, y), batch_size=16, shuffle=True, generator=torch.Generator())
    return syno.Task(loader, loader, loss=lambda model, batch: functional.cross_entropy(model(batch[0]), batch[1]))


def samples(*means: float) -> torch.Tensor:
    """Return samples of these means."""
    noise = torch.randn(len(means), 1, 6, 6, generator=torch.Generator().manual_seed(0)) / 10
    return noise + torch.tensor(means).view(-1, 1, 1, 1)


@pytest.mark.parametrize(
    ("make", "means", "said", "longest"),
    [
        (BranchOfMean, (QUIET, LOUD, LOUD), "2 of 3 took the longest execution path, of .* (without second)", (LOUD, LOUD)),
        (BranchOfMean, (LOUD, LOUD), "other modules for zeros or random numbers", (LOUD, LOUD)),
        (SilenceGate, (3.0, 4.0), "other modules for zeros or random numbers", (3.0, 4.0)),
        (Refusing, (LOUD, QUIET), "fails on 1 of 2 samples: .*too quiet", (LOUD,)),
        (OfBatch, (LOUD, QUIET), "other modules for a batch of 2 (without second)", None),
        (Branching, (LOUD, QUIET), "", None),
    ],
)
def test_samples_that_take_other_paths_are_said(
    make: Callable[[], nn.Module], means: tuple[float, ...], said: str, longest: tuple[float, ...] | None
) -> None:
    network, inputs, state = make(), samples(*means), torch.get_rng_state()
    found = find_paths(network, inputs)
    assert torch.equal(torch.get_rng_state(), state)
    assert re.search(said.replace("(", r"\(").replace(")", r"\)"), found.description) if said else found.description == ""
    if longest is None:
        assert found.samples is None and found.inputs is inputs
    else:
        assert [round(float(one.mean())) for one in found.samples] == list(longest)
        assert len(found.inputs) == len(inputs)
        assert count(network, found.inputs).flops == len(inputs) * count(network, found.samples[:1]).flops


def test_an_operator_that_changes_the_path_is_not_compared() -> None:
    network, x = BranchOfFeatures(), samples(LOUD)
    nn.init.ones_(network.first.weight)
    changed = copy_of(network)
    nn.init.zeros_(changed.first.weight)
    nn.init.zeros_(changed.first.bias)
    with pytest.raises(SpecError, match=r"takes another execution path with the operator than without it \(without second\)"):
        check_same_modules(network, changed, x, ["first"])


def test_an_experiment_counts_replaces_and_measures_the_longest_path() -> None:
    workload = {"model": f"{__name__}:make", "task": f"{__name__}:make_task", "training": {"epochs": 1}}
    own = Experiment(name="own", workload=workload, evaluate="cost", reward={"name": "savings"}, train={"seeds": []})
    record = look(own)
    assert record.layers == ("second",)
    assert record.flops == count(Branching(), samples(LOUD)).flops
    assert re.search(r"\nwarning: BranchOfMean does not compute the same for all samples: \d of 8 took", data_text(own, record))
    again = DataRecord.model_validate_json(record.model_dump_json())
    subject = subject_of(own.workload, again, None, "eager")
    material = subject.make("cpu", 1)
    (x,) = material.make_inputs()
    assert x.mean() > 0.5 and material.flops == record.flops
    assert torch.equal(material.make_check_inputs()[0][0], x)


def test_examples_are_real_and_the_same_in_each_process() -> None:
    task, other = make_task(), make_task()
    state = task.train.generator.get_state(), torch.get_rng_state(), np.random.get_state()[1].copy()
    assert task.example_inputs.any()
    assert torch.equal(task.example_inputs, other.example_inputs)
    assert torch.equal(task.train.generator.get_state(), state[0]) and torch.equal(torch.get_rng_state(), state[1])
    assert (np.random.get_state()[1] == state[2]).all()


class Features(NamedTuple):
    """A batch of a user's own class."""

    x: torch.Tensor
    y: torch.Tensor


@pytest.mark.parametrize(
    ("batch", "given", "place"),
    [
        ((torch.ones(4, 3), torch.ones(4)), torch.zeros(2, 3), lambda found: found),
        (((torch.ones(4, 3), torch.ones(4, 2)), torch.ones(4)), (torch.zeros(1, 3), torch.zeros(1, 2)), lambda found: found[1]),
        ((torch.ones(4, 3), torch.ones(4, 2), torch.ones(4)), (torch.zeros(1, 3), torch.zeros(1, 2)), lambda found: found[1]),
        ({"x": torch.ones(4, 3), "labels": torch.ones(4)}, {"x": torch.zeros(2, 3)}, lambda found: found["x"]),
        ({"x": torch.ones(4, 3), "labels": torch.ones(4)}, torch.zeros(2, 3), lambda found: found),
        (Features(torch.ones(4, 3), torch.ones(4)), torch.zeros(2, 3), lambda found: found),
    ],
)
def test_zeros_that_a_user_gives_are_filled_with_a_batch_of_their_form(batch: Any, given: Any, place: Any) -> None:
    found = syno.Task([batch], [batch], loss=lambda model, batch: model(batch), example_inputs=given).example_inputs
    assert place(found).all() and len_of_batch(found) == len_of_batch(given)
