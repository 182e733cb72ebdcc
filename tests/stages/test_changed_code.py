"""What was found with a user's own code is used again only while that code, its network and its data are the same."""

from __future__ import annotations

import re
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from quick_cases import quick_cases

from syno.config import Experiment
from syno.ir.library import OPERATORS
from syno.measure.network_subject import NetworkSubject
from syno.measure.speedups import Speedups
from syno.model.networks import module_baseline
from syno.notebook.speed_up import _Call
from syno.space.space import Space
from syno.stages import data, measure
from syno.stages.opening import open_study, own_code_of_search
from syno.stages.rivals import _identity
from syno.train.workload import Workload

CODE = {
    "own_net": """
import torch
from torch import nn
import own_parts

CHANNELS = 4


class Net(nn.Module):
    def __init__(self, weights):
        super().__init__()
        self.first, self.second = nn.Conv2d(1, CHANNELS, 3, padding=1), nn.Conv2d(CHANNELS, CHANNELS, 3, padding=1)
        self.head = nn.Linear(CHANNELS, 2)
        self.shift = 0.5
        if weights:
            self.head.weight.data = torch.load(weights)

    def forward(self, x):
        return self.head(own_parts.bent(self.second(own_parts.bent(self.first(x - self.shift)))).mean((2, 3)))


def make(seed, weights=None):
    return Net(weights)


def block(sizes):
    return nn.Conv2d(sizes["C_in"], sizes["C_out"], 1)
""",
    "own_parts": """
import own_slope
from torch.nn import functional as F


def bent(x):
    return F.leaky_relu(x, own_slope.SLOPE)
""",
    "own_slope": "SLOPE = 0.1\n",
    "own_task": """
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset
import syno

WEIGHT = 1.0


class Rows(Dataset):
    def __init__(self, count):
        self.file = torch.arange(count * 64.0).reshape(count, 1, 8, 8) / 1000
        self.labels = torch.arange(count) % 2

    def __len__(self):
        return len(self.labels)

    def __getitem__(self, place):
        return self.file[place].flip(-1), self.labels[place]


def smoothed(share):
    def loss(model, batch):
        return WEIGHT * nn.functional.cross_entropy(model(batch[0]), batch[1], label_smoothing=share)

    return loss


def score(model):
    return float(sum((model(x).argmax(1) == y).sum() for x, y in DataLoader(Rows(8), 4))) / 8


def make():
    return syno.Task(DataLoader(Rows(16), 4), DataLoader(Rows(8), 4), loss=smoothed(0.1), score=score)
""",
    "own_reward": """
from syno.search.reward import Reward


class Half(Reward):
    name, needs = "half", ("flops",)

    def of(self, metrics):
        return 0.5
""",
}
OF_NETWORK, OF_TASK = (
    {"latency", "rival", "study", "record", "settings", "call"},
    {"rival", "study", "record", "settings", "call"},
)
LOADED = OF_NETWORK - {"latency", "settings"}
# Each edit: of which module, which text, by which other one, and the keys that are other ones then.
EDITS: dict[str, tuple[str, str, str, set[str]]] = {
    "the width of the network": ("own_net", "CHANNELS = 4", "CHANNELS = 6", OF_NETWORK),
    "a constant of the network": ("own_net", "shift = 0.5", "shift = 0.25", OF_NETWORK),
    "the output negated": ("own_net", "return self.head", "return -self.head", OF_NETWORK),
    "an import": ("own_parts", "leaky_relu(x, own_slope.SLOPE)", "silu(x)", OF_NETWORK),
    "an import of an import": ("own_slope", "0.1", "0.2", OF_NETWORK),
    "a global of the loss": ("own_task", "WEIGHT = 1.0", "WEIGHT = 2.0", OF_TASK),
    "a closure of the loss": ("own_task", "smoothed(0.1)", "smoothed(0.2)", OF_TASK),
    "the score": ("own_task", "argmax(1) == y", "argmax(1) != y", OF_TASK),
    "the labels": ("own_task", "torch.arange(count) % 2", "1 - torch.arange(count) % 2", OF_TASK),
    "the order": ("own_task", "torch.arange(count * 64.0)", "torch.arange(count * 64.0).flip(0)", OF_TASK),
    "the number of rows": ("own_task", "Rows(16)", "Rows(20)", OF_TASK),
    "the augmentation": ("own_task", ".flip(-1)", ".flip(-2)", OF_TASK),
    "the reward": ("own_reward", "return 0.5", "return 0.6", {"study", "search"}),
    "a comment": ("own_net", "CHANNELS = 4", "CHANNELS = 4  # few", set()),
    "a docstring": ("own_task", "def score(model):", 'def score(model):\n    """Return the accuracy."""', set()),
    "formatting": ("own_parts", "F.leaky_relu(x, own_slope.SLOPE)", "F.leaky_relu(\n        x, own_slope.SLOPE\n    )", set()),
    "an unused function": ("own_task", "def score(model):", "def unused():\n    return 1\n\n\ndef score(model):", set()),
    "the order of the file": ("own_net", 'def block(sizes):', "def other():\n    pass\n\n\ndef block(sizes):", set()),
}  # fmt: skip


