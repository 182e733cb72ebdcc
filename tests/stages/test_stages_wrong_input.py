"""What is wrong with an experiment or its files: one line, and nothing that was there is lost."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
import torch
from click.testing import Result
from small_experiment import FIELDS
from typer.testing import CliRunner

from syno.base.errors import SpecError
from syno.cli import app
from syno.config import Experiment
from syno.model.backbones import BACKBONES
from syno.stages.selection import read_selected
from syno.stages.study import read_frozen


class TestWrongInput:
    def run(self, *arguments: str) -> Result:
        return CliRunner().invoke(app, list(arguments))

    @pytest.mark.parametrize(
        ("fields", "message"),
        [
            ({"nmae": "x"}, 'Did you mean "name"'),
            ({"study": {"n_trails": 3}}, 'Did you mean "n_trials"'),
            ({"study": {"n_trials": "many"}}, "valid integer"),
            ({"study": {"pruner": {"name": "median"}}}, "there is no pruner; give study: {stopping: {keep: auto}}"),
            ({"tune": {"compilers": ["inductr"]}}, "inductor"),
            ({"tune": {"devices": ["gpu"]}}, "cuda"),
            ({"tune": {"compilers": ["tvm"], "devices": ["cpu", "cuda:1"]}}, "CUDA_VISIBLE_DEVICES"),
            ({"tune": {"tvm": {"target": "jetson"}}}, "jetson-orin-nano-cpu"),
            ({"tune": {"tvm": {"trials": 9}}}, "trials_per_task"),
            (
                {"tune": {"stands_for": {"cuda": "A100"}}},
                "neither a device nor a compiler here; there are: cpu, eager, inductor",
            ),
            ({"tune": {"stands_for": {"eager": "inductor"}}}, 'two compilers would be "inductor"'),
            ({"train": {"seeds": [1, 1]}}, "twice"),
            ({"spec": {"deepth": 4}}, 'Did you mean "depth"'),
            ({"name": "a/b"}, "an experiment's name is 'a/b'"),
        ],
    )
    def test_in_the_config(self, fields: dict[str, Any], message: str, tmp_path: Path) -> None:
        file = tmp_path / "wrong.yaml"
        file.write_text(json.dumps({**FIELDS, **fields}), encoding="utf-8")
        result = self.run("search", str(file))
        assert result.exit_code == 2
        (line,) = result.stderr.splitlines()
        assert message in line

    def test_stages_before_are_named(self, tmp_path: Path) -> None:
        file = tmp_path / "small.yaml"
        file.write_text(json.dumps({**FIELDS, "output": str(tmp_path / "small")}), encoding="utf-8")
        for command, message in (
            ("freeze", "`syno search` makes it"),
            ("select", "`syno freeze` makes it"),
            ("tables", "`syno select` makes it"),
        ):
            result = self.run(command, str(file))
            assert (result.exit_code, message in result.stderr) == (2, True), result.stderr

    def test_a_network_without_a_layer_to_replace(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        def pointwise(*, classes: int, channels: int, width: float, seed: int) -> torch.nn.Module:
            layers = [torch.nn.Conv2d(channels, 4, 3, padding=1), torch.nn.Conv2d(4, classes, 1), torch.nn.AdaptiveAvgPool2d(1)]
            return torch.nn.Sequential(*layers, torch.nn.Flatten())

        monkeypatch.setitem(BACKBONES._entries, "pointwise", pointwise)
        file = tmp_path / "small.yaml"
        fields = {**FIELDS, "workload": {**FIELDS["workload"], "model": "pointwise"}, "output": str(tmp_path / "small")}
        file.write_text(json.dumps(fields), encoding="utf-8")
        result = self.run("data", str(file))
        assert result.exit_code == 2
        (line,) = result.stderr.splitlines()
        assert "has no layer to replace (0: it is the first convolution; 1: its kernel is 1x1)" in line
        assert not (tmp_path / "small").exists()

    @pytest.mark.parametrize(
        ("changes", "message"),
        [
            ({"select": {"operators": ["operator_1"]}}, "select: operators: operator_1: operator_1 does not fit layer blocks"),
            ({"select": {"operators": ["operatr_1"]}}, 'select: operators: .*Did you mean "operator_1"'),
            ({"train": {"seeds": [1], "baselines": ["operator_1"]}}, "train: baselines: operator_1: operator_1 does not fit"),
            (
                {"select": {"operators": ["operator_1"]}, "train": {"seeds": []}, "tune": {"layers": "only"}},
                "select: operators: operator_1: it fits none of the . layers?: operator_1 does not fit",
            ),
        ],
    )
    def test_an_operator_that_fits_no_layer_is_refused_before_anything_is_trained(
        self, changes: dict[str, Any], message: str, tmp_path: Path
    ) -> None:
        file = tmp_path / "small.yaml"
        fields = {**FIELDS, "workload": {**FIELDS["workload"], "width": 0.125}, "output": str(tmp_path / "small")}
        file.write_text(json.dumps({**fields, **changes}), encoding="utf-8")
        result = self.run("data", str(file))
        assert (result.exit_code, re.search(f"error: {message}", result.stderr) is not None) == (2, True), result.stderr
        assert not (tmp_path / "small").exists()

    def test_a_damaged_study_is_named_and_stays(self, tmp_path: Path) -> None:
        file, study = tmp_path / "small.yaml", tmp_path / "small" / "trials.db"
        file.write_text(json.dumps({**FIELDS, "output": str(tmp_path / "small")}), encoding="utf-8")
        study.parent.mkdir()
        study.write_bytes(b"this is no database" * 100)
        for command in ("search", "freeze"):
            result = self.run(command, str(file))
            assert result.exit_code == 2
            assert "file is not a database" in result.stderr.splitlines()[-1]
        assert study.read_bytes() == b"this is no database" * 100

    @pytest.mark.parametrize("name", ["trials.parquet", "selected.json"])
    def test_a_damaged_file_is_named(self, name: str, tmp_path: Path) -> None:
        experiment = Experiment(**FIELDS, output=tmp_path)
        (tmp_path / name).write_text("[{", encoding="utf-8")
        with pytest.raises(SpecError, match=rf"{name} holds no .* again"):
            read_frozen(experiment) if name == "trials.parquet" else read_selected(tmp_path / name)
