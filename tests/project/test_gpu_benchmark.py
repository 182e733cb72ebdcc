"""`make gpu`: what it needs, in which order it measures, and what it keeps; with rows that measure nothing."""

from __future__ import annotations

import ast
import importlib
import json
import os
import re
import subprocess
import unittest
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
from bare_python import bare_python

from syno.model.backbones import BACKBONES
from syno.model.substitution import substitute

ROOT = Path(__file__).parents[2]
BOTH = "import gpu, sys; print(gpu.main(['--list'])); sys.exit(gpu.main([]))"


@pytest.fixture
def modules(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], ModuleType]:
    monkeypatch.delenv("SYNO_ARTIFACT", raising=False)
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    return importlib.import_module


def bare(tmp_path: Path, *command: str, **variables: str) -> subprocess.CompletedProcess[str]:
    environment = {"PATH": os.environ["PATH"], "HOME": str(tmp_path), **variables}
    return subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)


@pytest.mark.slow
def test_on_a_bare_machine_it_says_that_there_is_no_gpu(tmp_path: Path) -> None:
    """All that it imports is there; after the versions, one line."""
    done = bare(tmp_path, str(bare_python(tmp_path / "bare")), "-c", BOTH, PYTHONPATH=str(ROOT / "benchmarks"))
    if torch.cuda.is_available():
        pytest.skip("there is a GPU")
    assert done.returncode == 2, done.stderr
    assert done.stdout.startswith("the tests of tests/gpu\ntraining, pictures-32\n") and done.stdout.endswith("\n0\n")
    software, problem = done.stderr.splitlines()
    assert f"torch {torch.__version__}" in software
    assert problem.startswith("there is no GPU: ") and problem.endswith("make gpu GPU_OPTIONS=--pretend")