@pytest.fixture
def experiment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Experiment]:
    """A function that returns an experiment of modules, which are edited and lie in a new folder."""
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setattr("syno.base.registry._CODE_FOLDERS", [])
    monkeypatch.chdir(tmp_path)

    def made(module: str = "", old: str = "", new: str = "", **fields: Any) -> Experiment:
        folder = tmp_path / f"code{len(list(tmp_path.glob('code*')))}"
        folder.mkdir()
        for name, text in CODE.items():
            assert name != module or old in text
            (folder / f"{name}.py").write_text(text.replace(old, new) if name == module else text)
            sys.modules.pop(name, None)
        workload = {"model": "own_net:make", "task": "own_task:make", "training": {"epochs": 1}, **fields}
        options = {"spec": {"depth": 4}, "policy": "random", "reward": {"name": "own_reward:Half"}}
        return Experiment(name="mine", workload=workload, code=folder, **options).use_code()

    return made


def keys(experiment: Experiment) -> dict[str, object]:
    """Return all by which a result is found again."""
    workload, path = experiment.network, experiment.workload.model
    subject = NetworkSubject(model=path, model_settings=experiment.workload.model_settings, classes=2, image_shape=(1, 8, 8))
    call = _Call(Path("speed_up"), workload.model(), workload.data, {}, {"study": {}})
    return {
        "latency": Speedups(subject, "eager", store=None).conditions(OPERATORS["conv1x1"]()).key,
        "rival": _identity(workload, None, 1),
        "study": own_code_of_search(experiment),
        "record": (workload.hash, workload.identity.checksum),
        "settings": experiment.part("train", code=True),
        "search": experiment.part("search", code=True),
        "call": call._identity["own"]["checksum"],
    }


@pytest.mark.parametrize("edit", quick_cases(EDITS, [*EDITS][::3].__contains__))
def test_a_change_is_noticed_by_all_keys_of_what_depends_on_it_and_nothing_else(edit: str, experiment: Any) -> None:
    *change, changed = EDITS[edit]
    before, after = keys(experiment()), keys(experiment(*change))
    expected = changed | ({"search"} if "settings" in changed else set())
    assert {name for name in before if before[name] != after[name]} == expected
    assert before == keys(experiment())


def test_weights_in_a_file_count_where_they_matter(experiment: Any, tmp_path: Path) -> None:
    file = tmp_path / "weights.pt"
    found = []
    for factor in (1.0, 1.0, 2.0):
        torch.save(factor * torch.ones(2, 4), file)
        found.append(keys(experiment(model_settings={"weights": str(file)})))
    assert found[0] == found[1]
    assert {name for name in found[0] if found[0][name] != found[2][name]} == LOADED


@pytest.mark.slow
def test_a_study_with_other_code_says_what_changed(experiment: Any) -> None:
    """Before a trial has succeeded, it begins anew, with a warning; after that, it is refused (test_python_study.py)."""

    def opened(*change: str) -> Any:
        found = experiment(*change)
        return open_study(found, Space(found.operator_spec))

    opened()
    opened("own_net", "CHANNELS = 4", "CHANNELS = 4  # few")  # a warning would be an error
    for change, named in (
        (("own_task", "smoothed(0.1)", "smoothed(0.2)"), "the function smoothed.<locals>.loss in own_task.py"),
        (("own_slope", "0.1", "0.2"), "SLOPE in own_slope.py"),
        (("own_reward", "return 0.5", "return 0.6"), "the function Half.of in own_reward.py"),
    ):
        with warnings.catch_warnings(record=True) as told:
            warnings.simplefilter("always")
            opened(*change)
        assert re.search(rf"takes other settings.*{re.escape(named)}.* changed since then$", str(told[0].message))


def test_an_operator_and_a_compiler_of_ones_own_are_in_the_key_of_a_latency(experiment: Any) -> None:
    found = []
    subject = NetworkSubject(model="resnet8", classes=2, image_shape=(3, 32, 32))
    for change in ((), ("own_net", 'sizes["C_out"], 1)', 'sizes["C_out"], 1, bias=False)')):
        experiment(*change)
        own, known = module_baseline("own_net:block"), OPERATORS["conv1x1"]()
        with Speedups(subject, "eager", store=None) as speedups:
            found.append((speedups.conditions(own).key, speedups.conditions(known).key))
            assert "own code" not in speedups.conditions(known).versions  # as before there was any
    assert found[0][0] != found[1][0] and found[0][1] == found[1][1]


def test_the_record_of_the_data_is_made_again_for_changed_code(experiment: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is measured has the inputs that the task has now."""
    first = experiment()
    record = data.look(first)
    record.write(first.folder / "data.json")
    seen = []
    monkeypatch.setattr(measure, "look", lambda one: seen.append(one) or data.look(one))
    measure.network_to_measure(first, "original", "eager", "cpu")
    assert not seen
    other = experiment("own_task", "count * 64.0).reshape(count, 1, 8, 8)", "count * 144.0).reshape(count, 1, 12, 12)")
    assert measure.network_to_measure(other, "original", "eager", "cpu").image_shape == (1, 12, 12) and seen == [other]


def test_what_is_not_ones_own_has_the_keys_that_it_had() -> None:
    workload = Workload.of(
        Experiment(name="known", workload={"model": "resnet8", "data_settings": {"preset": "micro"}}).workload
    )
    assert workload.identity is None and workload.hash == workload.data.hash
    known = Experiment(name="known", workload={"model": "resnet8"})
    assert known.part("search", code=True) == known.part("search") and own_code_of_search(known) == {}
