"""Own code is the same whatever its text looks like and wherever it lies, and every change of its meaning is named."""

import datetime
import functools
import importlib
import itertools
import operator
import os
import random
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path
from textwrap import dedent

import cloudpickle
import numpy as np
import pandas
import pytest
import torch
from torch import nn
from torch.nn import functional
from torch.utils.data import DataLoader, TensorDataset

from syno.base.identity import Identity, changes, identity_of, in_words, rows_of

FILES = {
    "my_task.py": '''
        """A task of my own."""
        import collections
        import dataclasses
        import functools
        import math
        import re
        from pathlib import Path

        import numpy as np
        import torch
        from torch import nn
        from torch.nn import functional as F
        from torch.utils.data import DataLoader, Dataset, TensorDataset

        import my_helpers
        from my_package.parts import Block, clipped

        ROOT = Path(__file__).parent
        NAMES = str(ROOT / "names.txt")
        SCALE = 2.0
        TABLE = {"width": 8, "depth": 2}
        WORDS = {"cat", "dog", "bird"}
        CHANNELS = [3, 8, 16]
        PATTERN = re.compile("a+b")
        WINDOW = np.hanning(4)
        QUEUE = collections.deque([1, 2])


        @dataclasses.dataclass
        class Settings:
            rate: float = 0.1
            steps: int = 4
            options: dict = dataclasses.field(default_factory=dict)


        SETTINGS = Settings(rate=0.2)


        class Base(nn.Module):
            factor = 1.5

            def scaled(self, x):
                return x * self.factor


        class Net(Base):
            """A network."""

            def __init__(self, channels=TABLE["width"]):
                super().__init__()
                self.conv = nn.Conv2d(3, channels, 3, padding=1)
                self.block = Block(channels)
                self.drop = nn.Dropout(0.1)
                self.act = nn.ReLU()
                self.shift = 0.5
                self.register_buffer("mask", torch.ones(channels))

            def forward(self, x):
                # the first layer
                y = self.act(self.conv(x - self.shift))
                if y.mean() > 100:
                    return self.scaled(y)
                return self.drop(self.block(y)) * self.mask[:, None, None]


        class Margin:
            """A callable object."""

            def __init__(self, margin):
                self.margin = margin

            def __call__(self, model, batch):
                return F.relu(model(batch[0]).mean((2, 3)).sum(1) - self.margin).mean()


        def helper(x):
            return x * SCALE + TABLE["depth"]


        def with_closure(power, *, sign=1):
            def inner(x):
                return sign * x**power

            return inner


        raised = with_closure(2)


        def twice(function):
            @functools.wraps(function)
            def wrapper(*args, **kwargs):
                return 2 * function(*args, **kwargs)

            return wrapper


        @twice
        def decorated(x, gain=3):
            return x * gain


        @functools.lru_cache
        def kept(x):
            return math.sqrt(x)


        def augmented(sample, pad=2):
            return F.pad(sample, (pad,) * 4)


        def loss(model, batch):
            x, y = batch
            total = 0.0
            for channels in CHANNELS:
                total = total + channels
            try:
                value = F.mse_loss(helper(model(x)).mean((1, 2, 3)), y.float())
            except RuntimeError:
                value = x.sum()
            parts = [clipped(part) for part in (value, raised(value), decorated(value))]
            words = len([word for word in WORDS if PATTERN.match(word)])
            return sum(parts) + total * SETTINGS.rate + my_helpers.regular(model) + kept(4.0) + words + WINDOW.sum() + QUEUE[0]


        def score(model):
            from my_package import late

            known = lambda x: x > 0.5
            return float(known(late.measured(model)) or len(NAMES))


        class Rows(Dataset):
            def __init__(self, count, seed=1):
                self.inputs = torch.arange(count * 12.0).reshape(count, 3, 2, 2)
                self.labels = torch.arange(count) % 4
                self.order = list(range(count))

            def __len__(self):
                return len(self.labels)

            def __getitem__(self, place):
                return augmented(self.inputs[self.order[place]]), self.labels[self.order[place]]


        def data(split="test"):
            return DataLoader(Rows(16), batch_size=4, shuffle=False)


        margin = Margin(1.0)
        bent = functools.partial(with_closure(3), x=2)


        def unused():
            return 1
    ''',
    "my_helpers.py": """
        import my_constants
        from my_constants import WEIGHT


        def regular(model):
            return WEIGHT * my_constants.decay(sum(p.square().sum() for p in model.parameters()))
    """,
    "my_constants.py": """
        import my_setup

        WEIGHT = 0.01
        _LIMIT = 5


        def decay(x):
            return min(x, _LIMIT)
    """,
    "my_setup.py": """
        import os

        os.environ["MY_SETTING"] = "1"
    """,
    "my_package/__init__.py": "",
    "my_package/parts.py": """
        from torch import nn

        LIMIT = 10


        class Block(nn.Sequential):
            def __init__(self, channels):
                super().__init__(nn.Conv2d(channels, channels, 1), nn.BatchNorm2d(channels))


        def clipped(x):
            return x.clamp(max=LIMIT)
    """,
    "my_package/late.py": """
        STEP = 0.25


        def measured(model):
            return STEP * sum(p.mean() for p in model.parameters())
    """,
}

