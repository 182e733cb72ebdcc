"""A trained network made faster by one call: what is checked before anything runs, the page's example, and kills."""

from __future__ import annotations

import io
import multiprocessing
import os
import pickle
import re
import shutil
import sqlite3
import time
from contextlib import closing, suppress
from datetime import datetime
from functools import partial
from multiprocessing.process import BaseProcess
from pathlib import Path
from threading import Thread
from types import SimpleNamespace
from typing import Any

import pandas
import pytest
import torch
from command_lines import HANGS_AFTER
from torch import nn
from torch.nn import functional
from torch.utils.data import DataLoader, TensorDataset

import syno
from syno.base.errors import DataError, SpecError, UserCodeError
from syno.base.fork_client import VARIABLE
from syno.base.interval import Interval
from syno.config import load_experiment
from syno.measure.speedups import STORE
from syno.model.module import OperatorModule
from syno.notebook import speed_up as module
from syno.run.goal import judged_networks
from syno.run.measurement import Measurement
from syno.run.run import Run
from syno.run.story import reason
from syno.run.views import scores_of
from syno.search.goal import Goal
from syno.stages.places import FROZEN
from syno.stages.search import search
from syno.stages.study import freeze
from syno.stages.workflow.fork_server import start_fork_server
from syno.train.metric import METRICS
from syno.train.settings import TrainingSettings

PAGE = Path(__file__).parents[2] / "docs" / "howto" / "trained-model.md"
BLOCK = re.compile(r"```python\n(.*?)```", re.DOTALL)
TRIALS = 4
# When kills come: a file is there, or so many trials have begun, and how many seconds after that.
MOMENTS: tuple[tuple[str | int, float], ...] = (*(("speed_up.yaml", 0), (1, 0), (1, 0.3), (FROZEN, 0), ("tune/**/*.json", 0)),)
# Programs begin in copies of a process that has imported what they need.
FORKS = multiprocessing.get_context("forkserver")
FORKS.set_forkserver_preload(["syno.notebook.speed_up"])


class Small(nn.Module):
    def __init__(self, width: int = 8) -> None:
        super().__init__()
        first, second = nn.Conv2d(1, width, 3, padding=1), nn.Conv2d(width, width, 3, padding=1)
        self.features = nn.Sequential(first, nn.ReLU(), second, nn.ReLU())
        self.head = nn.Linear(width, 2)

    def forward(self, picture: torch.Tensor) -> torch.Tensor:
        return self.head(self.features(picture).mean((2, 3)))


def batches(size: int = 8) -> list[tuple[torch.Tensor, torch.Tensor]]:
    torch.manual_seed(0)
    return [(torch.randn(8, 1, size, size), torch.randint(0, 2, (8,))) for _ in range(2)]


@pytest.fixture
def no_run(monkeypatch: pytest.MonkeyPatch) -> None:
    """Everything but the workflow runs."""
    monkeypatch.setattr(module._Run, "finish", lambda run: None)


def weighted(factor: float) -> Any:
    def loss(model: nn.Module, batch: Any) -> torch.Tensor:
        return factor * functional.cross_entropy(model(batch[0]), batch[1])

    return loss


class Counted:
    def __init__(self, count: int) -> None:
        self.count = count

    def __call__(self, model: nn.Module) -> float:
        return float(self.count)


def negated(own: bool) -> nn.Module:
    def forward(self: nn.Module, picture: torch.Tensor) -> torch.Tensor:
        return (-1 if own else 1) * super(kind, self).forward(picture)  # type: ignore[misc]

    kind = type("Small", (Small,), {"forward": forward, "__module__": __name__})
    return kind()


def relabelled(own: bool) -> list[tuple[torch.Tensor, torch.Tensor]]:
    found = batches()
    if own:
        found[1][1][3] = 1 - found[1][1][3]
    return found


def shown(own: bool) -> Any:
    """Return batches that a function changes."""
    data = TensorDataset(torch.arange(512.0).reshape(8, 1, 8, 8) / 512, torch.arange(8) % 2)
    return DataLoader(data, 4, collate_fn=partial(stacked, flip=own))


def stacked(rows: Any, flip: bool) -> Any:
    pictures, labels = (torch.stack(part) for part in zip(*rows, strict=True))
    return pictures.flip(-1) if flip else pictures, labels


