"""The environments of conda and of the container have what pyproject.toml asks for, in the versions of requirements.lock.

`UPDATE_GOLDEN=1` writes the files of conda anew.
"""

from __future__ import annotations

import os
import re
import tomllib
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

ROOT = Path(__file__).parents[2]
ENVS = ROOT / "envs"
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
    PROJECT: dict[str, Any] = tomllib.load(opened)["project"]
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
        assert f'ENVIRONMENTS["{kind}"]' in rules


def test_there_are_no_other_environments() -> None:
    assert {file.stem for file in ENVS.glob("*.yaml")} == set(KINDS)


def test_the_container_has_a_python_that_is_allowed_and_extras_that_there_are() -> None:
    text = (ENVS / "Containerfile").read_text(encoding="utf-8")
    (python,) = re.findall(r"^FROM .*python:([\d.]+)-", text, re.MULTILINE)
    assert Requirement(f"python{PROJECT['requires-python']}").specifier.contains(Version(f"{python}.1"))
    (extras,) = re.findall(r'"\.\[(.*)\]"', text)
    assert set(extras.split(",")) <= set(PROJECT["optional-dependencies"])
    assert "--constraint requirements.lock" in text
    copied = [place for line in re.findall(r"^COPY (.*)$", text, re.MULTILINE) for place in line.split()[:-1]]
    assert [place for place in copied if not (ROOT / place).exists()] == []


def test_plots_are_drawn_without_other_extras() -> None:
    """The modules of its stages, each with all that it imports at once, load where these packages are absent."""
    import subprocess
    import sys

    absent = "; ".join(f"sys.modules[{name!r}] = None" for name in sorted(KINDS["plot"][1]))
    stages = "syno.cli, syno.stages.tables, syno.stages.figures, syno.stages.figures, syno.report.result_figures"
    code = f"import sys; {absent}; import {stages}"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, check=False)
    assert done.returncode == 0, done.stderr