# Each edit is of a file: the text that goes, and the one that comes; with the part that the message names.
NOTICED = {
    "a constant": ("my_task.py", "SCALE = 2.0", "SCALE = 2.5", "SCALE in my_task.py"),
    "a constant of another type": ("my_task.py", "SCALE = 2.0", "SCALE = 2", "SCALE in my_task.py"),
    "a value of a dict": ("my_task.py", '"depth": 2', '"depth": 3', "TABLE in my_task.py"),
    "an element of a set": ("my_task.py", '"bird"', '"fish"', "WORDS in my_task.py"),
    "the order of a list": ("my_task.py", "[3, 8, 16]", "[8, 3, 16]", "CHANNELS in my_task.py"),
    "an array": ("my_task.py", "np.hanning(4)", "np.hamming(4)", "WINDOW in my_task.py"),
    "an object written in C": ("my_task.py", "deque([1, 2])", "deque([2, 1])", "QUEUE in my_task.py"),
    "a pattern": ("my_task.py", '"a+b"', '"a*b"', "PATTERN in my_task.py"),
    "an object's field": ("my_task.py", "Settings(rate=0.2)", "Settings(rate=0.3)", "SETTINGS in my_task.py"),
    "a field's default": ("my_task.py", "steps: int = 4", "steps: int = 5", "the class Settings in my_task.py"),
    "a constant in code": ("my_task.py", "y.mean() > 100", "y.mean() > 10", "the function Net.forward in my_task.py"),
    "an operator in code": ("my_task.py", "x - self.shift", "x + self.shift", "the function Net.forward in my_task.py"),
    "a negated output": ("my_task.py", "return self.drop", "return -self.drop", "the function Net.forward in my_task.py"),
    "a call": ("my_task.py", "F.mse_loss", "F.l1_loss", "the function loss in my_task.py"),
    "a line moved out of try": (
        "my_task.py",
        "    try:\n        value =",
        "    value = y\n    try:\n        value =",
        "the function loss in my_task.py",
    ),
    "an exception": ("my_task.py", "except RuntimeError", "except ValueError", "the function loss in my_task.py"),
    "a default": ("my_task.py", "gain=3", "gain=4", "the function decorated in my_task.py"),
    "a default that a constant gives": ("my_task.py", '{"width": 8', '{"width": 4', "the function Net.__init__ in my_task.py"),
    "a keyword's default": ("my_task.py", "sign=1", "sign=-1", "the function with_closure.<locals>.inner in my_task.py"),
    "a closure": ("my_task.py", "with_closure(2)", "with_closure(4)", "the function with_closure.<locals>.inner in my_task.py"),
    "a decorator": ("my_task.py", "return 2 * function", "return 3 * function", "the function decorated in my_task.py"),
    "a decorator left out": ("my_task.py", "@twice\n", "\n", "the function decorated in my_task.py"),
    "a function behind a cache": ("my_task.py", "math.sqrt(x)", "math.exp(x)", "the function kept in my_task.py"),
    "an argument of a partial function": ("my_task.py", "(3), x=2)", "(3), x=3)", "bent"),
    "a function in a partial one": (
        "my_task.py",
        "partial(with_closure(3)",
        "partial(with_closure(5)",
        "the function with_closure.<locals>.inner in my_task.py",
    ),
    "a callable object's state": ("my_task.py", "Margin(1.0)", "Margin(2.0)", "margin"),
    "a callable object's code": (
        "my_task.py",
        ".sum(1) - self",
        ".sum(1) + self",
        "the function Margin.__call__ in my_task.py",
    ),
    "an attribute of a base class": ("my_task.py", "factor = 1.5", "factor = 2.5", "the class Base in my_task.py"),
    "a method of a base class": ("my_task.py", "x * self.factor", "x / self.factor", "the function Base.scaled in my_task.py"),
    "a lambda": ("my_task.py", "x > 0.5", "x > 0.6", "the function score in my_task.py"),
    "an imported constant": ("my_helpers.py", "import WEIGHT", "import _LIMIT as WEIGHT", "WEIGHT in my_helpers.py"),
    "an import's constant": ("my_constants.py", "WEIGHT = 0.01", "WEIGHT = 0.02", "WEIGHT in my_helpers.py"),
    "an import of an import": ("my_constants.py", "_LIMIT = 5", "_LIMIT = 6", "_LIMIT in my_constants.py"),
    "code of an import of an import": ("my_constants.py", "min(x", "max(x", "the function decay in my_constants.py"),
    "what a module sets": ("my_setup.py", '= "1"', '= "2"', "the statements of my_setup.py"),
    "a layer's class": (
        "my_package/parts.py",
        "nn.BatchNorm2d(channels)",
        "nn.ReLU()",
        "the function Block.__init__ in parts.py",
    ),
    "a constant of a package": ("my_package/parts.py", "LIMIT = 10", "LIMIT = 11", "LIMIT in parts.py"),
    "a module that code imports as it runs": ("my_package/late.py", "STEP = 0.25", "STEP = 0.5", "STEP in late.py"),
    "a constant of a network": ("my_task.py", "shift = 0.5", "shift = 0.25", "the network"),
    "a setting of a layer": ("my_task.py", "nn.Dropout(0.1)", "nn.Dropout(0.2)", "the network"),
    "a buffer": ("my_task.py", "torch.ones(channels)", "torch.zeros(channels)", "the network"),
    "another layer": ("my_task.py", "self.act = nn.ReLU()", "self.act = nn.SiLU()", "the network"),
    "labels": ("my_task.py", "torch.arange(count) % 4", "torch.arange(count) % 5", "the data"),
    "inputs": ("my_task.py", "torch.arange(count * 12.0)", "torch.arange(count * 12.0).neg()", "the data"),
    "the order of the data": ("my_task.py", "list(range(count))", "list(range(count))[::-1]", "the data"),
    "the number of rows": ("my_task.py", "Rows(16)", "Rows(17)", "the data"),
    "a batch": ("my_task.py", "batch_size=4", "batch_size=8", "the data"),
    "an augmentation": ("my_task.py", "pad=2", "pad=3", "the function augmented in my_task.py"),
}

