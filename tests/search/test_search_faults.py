"""Whose fault a failed evaluation is, by the exceptions that are really raised, and which failures are equal."""

from __future__ import annotations

import errno
from collections.abc import Callable
from pathlib import Path

import numpy as np
import optuna
import pytest
import torch
from sqlalchemy.exc import OperationalError

import syno
from syno.base.devices import require_device
from syno.base.errors import DataError, DeviceError, LoweringError, MissingPackageError, SpecError, TrainingError
from syno.base.files import write_whole
from syno.model.substitution import substitute
from syno.search.faults import Fault, FaultKind, alike, fault_of

LAYER = torch.nn.Conv2d(3, 8, 3, padding=1, bias=False)
CONV2D = syno.OPERATORS["conv2d"]()


def raised(error: Exception, cause: BaseException | None = None) -> Callable[[], object]:
    def action() -> object:
        raise error from cause

    return action


def fault_in(action: Callable[[], object]) -> Fault:
    with pytest.raises(Exception) as found:
        action()
    return fault_of(found.value)


def reported_as_another() -> None:
    try:
        raise OSError(errno.EIO, "Input/output error")
    except OSError as error:
        raise ValueError(f"the picture is damaged: {type(error).__name__}")  # noqa: B904


@pytest.mark.parametrize(
    ("kind", "action"),
    [
        ("operator", raised(TrainingError("the loss is nan"))),
        ("operator", raised(LoweringError("sums 9 reductions in one stage"))),
        ("operator", lambda: substitute(LAYER, syno.OPERATORS["matmul"](), torch.zeros(1, 3, 8, 8), keep_stem=False)),
        ("operator", lambda: syno.build(CONV2D, {"N": 1})),
        ("operator", lambda: torch.empty(10**15)),
        ("operator", lambda: np.empty(10**16)),
        ("operator", raised(torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB"))),
        ("operator", raised(FloatingPointError("overflow"))),
        ("machine", raised(OSError(errno.EMFILE, "Too many open files"))),
        ("machine", raised(OSError(errno.EROFS, "Read-only file system", "x.pt"))),
        ("machine", raised(DataError("x.npy is missing"))),
        ("machine", raised(DeviceError("the tracker does not answer"))),
        ("machine", raised(SpecError("x cannot be written"), OSError(errno.ENOSPC, "No space left on device"))),
        ("machine", reported_as_another),
        ("machine", raised(RuntimeError("unable to write to file </torch_1>: No space left on device (28)"))),
        ("machine", raised(OperationalError("INSERT", {}, Exception("database or disk is full")))),
        ("machine", raised(optuna.exceptions.StorageInternalError("an exception is raised during the commit"))),
        ("machine", raised(ConnectionRefusedError(errno.ECONNREFUSED, "Connection refused"))),
        ("machine", lambda: require_device("cuda:99")),
        ("machine", raised(RuntimeError("CUDA error: unspecified launch failure"))),
        ("function", lambda: Path("not-there.npy").read_bytes()),
        ("function", lambda: torch.nn.functional.cross_entropy(torch.zeros(2, 3), torch.tensor([0, 3]))),
        ("function", lambda: torch.nn.Linear(2, 2)(torch.zeros(1, 2, dtype=torch.float64))),
        ("function", raised(RuntimeError("CUDA error: device-side assert triggered"))),
        ("function", raised(MissingPackageError("tvm is not installed"))),
        ("function", raised(OSError("no number, so nothing is known"))),
        ("function", raised(KeyError("accuracy"))),
    ],
)
def test_whose_fault_it_is(kind: FaultKind, action: Callable[[], object]) -> None:
    fault = fault_in(action)
    assert fault.kind == kind


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="the system has no file that is always full")
def test_a_full_disk_below_torch_is_said() -> None:
    fault = fault_in(lambda: torch.save({"a": torch.zeros(10**5)}, "/dev/full"))
    assert fault.kind == "machine" and fault.cause.startswith("a file could not be written, as on a full disk (")


def test_a_file_that_cannot_be_written(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def full(*arguments: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(Path, "write_bytes", full)
    fault = fault_in(lambda: write_whole(tmp_path / "x.json", "{}"))
    assert (fault.kind, fault.cause) == ("machine", f"{tmp_path}/x.json cannot be written: No space left on device")


@pytest.mark.parametrize(
    ("one", "other", "are_alike"),
    [
        ("IndexError: Target 12 is out of bounds.", "IndexError: Target 3 is out of bounds.", True),
        ("shapes cannot be multiplied (64x16 and 8x10)", "shapes cannot be multiplied (2x4 and 8x10)", True),
        ("shape [1, 8, 3] is no shape", "shape [16, 8, 3, 3] is no shape", True),
        ("<Thing object at 0x7f0ce1> is not there", "<Thing object at 0x7fa9] is not there", True),
        ("trial_3: it broke", "trial_17: it broke", True),
        ("/tmp/tmpabc/x.pt: damaged", "/tmp/tmpqrst/x.pt: damaged", True),
        ("the value is nan", "the value is 3.5", True),
        ("KeyError: 'accuracy'", "KeyError: 'loss'", False),
        ("ValueError: words", "TypeError: words", False),
    ],
)
def test_equal_failures(one: str, other: str, are_alike: bool) -> None:
    assert (alike(one) == alike(other)) is are_alike
