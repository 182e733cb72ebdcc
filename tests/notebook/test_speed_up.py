"""A trained network made faster by one call: what is checked before anything runs, the page's example, and kills."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pandas
import pytest
import torch
from torch import nn

import syno
from syno.base.errors import SpecError
from syno.model.module import OperatorModule
from syno.notebook import speed_up as module
from syno.results.metric import METRICS

PAGE = Path(__file__).parents[2] / "docs" / "howto" / "trained-model.md"
BLOCK = re.compile(r"```python\n(.*?)```", re.DOTALL)
MOMENTS = (6, 14, 25)  # seconds after the start: while it begins, and searches


class Small(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.features = nn.Sequential(nn.Conv2d(1, 8, 3, padding=1), nn.ReLU(), nn.Conv2d(8, 8, 3, padding=1), nn.ReLU())
        self.head = nn.Linear(8, 2)

    def forward(self, picture: torch.Tensor) -> torch.Tensor:
        return self.head(self.features(picture).mean((2, 3)))


def batches() -> list[tuple[torch.Tensor, torch.Tensor]]:
    torch.manual_seed(0)
    return [(torch.randn(8, 1, 8, 8), torch.randint(0, 2, (8,))) for _ in range(2)]


@pytest.fixture
def no_run(monkeypatch: pytest.MonkeyPatch) -> None:
    """Everything but the workflow runs."""
    monkeypatch.setattr(module._Run, "finish", lambda run: None)


@pytest.mark.usefixtures("no_run")
class TestCall:
    def test_the_folder_is_an_experiment_of_the_same_network_and_batches(self, tmp_path: Path) -> None:
        model, data = Small(), batches()
        folder = syno.speed_up(model, train=data, test=data, folder=tmp_path / "made", epochs=1, speedup=2).folder
        experiment = module.load_experiment(str(folder / module.CONFIG)).use_code()
        assert (experiment.folder, experiment.goal.least_speedup) == (folder, 2)
        network = experiment.network
        assert network.metric == METRICS["accuracy"] and not network.trains_original
        again = network.model(seed=5)
        assert all(torch.equal(one, other) for one, other in zip(model.parameters(), again.parameters(), strict=True))
        assert torch.equal(next(iter(network.data.train))[0], data[0][0])

    def test_batches_that_are_parts_of_one_tensor_are_kept_once(self, tmp_path: Path) -> None:
        pictures, labels = torch.randn(256, 1, 8, 8), torch.randint(0, 2, (256,))
        data = list(zip(pictures.split(8), labels.split(8), strict=True))
        folder = syno.speed_up(Small(), train=data, test=data[:2], folder=tmp_path / "made", epochs=1).folder
        assert (folder / module.CODE / "task.pkl").stat().st_size < 1.5 * (pictures.nbytes + labels.nbytes)
        kept = module.load_experiment(str(folder / module.CONFIG)).use_code().network.data.train
        pairs = zip(sum(data, ()), sum(kept, ()), strict=True)
        assert all(torch.equal(one, other) for one, other in pairs)

    @pytest.mark.parametrize(
        ("change", "told"),
        [
            ({"speedup": 3}, "experiment.goal.speedup is 2.0 there, 3 here"),
            ({"train": batches()[:1]}, "task.batches to train on is 2 there, 1 here"),
            ({"model": Small()}, "network is"),
        ],
    )
    def test_another_call_in_its_folder_is_an_error(self, change: dict[str, Any], told: str, tmp_path: Path) -> None:
        torch.manual_seed(0)
        given = {"model": Small(), "train": batches(), "test": batches(), "speedup": 2.0, "epochs": 1, "folder": tmp_path}
        syno.speed_up(**given)
        syno.speed_up(**{**given, "minutes": 5})  # how long it may take makes no other one
        with pytest.raises(SpecError, match=re.escape(told)):
            syno.speed_up(**{**given, **change})

    def test_what_cannot_be_pickled_is_named(self, tmp_path: Path) -> None:
        class Locked(list):  # type: ignore[type-arg]
            def __reduce__(self) -> Any:
                raise TypeError("cannot pickle a lock")

        with pytest.raises(SpecError, match="the task cannot be pickled .* cannot pickle a lock"):
            syno.speed_up(Small(), train=Locked(batches()), test=batches(), folder=tmp_path, epochs=1)

    def test_a_score_needs_a_loss(self) -> None:
        with pytest.raises(SpecError, match="a score of your own needs a loss"):
            syno.speed_up(Small(), train=batches(), score=lambda model: 0.0)


def test_the_budget_leaves_room_for_operators_beside_the_other_layers() -> None:
    for rest in (0.0, 0.3, 0.9):
        workload = type("W", (), {"rest": type("C", (), {"flops": rest}), "original": type("C", (), {"flops": 1.0})})
        for speedup in (1.0, 1.5, 4.0):
            found = module._budget(workload, speedup)  # type: ignore[arg-type]
            assert rest < found["least_flops"] < found["most_flops"] <= 1


@pytest.mark.slow
def test_the_example_of_the_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A regression with two inputs and a dict of outputs: in few lines, to a network with its measured score."""
    monkeypatch.chdir(tmp_path)
    network, call = BLOCK.findall(PAGE.read_text(encoding="utf-8"))[1:]
    assert len([line for line in call.splitlines() if line]) <= 25
    found: dict[str, Any] = {"__name__": "__main__"}
    exec(compile(network + call, str(PAGE), "exec"), found)
    result = found["result"]
    assert result.experiment.goal.least_speedup == 1.1
    model, inputs = result.model, (found["pictures"][:2], found["gains"][:2])
    if result.best is not None:
        assert result.speedup.value > 1 and any(isinstance(part, OperatorModule) for part in model.modules())
    lines = result.save("home")
    taken = syno.load(lines)
    assert torch.allclose(taken(*inputs)["brightness"], model(*inputs)["brightness"], atol=1e-5)


@pytest.mark.slow
def test_killed_at_any_moment_the_same_call_goes_on(tmp_path: Path) -> None:
    network, call = BLOCK.findall(PAGE.read_text(encoding="utf-8"))[1:]
    short = re.sub(r"(trials|seeds|epochs)=\d", r"\1=1", call)
    assert short.count("=1,") == 3

    def start() -> subprocess.Popen[bytes]:
        # One thread: the page's training makes the same weights in every process only then.
        alone = {**os.environ, "OMP_NUM_THREADS": "1"}
        return subprocess.Popen([sys.executable, "-c", network + short], cwd=tmp_path, env=alone, stderr=subprocess.DEVNULL)

    for seconds in MOMENTS:
        process = start()
        time.sleep(seconds)
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
    assert start().wait(400) == 0
    file = tmp_path / "speed_up" / "trials.parquet"
    trials, found = pandas.read_parquet(file), file.read_bytes()
    # What a kill interrupted is tried again as another row; a worker that outlives it for a moment is none too many.
    ended = trials[~trials["outcome"].isin(["interrupted", "duplicate"])]
    assert list(trials["number"]) == list(range(len(trials))) and ended["operator"].is_unique
    assert list(trials["outcome"]).count("complete") == 1
    assert start().wait(400) == 0 and file.read_bytes() == found  # nothing was left to do
