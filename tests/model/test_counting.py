"""Costs of what runs in networks as people write them: PyTorch's own counter is the oracle."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest
import torch
from sequence_operators import LINEAR
from torch import nn
from torch.nn import functional
from torch.nn.utils.parametrizations import spectral_norm, weight_norm
from torch.nn.utils.parametrize import register_parametrization
from torch.utils.flop_counter import FlopCounterMode

import syno
from syno.measure.layer_shares import layer_shares
from syno.model.counting import count, model_cost, parameters
from syno.model.extraction import replaceable
from syno.model.layer_row import as_table
from syno.model.layer_table import layer_rows
from syno.model.spec import rest_cost, spec_for
from syno.model.substitution import substitute
from syno.space.complete import cost

N, LENGTH, C = 2, 5, 16
SEQUENCE = torch.randn(N, LENGTH, C, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
PICTURE = torch.randn(N, C, 6, 8, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
EVERY_KIND = "spatial, pointwise, grouped, transposed, linear"


COUNTED = """
import sys, torch
from syno.model.counting import count
print(count(torch.nn.Conv2d(3, 4, 3), torch.zeros(1, 3, 8, 8)).cost.flops, "torch._dynamo" in sys.modules)
"""


class Running(nn.Module):
    """Modules by name, and a function of them and of the input that is the forward pass."""

    def __init__(self, run: Callable[[Any, torch.Tensor], torch.Tensor], **modules: Any) -> None:
        super().__init__()
        self.run = run
        for name, module in modules.items():
            setattr(self, name, module)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.run(self, x)


class Conv1D(nn.Module):
    """A linear layer as GPT-2 of Hugging Face has it: its weight lies the other way round."""

    def __init__(self, out: int, into: int) -> None:
        super().__init__()
        self.weight, self.bias = nn.Parameter(torch.randn(into, out)), nn.Parameter(torch.zeros(out))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.addmm(self.bias, x.view(-1, x.size(-1)), self.weight).view(*x.shape[:-1], -1)


class LowRank(nn.Module):
    """A parametrization that adds a product of two small matrices."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = nn.Parameter(torch.randn(C, 2)), nn.Parameter(torch.randn(2, C))

    def forward(self, weight: torch.Tensor) -> torch.Tensor:
        return weight + self.a @ self.b


def adapted(layer: nn.Linear) -> nn.Linear:
    register_parametrization(layer, "weight", LowRank())
    return layer


def conv(**options: Any) -> nn.Conv2d:
    return nn.Conv2d(C, C, 3, padding=1, **options)


def first_of(module: nn.Module) -> nn.Module:
    return Running(lambda self, x: self.layer(x)[0], layer=module)


def cell(module: nn.Module) -> nn.Module:
    return Running(lambda self, x: self.layer(x[:, 0], None), layer=module)