UNNOTICED = {
    "a comment": ("my_task.py", "# the first layer", "# another comment"),
    "a comment behind code": ("my_task.py", "SCALE = 2.0", "SCALE = 2.0  # of the loss"),
    "a docstring": ("my_task.py", '"""A callable object."""', '"""Something else."""'),
    "a new docstring": ("my_task.py", "def helper(x):", 'def helper(x):\n    """Return it."""'),
    "a docstring less": ("my_task.py", '    """A network."""\n', ""),
    "the module's docstring": ("my_task.py", '"""A task of my own."""', '"""A task."""'),
    "spaces": ("my_task.py", "x * SCALE + TABLE", "x*SCALE+TABLE"),
    "parentheses": ("my_task.py", "return x * SCALE", "return (x * SCALE)"),
    "a call over several lines": (
        "my_task.py",
        "value = F.mse_loss(helper(model(x)).mean((1, 2, 3)), y.float())",
        "value = F.mse_loss(\n            helper(model(x)).mean((1, 2, 3)),\n            y.float(),\n        )",
    ),
    "a statement over several lines": (
        "my_task.py",
        "total = total + channels",
        "total = (\n            total\n            + channels\n        )",
    ),
    "a return over several lines": (
        "my_task.py",
        "return sign * x**power",
        "return (\n            sign\n            * x**power\n        )",
    ),
    "a condition over several lines": (
        "my_task.py",
        "if y.mean() > 100:",
        "if (\n            y.mean()\n            > 100\n        ):",
    ),
    "several statements in a line": ("my_task.py", "nn.ReLU()\n        self.shift", "nn.ReLU(); self.shift"),
    "a return on the line of its condition": ("my_task.py", "100:\n            return", "100: return"),
    "an except on one line": ("my_task.py", "except RuntimeError:\n        value", "except RuntimeError: value"),
    "blank lines": ("my_task.py", "x, y = batch\n", "x, y = batch\n\n\n"),
    "a pass": ("my_task.py", "x, y = batch\n", "x, y = batch\n    pass\n"),
    "quotes": ("my_task.py", '"width": 8', "'width': 8"),
    "a text in two pieces": ("my_task.py", '"names.txt"', '"names" ".txt"'),
    "another way to write a number": ("my_task.py", "> 100:", "> 1_0_0:"),
    "a number with a base": ("my_task.py", "> 100:", "> 0x64:"),
    "a float with an exponent": ("my_constants.py", "0.01", "1e-2"),
    "a constant expression": ("my_task.py", "SCALE = 2.0", "SCALE = 4.0 / 2"),
    "the order of a set": ("my_task.py", '{"cat", "dog", "bird"}', '{"bird", "dog", "cat"}'),
    "the name of a local variable": (
        "my_task.py",
        "channels in CHANNELS:\n        total = total + channels",
        "c in CHANNELS:\n        total = total + c",
    ),
    "the name of a variable of a comprehension": ("my_task.py", "clipped(part) for part in", "clipped(p) for p in"),
    "an alias": ("my_task.py", "import numpy as np", "import numpy\nnp = numpy"),
    "a global name of an import": ("my_task.py", "from torch.nn import functional as F", "import torch.nn.functional as F"),
    "annotations": ("my_task.py", "def helper(x):", "def helper(x: 'torch.Tensor') -> 'torch.Tensor':"),
    "an annotated constant": ("my_task.py", "SCALE = 2.0", "SCALE: float = 2.0"),
    "annotations for later": ("my_task.py", "import collections\n", "from __future__ import annotations\nimport collections\n"),
    "an unused function": ("my_task.py", "return 1\n", "return 2\n"),
    "an unused constant": ("my_task.py", "SCALE = 2.0", "OTHER = 7\nSCALE = 2.0"),
    "an unused import": ("my_task.py", "import math\n", "import json\nimport math\n"),
    "the order of imports": ("my_task.py", "import dataclasses\nimport functools\n", "import functools\nimport dataclasses\n"),
    "an unused parameter of a package": ("my_package/__init__.py", "", "VERSION = '2'\n"),
    "the order of functions": (
        "my_task.py",
        "def unused():\n    return 1\n",
        "def unused():\n    return 1\n\n\ndef helper(x):\n    return x * SCALE + TABLE['depth']\n",
    ),
    "the order of attributes of a class": (
        "my_task.py",
        "    factor = 1.5\n\n    def scaled(self, x):\n        return x * self.factor\n",
        "    def scaled(self, x):\n        return x * self.factor\n\n    factor = 1.5\n",
    ),
    "what runs as a script": (
        "my_task.py",
        "def unused():",
        'if __name__ == "__main__":\n    print(data())\n\n\ndef unused():',
    ),
    "a helper from another file": ("my_task.py", "import my_helpers\n", "import my_helpers\nimport my_constants as _\n"),
    "carriage returns": ("my_helpers.py", "", ""),
    "an encoding": ("my_helpers.py", "import my_constants\n", "# -*- coding: utf-8 -*-\nimport my_constants\n"),
}
TOP = ("my_task", "my_helpers", "my_constants", "my_setup", "my_package")
ELSEWHERE = """
import sys, importlib, cloudpickle
sys.path[:0] = sys.argv[2:]
from syno.base.identity import identity_of
from test_identity import found
print(found().checksum)
print(identity_of({"": cloudpickle.load(open(sys.argv[1], "rb"))}).checksum)
"""


