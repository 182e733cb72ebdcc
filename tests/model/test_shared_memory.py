"""Parameters and buffers that share memory: copied, trained, kept in a file and loaded as such."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import nn
from torch.nn.utils import prune

import syno
from syno.base.errors import DataError, SpecError
from syno.config import Experiment
from syno.data import DataSet
from syno.export.comparison import Comparison
from syno.export.network_formats import write_code
from syno.model.extraction import replaceable
from syno.model.shared_memory import copy_of, moved_to, shared_tensors, to_channels_last
from syno.model.spec import rest_cost
from syno.stages.data import data_text, look
from syno.train.settings import TrainingSettings
from syno.train.training import train
from syno.train.weights import check_keeping, content_of, load_weights

EXAMPLE = torch.zeros(2, 3, 8, 8)


class Base(nn.Module):  # type: ignore[misc]
    """Three convolutions and a head."""

    def __init__(self) -> None:
        super().__init__()
        self.stem, self.conv, self.other = (nn.Conv2d(channels, 8, 3, padding=1) for channels in (3, 8, 8))
        self.head = nn.Linear(8, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.other(self.conv(self.stem(x)).relu()).relu().mean((2, 3)))


class Slices(Base):
    """Buffers that are slices of one tensor."""

    def __init__(self) -> None:
        super().__init__()
        table = torch.rand(6, 8, 1, 1)
        self.register_buffer("first", table[:4])
        self.register_buffer("last", table[2:])

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return super().forward(x) * self.first.mean() + self.last.mean()


class Partly(Base):
    """A convolution's weight that is a part of another parameter."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Parameter(torch.rand(2, 8, 8, 3, 3) / 10)
        self.other.weight = nn.Parameter(self.table.data[1])


class TiedConvolutions(Base):
    def __init__(self) -> None:
        super().__init__()
        self.other.weight = self.conv.weight


class Transposed(Base):
    """A weight and its transpose."""

    def __init__(self) -> None:
        super().__init__()
        self.back = nn.Linear(4, 8, bias=False)
        self.back.weight = nn.Parameter(self.head.weight.data.t())

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.back(super().forward(x)))


class Strides(Base):
    """Parameters and buffers that are not contiguous, or have elements in the same memory."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Parameter(torch.rand(8, 4).t())
        self.register_buffer("expanded", torch.rand(4, 1).expand(4, 8))
        self.register_buffer("windows", torch.rand(9).unfold(0, 3, 2))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return super().forward(x) + (self.table * self.expanded).sum(1) + self.windows.mean()


class PlainAttribute(Base):
    """A convolution's weight that `forward` also reads by an attribute that is neither a parameter nor a buffer."""

    def __init__(self) -> None:
        super().__init__()
        self.flat = self.other.weight.detach().flatten()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return super().forward(x) + 100 * self.flat.mean()


KINDS = [Base, Slices, Partly, TiedConvolutions, Transposed, Strides, PlainAttribute]


def made(kind: Callable[[], nn.Module], operator: str | None) -> nn.Module:
    torch.manual_seed(0)
    network = kind()
    if operator is None:
        return network
    return syno.substitute(network, syno.OPERATORS[operator](), EXAMPLE, where=["conv"])


def memory_of(network: nn.Module) -> list[list[str]]:
    """Return names that share memory, also those of one tensor."""
    found: dict[int, list[str]] = {}
    for name, tensor in network.state_dict().items():
        found.setdefault(tensor.untyped_storage().data_ptr(), []).append(name)
    return sorted(names for names in found.values() if len(names) > 1)


@pytest.mark.parametrize("operator", [None, "separable_conv2d"])
@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_a_trained_network_is_loaded_as_it_was(kind: Callable[[], nn.Module], operator: str | None, tmp_path: Path) -> None:
    generator = torch.Generator().manual_seed(0)
    images, labels = torch.randn(48, 3, 8, 8, generator=generator), torch.randint(4, (48,), generator=generator)
    data = DataSet("small", images[:32], labels[:32], images[32:], labels[32:], classes=4)
    network = made(kind, operator)
    shared = memory_of(network)
    weights = tmp_path / "seed1.safetensors"
    train(network, data, TrainingSettings(epochs=1, batch=16, channels_last=True), weights=weights)
    again = made(kind, operator)
    load_weights(again, weights)
    assert memory_of(network) == memory_of(again) == shared
    with torch.no_grad():
        torch.testing.assert_close(again.eval()(images), network.eval()(images))
    check_keeping(network, made(kind, operator))


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_copies_share_memory_among_themselves_only(kind: Callable[[], nn.Module]) -> None:
    network = made(kind, None)
    copied = copy_of(network)
    to_channels_last(copied)
    assert memory_of(copied) == memory_of(network)
    in_python = syno.Training(network, "digits")._workload.model()  # a training begins with a copy
    assert memory_of(in_python) == memory_of(network)
    places = [{tensor.untyped_storage().data_ptr() for tensor in each.state_dict().values()} for each in (network, copied)]
    assert not places[0] & places[1]
    assert all(torch.equal(one, other) for one, other in zip(network.parameters(), copied.parameters(), strict=True))


@pytest.mark.parametrize(
    ("kind", "said"), [(Base, ""), (Slices, ""), (TiedConvolutions, ""), (Partly, "table"), (Transposed, "head")]
)
def test_source_says_that_it_has_no_weights_in_one_memory(kind: Callable[[], nn.Module], said: str, tmp_path: Path) -> None:
    """Trained further, they would go apart."""
    written = write_code(Comparison(made(kind, None).eval(), EXAMPLE, None), tmp_path, "A network")
    assert bool(said) == bool(written.only_inference) and said in written.only_inference


