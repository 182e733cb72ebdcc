"""Results of a stranger, whose experiment names code that lies beside it: whatever reads them imports none of it."""

from __future__ import annotations

import re
import shutil
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.main import get_command
from typer.testing import CliRunner

import syno.plot
from syno.base.errors import RunsCodeError, SynoError
from syno.base.extensions import READING_COMMANDS
from syno.base.files import write_whole
from syno.cli import app
from syno.cli.app import ONLY_READ
from syno.config import Experiment, load_experiment
from syno.stages.operators import compared_networks
from syno.stages.take_home import _is_ours

MARKER = "it_ran"
THEIRS = f"""
from pathlib import Path
Path(__file__).with_name("{MARKER}").touch()
raise RuntimeError("code of a stranger")
"""
# Everything that an experiment can name by a path.
NAMED: dict[str, Any] = {
    "reward": {"name": "theirs:Reward", "power": 2},
    "policy": {"name": "theirs:Policy", "width": 3},
    "study": {"n_trials": 4},
    "ablations": {"canonical": {"rules": ["theirs:rule"]}},
}
OF_NETWORK = {"model": "theirs:network", "data": "theirs:pictures", "layers": "theirs.layers:rule"}


@pytest.fixture
def folder(done: Experiment, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder to work in, with results/gift. That nothing was imported from it is looked for after the test."""
    gift = tmp_path / "results" / "gift"
    shutil.copytree(done.folder, gift)
    monkeypatch.chdir(tmp_path)
    kept = yaml.safe_load((gift / "experiment.yaml").read_text(encoding="utf-8"))
    kept |= {**NAMED, "study": {**kept["study"], **NAMED["study"]}, "code": "results/gift", "output": "results/gift"}
    kept["workload"] |= OF_NETWORK
    kept["spec"] |= {"rules_on": ["theirs:rule"]}
    kept["tune"]["compilers"] += ["theirs:compiler"]
    kept["train"]["baselines"] += [{"operator": "theirs:baseline"}]
    head = (gift / "experiment.yaml").read_text(encoding="utf-8").splitlines()[0]
    write_whole(gift / "experiment.yaml", f"{head}\n{yaml.safe_dump(kept)}")
    for record in gift.rglob("*.json"):  # they say the same; without a checksum, as for a record that was edited on purpose
        text = record.read_text(encoding="utf-8")
        for name, value in (("model", "resnet8"), ("data", "glyphs"), ("layers", "spatial")):
            text = text.replace(f'"{name}": "{value}"', f'"{name}": "{OF_NETWORK[name]}"')
        record.write_text(re.sub(r',?\s*"checksum": "\w+"', "", text), encoding="utf-8")
    (gift / "copied.yaml").write_text(yaml.safe_dump(kept), encoding="utf-8")  # as a stranger may write it
    for module in ("theirs.py", "yaml_of_theirs.py", "pandas.py", "matplotlib.py", "torch.py"):
        (gift / module).write_text(THEIRS, encoding="utf-8")
    before = list(sys.path)
    yield tmp_path
    assert not (gift / MARKER).exists() and "theirs" not in sys.modules
    assert [place for place in sys.path if place not in before and "gift" in place] == []


def found_operator(folder: Path) -> str:
    return next(one.key for one in compared_networks(load_experiment(folder / "results" / "gift")) if one.role == "found")


JOIN = {"join": {"of": ["results/gift"]}, "name": "joined"}
COMMANDS: dict[str, list[list[str]]] = {
    "plan": [["results/gift/experiment.yaml"]],
    "freeze": [["results/gift"]],
    "shortlist": [["results/gift"]],
    "select": [["results/gift"]],
    "tables": [["results/gift"]],
    "join": [["join.yaml"]],
    "figure": [["results/gift", "score-speedup"], ["results/gift", "reward"]],
    "report": [["results/gift"]],
    "watch": [["gift", "--once"], ["results/gift", "--once", "--page", "page.html"]],
    "top": [["gift"], ["results/gift"], ["results/gift/experiment.yaml"]],
    "measurements": [["results/gift"]],
    "artifact": [["report", "results/gift"]],
}


@pytest.mark.parametrize(
    ("command", "arguments"), [(name, one) for name, several in COMMANDS.items() for one in several], ids=str
)
def test_commands_that_read(command: str, arguments: list[str], folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """They ask for none of the code. That they are held to it is another matter, and not so here."""
    for names in ("ONLY_READ", "READING_COMMANDS"):
        monkeypatch.setattr(sys.modules["syno.cli.app"], names, ())
    Path("join.yaml").write_text(yaml.safe_dump(JOIN), encoding="utf-8")
    done = CliRunner().invoke(app, [command, *arguments])
    cannot = {"shortlist": "which needs no shortlist", "artifact": "import"}
    if done.exit_code:  # in one line, which is not about code
        assert command in cannot and done.exit_code == 2 and done.stderr.startswith("error: "), done.stderr
        assert len(done.stderr.splitlines()) == 1 and cannot[command] in done.stderr and "import" not in command
    assert "theirs:R" not in done.stderr, done.stderr


def test_every_command_that_only_reads_is_tried_and_held_to_it(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    reading = {*ONLY_READ, *READING_COMMANDS}
    assert {*COMMANDS} == reading
    page = (Path(syno.__file__).parents[1] / "docs" / "trust.md").read_text(encoding="utf-8")
    run, read = page.split("## What never does")
    named = {
        name: {word for code in re.findall("`([^`]+)`", text) for word in code.split()}
        for name, text in (("run", run), ("read", read))
    }
    assert named["read"] >= reading and named["run"].isdisjoint(reading)
    assert {*get_command(app).commands} <= named["run"] | named["read"]  # what each command does is said there
    monkeypatch.setattr("syno.stages.top.top", lambda given, count: load_experiment(given).make_reward())
    done = CliRunner().invoke(app, ["top", "results/gift"])
    assert done.exit_code == 2 and 'the reward is "theirs:Reward"' in done.stderr and "`syno top` only reads" in done.stderr


@pytest.mark.parametrize("given", [["show", "OP"], ["get", "OP", "--output", "op.py"], ["show", "OP", "--spec", "resnet18"]])
def test_an_operator_of_the_folder(given: list[str], folder: Path) -> None:
    done = CliRunner().invoke(app, [found_operator(folder) if one == "OP" else one for one in given])
    assert done.exit_code == 0, done.stderr


@pytest.mark.parametrize(
    "given",
    [
        ["spec", "results/gift/experiment.yaml"],
        ["show", "conv2d", "--spec", "results/gift/experiment.yaml"],
        ["sample", "results/gift/experiment.yaml", "-n", "1"],
        ["explain", "conv2d", "--spec", "results/gift/experiment.yaml"],
        ["ablate", "canonical", "results/gift/experiment.yaml"],
        ["ablate", "patterns", "results/gift"],
        ["spec", "results/gift/copied.yaml"],
        ["get", "gift", "original"],
        ["get", "results/gift/copied.yaml", "original"],
        ["get", "results/gift", "separable_conv2d"],
    ],
    ids=str,
)
def test_what_would_have_to_run_code_says_so_in_one_line(given: list[str], folder: Path) -> None:
    done = CliRunner().invoke(app, given)
    assert done.exit_code == 2 and len(done.stderr.splitlines()) == 1, done.stderr
    assert '"theirs:network"' in done.stderr and (
        "--run-code" in done.stderr if given[0] == "get" else "only reads" in done.stderr
    )


@pytest.mark.parametrize("given", [["gift", "original", "--run-code"], ["own.yaml", "original"]], ids=str)
def test_what_one_trusts_is_run(given: list[str], folder: Path) -> None:
    shutil.copy(folder / "results" / "gift" / "copied.yaml", "own.yaml")  # where the user keeps experiments
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "path", list(sys.path))
        patch.setattr("syno.base.registry._CODE_FOLDERS", [])
        done = CliRunner().invoke(app, ["get", *given])
    assert "theirs fails as it is imported: RuntimeError: code of a stranger" in done.stderr
    (folder / "results" / "gift" / MARKER).unlink()


@pytest.mark.parametrize(
    ("place", "code", "here", "is_ours"),
    [
        (".", None, ".", True),
        ("mine", "mine", ".", True),
        ("mine", None, ".", False),  # it is not found
        ("results/other", "results/other", ".", False),
        ("results/gift", "results/gift", ".", False),
        ("results/gift", None, "results/gift", False),
        ("elsewhere", "../elsewhere", "here", False),
        ("here", "../elsewhere", "here", True),
    ],
)
def test_code_of_ones_own_lies_where_the_user_has_it(
    place: str, code: str | None, here: str, is_ours: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in (place, here, "results/gift", "elsewhere"):
        (tmp_path / name).mkdir(parents=True, exist_ok=True)
    (tmp_path / place / "whose_is_it.py").write_text(THEIRS, encoding="utf-8")
    monkeypatch.chdir(tmp_path / here)
    experiment = Experiment(name="gift", workload={}, code=code, output="." if here == "results/gift" else None)
    assert _is_ours("whose_is_it:make", experiment) is is_ours
    assert not _is_ours("torch.hub:load", experiment) and not _is_ours("os:system", experiment)


@pytest.mark.parametrize(
    "read",
    [
        lambda: load_experiment("results/gift").part("search"),
        lambda: syno.plot.best_so_far("results/gift"),
        lambda: syno.plot.front("results/gift"),
        lambda: Experiment(name="next", workload={"model": "theirs:network"}, after="results/gift"),
        lambda: Experiment(name="again", workload={"model": "theirs:network"}, select={"source": "results/gift"}),
    ],
    ids=["load", "best_so_far", "front", "after", "source"],
)
def test_python(read: Callable[[], object], folder: Path) -> None:
    try:
        read()
    except SynoError as error:
        assert not isinstance(error, RunsCodeError)


def test_a_plot_that_needs_the_space(folder: Path) -> None:
    with pytest.raises(RunsCodeError, match=r"theirs:network.*give spec="):
        syno.plot.parallel_coordinates("results/gift")
