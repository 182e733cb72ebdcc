"""Functions that make networks: what they get, what lazy layers become, and what they set for the process."""

from __future__ import annotations

import os
import random
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from pydantic import ValidationError
from torch import nn

import syno
from syno.base.errors import SpecError, UnknownNameError, UserCodeError
from syno.base.registry import Registry
from syno.base.user_code import unchanged_process
from syno.model.extraction import sorted_out
from syno.model.network_function import call, make_network
from syno.train.settings import TrainingSettings, WorkloadSettings
from syno.train.training import train

GIVEN = {"classes": 5, "channels": 2, "width": 1.0, "seed": 3}
EXAMPLE = torch.zeros(1, 2, 8, 8)


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


def hands_on(*, classes: int, **rest: Any) -> nn.Module:
    return nn.Sequential(nn.Flatten(), nn.Linear(2 * 8 * 8, classes, **rest))


def own(make: Callable[..., Any], settings: dict[str, Any] | None = None, **given: Any) -> nn.Module:
    models: Registry[Any] = Registry("model")
    models.register("mine:make")(make)
    return make_network(models, "mine:make", {**GIVEN, **given}, settings or {}, EXAMPLE)


def test_a_function_gets_only_the_arguments_that_it_takes() -> None:
    assert call(Small, GIVEN).head.out_features == 5
    assert call(of_a_width, GIVEN) == (5, 1.0)
    assert call(everything, {**GIVEN, "width": 0.5}) == {**GIVEN, "width": 0.5}
    # A width of 1 says nothing, and most functions that others hand their arguments on to take none.
    assert call(everything, GIVEN) == {"classes": 5, "channels": 2, "seed": 3}


def test_equal_arguments_make_equal_weights_whatever_draws_them() -> None:
    def from_numpy(classes: int) -> nn.Module:
        made = nn.Linear(4, classes)
        made.weight.data.copy_(torch.tensor(np.random.rand(classes, 4) * random.random()))
        return made

    before = torch.random.get_rng_state(), np.random.get_state()[1].tolist(), random.getstate()
    for make in (from_numpy, lambda classes: Small(classes).head):
        one, two, three = (call(make, {**GIVEN, "seed": seed}).weight for seed in (3, 3, 4))
        assert torch.equal(one, two) and not torch.equal(one, three)
    assert torch.equal(before[0], torch.random.get_rng_state())
    assert before[1:] == (np.random.get_state()[1].tolist(), random.getstate())


@pytest.mark.parametrize(
    ("make", "given", "message"),
    [
        (Small, {"width": 0.5}, r'"mine:make" is called with classes=5, width=0.5, but Small.*argument .width.'),
        (other, {}, r"is called with classes=5, but other.*missing a required .*argument: 'blocks'"),
        (hands_on, {}, r"it gets classes, channels, seed, and hands on channels: write channels as a parameter of its own"),
    ],
)
def test_what_it_does_not_take_or_lacks_is_said(make: Any, given: dict[str, Any], message: str) -> None:
    with pytest.raises(UserCodeError, match=message):
        own(make, **given)


def test_settings_are_further_arguments() -> None:
    assert own(other, {"blocks": 7}).in_features == 7
    with pytest.raises(UserCodeError, match=r"\(workload: model_settings\) is called with .*blocs=7.*'blo"):
        own(other, {"blocs": 7})
    with pytest.raises(SpecError, match=r"model_settings gives classes"):
        own(other, {"blocks": 7, "classes": 3})


# ---- lazy layers ----------------------------------------------------------------------------------------------------------


class WithAuxiliary(nn.Module):
    """A network with a head that runs in training only, after a normalization."""

    def __init__(self, classes: int) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.LazyConv2d(4, 3), nn.LazyBatchNorm2d(), nn.Flatten())
        self.normalized = nn.BatchNorm2d(2)
        self.head, self.auxiliary = nn.LazyLinear(classes), nn.Sequential(nn.LazyBatchNorm1d(), nn.LazyLinear(classes))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        features = self.body(self.normalized(x))
        return self.head(features) + self.auxiliary(features) if self.training else self.head(features)