def scored(model: nn.Module, count: int) -> float:
    return float(count)


# What makes the arguments of a call, as they are or changed, and what a message says of the change.
CHANGES: dict[str, tuple[Any, str]] = {
    "one label": (lambda own: {"test": relabelled(own)}, "the batches to test on"),
    "the inputs": (lambda own: {"test": [(x + 0.1 * own, y) for x, y in batches()]}, "the batches to test on"),
    "their order": (lambda own: {"train": batches()[:: -1 if own else 1]}, "the batches to train on"),
    "what makes batches": (lambda own: {"test": shown(own)}, "the batches to test on"),
    "the forward": (lambda own: {"model": negated(own)}, "the function negated.<locals>.forward in test_speed_up.py"),
    "a constant of a closure": (
        lambda own: {"loss": weighted(2.0 if own else 1.0)},
        "the function weighted.<locals>.loss in test_speed_up.py",
    ),
    "a callable object": (lambda own: {"score": Counted(1 + own)}, "the score"),
    "a partial function": (lambda own: {"score": partial(scored, count=own)}, "the score"),
}


@pytest.mark.usefixtures("no_run")
class TestCall:
    def test_the_folder_is_an_experiment_of_the_same_network_and_batches(self, tmp_path: Path) -> None:
        model, data = Small(), batches()
        folder = syno.speed_up(model, train=data, test=data, folder=tmp_path / "made", epochs=1, speedup=2).folder
        experiment = load_experiment(str(folder / module.CONFIG)).use_code()
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
        kept = load_experiment(str(folder / module.CONFIG)).use_code().network.data.train
        pairs = zip(sum(data, ()), sum(kept, ()), strict=True)
        assert all(torch.equal(one, other) for one, other in pairs)

    @pytest.mark.slow
    @pytest.mark.parametrize(
        ("change", "told"),
        [
            ({"speedup": 3}, "experiment.goal.speedup is 2.0 there, 3 here"),
            ({"train": batches()[:1]}, "task.batches to train on is 2 there, 1 here"),
            ({"model": Small()}, "the weights of the network changed since then"),
        ],
    )
    def test_another_call_in_its_folder_is_an_error(self, change: dict[str, Any], told: str, tmp_path: Path) -> None:
        torch.manual_seed(0)
        given = {"model": Small(), "train": batches(), "test": batches(), "speedup": 2.0, "epochs": 1, "folder": tmp_path}
        syno.speed_up(**given)
        syno.speed_up(**{**given, "minutes": 5})  # how long it may take makes no other one
        with pytest.raises(SpecError, match=re.escape(told)):
            syno.speed_up(**{**given, **change})

    @pytest.mark.slow
    @pytest.mark.parametrize("change", CHANGES)
    def test_what_changed_in_it_is_named(self, change: str, tmp_path: Path) -> None:
        made, told = CHANGES[change]
        for own in (False, False, True):
            torch.manual_seed(0)
            given = {"model": Small(), "train": batches(), "test": batches(), "loss": weighted(1.0), "score": Counted(1)}
            call = {**given, "epochs": 1, "folder": tmp_path, **made(own)}
            if own:
                with pytest.raises(SpecError, match=re.escape(f"of another call of speed_up: {told} changed since then. Give")):
                    syno.speed_up(**call)
            else:  # the second one is the same
                syno.speed_up(**call)

    def test_a_call_beside_another_one_in_a_new_folder_is_refused_at_once(self, tmp_path: Path) -> None:
        """Its file may be written only while this call waits."""
        given = {"train": batches(), "test": batches(), "epochs": 1}
        first = tmp_path / "first"
        syno.speed_up(Small(), folder=first, **given)
        shutil.copytree(first, tmp_path / "kept")
        shutil.rmtree(first)

        def begin() -> None:
            time.sleep(0.2)
            shutil.copytree(tmp_path / "kept", first, dirs_exist_ok=True)

        with module._alone(first, lambda: None):
            thread = Thread(target=begin)
            thread.start()
            with pytest.raises(SpecError, match="of another call of speed_up: the weights of the network changed since then"):
                syno.speed_up(Small(), folder=first, **given)
            thread.join()

    def test_an_equal_call_waits_for_the_other_one(self, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        ended: list[str] = []

        def other() -> None:
            with module._alone(tmp_path, lambda: None):
                ended.append("this one")

        with module._alone(tmp_path, lambda: None):
            thread = Thread(target=other)
            thread.start()
            thread.join(0.5)
            ended.append("the first one")
        thread.join()
        assert ended == ["the first one", "this one"] and "this one waits for its end" in capsys.readouterr().err

    @pytest.mark.parametrize(("right", "told"), [(1.0, "scored again now: accuracy 1, then 1."), (0.5, "has 0.5 on")])
    def test_an_old_answer_is_scored_again(
        self, right: float, told: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        class First(nn.Module):
            """Answers the label that is in its input."""

            def __init__(self) -> None:
                super().__init__()
                self.weight = nn.Parameter(torch.ones(()))

            def forward(self, x: torch.Tensor) -> torch.Tensor:
                return self.weight * functional.one_hot(x[:, 0].long(), 2).float()

        labels = torch.arange(8) % 2
        wrong = torch.arange(8) >= 8 * right
        test = [(labels[:, None].float(), torch.where(wrong, 1 - labels, labels))]
        goal = SimpleNamespace(lose_at_most=0.01)
        result = syno.SpeedUp(tmp_path)
        monkeypatch.setattr(syno.SpeedUp, "best", None)
        monkeypatch.setattr(syno.SpeedUp, "experiment", SimpleNamespace(goal=goal))
        record = SimpleNamespace(metric="accuracy", score=1.0, seed=1, name="original")
        monkeypatch.setattr(module, "record_taken", lambda *_: record)
        monkeypatch.setattr(module, "trained_network", lambda *_: First().eval())
        again = partial(result.score_again, module.Classification(test=test), datetime(2026, 1, 2), TrainingSettings())
        if right == 1:
            again()
            assert result._age.endswith(told) and "2026-01-02" in result._age
        else:
            with pytest.raises(DataError, match=told):
                again()

    def test_what_cannot_be_pickled_is_named(self, tmp_path: Path) -> None:
        class Locked(list):  # type: ignore[type-arg]
            def __reduce__(self) -> Any:
                raise TypeError("cannot pickle a lock")

        with pytest.raises(SpecError, match="the task cannot be pickled .* cannot pickle a lock"):
            syno.speed_up(Small(), train=Locked(batches()), test=batches(), folder=tmp_path, epochs=1)

    def test_a_goal_that_is_none_is_told_before_anything_is_written(self, tmp_path: Path) -> None:
        with pytest.raises(SpecError, match=re.escape("goal.speedup: 0.5 is slower than the original")):
            syno.speed_up(Small(), train=batches(), test=batches(), speedup=0.5, folder=tmp_path / "made")
        assert not (tmp_path / "made").exists()

    def test_a_score_needs_a_loss(self) -> None:
        with pytest.raises(SpecError, match="a score of your own needs a loss"):
            syno.speed_up(Small(), train=batches(), score=lambda model: 0.0)


class Prefetching:
    """A loader that holds the iterator with which it began."""

    def __init__(self, loader: DataLoader) -> None:
        self.loader, self.iterator, self.made = loader, None, None

    def __iter__(self) -> Any:
        self.iterator = iter(self.loader)
        self.made = (batch for batch in self.iterator)
        return self.made


def test_loaders_whose_workers_run_go_to_other_processes() -> None:
    loader = DataLoader(TensorDataset(torch.arange(8.0)), 2, num_workers=1, persistent_workers=True)
    for used in (loader, Prefetching(loader)):
        next(iter(used))
        file = io.BytesIO()
        module._Pickler(file).dump(used)
        again = pickle.loads(file.getvalue())
        assert [batch.tolist() for (batch,) in again] == [batch.tolist() for (batch,) in loader]


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"minutes": "5"}, "minutes is '5', a str; give a number"),
        ({"minutes": 0}, "minutes is 0; give a number above 0"),
        ({"minutes": float("nan")}, "minutes is nan; give"),
        ({"seeds": 1.5}, "seeds is 1.5, a float; give a whole number"),
        ({"cores": True}, "cores is True, a bool; give a whole number"),
        ({"speedup": "2"}, "speedup is '2', a str"),
    ],
)
def test_arguments_that_are_no_numbers(given: dict[str, Any], said: str) -> None:
    with pytest.raises(SpecError, match=f"speed_up: {said}"):
        syno.speed_up(nn.Linear(2, 2), train=[], **given)


