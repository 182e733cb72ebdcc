"""The check of an operator on the first batch: faults are found, and what the network does is not blamed on the operator."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from small_experiment import FIELDS
from torch import nn

from syno.base.errors import TrainingError
from syno.config import Experiment
from syno.ir.library import OPERATORS
from syno.ir.rewriting import with_variables
from syno.model.module import OperatorModule
from syno.search.faults import fault_of
from syno.train.contract import Report
from syno.train.first_batch import fault_on_first_batch
from syno.train.proxy_training import ProxyTraining
from syno.train.settings import WorkloadSettings
from syno.train.workload import Workload

OPERATOR = with_variables(OPERATORS["separable_conv2d"](), {"k": "k_1"})


@pytest.fixture(scope="module")
def workload() -> Workload:
    return Workload.of(WorkloadSettings(**FIELDS["workload"]))


def fault(workload: Workload, change: Callable[[str, nn.Parameter], object], of: type[nn.Module]) -> str | None:
    network = workload.network(OPERATOR, 0)
    with torch.no_grad():
        for module in network.modules():
            if isinstance(module, of):
                for name, parameter in module.named_parameters(recurse=False):
                    change(name, parameter)
    return fault_on_first_batch(network, workload.data, workload.settings.training, 0)


def test_an_operator_that_learns_has_none(workload: Workload) -> None:
    before = torch.get_rng_state()
    assert workload.fault_on_first_batch(OPERATOR) is None
    assert torch.equal(torch.get_rng_state(), before)


def test_a_weight_that_never_gets_a_gradient(workload: Workload) -> None:
    found = fault(workload, lambda name, weight: weight.zero_() if name == "w1" else None, OperatorModule)
    assert found == "its output does not depend on its input on the first batch, in no layer"


def test_an_infinite_gradient_is_an_error(workload: Workload) -> None:
    found = fault(workload, lambda name, weight: weight.fill_(float("inf")), OperatorModule)
    assert found is not None and "is not finite on the first batch" in found


def test_a_network_that_begins_with_zeros_is_not_the_operators_fault(workload: Workload) -> None:
    assert fault(workload, lambda name, weight: weight.zero_(), nn.BatchNorm2d) is None


def test_the_operator_fails_before_its_training(workload: Workload, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Workload, "fault_on_first_batch", lambda self, operator: "the gradient of weight w1 is zero")
    monkeypatch.setattr(Workload, "train", lambda *_, **__: pytest.fail("it was trained"))
    with pytest.raises(TrainingError, match="separable_conv2d .*gradient of weight w1 is zero") as raised:
        ProxyTraining(workload, workload.spec())(OPERATOR, Report())
    assert fault_of(raised.value).kind == "operator"


def test_studies_without_the_option_are_compared_as_before() -> None:
    with_it, without = (Experiment(**{**FIELDS, "study": {"check_gradients": value}}) for value in (True, False))
    assert with_it.part("search") == without.part("search")