def write(folder: Path, file: str = "", old: str = "", new: str = "") -> Path:
    folder.mkdir(parents=True)
    for name, text in ((name, dedent(text)) for name, text in FILES.items()):
        if name == file:
            assert old in text
            text = text.replace(old, new, 1) if old else text + new
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(text)
    return folder


def found() -> Identity:
    """Return the identity of what the modules on the path hold."""
    task = importlib.import_module("my_task")
    return identity_of({
        "loss": task.loss, "score": task.score, "margin": task.margin, "bent": task.bent, "the data": task.data(),
        "its function": task.data, "settings": task.Settings, "the network": task.Net(),
    }, weights=False)  # fmt: skip


@pytest.fixture
def identity(monkeypatch):
    """A function that returns the identity of what is in a folder."""
    monkeypatch.setattr(sys, "dont_write_bytecode", True)

    def of(folder: Path) -> Identity:
        with monkeypatch.context() as changed:
            changed.syspath_prepend(folder)
            changed.setenv("MY_SETTING", "")
            for name in [name for name in sys.modules if name.partition(".")[0] in TOP]:
                del sys.modules[name]
            return found()

    return of


@pytest.fixture
def before(identity, tmp_path) -> Identity:
    return identity(write(tmp_path / "before"))


def test_every_change_of_meaning_is_noticed_and_named(before, identity, tmp_path):
    assert len(NOTICED) >= 40 and before.unknown == ()
    wrong = {}
    for number, (edit, (file, old, new, part)) in enumerate(NOTICED.items()):
        after = identity(write(tmp_path / str(number), file, old, new))
        named = changes(before.stored, after.stored)
        if after.checksum == before.checksum or part not in named or len(named) > 4:
            wrong[edit] = named
    assert wrong == {}


