"""A trained network leaves the experiment with its weights, and works without Syno as it was tested."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml
from small_experiment import FIELDS
from typer.testing import CliRunner

import syno
from syno.base.errors import SpecError
from syno.cli import app
from syno.config import Experiment
from syno.config.files import load_experiment
from syno.stages.take_home import take_network
from syno.stages.train import train

OPERATOR = "separable_conv2d"
# Python without Syno: the accuracy of a network on the test data, by the module or by the exported program.
WITHOUT_SYNO = """
import sys
sys.modules["syno"] = None
import torch
if sys.argv[1] == "module":
    import network
    model = network.load()
else:
    model = torch.export.load("network.pt2").module()
images, labels = torch.load("test.pt")
print(float((model(images).argmax(1) == labels).double().mean()))
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


@pytest.mark.parametrize("form", ["module", pytest.param("export", marks=pytest.mark.slow)])
def test_without_syno_it_has_the_recorded_accuracy(trained: Experiment, tmp_path: Path, form: str) -> None:
    (line,) = take_network(trained, OPERATOR, tmp_path / "taken", (form,))
    assert "outputs equal to the trained network's" in line and line.endswith("as recorded")
    facts = json.loads((tmp_path / "taken/network.json").read_text())
    scores = [json.loads(file.read_text())["score"] for file in sorted((trained.folder / "train" / OPERATOR).glob("*.json"))]
    assert facts["score"] == max(scores) and len(scores) == 2
    data = trained.network.data
    assert isinstance(data, syno.data.DataSet)
    torch.save((data.test_images, data.test_labels), tmp_path / "taken/test.pt")
    command = [sys.executable, "-c", WITHOUT_SYNO, form]
    done = subprocess.run(command, cwd=tmp_path / "taken", capture_output=True, text=True, timeout=120, check=True)
    assert float(done.stdout) == facts["score"]
    x = data.test_images[:3]
    with torch.no_grad():
        assert torch.equal(syno.load(tmp_path / "taken")(x), syno.load(tmp_path / "taken")(x))


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
    with pytest.raises(SpecError, match=r"was not trained with seed 7 in .*; it was with the seeds 1, 2; `syno train`"):
        take_network(later, OPERATOR, tmp_path / "other", seed=7)


def test_what_cannot_be_taken_is_said(trained: Experiment, tmp_path: Path) -> None:
    with pytest.raises(SpecError, match=r"original was not trained in .*; `syno train` and the workflow train it"):
        take_network(trained, "original", tmp_path)
    (tmp_path / "own.txt").write_text("the user's")
    with pytest.raises(SpecError, match="has files that Syno did not write"):
        take_network(trained, OPERATOR, tmp_path)
    with pytest.raises(SpecError, match=r"neither network.py nor network.pt2"):
        syno.load(tmp_path)
    (trained.folder / "train" / OPERATOR / "seed1.safetensors").rename(tmp_path / "kept")
    try:
        with pytest.raises(SpecError, match="has kept its weights; with train: weights: all in the config"):
            take_network(trained, OPERATOR, tmp_path / "taken", seed=1)
    finally:
        (tmp_path / "kept").rename(trained.folder / "train" / OPERATOR / "seed1.safetensors")


def test_the_command(trained: Experiment, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    config = trained.folder.parent / "small.yaml"
    done = CliRunner().invoke(app, ["get", str(config), OPERATOR])
    assert done.exit_code == 0 and f"{OPERATOR}/network.py, {OPERATOR}/weights.safetensors" in done.output
    assert CliRunner().invoke(app, ["get", str(config), OPERATOR, "--set", "H=2"]).exit_code == 2
    assert CliRunner().invoke(app, ["get", OPERATOR, "--seed", "2"]).exit_code == 2


@pytest.mark.slow
@pytest.mark.parametrize("form", ["onnx", "aoti", "tvm"])
def test_compiled_formats(trained: Experiment, tmp_path: Path, form: str) -> None:
    (line,) = take_network(trained, OPERATOR, tmp_path / "taken", (form,))
    assert line.partition(" on the test data, ")[2].startswith("as recorded")
