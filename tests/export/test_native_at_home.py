"""A trained network with native kernels leaves the experiment, and its kernels work without Syno, or PyTorch's code does."""

from __future__ import annotations

import json
import os
import platform
import shutil
import subprocess
import sys
import warnings
from collections.abc import Callable
from copy import deepcopy
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from made_once import made_once
from native_kernels import kernel_store, make_quickly
from torch import nn

import syno
from syno.base.errors import LoweringError
from syno.base.files import checksum
from syno.export import native_formats
from syno.export.comparison import Calls
from syno.export.network_folder import TrainedNetwork, write_network
from syno.measure.native import choice
from syno.model.saved import code_of

pytestmark = pytest.mark.skipif(not (shutil.which("g++") or shutil.which("clang++")), reason="there is no C++ compiler")
SHAPE = (4, 3, 6, 6)
FACTS = {"weights": "of this network", "metric": "accuracy"}
X = torch.randn(SHAPE, generator=torch.Generator().manual_seed(0))
# Python without Syno: whether the outputs are those of PyTorch's code, and what computed them.
WITHOUT_SYNO = """
import sys
sys.modules["syno"] = None
import native, network, torch
x, model = torch.load("x.pt"), native.load()
with torch.no_grad():
    torch.testing.assert_close(model(x), network.load()(x))
print(len(model.program), *model.said)
"""
PACKAGE_WITHOUT_SYNO = """
import sys
sys.modules["syno"] = None
import torch
model = torch._inductor.aoti_load_package("native_aoti.pt2")
torch.testing.assert_close(model(torch.load("x.pt")), torch.load("y.pt"))
"""


def small() -> nn.Module:
    """Return a network whose layers are a convolution and an operator, with random statistics."""
    operator = syno.build(syno.OPERATORS["conv1x1"](), {"C_in": 4, "C_out": 4, "H": 6}, seed=0)
    made = nn.Sequential(nn.Conv2d(3, 4, 3, padding=1), operator, nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.Linear(144, 5))
    for seed, parameter in enumerate(made.parameters()):
        nn.init.normal_(parameter, std=0.2, generator=torch.Generator().manual_seed(seed))
    return made.eval()


def trained(**changes: Any) -> TrainedNetwork:
    given = {"kernels": True, "calls": Calls(batch=SHAPE[0]), **changes}
    return TrainedNetwork("small", None, small(), torch.zeros(2, *SHAPE[1:]), None, FACTS, {}, None, 0.5, **given)


def quick(patches: pytest.MonkeyPatch, store: Path) -> None:
    make_quickly(patches)
    patches.setattr(native_formats, "store_of_user", lambda: store)


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return kernel_store(tmp_path_factory)