def test_what_changes_nothing_is_not_noticed(before, identity, tmp_path):
    assert len(UNNOTICED) >= 40
    wrong = {}
    for number, (edit, (file, old, new)) in enumerate(UNNOTICED.items()):
        folder = write(tmp_path / str(number), file, old, new)
        if edit == "carriage returns":
            (folder / file).write_bytes((folder / file).read_bytes().replace(b"\n", b"\r\n"))
        if changed := changes(before.stored, identity(folder).stored):
            wrong[edit] = changed
    assert wrong == {}


@pytest.mark.slow
def test_another_process_in_another_folder_finds_the_same(before, tmp_path):
    """Also of what was pickled with its code, as functions of a notebook are: there, their file is not there."""
    namespace = {"__name__": "__main__", "F": functional, "SCALE": [2.0]}
    exec("def loss(model, batch):\n    return SCALE[0] * F.relu(model(batch)).mean()", namespace)
    pickled = tmp_path / "loss.pkl"
    pickled.write_bytes(cloudpickle.dumps(namespace["loss"]))
    folder = write(tmp_path / "elsewhere" / "deep")
    arguments = [sys.executable, "-c", ELSEWHERE, pickled, folder, Path(__file__).parent]
    done = subprocess.run(arguments, capture_output=True, text=True, check=True, env={**os.environ, "PYTHONHASHSEED": "7"})
    assert done.stdout.split() == [before.checksum, identity_of({"": namespace["loss"]}).checksum]


