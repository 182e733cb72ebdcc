"""Which TVM there must be, and what is said where it is not."""

from __future__ import annotations

import tomllib
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import pytest

import syno
from syno.base.errors import MissingPackageError
from syno.ir.library import OPERATORS
from syno.lower.choose import plan
from syno.lower.tvm import installed, prim_functions, stage_functions

SIZES = {"M": 2, "N": 3, "K": 4}


@pytest.fixture(autouse=True)
def forget() -> None:
    installed.tvm.cache_clear()


def test_the_extra_asks_for_the_pair_that_works() -> None:
    project = tomllib.loads((Path(syno.__file__).parents[1] / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert {f"{name}=={wanted}" for name, wanted in installed.VERSIONS.items()} <= set(project["optional-dependencies"]["tvm"])


def test_the_pair_is_what_is_installed() -> None:
    pytest.importorskip("tvm", reason='TVM is not installed: pip install "syno-operators[tvm]"')
    assert {name: version(name) for name in installed.VERSIONS} == installed.VERSIONS
    assert installed.tvm().__name__ == "tvm"


def test_a_missing_tvm_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    def absent(name: str) -> str:
        raise PackageNotFoundError(name)

    monkeypatch.setattr(installed, "version", absent)
    made = plan(OPERATORS["matmul"](), SIZES)
    for needs_tvm in (lambda: stage_functions(made), lambda: prim_functions(made, SIZES)):
        with pytest.raises(MissingPackageError, match=r'TVM is not installed.*; pip install "syno-operators\[tvm\]"'):
            needs_tvm()


def test_another_version_of_tvm_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    given = {"apache-tvm": "0.27.0.post1", "apache-tvm-ffi": "0.1.15.post2"}
    monkeypatch.setattr(installed, "version", given.__getitem__)
    with pytest.raises(MissingPackageError, match=r'apache-tvm-ffi 0\.1\.15\.post2; .*"syno-operators\[tvm\]"'):
        installed.tvm()