class WithOneThatNeverRuns(WithAuxiliary):
    """The same, which never runs a layer."""

    def __init__(self, classes: int) -> None:
        super().__init__(classes)
        self.spare = nn.LazyLinear(3)


def test_lazy_layers_are_whole_and_equal_seeds_make_equal_weights() -> None:
    one, two, three = (own(WithAuxiliary, seed=seed) for seed in (1, 1, 2))
    found = one.state_dict()
    assert all(torch.equal(value, two.state_dict()[name]) for name, value in found.items())
    assert not torch.equal(found["auxiliary.1.weight"], three.state_dict()["auxiliary.1.weight"])
    assert one.training and type(one.head) is nn.Linear and found["head.weight"].shape == (5, 4 * 6 * 6)
    for normalization in (one.body[1], one.normalized, one.auxiliary[0]):  # they have learnt nothing from the example
        assert int(normalization.num_batches_tracked) == 0 and not normalization.running_mean.any()


def test_a_lazy_layer_that_never_runs_is_named() -> None:
    with pytest.raises(UserCodeError, match=r'"mine:make" has lazy layers .*: spare'):
        own(WithOneThatNeverRuns)


def test_lazy_networks_train_in_python() -> None:
    def make() -> nn.Module:
        layers = nn.LazyConv2d(4, 3, padding=1), nn.ReLU(), nn.LazyConv2d(4, 3, padding=1), nn.LazyBatchNorm2d()
        return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.LazyLinear(10))

    by_function = syno.Training(make, "digits", epochs=1)
    assert by_function.train_original() == by_function.train_original()
    of_module = syno.Training(make(), "digits", epochs=1)
    assert of_module.spec().layers[0].values["C_in"] == 4
    assert of_module.train_original() == of_module.train_original()


# ---- the state of the process ---------------------------------------------------------------------------------------------


def _state() -> list[object]:
    cudnn = torch.backends.cudnn
    return [
        *(torch.get_default_dtype(), torch.get_default_device(), torch.get_deterministic_debug_mode(), torch.get_num_threads()),
        *(torch.backends.mha.get_fastpath_enabled(), torch.backends.cuda.math_sdp_enabled()),
        *(torch.is_grad_enabled(), torch.get_float32_matmul_precision(), torch.is_anomaly_enabled(), cudnn.benchmark),
        *(torch.get_rng_state().tolist(), np.random.get_state()[1].tolist(), random.getstate(), np.geterr()),
        *(
            Path.cwd(),
            dict(os.environ),
            list(warnings.filters),
            bool(torch.full((), 1e-310, dtype=torch.float64, device="cpu") * 1),
        ),
        repr(torch.full((), 1 / 3, device="cpu")),
    ]


def _change_all(folder: Path) -> None:
    torch.use_deterministic_algorithms(True)
    torch.set_default_dtype(torch.float64)
    torch.set_default_device("meta")
    torch.set_num_threads(torch.get_num_threads() + 1)
    torch.set_grad_enabled(False)
    torch.set_float32_matmul_precision("medium")
    torch.autograd.set_detect_anomaly(True)
    torch.backends.cudnn.benchmark = True
    torch.backends.mha.set_fastpath_enabled(False)
    torch.backends.cuda.enable_math_sdp(False)
    torch.set_flush_denormal(True)
    torch.set_printoptions(precision=2)
    torch.manual_seed(5)
    np.random.seed(5)
    np.seterr(all="ignore")
    random.seed(5)
    os.chdir(folder)
    os.environ |= {"OMP_NUM_THREADS": "7", "HOME": "/elsewhere"}
    os.environ.pop("PATH", None)
    warnings.simplefilter("ignore")


def test_what_a_function_sets_ends_with_the_call(tmp_path: Path) -> None:
    before = _state()
    with unchanged_process():
        _change_all(tmp_path)
        during = _state()
    assert all(one != other for one, other in zip(before, during, strict=True))
    assert _state() == before
    with pytest.raises(KeyError), unchanged_process(seed=3):
        _change_all(tmp_path)
        raise KeyError
    assert _state() == before