def test_a_helper_that_moves_to_another_file_is_the_same(before, identity, tmp_path):
    folder = write(tmp_path / "moved", "my_helpers.py", "import my_constants\n", "import my_numbers as my_constants\n")
    (folder / "my_constants.py").rename(folder / "my_numbers.py")
    text = (folder / "my_helpers.py").read_text().replace("from my_constants", "from my_numbers")
    (folder / "my_helpers.py").write_text(text)
    assert identity(folder).checksum == before.checksum


def loaded(count: int = 4, **changes: object) -> DataLoader:
    x = torch.arange(count * 3.0).reshape(count, 3)
    return DataLoader(TensorDataset(x, torch.arange(count) % 2), batch_size=2, **changes)


class Filled:
    def __init__(self) -> None:
        self._cache, self.calls = {}, 0

    @functools.cached_property
    def size(self) -> int:
        return 3


CALLS: list[int] = []


def counting() -> int:
    CALLS.append(1)
    return len(CALLS)


def used(thing):
    """Use a thing, as a run does, and return it."""
    match thing:
        case Filled():
            thing._cache["a"] = thing.size
        case DataLoader():
            list(thing)
            thing.generator = torch.Generator().manual_seed(5)
            list(thing)
        case nn.Module():
            thing.train()
            thing(torch.randn(2, 3, requires_grad=True)).sum().backward()
            thing.eval().requires_grad_(True)
            handle = thing.register_forward_hook(print)
            handle.remove()
        case random.Random() | torch.Generator() | np.random.Generator():
            thing.random() if not isinstance(thing, torch.Generator) else torch.rand(2, generator=thing)
        case _:
            thing()
    return thing


@pytest.mark.parametrize(
    "make",
    [
        Filled, loaded, lambda: nn.Sequential(nn.Linear(3, 4), nn.Dropout()), lambda: random.Random(1), lambda: counting,
        lambda: torch.Generator().manual_seed(3), lambda: np.random.default_rng(2), lambda: functools.lru_cache(counting),
    ],
)  # fmt: skip
def test_use_is_no_change(make):
    torch.manual_seed(0)
    before = identity_of({"": make()})
    torch.manual_seed(0)
    assert identity_of({"": used(make())}).checksum == before.checksum


@pytest.mark.parametrize(
    ("one", "other", "are_same"),
    [
        (loaded(), loaded(num_workers=2), True),
        (loaded(), loaded(shuffle=True), False),
        (loaded(), loaded(drop_last=True), False),
        (loaded(4), loaded(6), False),
        ({1, 2, "a"}, {"a", 2, 1}, True),
        ({"a": 1, "b": 2}, {"b": 2, "a": 1}, False),
        (functools.partial(max, key=len, default=0), functools.partial(max, default=0, key=len), True),
        (1, True, False), (0.0, -0.0, False), ([1], (1,), False), ("1", 1, False), (float("nan"), float("nan"), True),
        (torch.ones(2), torch.ones(2, 1), False), (torch.ones(2), torch.ones(2).double(), False),
        (torch.arange(6).reshape(2, 3).T, torch.arange(6).reshape(2, 3).T.contiguous(), True),
        (torch.ones(2, dtype=torch.bfloat16), torch.ones(2, dtype=torch.bfloat16), True),
        (torch.eye(2).to_sparse(), torch.ones(2, 2).to_sparse(), False),
        (torch.ones(2), torch.ones(2, requires_grad=True), False),
        (pandas.DataFrame({"a": [1, 2]}), pandas.DataFrame({"a": [1, 3]}), False),
        (pandas.DataFrame({"a": [1, 2]}), pandas.DataFrame({"a": [1, 2]}), True),
        (np.array([1, "a"], dtype=object), np.array([1, "b"], dtype=object), False),
        (list(range(5000)), [*range(4999), 5000], False), (list(range(5000)), list(range(5000)), True),
        (torch.zeros(20_000_000), torch.zeros(20_000_001), False),
        (datetime.date(2020, 1, 1), datetime.date(2020, 1, 2), False),
        (operator.itemgetter(1), operator.itemgetter(2), False),
        (nn.ReLU().forward, nn.SiLU().forward, False),
        (nn.Sequential(nn.ReLU(), nn.SiLU()), nn.Sequential(nn.SiLU(), nn.ReLU()), False),
    ],
)  # fmt: skip
def test_values_are_the_same_if_they_mean_the_same(one, other, are_same):
    found, again = identity_of({"": one}), identity_of({"": other})
    assert (found.checksum == again.checksum) == are_same and found.unknown == again.unknown == ()