@pytest.mark.parametrize("kind", [torch.int32, torch.uint8, torch.bool])
def test_labels_of_any_whole_numbers_are_learnt(kind: torch.dtype) -> None:
    batch, network = (torch.eye(2), torch.tensor([1, 0]).to(kind)), nn.Linear(2, 2)
    task = module.Classification([batch], [batch])
    assert task.loss(network, batch) == functional.cross_entropy(network(batch[0]), batch[1].long())
    assert task.score(network) in (0.0, 0.5, 1.0)


def test_values_that_are_not_finite_are_no_wrong_answers() -> None:
    good, bad = [(torch.full((2, 2), value), torch.tensor([0, 1])) for value in (1.0, float("nan"))]
    with pytest.raises(UserCodeError, match="batch 2 to test on has values that are not finite"):
        module.Classification([good], [good, bad]).score(nn.Linear(2, 2))


def test_the_budget_leaves_room_for_operators_beside_the_other_layers() -> None:
    for rest in (0.0, 0.3, 0.9):
        workload = type("W", (), {"rest": type("C", (), {"flops": rest}), "original": type("C", (), {"flops": 1.0})})
        for speedup in (1.0, 1.5, 4.0):
            found = module._budget(workload, speedup)  # type: ignore[arg-type]
            assert rest < found["least_flops"] < found["most_flops"] <= 1