SEQUENCES: dict[str, Callable[[], nn.Module]] = {
    "LSTM": lambda: first_of(nn.LSTM(C, 6, 2, batch_first=True, bidirectional=True)),
    "LSTM with a projection": lambda: first_of(nn.LSTM(C, 6, proj_size=3)),
    "GRU": lambda: first_of(nn.GRU(C, 6)),
    "RNN": lambda: first_of(nn.RNN(C, 6)),
    "LSTMCell": lambda: Running(lambda self, x: self.layer(x[:, 0])[0], layer=nn.LSTMCell(C, 6)),
    "GRUCell": lambda: cell(nn.GRUCell(C, 6)),
    "TransformerEncoderLayer": lambda: nn.TransformerEncoderLayer(C, 2, 32, batch_first=True),
    "RMSNorm": lambda: nn.Sequential(nn.RMSNorm(C), nn.Linear(C, C)),
    "Conv1D": lambda: nn.Sequential(Conv1D(32, C), nn.GELU(), Conv1D(C, 32)),
    "TorchScript": lambda: nn.Sequential(
        nn.Linear(C, 32), torch.jit.script(nn.Sequential(nn.Linear(32, 32), nn.Linear(32, C)))
    ),
    "TorchScript alone": lambda: torch.jit.script(nn.Sequential(nn.Linear(C, C), nn.ReLU())),
    "low rank as a parametrization": lambda: nn.Sequential(adapted(nn.Linear(C, C))),
    "low rank beside the layer": lambda: Running(
        lambda self, x: self.base(x) + x @ self.a @ self.b,
        base=nn.Linear(C, C), a=nn.Parameter(torch.randn(C, 2)), b=nn.Parameter(torch.randn(2, C)),
    ),
    "EmbeddingBag": lambda: Running(
        lambda self, x: self.head(self.bag((x[..., 0] > 0).long())), bag=nn.EmbeddingBag(2, C), head=nn.Linear(C, 3)
    ),
    "a tied head as a function": lambda: Running(
        lambda self, x: functional.linear(self.table((x[..., 0] > 0).long()), self.table.weight), table=nn.Embedding(9, C)
    ),
    "in inference mode": lambda: Running(torch.inference_mode()(lambda self, x: self.layer(x)), layer=nn.Linear(C, C)),
}  # fmt: skip
PICTURES: dict[str, Callable[[], nn.Module]] = {
    "a child's weight": lambda: Running(
        lambda self, x: functional.conv2d(self.first(x), self.second.weight, padding=1), first=conv(), second=conv()
    ),
    "forward called": lambda: Running(lambda self, x: self.first(self.second.forward(x)), first=conv(), second=conv()),
    "by keyword": lambda: Running(lambda self, x: self.layer(input=x), layer=conv()),
    "own matrix": lambda: Running(
        lambda self, x: torch.einsum("nchw,dc->ndhw", self.layer(x), self.matrix),
        layer=conv(), matrix=nn.Parameter(torch.randn(5, C)),
    ),
    "kernels of the input": lambda: Running(
        lambda self, x: functional.conv2d(x, self.layer(x.mean((0, 2, 3))).view(C, C, 1, 1)), layer=nn.Linear(C, C * C)
    ),
    "InstanceNorm2d": lambda: nn.Sequential(conv(), nn.InstanceNorm2d(C, affine=True)),
    "SyncBatchNorm": lambda: nn.Sequential(conv(), nn.SyncBatchNorm(C)),
    "weight_norm": lambda: nn.Sequential(weight_norm(conv()), weight_norm(conv(bias=False))),
    "spectral_norm": lambda: nn.Sequential(spectral_norm(conv()), spectral_norm(conv(bias=False))),
    "hooks that make weights": lambda: nn.Sequential(nn.utils.weight_norm(conv()), nn.utils.spectral_norm(conv(bias=False))),
    "shared by two": lambda: Running(lambda self, x: self.a(self.b(self.a(x))), a=(one := conv()), b=nn.Sequential(one)),
    "up and down": lambda: nn.Sequential(nn.Conv2d(C, 8, 3, 2, 1, groups=2), nn.ConvTranspose2d(8, 6, 4, 2, 1, groups=2)),
}  # fmt: skip
pytestmark = pytest.mark.filterwarnings("ignore:.*(weight_norm|torch.jit.script|oneDNN).*")
NETWORKS = [(name, make, SEQUENCE) for name, make in SEQUENCES.items()]
NETWORKS += [(name, make, PICTURE) for name, make in PICTURES.items()]


def counted_by_torch(model: nn.Module, example: torch.Tensor) -> int:
    """In double precision, in which LSTMs run as products of matrices that the counter sees."""
    counter = FlopCounterMode(display=False)
    torch.backends.mha.set_fastpath_enabled(False)
    try:
        with torch.no_grad(), counter:
            model.eval()(example)
    finally:
        torch.backends.mha.set_fastpath_enabled(True)
    return counter.get_total_flops() // 2


