"""The environments of conda and of the container have what pyproject.toml asks for, in the versions of requirements.lock; and
the wheel that the container builds runs the quickstart.

`UPDATE_GOLDEN=1` writes the files of conda anew.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
from bare_python import bare_python
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

from syno.stages.workflow.command import INSTALLED, PARTS

ROOT = Path(__file__).parents[2]
ENVS = ROOT / "envs"
# The quickstart with less to do in each stage: one operator that is as fast as the original, and plain PyTorch in place of
# native kernels, which compile for a minute.
SMALLER = (
    "study={n_trials: 1, workers: 1}",
    "select={count: 1}",
    "train={seeds: [1]}",
    "goal={speedup: 1, compiler: eager, most_screened: 3}",
    "rivals={shares: [0.5], pruning: false, operators: [], int8: false}",
    "workload={training: {epochs: 1}}",
    "tune={latency: {least_ms: 50}}",
)
# The extras of a kind of step, and what it does without.
KINDS: dict[str, tuple[tuple[str, ...], frozenset[str]]] = {
    "search": (("text", "postgresql"), frozenset()),
    "train": (("text",), frozenset()),
    "tune": (("text", "int8", "tvm"), frozenset()),
    "plot": ((), frozenset({"datasets", "safetensors", "scikit-learn", "torch"})),
}
COMPILES = ("search", "train", "tune")  # torch.compile takes a C++ compiler
BUILDS_FFCV = ("libjpeg-turbo", "libopencv", "pkg-config")
SCRIPTS = {"train": "install-syno-and-ffcv.sh"}  # the others: install-syno.sh

with (ROOT / "pyproject.toml").open("rb") as opened:
    SETTINGS: dict[str, Any] = tomllib.load(opened)
PROJECT: dict[str, Any] = SETTINGS["project"]
LOCK = dict(line.split("==") for line in (ROOT / "requirements.lock").read_text(encoding="utf-8").split())
LOCKED = {canonicalize_name(name): version for name, version in LOCK.items()}


def requirements(extras: Iterable[str], without: frozenset[str]) -> list[Requirement]:
    """What pyproject.toml asks for, by name."""
    lines = [*PROJECT["dependencies"], *(line for extra in extras for line in PROJECT["optional-dependencies"][extra])]
    found = [Requirement(line) for line in lines]
    return sorted((one for one in found if one.name not in without), key=lambda one: one.name)


def named(one: Requirement) -> str:
    """With the extras that are asked for."""
    return f"{one.name}[{','.join(sorted(one.extras))}]" if one.extras else one.name


def conda_file(kind: str) -> str:
    """The environment of a kind of step."""
    extras, without = KINDS[kind]
    packages = (["cxx-compiler"] if kind in COMPILES else []) + (list(BUILDS_FFCV) if kind in SCRIPTS else [])
    listed = [f"      - {named(one)}=={LOCKED[canonicalize_name(one.name)]}" for one in requirements(extras, without)]
    lines = [
        "# For `snakemake --sdm conda`; docs/cluster.md. It follows from pyproject.toml and requirements.lock:",
        "# UPDATE_GOLDEN=1 python -m pytest tests/project/test_environments.py",
        "channels: [conda-forge]",
        "dependencies:",
        f"  - python {PROJECT['requires-python']}",
        "  - pip",
        *(f"  - {package}" for package in packages),
        "  - pip:",
        *listed,
    ]
    return "\n".join(lines) + "\n"


@pytest.mark.parametrize("kind", KINDS)
class TestConda:
    def test_the_file_is_up_to_date(self, kind: str) -> None:
        file = ENVS / f"{kind}.yaml"
        if os.environ.get("UPDATE_GOLDEN"):
            file.write_text(conda_file(kind), encoding="utf-8")
        assert file.read_text(encoding="utf-8") == conda_file(kind)

    def test_locked_versions_are_allowed(self, kind: str) -> None:
        for one in requirements(*KINDS[kind]):
            assert one.specifier.contains(Version(LOCKED[canonicalize_name(one.name)]), prereleases=True), one

    def test_syno_itself_is_installed_afterwards(self, kind: str) -> None:
        script = ENVS / f"{kind}.post-deploy.sh"
        assert script.resolve() == ENVS / SCRIPTS.get(kind, "install-syno.sh") and os.access(script, os.X_OK)
        assert "pip install" in (ENVS / "install-syno.sh").read_text(encoding="utf-8")
        assert kind not in SCRIPTS or "bash envs/install-syno.sh" in script.read_text(encoding="utf-8")

    def test_some_rule_runs_in_it(self, kind: str) -> None:
        rules = "".join(file.read_text(encoding="utf-8") for file in (ROOT / "workflow" / "rules").glob("*.smk"))
        assert f'"../../envs/{kind}.yaml"' in rules


def test_there_are_no_other_environments() -> None:
    assert {file.stem for file in ENVS.glob("*.yaml")} == set(KINDS)


def test_the_container_has_a_python_that_is_allowed_and_extras_that_there_are() -> None:
    text = (ENVS / "Containerfile").read_text(encoding="utf-8")
    (python,) = re.findall(r"^FROM .*python:([\d.]+)-", text, re.MULTILINE)
    assert Requirement(f"python{PROJECT['requires-python']}").specifier.contains(Version(f"{python}.1"))
    (extras,) = re.findall(r'"\.\[(.*)\]"', text)
    assert set(extras.split(",")) <= set(PROJECT["optional-dependencies"])
    assert "--constraint requirements.lock" in text
    assert {*PARTS, "setup.py", "pyproject.toml", "syno"} <= set(copied_into_the_container())
    assert "COPY" not in text.partition("pip install")[2]  # all of it is there when the wheel is built


def copied_into_the_container() -> list[str]:
    """The files and folders from which the container installs Syno."""
    text = (ENVS / "Containerfile").read_text(encoding="utf-8")
    return [place for line in re.findall(r"^COPY (.*)$", text, re.MULTILINE) for place in line.split()[:-1]]


def files_of(package: Path) -> set[str]:
    """The files in a package's folder, and what the wheel adds as a whole."""
    found = (file.relative_to(package) for file in package.rglob("*") if file.is_file() and "__pycache__" not in file.parts)
    return {INSTALLED if file.parts[0] == INSTALLED else str(file) for file in found}


