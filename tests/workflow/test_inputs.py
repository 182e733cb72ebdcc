"""What is wrong with an experiment or its folder: one message, and nothing that was there is lost."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from small_run import COUNTED, FIELDS, RESULTS, snakemake, write_config

NO_DATABASE = b"this is no database" * 100


def errors(folder: Path, changes: Mapping[str, Any], base: Mapping[str, Any] = FIELDS) -> set[str]:
    """What a run says is wrong; it must fail."""
    # One job or none runs, for which a fork server imports too much.
    ended = snakemake(folder, write_config(folder / "wrong.yaml", changes, base), SYNO_FORK_SERVER="off")
    assert ended.returncode != 0, ended.stdout
    assert "Traceback" not in ended.stdout
    # The run ends with the lines of the jobs that failed, each with its log.
    return set(re.findall(r"^ *(?:\w+: )?error: (.*?)(?: \(\S+\.log\))?$", ended.stdout, re.MULTILINE))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"study": {"n_trails": 3}}, 'study.n_trails: there is no such option.* Did you mean "n_trials"'),
        pytest.param({"study": {"n_trials": "many"}}, "study.n_trials: .*valid integer.*given: 'many'", marks=pytest.mark.slow),
        pytest.param(
            {"workload": {"model": "resnet9"}},
            'unknown backbone "resnet9"; there are: .* Did you mean "resnet8"',
            marks=pytest.mark.slow,
        ),
        pytest.param(
            {"workload": {"data_settings": {"trian": 5}}},
            r'data_settings.*"glyphs": trian: .* Did you mean "train"',
            marks=pytest.mark.slow,
        ),
    ],
    ids=["key", "type", "model", "data settings"],
)
def test_errors_in_the_config_are_one_line(changes: Mapping[str, Any], message: str, tmp_path: Path) -> None:
    (said,) = errors(tmp_path, changes)
    assert re.search(message, said)


@pytest.mark.slow  # the command by itself: tests/cli/test_cli_search.py
def test_a_space_without_operators_is_one_error(tmp_path: Path) -> None:
    (said,) = errors(tmp_path, {"spec": {"depth": 1}}, COUNTED)
    assert "holds no operator of at most 1 primitives; raise depth" in said


def test_a_file_in_place_of_the_folder_of_results_is_one_error(tmp_path: Path) -> None:
    (tmp_path / RESULTS).write_text("mine", encoding="utf-8")
    (said,) = errors(tmp_path, {"output": f"{RESULTS}/here"})
    assert f"the results go to the folder {RESULTS}/here, but {RESULTS} is a file" in said
    assert (tmp_path / RESULTS).read_text(encoding="utf-8") == "mine"


def test_a_folder_of_results_that_cannot_be_written_is_one_error(tmp_path: Path) -> None:
    """The first file is in the way of itself: a folder has its name. (For root no folder is read-only.)"""
    (tmp_path / RESULTS / "experiment.yaml").mkdir(parents=True)
    (said,) = errors(tmp_path, {})
    assert f"{RESULTS}/experiment.yaml cannot be written" in said


@pytest.mark.slow
def test_a_damaged_study_is_one_error(tmp_path: Path) -> None:
    study = tmp_path / RESULTS / "trials.db"
    study.parent.mkdir()
    study.write_bytes(NO_DATABASE)
    (said,) = errors(tmp_path, {}, COUNTED)
    assert "trials.db cannot be used: file is not a database" in said
    assert study.read_bytes() == NO_DATABASE
