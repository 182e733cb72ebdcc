"""Language models in TVM compute what they compute in PyTorch, with attention in kernels that can be tuned."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from sequence_operators import window
from torch import nn
from torch.nn import functional

pytest.importorskip("tvm", reason="TVM is not installed")

import syno
from syno.measure.latency import relative_error
from syno.measure.network_subject import LanguageModelSubject
from syno.measure.timing import LatencySettings
from syno.measure.tuning import tune
from syno.measure.tvm.compilation import TvmModule, built, fused, scheduled
from syno.measure.tvm.network import attention, decomposed, import_network
from syno.measure.tvm.targets import TvmSettings, host, target
from syno.model.backbones import SEQUENCE_BACKBONES
from syno.model.substitution import substitute

FAST = LatencySettings(warm_up_ms=1, least_repeats=6, most_repeats=6, least_ms=0, batch=2)
SETTINGS = TvmSettings(trials_per_task=2, trials_per_iteration=2, cost_model="random", least_ms=4)
LENGTH, VOCABULARY = 12, 37
TOKENS = torch.randint(VOCABULARY, (2, LENGTH), generator=torch.Generator().manual_seed(0))
PROJECTION = syno.OPERATORS["gpt2_projection"]()


def model(operator: syno.PGraph | None = None, width: float = 1.0) -> nn.Module:
    """A small language model that is not new: new ones weight all positions about equally."""
    made = SEQUENCE_BACKBONES["gpt_tiny"](vocabulary=VOCABULARY, context=LENGTH, width=width)
    if operator is not None:
        made = substitute(made, operator, TOKENS, where="paper")
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for parameter in made.parameters():
            parameter.add_(0.2 * torch.randn(parameter.shape, generator=generator))
    return made.eval()


def in_tvm(module: nn.Module, *examples: torch.Tensor) -> TvmModule:
    to = target(host(1))
    return TvmModule(built(scheduled(fused(import_network(module, *examples), to), to), to), "cpu")


@pytest.mark.parametrize(
    ("operator", "width"),
    [
        pytest.param(PROJECTION, 1.0, id="projection", marks=pytest.mark.slow),
        pytest.param(window(2), 1 / 4, id="window", marks=pytest.mark.slow),
    ],
)
def test_a_model_computes_the_same(operator: syno.PGraph | None, width: float) -> None:
    module = model(operator, width)
    call = in_tvm(module, TOKENS)
    with torch.no_grad():
        for tokens in (TOKENS, (TOKENS + 5) % VOCABULARY):
            assert relative_error(call(tokens), module(tokens)) < 1e-5


@pytest.mark.slow
def test_each_stage_and_each_product_is_a_kernel_with_what_follows() -> None:
    imported = fused(import_network(model(PROJECTION), TOKENS), target(host(1)))
    names = [name.name_hint for name, function in imported.functions.items() if type(function).__name__ == "PrimFunc"]
    assert any(name.startswith("gpt2_projection_stage_1") for name in names)
    assert any("matmul" in name and "gelu" in name for name in names)  # no change of shape is between them
    assert not any("attention" in name for name in names)
    scores = [name for name in names if "matmul" in name and "where" in name]  # masked where they are computed
    assert len(scores) == 1  # both blocks have the same shapes
    assert sum("softmax" in name for name in names) == 1


@pytest.mark.parametrize("is_causal", [False, True])
@pytest.mark.parametrize("shapes", [((5, 4), (7, 4), (7, 3)), ((2, 3, 5, 4), (2, 3, 5, 4), (2, 3, 5, 4)), ((2, 9, 4),) * 3])
@pytest.mark.parametrize("scale", [None, 0.7])
def test_attention(shapes: tuple[tuple[int, ...], ...], is_causal: bool, scale: float | None) -> None:
    generator = torch.Generator().manual_seed(0)
    tensors = [torch.randn(shape, generator=generator) for shape in shapes]
    expected = functional.scaled_dot_product_attention(*tensors, is_causal=is_causal, scale=scale)
    torch.testing.assert_close(attention(*tensors, is_causal=is_causal, scale=scale), expected)


class Attention(nn.Module):
    """Attention of all kinds."""

    def __init__(self, **options: Any) -> None:
        super().__init__()
        self.options = options

    def forward(self, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
        return functional.scaled_dot_product_attention(query, key, value, **self.options)


MASKED = torch.tensor([[True, False, True], [False, False, False], [False, True, False]])  # nothing is left of one row


@pytest.mark.parametrize(
    ("options", "heads"),
    [
        ({}, 4),
        ({"is_causal": True}, 4),
        ({"is_causal": True, "scale": 2.0}, 4),
        ({"attn_mask": MASKED}, 4),
        ({"attn_mask": MASKED.float()}, 4),
        ({"enable_gqa": True, "is_causal": True}, 2),
    ],
    ids=["plain", "causal", "scaled", "masked", "biased", "grouped"],
)
@pytest.mark.slow
def test_attention_of_other_models(options: dict[str, Any], heads: int) -> None:
    module, generator = Attention(**options), torch.Generator().manual_seed(0)
    tensors = [torch.randn(2, count, 3, 8, generator=generator) for count in (4, heads, heads)]
    assert relative_error(in_tvm(module, *tensors)(*tensors), module(*tensors)) < 1e-5


def test_attention_is_decomposed_in_the_export() -> None:
    tensors = (torch.zeros(2, 4, 3, 8),) * 3
    operations = [
        {str(node.target) for node in decomposed(torch.export.export(Attention(**options), tensors)).graph.nodes}
        for options in ({"is_causal": True}, {"attn_mask": MASKED})
    ]
    assert [any("any" in name or "logical_not" in name for name in names) for names in operations] == [False, True]


def test_tokens_beyond_the_table_are_read_from_within() -> None:
    """Schedules are tried on random bits; a kernel that read where these point would end its process."""
    table = nn.Embedding(5, 3)
    call = in_tvm(table, torch.zeros(1, 2, dtype=torch.long))
    assert torch.equal(call(torch.tensor([[2**62, -(2**62)]]))[0], table.weight[[4, 0]])


def subject(operator: syno.PGraph | None = None, **rest: Any) -> LanguageModelSubject:
    given = {"model": "gpt_tiny", "vocabulary": VOCABULARY, "length": LENGTH, **rest}
    return LanguageModelSubject(**given, operator=None if operator is None else str(operator))


@pytest.mark.slow(minutes=3)
def test_a_model_is_tuned(tmp_path: Path) -> None:
    small = subject(window(2), width=1 / 4)
    once = SETTINGS.model_copy(update={"trials_per_task": 1})
    record = tune(small, "tvm", settings=FAST, time_limit_s=1000, tvm=once, folder=tmp_path)
    assert (record.status, record.reason) == ("ok", "")
    assert record.tuning is not None and record.tuning.complete
    assert any(task.name.startswith("take") and task.measured for task in record.tuning.tasks)  # read from random places


@pytest.mark.slow
def test_gpt2_on_short_sequences(tmp_path: Path) -> None:
    untuned = SETTINGS.model_copy(update={"trials_per_task": 0})
    gpt2 = subject(PROJECTION, model="gpt2", width=1 / 4, vocabulary=500, length=16)
    record = tune(gpt2, "tvm", settings=FAST, time_limit_s=1000, tvm=untuned, folder=tmp_path)
    assert (record.status, record.reason, record.checked) == ("ok", "", True)