def test_a_network_is_made_in_such_a_block(tmp_path: Path) -> None:
    def careless(classes: int) -> nn.Module:
        made = nn.Sequential(nn.Flatten(), nn.Linear(2 * 8 * 8, classes))
        _change_all(tmp_path)
        return made

    before = _state()
    own(careless)
    assert _state() == before


def convolutions() -> nn.Module:
    return nn.Sequential(nn.Conv2d(1, 4, 3), nn.ReLU(), nn.Conv2d(4, 4, 3))


def prepared_for_quantization() -> nn.Module:
    network = convolutions().train()
    network.qconfig = torch.ao.quantization.get_default_qat_qconfig("fbgemm")
    return torch.ao.quantization.prepare_qat(network)


@pytest.mark.filterwarnings("ignore:.*deprecated")
@pytest.mark.parametrize(
    ("make", "said"),
    [
        (
            lambda: torch.compile(convolutions()),
            "by torch.compile: give the module from before, which is its _orig_mod",
        ),
        (lambda: torch.jit.script(convolutions()), "compiled by TorchScript: give the module that was scripted or traced"),
        (lambda: torch.export.export(convolutions(), (PICTURE,)), "give the module that was exported"),
        (lambda: torch.export.export(convolutions(), (PICTURE,)).module(), "a graph of functions without layers"),
        (prepared_for_quantization, r"quantized, or prepared for that \(its 0 is a Conv2d of torch.ao.nn.qat"),
    ],
)
def test_forms_of_networks_that_cannot_be_trained_say_what_to_give(make: Callable[[], Any], said: str) -> None:
    with pytest.raises(UserCodeError, match=said):
        syno.Training(make(), "digits", epochs=1, where="2").spec()


PICTURE = torch.zeros(1, 1, 8, 8)


def test_a_network_whose_parameters_are_all_frozen_is_told_from_a_loss_without_gradients() -> None:
    with pytest.raises(SpecError, match=r"all 4 parameters of Sequential are frozen .* call model.requires_grad_\(True\)"):
        train(convolutions().requires_grad_(False), syno.Task([PICTURE], [PICTURE], loss=lambda m, x: m(x).mean()), ONE_EPOCH)


ONE_EPOCH = TrainingSettings(epochs=1)


class Adapted(nn.Linear):  # type: ignore[misc]
    """A linear layer with an adapter, as peft writes it."""

    def __init__(self) -> None:
        super().__init__(64, 64)
        self.lora_A = nn.ModuleDict({"default": nn.Linear(64, 4, bias=False)})
        self.lora_B = nn.ModuleDict({"default": nn.Linear(4, 64, bias=False)})

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return super().forward(x) + self.lora_B["default"](self.lora_A["default"](x))


def test_halves_of_an_adapter_stay() -> None:
    found, stay = sorted_out(nn.Sequential(Adapted(), nn.ReLU(), nn.Linear(64, 64)), torch.randn(2, 5, 64), "linear")
    assert [layer.name for layer in found] == ["2"]
    assert all("half of an adapter" in stay[f"0.lora_{half}.default"] for half in "AB")


@pytest.mark.parametrize("where", ["!0", "all but 0", "~0"])
def test_all_layers_but_some_are_a_rule_of_ones_own(where: str) -> None:
    with pytest.raises(UnknownNameError, match="takes all layers but some, and layers are named one by one"):
        syno.spec_for(convolutions(), PICTURE, where=where)


def test_layers_in_a_list_are_names() -> None:
    assert WorkloadSettings(layers=["stem", "blocks.*"]).layers == "stem, blocks.*"
    for wrong in ({"all_but": ["stem"]}, [], 3):
        with pytest.raises(ValidationError, match="give a rule such as spatial, or names and patterns of layers"):
            WorkloadSettings(layers=wrong)