def test_missing_packages_are_named_in_one_line(modules: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    gpu = modules("gpu")
    ast.parse(Path(gpu.__file__).read_text(encoding="utf-8"), feature_version=(3, 8))  # older ones read it, too
    assert gpu.lacking() is None
    monkeypatch.setattr(gpu, "NEEDED", ("torch", "no_such_package"))
    assert re.fullmatch(r".* has no no_such_package: choose another Python with make gpu PYTHON=/path/to/python", gpu.lacking())
    monkeypatch.setattr(gpu, "LEAST_PYTHON", (4, 0))
    assert gpu.lacking().startswith("this needs Python 4.0 or newer, and this is ")


class Doubles:
    """Rows that measure nothing, and how they are to end."""

    def __init__(self, modules: Any) -> None:
        self.rows, self.run, self.measured = modules("gpu_rows"), modules("gpu_run"), []
        self.ends: dict[str, Any] = {}

    def row(self, key: str, section: str, about: dict[str, Any], values: dict[str, Any], least_s: float = 0.0) -> Any:
        def measure(limit_s: float, folder: Path) -> Any:
            self.measured.append(key)
            end = self.ends.get(key, self.rows.Outcome("ok", "", values))
            if isinstance(end, BaseException):
                raise end
            return end

        return self.rows.Row(key, section, f"title of {key}", about, least_s, 100.0, measure)

    def all(self) -> list[Any]:
        def latency(operator: str, ms: float) -> Any:
            place = {"network": "ResNet-8", "operator": operator, "compiler": "eager", "batch": 1, "tf32": False}
            values = {"latency_ms": ms, "latency_low_ms": ms, "latency_high_ms": ms, "suspicious": False}
            return self.row(f"latency/{operator}", "latency", place, values)

        speeds = {"original": 1000.0, "operator": 1500.0, "ratio": 1.5, "data_share": 0.04, "waiting": 0.01, "host_mib": 2000.0}
        test = {"test": "A.test", "outcome": "PASS", "note": "", "seconds": 1.0}
        return [
            self.row("tests", "tests", {}, {"tests": [test]}),
            self.row("training/a", "training", {"arguments": "--steps 2"}, {"rows": {"a network": speeds}}),
            self.row("long", "training", {"arguments": ""}, {}, least_s=1e6),
            latency("original", 3.0),
            latency("operator_1", 2.0),
        ]


@pytest.fixture
def doubles(modules: Any, monkeypatch: pytest.MonkeyPatch) -> Doubles:
    made = Doubles(modules)
    monkeypatch.setattr(made.rows, "miniature", made.all)
    return made


def run(modules: Any, folder: Path) -> tuple[int, str, dict[str, Any]]:
    """The exit status, the report, and the rows in the file."""
    code: int = modules("gpu").main(["--pretend", "--output", str(folder)])
    kept: dict[str, Any] = json.loads((folder / "pretended-gpu.json").read_text(encoding="utf-8"))["rows"]
    return code, (folder / "pretended-gpu.md").read_text(encoding="utf-8"), kept


def test_another_run_adds_rows_to_the_report(modules: Any, doubles: Doubles, tmp_path: Path) -> None:
    code, report, kept = run(modules, tmp_path)
    assert (code, doubles.measured) == (0, list(kept))
    assert "**Pretended: " in report and "1 passed, 0 failed, 0 skipped." in report
    assert "Data takes less than 5% of a step in 1 of 1 rows." in report
    assert "| a network | `--steps 2` | 1,000.0 | 1,500.0 | 1.50 | 4.0% | 1.0% | 2,000 |" in report
    assert "| ResNet-8 | original | 3 [3, 3] |\n| ResNet-8 | operator_1 | 2 [2, 2] (1.50x) |" in report
    assert report.endswith("the same command measures them next.\n\n- title of long\n")
    assert run(modules, tmp_path)[0] == 0 and len(doubles.measured) == 4  # nothing again


def test_what_the_machine_cannot_do_is_no_failure(modules: Any, doubles: Doubles, tmp_path: Path) -> None:
    doubles.ends["training/a"] = doubles.rows.Outcome("skipped", "Pillow is not installed")
    code, report, _ = run(modules, tmp_path)
    assert code == 0 and "## Failed" not in report
    assert "## Not possible here\n\n- title of training/a: skipped: Pillow is not installed" in report


def test_an_interruption_loses_nothing(modules: Any, doubles: Doubles, tmp_path: Path) -> None:
    doubles.ends["latency/original"] = KeyboardInterrupt()
    code, report, kept = run(modules, tmp_path)
    assert (code, list(kept)) == (130, ["tests", "training/a"]) and "- title of latency/original" in report
    doubles.ends.clear()
    assert list(run(modules, tmp_path)[2]) == ["tests", "training/a", "latency/original", "latency/operator_1"]


def test_a_row_that_failed_is_named_and_tried_again_after_the_new_ones(modules: Any, doubles: Doubles, tmp_path: Path) -> None:
    doubles.ends = {"tests": doubles.rows.Outcome("failed", "1 failed: A.test"), "training/a": KeyboardInterrupt()}
    run(modules, tmp_path)
    doubles.ends.pop("training/a")
    doubles.measured.clear()
    code, report, _ = run(modules, tmp_path)
    assert (code, doubles.measured[0], doubles.measured[-1]) == (1, "training/a", "tests")
    assert "- title of tests: failed: 1 failed: A.test" in report


def test_a_row_that_was_stopped_as_the_time_was_over_is_for_another_run(
    modules: Any, doubles: Doubles, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    doubles.ends["tests"] = doubles.rows.Outcome("timeout", "it was stopped at its time limit of 60 s")
    assert modules("gpu").main(["--pretend", "--minutes", "1", "--output", str(tmp_path)]) == 0
    assert "- title of tests\n" in (tmp_path / "pretended-gpu.md").read_text(encoding="utf-8")
    assert "tests" in run(modules, tmp_path)[2]  # at its own limit, it is a result


def test_results_of_another_version_are_measured_again(
    modules: Any, doubles: Doubles, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    run(modules, tmp_path)
    about = modules("gpu_machine").about("cpu")
    monkeypatch.setattr(modules("gpu_machine"), "about", lambda device: about | {"torch": "9.9"})
    run(modules, tmp_path)
    assert len(doubles.measured) == 8 and f"(torch {torch.__version__}): they are measured again" in capsys.readouterr().err


def test_the_runner_prints_one_line_for_each_test(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """One line for each test, and all in the file."""
    specification = importlib.util.spec_from_file_location("runner_of_gpu_tests", ROOT / "tests" / "gpu" / "__main__.py")
    assert specification is not None and specification.loader is not None
    runner = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(runner)

    class Cases(unittest.TestCase):
        def test_a(self) -> None:
            pass

        def test_b(self) -> None:
            self.skipTest("no GPU")

        def test_c(self) -> None:
            for number in (1, 2):
                with self.subTest(number=number):
                    self.assertEqual(number, 1)

        def test_d(self) -> None:
            raise ValueError("wrong")

    class Never(Cases):
        @classmethod
        def setUpClass(cls) -> None:
            raise unittest.SkipTest("PyTorch finds no GPU here")

    results = runner.Results(tmp_path / "tests.json")
    loader = unittest.defaultTestLoader
    unittest.TestSuite(map(loader.loadTestsFromTestCase, (Cases, Never))).run(results)
    rows = json.loads((tmp_path / "tests.json").read_text(encoding="utf-8"))
    assert [row["outcome"] for row in rows] == ["PASS", "SKIP", "FAIL", "FAIL", "SKIP"]
    assert results.counts() == {"PASS": 1, "FAIL": 2, "SKIP": 2}
    lines = capsys.readouterr().out
    assert "SKIP Cases.test_b (0.0 s): no GPU\n" in lines and "(number=2)" in lines and "ValueError: wrong" in lines
    assert "PyTorch finds no GPU here" in rows[-1]["note"] and "Never" in rows[-1]["test"]


def test_pictures_in_files_have_one_loader_for_all_trainings(
    modules: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = modules("picture_files")
    for name, value in {"DIFFERENT": 2, "SIDES": (80, 60)}.items():
        monkeypatch.setattr(files, name, value)
    monkeypatch.setattr(files, "find_spec", lambda name: None if name == "ffcv" else name)
    data = files.read(files.write(tmp_path, 12), workers=0)
    assert (data.name, data.train_count, data.test_count, data.classes) == ("imagenet, folders", 12, 10, 10)
    batches = data.train_batches(2, seed=0, device="cpu")
    assert data.train_batches(2, seed=1, device="cpu") is batches
    images, labels = next(batches.epoch(1))
    assert images.shape == (2, 3, 224, 224) and labels.shape == (2,)


@pytest.mark.slow
def test_every_operator_fits_its_network(modules: Any) -> None:
    for network in modules("gpu_rows").NETWORKS:
        for operator in network.operators:
            if network.vocabulary is None:
                subject = network.subject(network.text(operator))
                with torch.device("meta"):
                    made = BACKBONES[network.model](classes=1000)
                substitute(made, subject.graph, torch.zeros(1, *network.shape, device="meta"), where="paper")


@pytest.mark.slow(minutes=3)
def test_the_whole_program_on_a_pretended_gpu(tmp_path: Path) -> None:
    """By make, in a Python that has nothing else: tests, trainings, latencies."""
    python = bare_python(tmp_path / "bare")
    done = bare(tmp_path, "make", "gpu", f"PYTHON={python}", f"OUT={tmp_path / 'out'}", "GPU_OPTIONS=--pretend", "MINUTES=40")
    assert done.returncode == 0, done.stderr
    assert "5 of 5 rows, 0 failed, 0 for another run" in done.stdout
    report = (tmp_path / "out" / "pretended-gpu.md").read_text(encoding="utf-8")
    assert re.search(r"\n1\d passed, 0 failed, \d+ skipped\.\n", report)
    assert (
        report.count("pictures/s") == 1 and report.count("tokens/s") == 1 and "| ResNet-8, 16x16 | separable_conv2d |" in report
    )
    assert sorted(file.name for file in (tmp_path / "out").iterdir()) == ["pretended-gpu.json", "pretended-gpu.md"]