def test_the_intervals_of_the_answer_count_that_it_was_chosen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """They are wider than those of the same network in the table of verdicts."""
    goal, speeds = Goal(speedup=1.5, lose_at_most=0.05), {"a": 2.0, "b": 1.8, "c": 3.0}
    scores = {"original": (0.95, 0.953, 0.951), "a": (0.945, 0.947, 0.944), "b": (0.94, 0.945, 0.95), "c": (0.8, 0.81, 0.82)}
    made = {"origin": "measured", "source": "x.json"}
    rows = [
        Measurement.of(
            metric, value, operator=key, key=key, role=key if key == "original" else "rival", seed=seed, **made
        )
        for key, found in scores.items()
        for seed, score in enumerate(found, 1)
        for metric, value in (("accuracy", score), ("flops", 1.0), ("parameters", 1.0))
    ]  # fmt: skip
    timed = {key: ("in turns", Interval(value, value - 0.1, value + 0.1)) for key, value in speeds.items()}
    judged = judged_networks(goal, scores_of(rows), [], {}, rivals=timed)
    originals = [one for one in scores_of(rows) if one.role == "original"]
    monkeypatch.setattr(module.SpeedUp, "run", Run("x", scores=[*judged, *originals], goal=goal, judged=judged))
    result = module.SpeedUp(tmp_path)
    (alone,) = (one for one in judged if one.key == "a")
    assert result.best is not None and (result.best.key, result.best.state) == ("a", alone.state)
    for counted, own in ((result.speedup, alone.speedup), (result.lost, alone.lost)):
        assert counted.low < own.low < own.high < counted.high and counted.value == pytest.approx(own.value)
    assert "chosen among 3 networks" in reason(result.best)


