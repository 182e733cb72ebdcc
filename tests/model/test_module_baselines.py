"""Baselines that are PyTorch modules: what NAS-PTE's sequences compute and cost, and where they can stand."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.nn import functional
from typer.testing import CliRunner

from syno.base.errors import MisfitError, SpecError, UnknownNameError
from syno.cli import app
from syno.config import Experiment
from syno.config.groups import OperatorChoice
from syno.measure.subjects import OperatorSubject
from syno.model.counting import model_cost
from syno.model.networks import module_baseline, read_replacement
from syno.model.replacements import MODULE_BASELINES
from syno.model.substitution import substitute
from syno.stages.operators import network_of

SHARES = {  # of a 3x3 convolution's multiply-adds, and of its weights
    "nas_pte_1": lambda c, d: (3 / 8, 3 / 8),
    "nas_pte_2": lambda c, d: ((16 * c + (d - 16) * (c - 16) / 2) / (c * d),) * 2,
    "nas_pte_3": lambda c, d: (1, 2),
}


def own_blocks(values: object) -> nn.Module:
    return nn.Identity()


def own_nothing(values: object) -> int:
    return 3


def conv(x: Tensor, weight: Tensor, groups: int = 1) -> Tensor:
    """A convolution by matrix products over windows, without torch's own convolution."""
    n, _, height, width = x.shape
    windows = functional.unfold(x, 3, padding=1).unflatten(1, (groups, -1))  # [N, groups, inputs * 9, positions]
    kernels = weight.flatten(1).unflatten(0, (groups, -1))  # [groups, outputs, inputs * 9]
    return torch.einsum("goi,ngip->ngop", kernels, windows).reshape(n, -1, height, width)


def composed(name: str, x: Tensor, weights: list[Tensor]) -> Tensor:
    """Compute the sequence from its definition, with the weights of the module."""
    first, second = weights
    if name == "nas_pte_1":
        return torch.cat([conv(x, first, 2), conv(x, second, 4)], dim=1)
    if name == "nas_pte_2":
        return torch.cat([conv(x, first), conv(x[:, 16:], second, 2)], dim=1)
    half = x.shape[2] // 2
    return torch.cat([conv(x[:, :, :half], first), conv(x[:, :, half:], second)], dim=2)