@pytest.mark.parametrize(("make", "example"), [one[1:] for one in NETWORKS], ids=[one[0] for one in NETWORKS])
def test_flops_are_those_that_run(make: Callable[[], nn.Module], example: torch.Tensor) -> None:
    model = make().double()
    expected = counted_by_torch(model, example)
    assert expected > 0
    found = count(model, example)
    assert (found.flops, found.not_counted) == (expected, ())
    rows = layer_rows(model, example, EVERY_KIND)
    assert N * sum(row.flops for row in rows) == pytest.approx(expected)
    taken = {layer.name for layer in replaceable(model, example, EVERY_KIND)} if any(not row.reason for row in rows) else set()
    assert {row.name for row in rows if not row.reason} == taken
    in_single = count(model.float(), example.float())  # an LSTM runs as a whole
    assert in_single.flops == expected == sum(work.flops for work in in_single.work)


def test_rows_say_what_calls_a_layer_s_weight_and_what_stays() -> None:
    layers = {"table": nn.Embedding(9, C), "attention": nn.MultiheadAttention(C, 2, batch_first=True), "last": conv()}

    def run(self: Any, x: torch.Tensor) -> torch.Tensor:
        y = self.attention(*3 * (self.project(self.table((x[..., 0] > 0).long())),))[0]
        y = self.compiled(self.recurrent(y)[0])
        return self.last.forward(y.transpose(1, 2)[..., None]).sum() + functional.linear(y, self.table.weight)

    more = {"project": Conv1D(C, C), "compiled": torch.jit.script(nn.Linear(C, C)), "recurrent": nn.GRU(C, C)}
    model = Running(run, **layers, **more).double()
    rows = {row.name: row for row in layer_rows(model, SEQUENCE, "linear")}
    named = {name: (row.kind, row.reason.split(",")[0]) for name, row in rows.items()}
    other = "it is neither a convolution nor a linear layer of torch.nn"
    assert named == {
        "project": ("Conv1D", other),
        "attention": ("MultiheadAttention", other),
        "attention.out_proj": ("linear", "MultiheadAttention uses its weight without calling it"),
        "recurrent": ("GRU", other),
        "compiled": ("Linear of TorchScript", "TorchScript compiled it"),
        "last": ("3x3 convolution", "Running uses its weight without calling it"),
        "table": ("Embedding", other),
    }
    assert rows["attention"].flops == 3 * rows["attention.out_proj"].flops == 3 * LENGTH * C * C
    assert (rows["attention"].parameters, rows["compiled"].parameters) == (3 * C * C + 3 * C, C * C + C)


@pytest.mark.parametrize(("side", "inside"), [(1, 1 / 9), (2, 4 / 9), (3, (7 / 9) ** 2)])
def test_multiply_adds_that_read_padding_are_told(side: int, inside: float) -> None:
    x = torch.zeros(2, 4, side, side)
    convolution, operator = (
        nn.Conv2d(4, 4, 3, padding=1),
        syno.build(syno.OPERATORS["conv2d"](), {"C_in": 4, "C_out": 4, "H": side}),
    )
    assert [count(module, x).inside for module in (convolution, operator)] == pytest.approx([inside, inside])
    around = nn.Sequential(nn.Conv2d(4, 4, (5, 1), stride=(2, 1), padding=(2, 0)), nn.Conv2d(4, 4, 1))
    # Windows of 5 at every second position of 5: 3, 5 and 3 places of each are inside.
    assert count(around, torch.zeros(1, 4, 5, 1)).inside == pytest.approx((11 + 3) / (15 + 3))
    assert count(nn.ConvTranspose2d(4, 4, 3, padding=1), x).inside == 1