def test_weights_that_share_memory_are_named() -> None:
    assert shared_tensors(made(Partly, None)) == [["table", "other.weight"]]
    assert shared_tensors(made(TiedConvolutions, None)) == []  # one object
    workload = {"model": f"{__name__}:Partly", "data": "shapes", "data_settings": {"size": 8, "classes": 4}}
    own = Experiment(name="own", workload=workload, evaluate="cost", reward={"name": "savings"}, train={"seeds": []})
    assert "share memory, and do so in every training and copy: table, other.weight\n" in data_text(own, look(own))


def test_values_that_were_trained_apart_get_memory_of_their_own(tmp_path: Path) -> None:
    """The file rules, though the network that is made anew has one memory for both."""
    network = made(Partly, None)
    network.other.weight = nn.Parameter(network.other.weight + 1)
    (tmp_path / "w").write_bytes(content_of(network))
    again = made(Partly, None)
    load_weights(again, tmp_path / "w")
    assert torch.equal(again.other.weight, network.other.weight) and torch.equal(again.table, network.table)


def test_a_file_of_another_network_is_refused(tmp_path: Path) -> None:
    (tmp_path / "w").write_bytes(content_of(made(Base, None)))
    with pytest.raises(DataError, match="w holds no weights of this network: it has no table"):
        load_weights(made(Partly, None), tmp_path / "w")
    (tmp_path / "w").write_bytes(content_of(made(Partly, None)))
    with pytest.raises(DataError, match="it has table, which the network has not"):
        load_weights(made(Base, None), tmp_path / "w")


class ExtraState(Base):
    def get_extra_state(self) -> dict[str, int]:
        return {"calls": 1}

    def set_extra_state(self, state: dict[str, int]) -> None:
        """Is not called."""


def test_state_that_no_file_can_hold_is_an_error() -> None:
    with pytest.raises(SpecError, match=r"_extra_state, a dict, .*weights: none"):
        content_of(ExtraState())
    sparse = Base()
    sparse.register_buffer("table", torch.eye(3).to_sparse())
    with pytest.raises(SpecError, match="table, a tensor of the layout torch.sparse_coo"):
        content_of(sparse)


def test_a_tied_head_stays_when_its_other_layer_is_replaced() -> None:
    network = TiedConvolutions()
    layers = replaceable(network, EXAMPLE, ["conv"])
    rest = rest_cost(network, EXAMPLE, layers)
    changed = syno.substitute(network, syno.OPERATORS["separable_conv2d"](), EXAMPLE, where=["conv"])
    operator = sum(one.numel() for one in changed.conv.parameters()) - len(network.conv.bias)
    assert rest.parameters == sum(one.numel() for one in changed.parameters()) - operator


class KeepingFeatures(Base):
    """Keeps what it computed, as an attribute, in a list, and in the list of a hook."""

    def __init__(self) -> None:
        super().__init__()
        self.kept: list[torch.Tensor] = []
        self.seen: list[torch.Tensor] = []
        self.conv.register_forward_hook(lambda module, inputs, output: self.seen.append(output))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.last = self.conv(self.stem(x)).relu()
        self.flat = self.last.flatten(1)
        self.kept.append(self.last)
        return self.head(self.other(self.last).relu().mean((2, 3)))


def with_old_weight_norm() -> nn.Module:
    network = Base()
    nn.utils.weight_norm(network.conv)
    return network


def with_old_spectral_norm() -> nn.Module:
    network = Base()
    nn.utils.spectral_norm(network.conv)
    return network


def with_pruning_mask() -> nn.Module:
    network = Base()
    prune.l1_unstructured(network.conv, "weight", 0.5)
    return network


@pytest.mark.filterwarnings("ignore:.*weight_norm.*is deprecated:FutureWarning")
@pytest.mark.parametrize(
    ("make", "is_replaced"),
    [(KeepingFeatures, True), (with_old_weight_norm, True), (with_old_spectral_norm, True), (with_pruning_mask, False)],
)
def test_networks_that_hold_computed_tensors_are_copied_and_replaced(make: Callable[[], nn.Module], is_replaced: bool) -> None:
    network, x = make().train(), torch.randn(2, 3, 8, 8)
    network(x)  # as after a training step
    copied = copy_of(network)
    assert torch.equal(copied.eval()(x), network.eval()(x))
    copied.train()(x).sum().backward()
    assert all(weight.grad is not None for weight in copied.parameters())
    assert all(weight.grad is None for weight in network.parameters())
    replaced = syno.substitute(network, syno.OPERATORS["separable_conv2d"](), x, where="other" if not is_replaced else "conv")
    assert replaced(x).shape == (2, 4)


class WithView(Base):
    def __init__(self) -> None:
        super().__init__()
        self.flat = self.conv.weight.view(-1)


class WithLock(Base):
    def __init__(self) -> None:
        super().__init__()
        self.conv.lock = threading.Lock()


@pytest.mark.parametrize(
    ("make", "message"),
    [(WithView, "keeps flat, a view of its weight conv.weight"), (WithLock, "its attribute conv.lock cannot")],
)
def test_what_a_copy_would_not_be_is_named(make: Callable[[], nn.Module], message: str) -> None:
    with pytest.raises(SpecError, match=message):
        copy_of(make())


def test_weights_without_values_are_named() -> None:
    network = Base()
    network.head.to("meta")
    with pytest.raises(SpecError, match=r"2 weights of Base have no values \(head.weight is on the device meta\); load them"):
        moved_to(network, "cpu")
