"""Functions that make networks take what they need of the arguments."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

from syno.base.errors import UserCodeError
from syno.base.registry import Registry
from syno.model.network_function import call
from syno.train.making import make_network

GIVEN = {"classes": 5, "channels": 2, "width": 1.0, "seed": 3}


class Small(nn.Module):
    """A network as anybody writes it."""

    def __init__(self, classes: int = 10) -> None:
        super().__init__()
        self.head = nn.Linear(4, classes)


def everything(**given: Any) -> dict[str, Any]:
    return given


def of_a_width(*, classes: int, width: float) -> tuple[int, float]:
    return classes, width


def other(*, classes: int, blocks: int) -> nn.Module:
    return nn.Linear(blocks, classes)


def test_each_takes_what_it_needs() -> None:
    assert call(Small, GIVEN).head.out_features == 5
    assert call(everything, GIVEN) == GIVEN
    assert call(of_a_width, GIVEN) == (5, 1.0)


def test_without_a_seed_equal_arguments_make_equal_weights() -> None:
    before = torch.random.get_rng_state()
    one, two, three = (call(Small, {**GIVEN, "seed": seed}).head.weight for seed in (3, 3, 4))
    assert torch.equal(one, two) and not torch.equal(one, three)
    assert torch.equal(before, torch.random.get_rng_state())


@pytest.mark.parametrize(
    ("make", "given", "message"),
    [
        (Small, {**GIVEN, "width": 0.5}, r'"mine:make" is called with classes=5, width=0.5, but Small.*argument .width.'),
        (other, GIVEN, r"is called with classes=5, but other.*missing a required .*argument: 'blocks'"),
    ],
)
def test_what_it_does_not_take_or_lacks_is_said(make: Any, given: dict[str, Any], message: str) -> None:
    models: Registry[Any] = Registry("model")
    models.register("mine:make")(make)
    with pytest.raises(UserCodeError, match=message):
        make_network(models, "mine:make", given)