def test_files_of_the_package_that_are_no_python_are_declared() -> None:
    """Else a wheel would lack them, such as the headers of native kernels."""
    patterns = SETTINGS["tool"]["setuptools"]["package-data"]["syno"]
    declared = {str(file.relative_to(ROOT / "syno")) for pattern in patterns for file in (ROOT / "syno").glob(pattern)}
    assert "lower/native/vectors.h" in declared
    assert {name for name in files_of(ROOT / "syno") if not name.endswith(".py")} <= declared | {INSTALLED}


def pip(*arguments: str | Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "pip", "-q", *map(str, arguments)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.slow(minutes=3)
def test_the_wheel_that_the_container_builds_runs_the_quickstart_in_an_environment_of_its_own(tmp_path: Path) -> None:
    """pip finds there what the wheel asks for, which is linked from this Python, and nothing of this checkout."""
    source = tmp_path / "source"
    source.mkdir()
    for name in copied_into_the_container():
        (shutil.copytree if (ROOT / name).is_dir() else shutil.copy2)(ROOT / name, source / name)
    pip("wheel", "--no-deps", "--no-build-isolation", "--wheel-dir", tmp_path, source)
    (wheel,) = tmp_path.glob("syno_operators-*.whl")
    python = bare_python(tmp_path / "environment", (*PROJECT["dependencies"], *PROJECT["optional-dependencies"]["workflow"]))
    pip("--python", python, "install", "--no-index", f"{wheel}[workflow]")
    (package,) = (tmp_path / "environment").glob("lib/python*/site-packages/syno")
    assert sorted(one.name for one in (package / INSTALLED).iterdir()) == sorted(PARTS)
    assert files_of(package) - {INSTALLED} == files_of(ROOT / "syno")  # such as the sources of native kernels

    empty = tmp_path / "empty"
    empty.mkdir()
    command = [python.with_name("syno"), "run", "quickstart", "--cores", "2", "--config", *SMALLER]
    variables = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run(command, cwd=empty, env=variables, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert str(ROOT) not in done.stdout + done.stderr
    results = empty / "results" / "quickstart"
    assert "<svg" in (results / "report.html").read_text(encoding="utf-8")
    assert {one.suffix for one in (results / "figures").iterdir()} == {".svg", ".png", ".pdf"}
    pip("--python", python, "install", "--no-index", "syno-operators[workflow]")  # of what is installed: no index is asked


@pytest.mark.slow
def test_plots_are_drawn_without_other_extras() -> None:
    """The modules of its stages, each with all that it imports at once, load where these packages are absent."""
    import subprocess
    import sys

    absent = "; ".join(f"sys.modules[{name!r}] = None" for name in sorted(KINDS["plot"][1]))
    stages = "syno.cli, syno.stages.tables, syno.stages.figures, syno.stages.figures, syno.report.result_figures"
    code = f"import sys; {absent}; import {stages}"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, check=False)
    assert done.returncode == 0, done.stderr
