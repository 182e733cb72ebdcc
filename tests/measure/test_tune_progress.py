"""What `syno tune` says before and while it works: a device that is not there, and how far TVM is."""

from __future__ import annotations

import io
from pathlib import Path

import pytest
import torch
import yaml
from click.testing import Result
from typer.testing import CliRunner

from syno.base.devices import require_device
from syno.base.errors import SpecError
from syno.base.progress import LogDisplay, TerminalDisplay
from syno.cli import app
from syno.measure.job import TrialCount
from syno.measure.protocol import Findings
from syno.stages.measure import TuningProgress, shown

TUNING = Findings(phase="tuning", count=TrialCount(task=3, tasks=17, trials=96, trials_wanted=1088))


def tune_model(folder: Path, *arguments: str, tune: dict[str, object] | None = None) -> Result:
    workload = {"model": "resnet8", "width": 0.25, "data": "glyphs", "data_settings": {"preset": "micro"}}
    config = {"name": "small", "workload": workload, "output": str(folder / "results"), "tune": tune or {}}
    (folder / "small.yaml").write_text(yaml.safe_dump(config), encoding="utf-8")
    return CliRunner().invoke(app, ["tune", "model", str(folder / "small.yaml"), "original", *arguments])


@pytest.mark.parametrize("device", ["cuda", "cuda:1"])
def test_a_gpu_that_is_not_there_ends_before_any_work(device: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 0)
    message = f'error: the device is "{device}", but PyTorch finds no GPU here; take the device cpu, or'
    done = tune_model(tmp_path, "--device", device)
    assert done.exit_code == 2 and done.stderr.startswith(message) and done.stderr.count("\n") == 1
    assert not (tmp_path / "results").exists()
    for given in (("operator", "conv1x1", "--set", "C_in=4,C_out=4,H=4"), ("network", "original", "--model", "resnet8")):
        done = CliRunner().invoke(app, ["tune", *given, "--device", device, "--output", str(tmp_path / "record.json")])
        assert done.exit_code == 2 and done.stderr.startswith(message)
        assert not (tmp_path / "record.json").exists()


def test_one_gpu_of_several(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    for device in ("cpu", "cuda", "cuda:1"):
        require_device(device)
    with pytest.raises(SpecError, match='"cuda:2", but PyTorch finds 2 GPUs here, cuda:0 to cuda:1'):
        require_device("cuda:2")


def test_a_remote_device_that_does_not_answer_ends_before_any_work(tmp_path: Path) -> None:
    pytest.importorskip("tvm", reason="TVM is not installed: pip install 'syno-operators[tvm]'")
    remote = {"target": "host", "tracker": "127.0.0.1:1", "key": "phone"}  # port 1: nobody is there
    tune = {"compilers": ["tvm"], "devices": ["phone"], "remote_devices": {"phone": remote}}
    done = tune_model(tmp_path, "--compiler", "tvm", "--device", "phone", tune=tune)
    assert done.exit_code == 75 and 'device "phone": the tracker 127.0.0.1:1 does not answer' in done.stderr
    assert not (tmp_path / "results").exists()


def test_a_log_says_how_far_tuning_is() -> None:
    stream = io.StringIO()
    with shown("conv2d, tvm on cpu", LogDisplay(stream, interval=0)) as progress:
        progress(Findings(phase="compiling"))
        progress(TUNING)
    assert stream.getvalue().splitlines() == [
        "conv2d, tvm on cpu: compiling, 0 s elapsed",
        "conv2d, tvm on cpu: tuning, task 3 of 17, 96 of 1088 trials, 0 s elapsed",
    ]


def test_a_terminal_has_a_bar_of_trials() -> None:
    stream = io.StringIO()
    with TerminalDisplay(stream) as display:
        display.show(TuningProgress.of("conv2d, tvm on cpu", TUNING, seconds=300))
        (task,) = display._bar.tasks
        assert (task.completed, task.total) == (96, 1088)
    assert "tuning, task 3 of 17, 96 of 1088 trials, 5 min elapsed" in " ".join(stream.getvalue().split())
