"""A trained network leaves the experiment with its weights, and works without Syno as it was tested."""

from __future__ import annotations

import json
import random
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml
from command_lines import HANGS_AFTER
from own_functions import Several
from safetensors.torch import save_model
from small_experiment import FIELDS
from torch import nn
from typer.testing import CliRunner

import syno
from syno.base.errors import LoweringError, SpecError, SynoError
from syno.cli import app
from syno.config import Experiment
from syno.config.files import load_experiment
from syno.export.comparison import training_difference
from syno.export.network_folder import TrainedNetwork, write_network
from syno.model.inputs import of_batch
from syno.model.saved import code_of
from syno.stages.take_home import take_network
from syno.stages.train import train

OPERATOR = "separable_conv2d"
# Python without Syno: the accuracy of a network on the test data. By the exported program: tests/examples/test_small_runs.py.
WITHOUT_SYNO = """
import sys
sys.modules["syno"] = None
import network, torch
images, labels = torch.load("test.pt")
print(float((network.load()(images).argmax(1) == labels).double().mean()))
"""


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Experiment:
    """An experiment in which one operator and the original network were trained with two seeds."""
    folder = tmp_path_factory.mktemp("trained")
    fields: dict[str, Any] = {**FIELDS, "output": str(folder / "results"), "train": {"seeds": [1, 2], "baselines": [OPERATOR]}}
    (folder / "small.yaml").write_text(yaml.safe_dump(fields))
    experiment = load_experiment(folder / "small.yaml")
    for seed in (1, 2):
        train(experiment, OPERATOR, seed)
    return experiment


@pytest.mark.slow
def test_without_syno_it_has_the_recorded_accuracy(trained: Experiment, tmp_path: Path) -> None:
    (line,) = take_network(trained, OPERATOR, tmp_path / "taken", ("module",))
    assert re.search(r"outputs (equal to the trained network.s|differ by \de-0[789] of)", line) and line.endswith("as recorded")
    facts = json.loads((tmp_path / "taken/network.json").read_text())
    scores = [json.loads(file.read_text())["score"] for file in sorted((trained.folder / "train" / OPERATOR).glob("*.json"))]
    assert facts["score"] == max(scores) and len(scores) == 2
    data = trained.network.data
    assert isinstance(data, syno.data.DataSet)
    torch.save((data.test_images, data.test_labels), tmp_path / "taken/test.pt")
    command = [sys.executable, "-c", WITHOUT_SYNO]
    done = subprocess.run(command, cwd=tmp_path / "taken", capture_output=True, text=True, timeout=HANGS_AFTER, check=True)
    assert float(done.stdout) == facts["score"]
    x = data.test_images[:3]
    with torch.no_grad():
        assert torch.equal(syno.load(tmp_path / "taken")(x), syno.load(tmp_path / "taken")(x))


@pytest.mark.slow
def test_the_card_has_all_formats_and_another_seed_begins_anew(trained: Experiment, tmp_path: Path) -> None:
    folder = tmp_path / "taken"
    for form in ("module", "export"):
        take_network(trained, OPERATOR, folder, (form,))
    card = (folder / "README.md").read_text()
    assert "network.load()" in card and "torch.export.load" in card and "in place of 6 layers" in card
    assert (folder / "operator.txt").read_text().startswith("operator separable_conv2d")
    facts = json.loads((folder / "network.json").read_text())
    take_network(trained, OPERATOR, folder, seed=3 - facts["seed"])
    assert "torch.export.load" not in (folder / "README.md").read_text()


def test_a_training_with_a_seed_that_the_experiment_has_no_more_is_taken(trained: Experiment, tmp_path: Path) -> None:
    later = trained.model_copy(update={"train": trained.train.model_copy(update={"seeds": (7,)})})
    (line,) = take_network(later, OPERATOR, tmp_path / "taken")
    assert "taken" in line
    with pytest.raises(SpecError, match=r"seed 7 .*seeds 1, 2"):
        take_network(later, OPERATOR, tmp_path / "other", seed=7)


def test_networks_that_were_not_trained_are_errors_with_the_reason(trained: Experiment, tmp_path: Path) -> None:
    with pytest.raises(SpecError, match=r"original was not trained .*`syno train`"):
        take_network(trained, "original", tmp_path)
    (tmp_path / "own.txt").write_text("the user's")
    with pytest.raises(SpecError, match="has files that Syno did not write"):
        take_network(trained, OPERATOR, tmp_path)
    with pytest.raises(SpecError, match=r"neither network.py nor network.pt2"):
        syno.load(tmp_path)
    (trained.folder / "train" / OPERATOR / "seed1.safetensors").rename(tmp_path / "kept")
    try:
        with pytest.raises(SpecError, match="weights: all"):
            take_network(trained, OPERATOR, tmp_path / "taken", seed=1)
    finally:
        (tmp_path / "kept").rename(trained.folder / "train" / OPERATOR / "seed1.safetensors")