def test_products_of_activations_do_not_count() -> None:
    """Neither those of PyTorch's attention nor written out, though the module has a parameter of its own."""

    def attend(self: Any, x: torch.Tensor) -> torch.Tensor:
        q, k, v = self.all(x + self.places).chunk(3, -1)
        return (q @ k.transpose(1, 2)).softmax(-1) @ v

    written = Running(attend, all=nn.Linear(C, 3 * C), places=nn.Parameter(torch.randn(LENGTH, C))).double()
    built_in = Running(lambda self, x: self.layer(x, x, x)[0], layer=nn.MultiheadAttention(C, 2, batch_first=True)).double()
    functions = Running(
        lambda self, x: functional.scaled_dot_product_attention(*3 * (self.layer(x)[:, None],)), layer=nn.Linear(C, C)
    ).double()
    linear = N * LENGTH * C * C
    for model, expected in ((written, 3 * linear), (built_in, 4 * linear), (functions, linear)):
        for device in ("cpu", "meta"):
            found = count(model.to(device), SEQUENCE.to(device))
            assert (found.flops, found.attention_flops) == (expected, 2 * N * LENGTH**2 * C)


def test_values_written_into_a_buffer_are_activations() -> None:
    def run(self: Any, x: torch.Tensor) -> torch.Tensor:
        self.kept[:, :LENGTH] = x
        return self.layer(x) @ self.kept.transpose(1, 2)

    model = Running(run, layer=nn.Linear(C, C)).double()
    model.register_buffer("kept", torch.zeros(N, LENGTH + 2, C, dtype=torch.float64))
    assert count(model, SEQUENCE).flops == N * LENGTH * C * C


def test_recurrent_layers_of_gpus_run_as_a_whole() -> None:
    """The function that they call there, on tensors without data."""
    layer = nn.LSTM(C, 6, 2, bidirectional=True, proj_size=3).to("meta")
    weights, none = [weight for group in layer.all_weights for weight in group], torch.empty(0, device="meta")
    states = [torch.zeros(4, LENGTH, size, device="meta") for size in (3, 6)]

    def run(self: Any, x: torch.Tensor) -> torch.Tensor:
        options = (2, 6, 3, 2, False, 0.0, False, True, [], None)
        return torch.ops.aten._cudnn_rnn(x, weights, 5, none, *states, *options)[0]

    wanted = count(first_of(nn.LSTM(C, 6, 2, bidirectional=True, proj_size=3)), SEQUENCE.float()).flops
    found = count(Running(run, layer=layer), SEQUENCE.float().to("meta"))
    assert [(work.layer, work.flops) for work in found.work] == [("layer", wanted)]


def test_a_linear_layer_whose_weight_is_made_of_the_input_counts() -> None:
    def run(self: Any, x: torch.Tensor) -> torch.Tensor:
        return torch.func.functional_call(self.layer, {"weight": x[0, :1].T @ x[0, :1]}, (x,))

    found = count(Running(run, layer=nn.Linear(C, C)).double(), SEQUENCE)
    assert (found.flops, found.attention_flops) == (N * LENGTH * C * C, C * C)


@pytest.mark.parametrize(
    ("run", "weight", "flops"),
    [
        (lambda self, x: x @ self.weight, (C,), N * LENGTH * C),
        (lambda self, x: torch.addmv(x[0, :, 0], x[0], self.weight), (C,), LENGTH * C),
        (lambda self, x: torch.dot(x[0, 0], self.weight), (C,), C),
        (lambda self, x: torch.addbmm(x[0, :, :3], x, self.weight), (N, C, 3), N * LENGTH * C * 3),
        (lambda self, x: functional.bilinear(x, x[..., :4], self.weight), (3, C, 4), N * LENGTH * 3 * C * 4),
    ],
    ids=["mv", "addmv", "dot", "addbmm", "bilinear"],
)
def test_products_that_pytorch_s_counter_does_not_know(run: Any, weight: tuple[int, ...], flops: int) -> None:
    model = Running(run, weight=nn.Parameter(torch.randn(weight, dtype=torch.float64)))
    found = count(model, SEQUENCE)
    assert (found.flops, found.attention_flops, found.not_counted) == (flops, 0, ())