@given(st.sampled_from(sorted(SHARES)), st.integers(5, 9), st.integers(3, 6), st.sampled_from([4, 7, 8]))
@settings(max_examples=20, deadline=None, derandomize=True)
def test_a_sequence_is_the_convolutions_it_says_and_costs_what_the_original_does(
    name: str, before: int, after: int, side: int
) -> None:
    c, d = 4 * before, 8 * after
    module = MODULE_BASELINES[name].build({"C_in": c, "C_out": d, "H": side}, seed=1).double()
    x = torch.randn(2, c, side, side, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    expected = composed(name, x, list(module.parameters()))
    assert expected.shape == (2, d, side, side)
    torch.testing.assert_close(module(x), expected, rtol=0, atol=1e-10 * float(expected.detach().abs().max()))
    cost, whole = model_cost(module.float(), x[:1].float()), 9 * c * d
    shares = SHARES[name](c, d)
    assert (cost.flops, cost.parameters) == pytest.approx((shares[0] * whole * side**2, shares[1] * whole), rel=1e-12)
    again = MODULE_BASELINES[name].build({"C_in": c, "C_out": d, "H": side}, seed=1)
    assert all(torch.equal(one, other) for one, other in zip(module.parameters(), again.parameters(), strict=True))


def test_a_baseline_follows_the_pooling_for_a_stride() -> None:
    model = nn.Sequential(nn.Conv2d(32, 64, 3, padding=1, stride=2, bias=False), nn.Conv2d(64, 64, 3, padding=1, bias=False))
    changed = substitute(model, MODULE_BASELINES["nas_pte_3"], torch.zeros(1, 32, 14, 14), where="paper", keep_stem=False)
    assert [type(part).__name__ for part in changed[0]] == ["AvgPool2d", "Sequence3"] and type(
        changed[1]
    ).__name__ == "Sequence3"
    assert changed(torch.zeros(2, 32, 14, 14)).shape == (2, 64, 7, 7)
    assert not torch.equal(changed[0][1].parts[0].weight[:, :32], changed[1].parts[0].weight[:, :32])


@pytest.mark.parametrize(
    ("name", "channels", "causal", "said"),
    [
        ("nas_pte_1", 6, False, "nas_pte_1 does not fit layer .* C_in=6 and half of C_out=6 must divide into 4 groups"),
        ("nas_pte_2", 16, False, "less 16 unrolled channels must be positive"),
        ("nas_pte_3", 16, True, "it is a module that replaces convolutions"),
        (f"{__name__}:own_nothing", 16, False, "returned int; it must return an nn.Module"),
    ],
)
def test_a_baseline_that_does_not_fit_a_layer_is_an_error(name: str, channels: int, causal: bool, said: str) -> None:
    model = nn.Conv2d(channels, channels, 3, padding=1, bias=False)
    with pytest.raises(SpecError, match=said) as raised:
        example = torch.zeros(1, channels, 8, 8)
        substitute(model, module_baseline(name), example, where="paper", keep_stem=False, causal=causal)
    assert isinstance(raised.value, MisfitError) == name.startswith("nas")


def test_texts_and_names() -> None:
    for named in ("nas_pte_2", f"{__name__}:own_blocks"):
        baseline = module_baseline(named)
        assert str(read_replacement(str(baseline))) == f"module {named}\n" and read_replacement(str(baseline)).id == baseline.id
    with pytest.raises(UnknownNameError, match='"nas_pte_4"; .*nas_pte_1'):
        read_replacement("module nas_pte_4\n")
    own = {"operator": f"{__name__}:own_blocks"}
    experiment = Experiment(name="x", workload={}, train={"baselines": ["nas_pte_1", "operator_1", own]})
    assert list(experiment.baselines) == ["nas_pte_1", "operator_1", f"{__name__}.own_blocks"]
    found = network_of(experiment, f"{__name__}.own_blocks").replacement
    assert str(found) == f"module {__name__}:own_blocks\n" and network_of(experiment, "nas_pte_3").key == "nas_pte_3"
    with pytest.raises(SpecError, match="nas_pte_1 .*no variables"):
        OperatorChoice(operator="nas_pte_1", rename={"k": "l"}).replacement()


def test_a_baseline_is_measured_as_an_operator_is(tmp_path: Path) -> None:
    subject = OperatorSubject.of(MODULE_BASELINES["nas_pte_1"], {"C_in": 16, "C_out": 16, "H": 7})
    material = subject.make("cpu", 2)
    (x,) = material.make_inputs()
    assert material.parameters == 16 * 16 * 9 * 3 // 8 and material.flops == 2 * 49 * material.parameters
    assert material.reference_name == "eager module" and x.shape == (2, 16, 7, 7)
    torch.testing.assert_close(material.module(x).double(), material.reference(x), rtol=0, atol=1e-5)
    file, wrong = tmp_path / "one.json", ("--set", "C_in=16,k=3")
    done = CliRunner().invoke(app, ["tune", "operator", "nas_pte_1", *wrong, "--output", str(file)])
    assert done.exit_code == 2 and "is a module with the sizes C_in, C_out and H; given: N, C_in, k" in done.stderr


@pytest.mark.slow
@pytest.mark.parametrize("name", SHARES)
def test_tvm_imports_the_modules(name: str) -> None:
    pytest.importorskip("tvm")
    from syno.measure.tvm.network import import_network

    module = MODULE_BASELINES[name].build({"C_in": 32, "C_out": 32, "H": 7})
    text = import_network(module, torch.zeros(1, 32, 7, 7)).script()
    assert text.count("R.nn.conv2d(") == 2 and "R.concat(" in text
