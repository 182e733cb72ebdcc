"""Commands that take an experiment where a spec may stand, and operators of other experiments."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import yaml
from command_lines import Run, one_line
from small_experiment import FIELDS

from syno.ir.library import OPERATORS
from syno.stages.store import OperatorStore


@pytest.fixture
def config(folder: Path) -> str:
    """Two experiments in a file, and one by itself."""
    fields = {key: value for key, value in FIELDS.items() if key != "name"}
    (folder / "mine.yaml").write_text(yaml.safe_dump(fields), encoding="utf-8")
    several = {"common": fields, "experiments": {"one": {"spec": {"depth": 3}}, "other": {"artifact": "published"}}}
    (folder / "several.yaml").write_text(yaml.safe_dump(several), encoding="utf-8")
    return "mine.yaml"


class TestSpaceOfAnExperiment:
    def test_spec_prints_the_space_of_an_experiment(self, run: Run, config: str, folder: Path) -> None:
        text = run("spec", config).stdout
        assert text.startswith("name: mine\n") and "rest_flops" in text and "depth: 4" in text
        (folder / "again.yaml").write_text(text, encoding="utf-8")
        assert run("spec", "again.yaml").stdout == text

    def test_one_of_several_experiments_is_chosen_by_name(self, run: Run, config: str) -> None:
        text = run("spec", "several.yaml:one").stdout
        assert text.startswith("name: one\n") and "depth: 3" in text
        assert "several.yaml has several experiments; name one" in one_line(run("spec", "several.yaml", code=2))
        assert "is of published data, so it has no space" in one_line(run("spec", "several.yaml:other", code=2))

    def test_explain_takes_the_space_of_an_experiment(self, run: Run, config: str) -> None:
        text = run("explain", "conv1x1", "--spec", config).stdout
        assert "conv1x1 is in the space mine: 2 primitives, at most 4" in text

    def test_sample_takes_the_space_of_an_experiment(self, run: Run, config: str) -> None:
        assert "1 operators in results/samples/mine" in run("sample", config, "-n", "1").stdout

    def test_an_absent_file_is_named_as_neither_file_nor_preset(self, run: Run, config: str) -> None:
        assert "neither a file (of a spec or an experiment) nor a preset" in one_line(run("spec", "absent.yaml", code=2))


def test_train_finds_what_show_finds(run: Run, config: str, folder: Path) -> None:
    """An operator of another experiment, by its name and its id; a known one; a file."""
    operator = replace(OPERATORS["conv1x1"](), name="theirs_4")
    key = OperatorStore(folder / "results" / "theirs").add(operator)
    (folder / "file.txt").write_text(str(replace(operator, name="in_a_file")), encoding="utf-8")
    for given, name in (("theirs_4", "theirs_4"), (key[:6], "theirs_4"), ("conv1x1", "conv1x1"), ("file.txt", "in_a_file")):
        run("show", given)
        assert run("train", config, given).stdout.startswith(f"{name}: accuracy")
    assert (folder / "results" / "mine" / "operators" / f"{key}.txt").is_file()
    assert "results/mine/operators, results/theirs/operators" in one_line(run("train", config, "theirs_5", code=2))


@pytest.mark.parametrize("file", ["op.png", "op.gif", "op"])
def test_a_drawing_that_cannot_be_made_is_refused_before_anything_is_printed(run: Run, folder: Path, file: str) -> None:
    line = one_line(run("show", "conv2d", "--drawing", file, code=2))
    assert "a drawing ends in .svg or .dot" in line
    assert not (folder / file).exists()