def test_objects_that_hold_each_other_end():
    one = Filled()
    one.other, one.all = Filled(), [one]
    one.other.other = one
    assert identity_of({"": one}).checksum == identity_of({"": one}).checksum


def test_long_chains_are_followed_to_their_end():
    found = []
    for last in (1, 1, 2):
        names = {f"f{number}": None for number in range(600)}
        exec(
            "\n".join(f"def f{number}(): return f{number + 1}()" for number in range(600)) + f"\ndef f600(): return {last}",
            names,
        )
        nested = [last]
        for _ in range(2000):
            nested = [nested]
        found.append((identity_of({"": names["f0"]}).checksum, identity_of({"": nested}).checksum))
    assert found[0] == found[1] and not set(found[0]) & set(found[2])


def test_what_cannot_be_described_is_said():
    told = "^the data: the content of _io.TextIOWrapper, sqlite3.Connection cannot be hashed"
    with (
        Path(os.devnull).open() as file,
        closing(sqlite3.connect(":memory:")) as database,
        pytest.warns(UserWarning, match=told),
    ):
        identity_of({"the data": [file, database]})


def test_weights_count_unless_only_shapes_are_asked_for():
    torch.manual_seed(0)
    one, other = nn.BatchNorm1d(3), nn.BatchNorm1d(3)
    other.weight.data += 1
    other.running_mean += 1
    assert changes(*(identity_of({"the network": net}).stored for net in (one, other))) == ["the weights of the network"]
    assert changes(*(identity_of({"the network": net}, weights=False).stored for net in (one, other))) == []


class Noisy(torch.utils.data.Dataset):
    def __init__(self, factor: float = 1.0) -> None:
        self.numbers, self.factor = np.random.default_rng(), factor  # a generator of its own

    def __len__(self) -> int:
        return 100

    def __getitem__(self, place: int) -> tuple[torch.Tensor, torch.Tensor, int]:
        return torch.tensor(self.numbers.random()), self.factor * torch.rand(1), place


def test_rows_of_data_are_those_that_are_made_again():
    found = [identity_of({"": rows_of(DataLoader(Noisy(factor)))}).checksum for factor in (1.0, 1.0, 2.0)]
    assert found[0] == found[1] != found[2]
    assert [row[2] for row in rows_of(Noisy())[1:]] == [0, 14, 28, 42, 56, 70, 84, 99]
    assert rows_of(range(3))[1:] == [0, 1, 2] and rows_of([1, 2]) == []
    assert rows_of(DataLoader(Stream()))[1:] == list(range(8))  # endless


class Stream(torch.utils.data.IterableDataset):
    def __iter__(self):
        return itertools.count()


@pytest.mark.parametrize(
    ("names", "words"),
    [(["the loss"], "the loss changed since then"), (list("abcdef"), "a, b, c, d and 2 more changed since then")],
)
def test_changes_are_told_in_words(names, words):
    assert in_words(names) == words