def test_unknown_functions_are_named_once_and_counted_as_nothing() -> None:
    def run(self: Any, x: torch.Tensor) -> torch.Tensor:
        return self.apart(self.apart(x)) @ torch.fft.rfft(self.layer(x)).real.mean((0, 1))[:1].expand(LENGTH, C)

    apart = Running(lambda self, x: torch.cdist(x, x))
    model = Running(run, apart=apart, layer=nn.Linear(C, C)).double()
    names = ("aten._cdist_forward in apart (Running)", "aten._fft_r2c in Running")
    with pytest.warns(UserWarning, match=r"aten\._cdist_forward in apart \(Running\), aten\._fft_r2c"):
        price = model_cost(model, SEQUENCE)
    assert price.flops == N * LENGTH * C * C and count(model, SEQUENCE).not_counted == names


@pytest.mark.parametrize("norm", [weight_norm, spectral_norm, nn.utils.weight_norm, nn.utils.spectral_norm])
def test_an_operator_takes_the_place_of_a_layer_with_a_parametrized_weight(norm: Callable[[nn.Module], nn.Module]) -> None:
    model = nn.Sequential(conv(), norm(conv(bias=False)), norm(conv()))
    example, plain = PICTURE.float(), nn.Sequential(conv(), conv(bias=False), conv())
    changed = substitute(model, syno.OPERATORS["separable_conv2d"](), example, where="spatial")
    assert model_cost(changed, example) == model_cost(substitute(plain, syno.OPERATORS["separable_conv2d"](), example), example)
    assert rest_cost(model, example, replaceable(model, example)) == rest_cost(plain, example, replaceable(plain, example))


def test_only_what_is_in_replaced_layers_alone_goes_with_them() -> None:
    """A head tied to the embedding leaves its weight; a weight that two replaced layers share goes once."""
    shared = nn.Linear(C, C, bias=False)
    table, first, second, head = nn.Embedding(32, C), nn.Linear(C, C), nn.Linear(C, C), nn.Linear(C, 32, bias=False)
    second.weight, head.weight = first.weight, table.weight
    model = Running(
        lambda self, x: self.head(self.second(self.first(self.shared(self.table(x))))),
        table=table, shared=shared, first=first, second=second, head=head,
    )  # fmt: skip
    example = torch.zeros(N, LENGTH, dtype=torch.int64)
    rest = rest_cost(model, example, replaceable(model, example, "first, second, head"))
    assert rest.parameters == 32 * C + C * C + 2 * C and rest.flops == N * LENGTH * C * C
    whole = model_cost(substitute(model, LINEAR, example, where="linear"), example)
    spec = spec_for(model, example, where="linear")
    assert cost(LINEAR, spec).parameters == whole.parameters and parameters(model) == rest.parameters + C * C


def test_shares_of_the_time_are_of_layers_that_are_called() -> None:
    attention, linear = nn.TransformerEncoderLayer(C, 2, 32, batch_first=True), adapted(weight_norm(nn.Linear(C, C)))
    model = nn.Sequential(SEQUENCES["TorchScript"](), attention, linear)
    example = SEQUENCE.float()
    shares, rows = layer_shares(model, example), layer_rows(model, example, "linear")
    assert {"0.0", "1.self_attn", "1.linear1", "2"} < shares.keys() and 0.2 < sum(shares.values()) < 1 + 1e-9
    table = {row["layer"]: row for row in as_table(rows, sum(row.flops for row in rows), shares)}
    assert {name for name, row in table.items() if row["time"] == "–"} == {"0.1", "1.self_attn.out_proj"}
    assert table["2"]["kind"] == "linear, parametrized weight (WeightNorm and LowRank)"


@pytest.mark.slow
def test_nothing_is_compiled_and_the_compiler_is_not_imported() -> None:
    done = subprocess.run([sys.executable, "-c", COUNTED], capture_output=True, text=True, check=True)
    assert done.stdout.split() == [str(36 * 27 * 4), "False"]

    def never(graph: object, example: object) -> Any:
        raise AssertionError("it is compiled")

    network = nn.Sequential(nn.Conv2d(C, C, 3), nn.BatchNorm2d(C), nn.Flatten(), nn.Linear(24 * C, 5)).double().eval()
    assert count(torch.compile(network, backend=never), PICTURE).cost == count(network, PICTURE).cost
