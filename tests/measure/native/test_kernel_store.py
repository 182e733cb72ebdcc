"""The store of kernels: what is damaged, foreign or elsewhere is never loaded, and is made again with a warning."""

from __future__ import annotations

import ctypes
import os
import shutil
import subprocess
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from damage import damages

import syno
from syno.base.errors import SpecError
from syno.base.files import json_with_checksum
from syno.lower.native.target import own_target
from syno.measure import answering
from syno.measure.native import build, kernels, store
from syno.measure.native.build import library
from syno.measure.native.choice import stored_times
from syno.measure.native.kernels import Kernel, Request, kernel_for
from syno.measure.native.store import StoreWarning, is_sealed, read_entry, write_entry

pytestmark = pytest.mark.skipif(not (shutil.which("g++") or shutil.which("clang++")), reason="there is no C++ compiler")
SOURCE = 'extern "C" int answer() { return 42; }\n'
REQUEST = Request(str(syno.OPERATORS["conv1x1"]()), (("C_in", 2), ("C_out", 2), ("H", 2), ("N", 1)))


@pytest.fixture(autouse=True)
def fresh(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let each test be a process of its own, in which kernels are made quickly."""
    monkeypatch.setattr(store, "_SAID", set())
    monkeypatch.setattr(kernels, "SCHEDULES_TIMED", 1)
    monkeypatch.setattr(kernels, "SECONDS_TIMED", 0.0)


def made(folder: Path) -> Path:
    return library(SOURCE, own_target(), folder, "operator")


@pytest.fixture(scope="module")
def answers(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return made(tmp_path_factory.mktemp("whole") / "store")


@pytest.fixture(scope="module")
def evil(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A library that leaves a trace as soon as it is loaded, and the trace."""
    folder = tmp_path_factory.mktemp("evil")
    source, trace = folder / "evil.cpp", folder / "trace"
    source.write_text(f'#include <cstdio>\n__attribute__((constructor)) void ran() {{ fopen("{trace}", "w"); }}\n{SOURCE}')
    subprocess.run([build.compiler(), "-shared", "-fPIC", "-o", str(folder / "evil.so"), str(source)], check=True)
    return folder / "evil.so", trace


def test_damaged_files_are_missing(answers: Path, tmp_path: Path) -> None:
    """After 400 damages and 240 flipped bits, what is read is what was written, or nothing."""
    content = {"form": {"plan": 0, "lanes": "plane"}, "milliseconds": [0.25, 1.5e-3, 12.0], "library": "kernel_0.so"}
    entry, binary = tmp_path / "entry.json", tmp_path / answers.name
    write_entry(entry, content)
    shutil.copy(answers, binary)
    assert is_sealed(binary) and read_entry(entry, dict) == content
    for file, is_read in ((entry, lambda: read_entry(entry, dict) is not None), (binary, lambda: is_sealed(binary))):
        whole = file.read_bytes()
        flips = [bytearray(whole) for _ in range(120)]
        for number, flipped in enumerate(flips):
            flipped[number * len(whole) // len(flips)] ^= 1 << number % 8
        for what, other in (*damages(whole, 198), ("empty", b""), ("cut", whole[:-1]), *(("bit", bytes(one)) for one in flips)):
            file.write_bytes(other)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                if is_read():  # numbers may be written in other ways
                    assert file is entry and read_entry(entry, dict) == content, what
        file.write_bytes(whole)
        assert is_read()


def of_others(file: Path, evil: Path) -> None:
    shutil.copy(evil, file)
    store.seal(file, file.name)
    file.chmod(0o722)


def copied(file: Path, evil: Path) -> None:
    file.unlink()
    shutil.copy(evil, file)


def linked(file: Path, evil: Path) -> None:
    elsewhere = file.parent.parent / file.name
    shutil.copy(evil, elsewhere)
    store.seal(elsewhere, file.name)
    file.unlink()
    file.symlink_to(elsewhere)


def another_one(file: Path, evil: Path) -> None:
    shutil.copy(evil, file)
    store.seal(file, "operator_0123456789abcdef.so")


def pipe(file: Path, evil: Path) -> None:
    file.unlink()
    os.mkfifo(file)


@pytest.mark.parametrize(
    ("attack", "reason"),
    [
        (copied, "it does not agree with its checksum"),
        (another_one, "it does not agree with its checksum"),
        (of_others, "other users can write it"),
        (linked, "it is a link"),
        (pipe, "it is no regular file"),
        (lambda file, evil: file.write_bytes(file.read_bytes()[:5_000]), "it does not agree with its checksum"),
        (lambda file, evil: file.write_bytes(b""), "it does not agree with its checksum"),
    ],
)
def test_a_library_that_is_not_the_users_own_is_made_again_and_said_once(
    attack: Callable[[Path, Path], None], reason: str, evil: tuple[Path, Path], tmp_path: Path
) -> None:
    file = made(tmp_path / "store")
    attack(file, evil[0])
    with pytest.warns(StoreWarning) as said:
        again = made(tmp_path / "store")
        assert made(tmp_path / "store") == again == file
    (message,) = (str(one.message) for one in said)
    assert message.startswith(f"{file} is not used, and made again: {reason}")
    assert not file.is_symlink() and file.stat().st_mode & 0o077 == 0
    assert ctypes.CDLL(str(again)).answer() == 42 and not evil[1].exists()


def test_files_and_stores_of_another_user(answers: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    user = os.geteuid()
    monkeypatch.setattr(os, "geteuid", lambda: user + 1)
    with pytest.warns(StoreWarning, match="it is another user's"):
        assert not is_sealed(answers)
    with pytest.raises(SpecError, match=r"store of kernels .* is another user's, .*XDG_CACHE_HOME"):
        made(tmp_path)


def test_a_store_that_others_can_write_is_closed_to_them(tmp_path: Path) -> None:
    tmp_path.chmod(0o777)
    made(tmp_path)
    assert tmp_path.stat().st_mode & 0o777 == 0o755
    (tmp_path / "file").touch()
    with pytest.raises(SpecError, match=r"store of kernels .*file.* cannot be used: .*XDG_CACHE_HOME"):
        made(tmp_path / "file")


@pytest.fixture(scope="module")
def kernel(tmp_path_factory: pytest.TempPathFactory) -> Kernel:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(kernels, "SCHEDULES_TIMED", 1)
        patch.setattr(kernels, "SECONDS_TIMED", 0.0)
        return kernel_for(REQUEST, tmp_path_factory.mktemp("kernels"))


@pytest.mark.parametrize(
    "change",
    [
        lambda entry, text, evil: entry.write_text(""),
        lambda entry, text, evil: entry.write_text("{}"),
        lambda entry, text, evil: write_entry(entry, {**text, "library": str(evil)}),
        lambda entry, text, evil: write_entry(entry, {**text, "library": f"../../{evil.name}"}),
        lambda entry, text, evil: entry.write_text(json_with_checksum(text).replace("checksum", "note")),
    ],
    ids=["empty", "no content", "absolute", "elsewhere", "no checksum"],
)
def test_an_entry_that_was_changed_is_made_again(
    change: Callable[[Path, dict[str, Any], Path], object],
    kernel: Kernel,
    evil: tuple[Path, Path],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What it was made of is there, so nothing is compiled."""
    folder = tmp_path / "store"
    shutil.copytree(kernel.path.parent, folder)
    (entry,) = (file for file in folder.glob("*.json") if not file.name.startswith("trial_"))
    whole = entry.read_bytes()
    change(entry, read_entry(entry, dict) or {}, evil[0])
    monkeypatch.setattr(kernels, "_timed", None)
    with pytest.warns(StoreWarning, match=r"\.json is not used, and made again") as said:
        again = kernel_for(REQUEST, folder)
        kernel_for(REQUEST, folder)
    assert len(said) == 1 and again.path == folder / kernel.path.name and entry.read_bytes() == whole
    assert not evil[1].exists()


def test_times_are_measured_again(tmp_path: Path) -> None:
    measured = []

    def measure() -> list[float]:
        measured.append(1)
        return [0.5, 2.0]

    for damage in (None, None, "", "{", '{"milliseconds": [1.0, 1.0]}', "[0.5]"):
        if damage is not None:
            next(tmp_path.glob("times_*.json")).write_text(damage)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            assert stored_times(["key"], measure, 1, tmp_path) == [0.5, 2.0]
    assert len(measured) == 5


def test_two_processes_that_time_the_same_kernel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """While one has compiled what it will time, another one times the same code, and removes its files."""
    compiled: list[Path] = []

    def compiled_by_both(*arguments: Any) -> Path:
        path = library(*arguments)
        if arguments[3] == "trials":
            compiled.append(path)
            if len(compiled) == 1:
                kernel_for(REQUEST, tmp_path)
        return path

    monkeypatch.setattr(kernels, "library", compiled_by_both)
    with torch.no_grad():
        kernel_for(REQUEST, tmp_path)
    assert len(compiled) >= 2 and not any(path.exists() for path in compiled)


def test_the_process_that_asks_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[tuple[str, object]] = []
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        answering._pass_on_warnings(lambda kind, content: said.append((kind, content)))
        warnings.warn("x.so is not used", StoreWarning, stacklevel=1)
    assert said == [("warning", "x.so is not used")]