@pytest.mark.slow(minutes=3)
def test_the_example_of_the_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A regression with two inputs and a dict of outputs: in few lines, to a network with its measured score."""
    monkeypatch.chdir(tmp_path)
    network, call = BLOCK.findall(PAGE.read_text(encoding="utf-8"))[1:]
    assert len([line for line in call.splitlines() if line]) <= 25
    found: dict[str, Any] = {"__name__": "__main__"}
    # Rivals and mixtures take minutes, and so does the search for a second operator.
    for given, less in {"train=train,": "train=train, rivals=False, mixtures=False,", "trials=2,": "trials=1,"}.items():
        assert given in call
        call = call.replace(given, less)
    exec(compile(network + call, str(PAGE), "exec"), found)
    result = found["result"]
    assert result.experiment.goal.least_speedup == 1.1
    model, inputs = result.model, (found["pictures"][:2], found["gains"][:2])
    if result.best is not None:
        assert result.speedup.high >= 1.1 and any(isinstance(part, OperatorModule) for part in model.modules())
    lines = result.save("home")
    taken = syno.load(lines)
    assert torch.allclose(taken(*inputs)["brightness"], model(*inputs)["brightness"], atol=1e-5)


def squares(model: nn.Module, batch: tuple[torch.Tensor, torch.Tensor]) -> torch.Tensor:
    return functional.mse_loss(model(batch[0]), batch[1])


def call(folder: Path) -> None:
    """Make a network faster that is to answer what it answers."""
    pictures = [picture for picture, _ in batches(32)]  # with a fixed seed, which that of the network follows
    model = Small(64).eval()
    with torch.no_grad():
        given = [(picture, model(picture)) for picture in pictures]
    syno.speed_up(
        model, train=given, test=given, loss=squares, folder=folder, speedup=1, lose_at_most=1e6, compiler="eager",
        spec={"depth": 5}, trials=TRIALS, seeds=1, epochs=1, cores=1, rivals=False, mixtures=False, progress=False,
    )  # fmt: skip


def search_of_call(folder: Path) -> None:
    """Make the search of the call without a workflow, in a process of its own.

    In pytest's own process, this module has other bytecode, since pytest rewrites asserts: latencies would be stored under the
    identity of another loss, and measured again.
    """
    module._Run.finish = lambda run: None  # type: ignore[assignment,method-assign,misc]
    call(folder)
    os.chdir(folder)
    experiment = load_experiment(module.CONFIG).use_code()
    search(experiment)
    freeze(experiment)


def call_with(folder: Path, server: str) -> None:
    """Call it with the fork server of this address."""
    os.environ[VARIABLE] = server
    call(folder)


def count(folder: Path) -> int:
    """Return the number of trials that have begun."""
    with suppress(sqlite3.OperationalError), closing(sqlite3.connect(f"file:{folder / 'trials.db'}?mode=ro", uri=True)) as file:
        return int(file.execute("select count(*) from trials").fetchone()[0])
    return 0


def has_come(moment: str | int, folder: Path, before: int) -> bool:
    """Return whether a file is there, or so many trials have begun since there were `before`."""
    return any(folder.glob(moment)) if isinstance(moment, str) else count(folder) >= before + moment


def trials_of(folder: Path) -> pandas.DataFrame:
    """Return the operators, ends and rewards of the trials that were not interrupted."""
    trials = pandas.read_parquet(folder / FROZEN)
    return trials.loc[trials["outcome"] != "interrupted", ["operator", "outcome", "reward"]].reset_index(drop=True)


@pytest.mark.slow(minutes=7)
def test_killed_at_five_moments_the_same_call_makes_the_same_trials(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What a kill interrupts is another row. Screening goes by measured times, which are kept from the search without kills."""
    folder = tmp_path / "made"
    whole = FORKS.Process(target=search_of_call, args=(folder,))
    whole.start()
    whole.join(HANGS_AFTER)
    assert whole.exitcode == 0
    expected = trials_of(folder)
    assert list(expected["outcome"]).count("complete") == TRIALS
    folder.rename(tmp_path / "whole")
    shutil.copytree(tmp_path / "whole" / STORE, folder / STORE)

    monkeypatch.setenv(VARIABLE, "")  # one server for the jobs of all workflows, as it takes seconds to start
    deployed = SimpleNamespace(deployment_method=set())
    start_fork_server(SimpleNamespace(is_main_process=True, local_exec=True, touch=False, deployment_settings=deployed))

    def started() -> BaseProcess:
        process = FORKS.Process(target=call_with, args=(folder, os.environ[VARIABLE]))
        process.start()
        return process

    for moment, seconds in MOMENTS:
        before, process = count(folder), started()
        while process.is_alive() and not has_come(moment, folder, before):
            time.sleep(0.01)
        time.sleep(seconds)
        assert process.is_alive()
        process.kill()
        process.join()
        begun = count(folder)
        with module._alone(folder, lambda: None):
            assert count(folder) <= begun + 1, "the workflow went on"
    again = started()
    again.join(HANGS_AFTER)
    assert again.exitcode == 0 and trials_of(folder).equals(expected)
    assert "Cannot close" not in (folder / module.LOG).read_text()  # of a Snakemake that was interrupted twice