def test_get_writes_the_folder_of_a_network(trained: Experiment, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    config = trained.folder.parent / "small.yaml"
    done = CliRunner().invoke(app, ["get", str(config), OPERATOR])
    assert done.exit_code == 0 and f"{OPERATOR}/network.py, {OPERATOR}/weights.safetensors" in done.output
    assert CliRunner().invoke(app, ["get", str(config), OPERATOR, "--set", "H=2"]).exit_code == 2
    assert CliRunner().invoke(app, ["get", OPERATOR, "--seed", "2"]).exit_code == 2


class Convolution(nn.Module):  # type: ignore[misc]
    """A convolution and a head; what subclasses compute is for some inputs only."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.conv, self.head = nn.Conv2d(3, 4, 3, padding=1), nn.Linear(4, 5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(torch.relu(self.conv(x)).mean((2, 3)))


class HalfHeight(Convolution):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return super().forward(x[:, :, : int(x.shape[2] * 0.5)])


class OtherwiseIfLarge(Convolution):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return super().forward(x) * (2 if x.shape[3] > 16 else 1)


class AloneOtherwise(Convolution):
    """Branches on the batch."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return super().forward(x) * (2 if x.shape[0] == 1 else 1)


class Dropped(Convolution):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return nn.functional.dropout(super().forward(x), 0.5, self.training)


class RandomLayer(Convolution):
    """Decides by a random number in training."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return super().forward(x) * (2 if self.training and random.random() < 0.5 else 1)


class Keyword(Convolution):
    def __init__(self) -> None:
        super().__init__()
        self._modules |= {"in": nn.ReLU(), "global": nn.Conv2d(3, 3, 1), "a-b": nn.ReLU(), "0": nn.Identity()}

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return super().forward(self._modules["0"](self._modules["a-b"](self._modules["in"](self._modules["global"](x)))))


def taken(network: nn.Module, folder: Path, *formats: str) -> list[str]:
    found = TrainedNetwork("small", None, network.eval(), torch.zeros(2, 3, 8, 8), None, FACTS, {}, None, 0.5)
    return write_network(found, folder, formats or ("module",))


FACTS = {"weights": "of this network", "metric": "accuracy"}
PICTURES = torch.randn(3, 3, 8, 8, generator=torch.Generator().manual_seed(0))
COMPILED = [pytest.param(name, marks=pytest.mark.slow) for name in ("onnx", "aoti")]


def read_again(folder: Path, form: str) -> Any:
    """Return the network in a format, as its card says how to load it."""
    if form == "onnx":
        session = pytest.importorskip("onnxruntime").InferenceSession(folder / "network.onnx")
        return lambda x: torch.from_numpy(session.run(["y"], {"x": x.numpy()})[0])
    if form == "aoti":
        return torch._inductor.aoti_load_package(str(folder / "network_aoti.pt2"))
    return syno.load(folder) if form == "module" else torch.export.load(folder / "network.pt2").module()


@pytest.mark.parametrize(
    ("form", "make"),
    [
        *((form, HalfHeight) for form in ("module", "export")),
        *(pytest.param(form, HalfHeight, marks=pytest.mark.slow) for form in ("onnx", "aoti")),
        ("module", OtherwiseIfLarge),
        pytest.param("onnx", OtherwiseIfLarge, marks=pytest.mark.slow),
    ],
)
def test_at_another_size_it_is_the_network_or_says_that_it_is_for_one(
    form: str, make: type[Convolution], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AOTI_RUNTIME_CHECK_INPUTS", "1")
    network = make()
    (line,) = taken(network, tmp_path / "small", form)
    said = "for pictures of 8x8 only"
    assert (said in line) == (said in (tmp_path / "small/README.md").read_text())
    again = read_again(tmp_path / "small", form)
    refused = []
    with torch.no_grad():
        for batch in (1, 3):
            torch.testing.assert_close(again(PICTURES[:batch]), network(PICTURES[:batch]))
        for size in (9, 10, 17, 24):
            x = torch.ones(2, 3, size, size)
            try:
                found = again(x)
            except Exception:  # each format has errors of its own
                refused.append(size)
            else:
                torch.testing.assert_close(found, network(x))
    assert refused == [9, 10, 17, 24] if said in line else ("for pictures of 8x8 and some other sizes" in line) == bool(refused)


@pytest.mark.parametrize("form", ["module", "export", *COMPILED])
def test_a_branch_on_the_batch_is_for_one_batch(form: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AOTI_RUNTIME_CHECK_INPUTS", "1")
    network = AloneOtherwise()
    (line,) = taken(network, tmp_path / "small", form)
    assert "for batches of 2 only" in line
    again = read_again(tmp_path / "small", form)
    with torch.no_grad():
        torch.testing.assert_close(again(PICTURES[:2]), network(PICTURES[:2]))
        with pytest.raises(Exception, match=r"2|Guard"):
            again(PICTURES[:1])


def test_the_training_mode_is_kept_or_the_folder_is_for_inference(tmp_path: Path) -> None:
    for network, is_kept in ((Dropped(), True), (RandomLayer(), False), (AloneOtherwise(), False)):
        folder = tmp_path / type(network).__name__
        (line,) = taken(network, folder)
        assert ("for inference" not in line) == is_kept
        assert (folder / "README.md").read_text().startswith("# small\n" if is_kept else "# small, for inference\n")
        again = syno.load(folder)
        assert again.eval() is again
        if is_kept:
            assert training_difference(network, again, PICTURES) == ""
        else:
            with pytest.raises((RuntimeError, SpecError), match="this network is for inference"):
                again.train()


@pytest.mark.parametrize("form", ["export", *COMPILED])
def test_a_network_of_several_inputs_has_their_names_and_those_of_its_outputs(form: str, tmp_path: Path) -> None:
    network = Several().eval()
    inputs = {"x": torch.randn(2, 3, 8, 8), "places": torch.tensor([[0, 4], [1, 1]]), "keep": torch.rand(2, 1, 8, 8) < 0.9}
    first = float(network(**inputs).logits[0, 0])
    score = lambda one: float(one(**inputs)["logits"][0, 0])  # noqa: E731
    found = TrainedNetwork("several", None, network, inputs, None, FACTS, {}, score, first)
    (line,) = write_network(found, tmp_path / "taken", (form,))
    assert float(line.split("accuracy ")[1].split()[0]) == pytest.approx(first, abs=1e-5)
    if form == "onnx":
        assert (
            "inputs x, places, keep; outputs logits, more_features_0, more_places" in (tmp_path / "taken/README.md").read_text()
        )
    if form == "export":
        again = syno.load(tmp_path / "taken")
        assert torch.allclose(again(**inputs)["logits"], network(**inputs).logits, atol=1e-5)
        assert again(**of_batch(inputs, 5))["more"]["features"][0].shape[0] == 5


@pytest.mark.parametrize("form", ["module", "export", *COMPILED])
def test_layers_named_by_keywords_are_written(form: str, tmp_path: Path) -> None:
    network = Keyword()
    taken(network, tmp_path / "small", form)
    with torch.no_grad():
        torch.testing.assert_close(read_again(tmp_path / "small", form)(PICTURES), network(PICTURES))


def flip(file: Path) -> None:
    """Change one bit of the last number."""
    content = bytearray(file.read_bytes())
    content[-1] ^= 1
    file.write_bytes(content)


def cut(file: Path) -> None:
    file.write_bytes(file.read_bytes()[:-5])


def exchange(file: Path) -> None:
    other = Convolution()
    nn.init.zeros_(other.head.weight)
    place = file.parent.parent / "other"
    taken(other, place, "module" if file.suffix == ".safetensors" else "export")
    file.write_bytes((place / file.name).read_bytes())


@pytest.mark.parametrize("damage", [flip, cut, exchange, Path.unlink])
@pytest.mark.parametrize("form", ["module", "export"])
def test_damaged_weights_are_an_error(form: str, damage: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "small"
    taken(Convolution(), folder, form)
    damage(folder / ("weights.safetensors" if form == "module" else "network.pt2"))
    with pytest.raises(SynoError, match=r"again|has neither network\.py nor network\.pt2"):
        syno.load(folder)
    if form == "module":
        monkeypatch.syspath_prepend(folder)
        code = code_of((folder / "network.py").read_text(), str(folder / "network.py"))
        with pytest.raises((ValueError, FileNotFoundError), match=r"weights\.safetensors"):
            code.load()


def test_other_weights_can_be_given(tmp_path: Path) -> None:
    taken(Convolution(), tmp_path / "small")
    network = syno.load(tmp_path / "small")
    nn.init.zeros_(network.head.weight)
    save_model(network, str(tmp_path / "mine.safetensors"))
    code = code_of((tmp_path / "small/network.py").read_text(), str(tmp_path / "small/network.py"))
    assert not code.load(tmp_path / "mine.safetensors").head.weight.any()


def test_a_format_that_fails_leaves_the_folder_as_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: object, **__: object) -> None:
        raise RuntimeError("no such thing")

    monkeypatch.setattr(torch.export, "export", fails)
    with pytest.raises(LoweringError, match="cannot export the network: no such thing"):
        taken(Convolution(), tmp_path / "small", "module", "export")
    assert list(tmp_path.iterdir()) == []
    taken(Convolution(), tmp_path / "small")
    before = {file.name: file.read_bytes() for file in (tmp_path / "small").iterdir()}
    with pytest.raises(LoweringError):
        taken(Dropped(), tmp_path / "small", "module", "export")
    assert {file.name: file.read_bytes() for file in (tmp_path / "small").iterdir()} == before


def test_a_program_takes_the_place_of_source_that_was_there(tmp_path: Path) -> None:
    folder = tmp_path / "small"
    taken(Convolution(), folder)
    taken(AloneOtherwise(), folder)
    assert {file.name for file in folder.iterdir()} == {"README.md", "network.json", "network.pt2"}