@pytest.fixture(scope="module")
def taken(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a network that was measured with kernels; it lies elsewhere than where it was written."""

    def write(folder: Path) -> None:
        with pytest.MonkeyPatch.context() as patches:
            quick(patches, kernel_store(tmp_path_factory))
            plain, native = write_network(trained(), folder / "small", ("module",))
        assert "network.py" in plain and "native kernels for 3 layers at batches of 4" in native
        torch.save(X, folder / "small/x.pt")

    written = made_once(tmp_path_factory, "written-with-kernels", write) / "small"
    return Path(shutil.copytree(written, tmp_path_factory.mktemp("taken") / "small"))


def at_home(folder: Path) -> Any:
    """Return the folder's native.py, as if another process had imported it."""
    return code_of((folder / "native.py").read_text(encoding="utf-8"), str(folder / "native.py"))


def outputs(model: nn.Module, x: torch.Tensor, warning: str = "") -> torch.Tensor:
    """Return the outputs, after a look at whether kernels compute them, or a warning says why not."""
    model.program.clear()
    with warnings.catch_warnings(record=True) as said, torch.no_grad():
        warnings.simplefilter("always")
        y = model(x)
        model(x)
    assert [warning in str(one.message) for one in said] == ([True] if warning else [])
    return y


@pytest.mark.slow
def test_the_source_says_what_each_kernel_computes_and_where(taken: Path) -> None:
    head = (taken / "native.cpp").read_text().partition("#define")[0]
    assert f"For {platform.machine()}" in head and f"Syno {syno.__version__}" in head and "1 call:" in head
    assert "sizes: C_in=4, C_out=4, H=6, N=4" in head and "operator conv1x1" in head and "then: scale, shift, relu" in head
    assert "native.load()" in (taken / "README.md").read_text()
    assert {"native.py", "native.cpp", "native.pt2"} <= set(json.loads((taken / "network.json").read_text())["files"])


@pytest.mark.slow
@pytest.mark.parametrize("has_compiler", [True, False])
def test_without_syno_kernels_compute_or_one_warning_says_why_not(has_compiler: bool, taken: Path, tmp_path: Path) -> None:
    shutil.rmtree(taken / "native_cache", ignore_errors=True)
    environment = os.environ if has_compiler else {"PATH": str(tmp_path)}
    command = [sys.executable, "-c", WITHOUT_SYNO]
    done = subprocess.run(command, cwd=taken, capture_output=True, text=True, timeout=300, check=True, env=environment)
    if has_compiler:
        assert done.stdout == "1\n" and "UserWarning" not in done.stderr and len(list((taken / "native_cache").iterdir())) == 1
    else:
        assert done.stdout.startswith("0 there is no C++ compiler: install g++ or clang")
        assert done.stderr.count("UserWarning: PyTorch's code computes this network") == 1


@pytest.mark.slow
def test_pytorchs_code_computes_what_kernels_cannot(taken: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    code = at_home(taken)
    model, plain = code.load(), code.network()
    with torch.no_grad():
        wanted, fewer = plain(X), plain(X[:3])
    torch.testing.assert_close(outputs(model, X), wanted)
    assert model.program
    assert torch.equal(outputs(model, X[:3]), fewer) and not model.program
    with pytest.warns(UserWarning, match=r"they have no gradients: call it within torch\.no_grad"):
        model(X).sum().backward()
    assert all(parameter.grad is not None for parameter in model.parameters())
    assert model.train()(X).requires_grad and not model.program
    code = at_home(taken)
    model, code.INSTRUCTIONS = code.load(), frozenset({"teleport"})
    monkeypatch.delattr(torch.ops.syno, code.OPERATOR, raising=False)
    code.OPERATOR = "not_there"
    assert torch.equal(outputs(model, X, "this processor lacks the instructions teleport"), wanted)


def trained_fused(network: nn.Module) -> None:
    network.eval()(X).sum().backward()
    torch.optim.Adam(network.parameters(), 0.1, fused=True).step()


def with_a_hook(network: nn.Module) -> None:
    layer_of(network).register_forward_hook(lambda *_: torch.zeros(4, 4, 6, 6))


def layer_of(network: nn.Module, kind: type[nn.Module] = nn.Conv2d) -> Any:
    return next(one for one in network.modules() if isinstance(one, kind))


WEIGHTS = "they have the weights that were loaded, which have changed"
EXCHANGED = "they have the layers and the weights that were loaded, of which some were exchanged"
SETTINGS = "they have the settings of layers that were loaded, such as an eps or a mode, which have changed"
CHANGES: dict[str, tuple[Callable[[nn.Module], object], str]] = {
    "in place": (lambda network: nn.init.constant_(next(iter(network.parameters())), 0.5), WEIGHTS),
    "fused optimizer": (trained_fused, WEIGHTS),
    "data": (lambda network: [one.data.mul_(1.01) for one in network.parameters()], WEIGHTS),
    "data of one": (lambda network: layer_of(network, nn.Linear).bias.data.add_(1), WEIGHTS),
    "NumPy": (lambda network: np.multiply(view := layer_of(network).weight.detach().numpy(), 2, out=view), WEIGHTS),
    "NumPy, statistics": (lambda network: layer_of(network, nn.BatchNorm2d).running_var.numpy().fill(9), WEIGHTS),
    "another tensor": (lambda network: setattr(layer_of(network), "bias", None), EXCHANGED),
    "another layer": (
        lambda network: setattr(network, next(iter(network._modules)), nn.Conv2d(3, 4, 3, padding=1)),
        "exchanged",
    ),
    "hook": (with_a_hook, "they call no hooks, and layers have got some"),
    "eps": (
        lambda network: setattr(layer_of(network, nn.BatchNorm2d), "eps", 1.0),
        "such as an eps or a mode, which have changed",
    ),
    "mode": (lambda network: layer_of(network, nn.BatchNorm2d).train(), SETTINGS),
}


@pytest.mark.slow
@pytest.mark.parametrize(("change", "said"), CHANGES.values(), ids=CHANGES)
def test_after_a_change_of_the_network_pytorchs_code_computes(
    change: Callable[[nn.Module], object], said: str, taken: Path
) -> None:
    code = at_home(taken)
    model, plain = code.load(), code.network()
    outputs(model, X)
    torch.manual_seed(0)
    change(model.network)
    torch.manual_seed(0)
    change(plain)
    with torch.no_grad():
        assert torch.equal(outputs(model, X, said), plain(X))


@pytest.mark.slow
def test_a_change_of_one_number_is_noticed_when_its_piece_is_compared(taken: Path) -> None:
    code = at_home(taken)
    code.PIECE_BYTES = 64
    model = code.load()
    outputs(model, X)
    layer_of(model.network, nn.Linear).weight.detach().numpy()[2, 100] += 1
    with torch.no_grad(), pytest.warns(UserWarning, match=WEIGHTS):
        for _ in model.loaded.pieces:
            model(X)
    assert model.loaded.difference(False)


@pytest.mark.slow
def test_a_copy_is_computed_by_pytorchs_code(taken: Path) -> None:
    code = at_home(taken)
    model = code.load()
    copy = deepcopy(model)
    with torch.no_grad():
        assert torch.equal(outputs(copy, X, "this is a copy: call load"), code.network()(X))
    torch.testing.assert_close(outputs(model, X), outputs(copy, X, ""))


@pytest.mark.slow
def test_steps_of_an_optimizer_of_another_network_change_nothing(taken: Path) -> None:
    model = at_home(taken).load()
    wanted = outputs(model, X)
    trained_fused(nn.Sequential(nn.Flatten(), nn.Linear(108, 1)))
    assert torch.equal(outputs(model, X), wanted) and model.program


@pytest.mark.slow
@pytest.mark.parametrize(
    "attack",
    [
        lambda file: file.write_bytes(file.read_bytes()[:5_000]),
        lambda file: file.write_bytes(file.read_bytes().replace(b"answer", b"answes")),
        lambda file: (file.rename(file.with_name("other")), file.symlink_to("other")),
        lambda file: file.chmod(0o722),
        lambda file: (file.parent.rename(file.parent.with_name("other")), file.parent.symlink_to("other")),
        lambda file: (shutil.rmtree(file.parent), file.parent.write_text("no folder")),
    ],
    ids=["cut", "changed", "a link", "of others", "a linked folder", "no folder"],
)
def test_a_library_that_is_not_the_users_own_is_compiled_again(attack: Callable[[Path], object], tmp_path: Path) -> None:
    text = 'extern "C" int answer() { return 42; }\n'
    (tmp_path / "native.cpp").write_text(text)
    code = code_of(native_formats.AT_HOME.read_text(encoding="utf-8"), str(tmp_path / "native.py"))
    code.FLAGS, code.SOURCE = ("-shared", "-fPIC"), checksum(text.encode())
    made = code._library()
    whole = made.read_bytes()
    assert code._library() == made and made.parent.stat().st_mode & 0o077 == 0
    attack(made)
    again = code._library()
    assert again.read_bytes() == whole and not again.is_symlink() and not again.parent.is_symlink()
    assert again == made or not again.is_relative_to(tmp_path)  # in the folder, or in one of the process
    (tmp_path / "native.cpp").write_text(text.replace("42", "43"))
    with pytest.raises(code.CannotBuildError, match=r"native\.cpp is damaged, or not the file of this network"):
        code._library()


@pytest.mark.slow
def test_a_program_of_another_network_is_refused(taken: Path, tmp_path: Path) -> None:
    shutil.copytree(taken, tmp_path / "taken")
    (tmp_path / "taken/native.pt2").write_bytes(b"of another one")
    with pytest.raises(ValueError, match=r"native\.pt2 is damaged, or not the file of this network"), torch.no_grad():
        at_home(tmp_path / "taken").load()(X)


def test_without_a_faster_kernel_the_folder_has_the_source_alone(
    tmp_path: Path, store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    quick(monkeypatch, store)
    monkeypatch.setattr(choice, "hopeless", lambda *_: "it is fast already")
    _, said = write_network(trained(), tmp_path / "small", ("module",))
    assert "native.py" in said and "not written: it has no native kernels: none is faster on this machine" in said
    assert not [file for file in (tmp_path / "small").iterdir() if file.name.startswith("native")]
    with pytest.raises(LoweringError, match="none is faster on this machine"):
        write_network(trained(), tmp_path / "other", ("native",))


class Counting(nn.Module):
    """A network that counts its calls."""

    def __init__(self) -> None:
        super().__init__()
        self.body = small()
        self.register_buffer("calls", torch.zeros(()))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.calls += 1
        return self.body(x)


@pytest.mark.slow
def test_a_network_whose_buffers_change_has_no_kernels_of_its_own(
    tmp_path: Path, store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Kernels and PyTorch's code would count each for itself."""
    quick(monkeypatch, store)
    with pytest.raises(LoweringError, match="its forward changes the buffer calls"):
        write_network(replace(trained(), network=Counting().eval()), tmp_path / "counting", ("native",))


@pytest.mark.slow
def test_a_package_holds_the_kernels(tmp_path: Path, store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    quick(monkeypatch, store)
    found = trained()
    (line,) = write_network(found, tmp_path / "small", ("native-aoti",))
    assert "native kernels for 3 layers" in line and "for batches of 4 only" in line
    with torch.no_grad():
        torch.save(found.network(X), tmp_path / "small/y.pt")
    torch.save(X, tmp_path / "small/x.pt")
    command = [sys.executable, "-c", PACKAGE_WITHOUT_SYNO]
    subprocess.run(command, cwd=tmp_path / "small", capture_output=True, text=True, timeout=300, check=True)
