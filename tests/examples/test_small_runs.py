"""Each example from end to end in small form, by the commands that users run."""

from __future__ import annotations

import json
import math
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml
from click.testing import Result
from command_lines import HANGS_AFTER
from small_examples import EXAMPLES, FOLDER, fields_of, with_samples
from typer.testing import CliRunner

from syno.base.files import ORIGINAL
from syno.cli import app
from syno.config.files import load_experiment

SEED, STEPS, TESTS = 3, 20, 64
# Python without Syno: the share of labels that the network gets right, by the module and by the exported program. A library
# beside the code is not imported in its place.
WITHOUT_SYNO = """
import sys
sys.modules["syno"] = None
import network, torch
samples, labels = torch.load("test.pt")
for model in (network.load(), torch.export.load("network.pt2").module()):
    print(float((model(samples).argmax(1) == labels).double().mean()))
"""
COMPILED = {"own_cnn": ("aoti", "tvm"), "segmentation": ("onnx",)}  # of what is measured, too: both take long


def small_config(name: str, folder: Path) -> Path:
    """Write the example with little to do. It has no goal, since tests do not depend on the machine's speed."""
    fields: dict[str, Any] = with_samples(fields_of(name), 128, TESTS)
    fields.pop("goal", None)
    fields["code"] = str(FOLDER / name)
    if "noise" in fields["workload"]["data_settings"]:
        fields["workload"]["data_settings"]["noise"] = 0.1  # else nothing is learnt in so few steps
    fields["workload"]["training"] |= {"epochs": 10, "most_steps": STEPS, "batch": 32}
    fields["reward"] = {"name": "accuracy", "low": 0.0}  # after so few steps, the original may be no better than chance
    fields["policy"] = {"name": "random"}
    fields["study"] = {"n_trials": 1}
    fields["train"] = {"seeds": [SEED]}
    compilers = ["eager"] if name in COMPILED else []
    fields["tune"] = {"compilers": compilers, "latency": {"batch": 2, "least_ms": 1, "warm_up_ms": 0, "most_repeats": 6}}
    file = folder / f"{name}.yaml"
    file.write_text(yaml.safe_dump(fields), encoding="utf-8")
    return file


def run(*arguments: str) -> Result:
    result = CliRunner().invoke(app, list(arguments))
    assert result.exit_code == 0, (arguments, result.output, result.exception)
    return result


@pytest.mark.slow(minutes=1)
@pytest.mark.parametrize("name", EXAMPLES)
def test_search_train_measure_and_take_home(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    config = str(small_config(name, tmp_path))
    folder = Path("results") / name
    run("data", config)
    run("search", config)
    run("select", config)
    (chosen,) = json.loads((folder / "selected.json").read_text())["selected"][:1]
    for given in (ORIGINAL, chosen["name"]):
        run("train", config, given, "--seed", str(SEED))
    if name in COMPILED:
        run("tune", "model", config, chosen["name"], "--compiler", "eager")
        (latency,) = (json.loads(file.read_text()) for file in (folder / "tune" / chosen["key"]).glob("*.json"))
        assert latency["status"] == "ok", latency
    run("tables", config)
    (record,) = (json.loads(file.read_text()) for file in (folder / "train" / chosen["key"]).glob("*.json"))
    assert math.isfinite(record["score"]) and 0 <= record["score"] <= 1 and record["metric"] == "accuracy"
    assert chosen["name"] in run("top", config).output
    for form in ("module", "export", *COMPILED.get(name, ())):  # outputs that differ are an error
        (line,) = run("get", config, chosen["name"], "--to", form, "--output", "taken").stdout.splitlines()
        assert " on the test data, as recorded" in line and (line.endswith("as recorded") or form != "module")
    assert without_syno(config, tmp_path / "taken") == [pytest.approx(record["score"], abs=1e-12)] * 2


def without_syno(config: str, folder: Path) -> list[float]:
    """The scores of the network in a folder on the test data, in a Python that cannot import Syno."""
    data = load_experiment(config).network.data
    torch.save((data.test_images, data.test_labels), folder / "test.pt")
    command = [sys.executable, "-c", WITHOUT_SYNO]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=HANGS_AFTER, check=True)
    return [float(line) for line in done.stdout.splitlines()]
