"""Causes of failed evaluations: the one place that classifies failures.

There are three kinds. "operator": the operator cannot be lowered, does not fit, needs too much memory, or trains to NaN; the
search goes on without it. "machine": the disk is full, a device or data is missing; the trial is requeued, and another worker
may evaluate it. "function": the user's model, data or evaluation raised another exception, probably a bug; a single
failure is a failed trial like any other, and equal failures in a row stop the study.

>>> fault_of(OSError(28, "No space left on device")).kind
'machine'
>>> fault_of(IndexError("Target 12 is out of bounds.")).cause
'IndexError: Target 12 is out of bounds.'
"""

from __future__ import annotations

import errno
import os
import re
import sysconfig
import traceback
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TypeAlias

from syno.base.addresses import visible
from syno.base.errors import (
    DataError,
    DeviceError,
    GraphError,
    LoweringError,
    MachineError,
    MisfitError,
    MissingDeviceError,
    SearchStoppedError,
    SizeError,
    SpecError,
    StorageError,
    SynoError,
    TrainingError,
    UnreachableError,
    ValuationError,
    WrongOutputError,
)

FaultKind: TypeAlias = Literal["operator", "machine", "function"]

LATER = "; if the machine is to blame, the same command may succeed later"  # ends the message of an error that may pass
LONGEST_MESSAGE = 2000  # characters of a traceback that are kept, from its end
LONGEST_CAUSE = 300  # characters

OPERATOR_ERRORS = (
    *(SizeError, ValuationError, GraphError, LoweringError, MisfitError, UnreachableError, TrainingError, WrongOutputError),
    *(MemoryError, FloatingPointError),
)
MACHINE_ERRORS = (DataError, DeviceError, MachineError)
STORAGE_PACKAGES = ("sqlalchemy", "optuna")  # their errors while a report is stored: a full disk, or a lost database
# Other errno values, such as a missing file or permission, mean a wrong path as often as a broken machine.
DISK = ("ENOSPC", "EDQUOT", "EIO", "EROFS", "EMFILE", "ENFILE", "ESTALE", "EREMOTEIO", "EUCLEAN")
SYSTEM = ("ENOMEM", "EAGAIN", "ENODEV", "ENXIO", "ENOMEDIUM")
NETWORK = ("ECONNREFUSED", "ECONNRESET", "ECONNABORTED", "ETIMEDOUT", "ENETDOWN", "ENETUNREACH", "EHOSTDOWN", "EHOSTUNREACH")
MACHINE_NUMBERS = frozenset(getattr(errno, name) for name in (*DISK, *SYSTEM, *NETWORK) if hasattr(errno, name))
DISK_TEXTS = tuple(os.strerror(getattr(errno, name)) for name in DISK if hasattr(errno, name))  # as C++ libraries quote them

TOO_LARGE = re.compile(r"out of memory|DefaultCPUAllocator|not enough memory|can't allocate memory", re.IGNORECASE)
WRITING = re.compile(r"PytorchStreamWriter failed|file write failed|iostream error|inline_container.*unexpected pos")
THREADS = re.compile(r"can't start new thread")
LOST_DEVICE = re.compile(
    r"No CUDA GPUs are available|no NVIDIA driver|not compiled with CUDA|no CUDA-capable device|device\(s\) is/are busy|"
    r"invalid device ordinal|CUDA driver (initialization failed|error)|GPU is lost|uncorrectable ECC|CUDA (unknown error|"
    r"error: (unknown error|initialization error|unspecified launch failure|the launch timed out))",
    re.IGNORECASE,
)


@dataclass(frozen=True)
class Fault:
    """The cause of a failed evaluation.

    Attributes:
        kind: "operator", "machine" or "function"; see the module.
        message: the message of an error that Syno raised; for any other error, the end of its traceback.
        cause: the cause in one line.
        lasts: whether retries in this process would fail as well, because a device is lost.
        may_pass: whether the same command may succeed later or elsewhere, as after a full disk or a lost connection.
    """

    kind: FaultKind
    message: str
    cause: str
    lasts: bool = False
    may_pass: bool = False


def fault_of(error: Exception) -> Fault:
    """Classify an exception that an evaluation raised.

    The chain of its causes counts, too: a full disk is recognised even if it is reported as another error.
    """
    chain = list(_chain(error))
    lost = any(_is_lost_device(cause) for cause in chain)
    broken = next((cause for cause in chain if _is_of_machine(cause) or _is_lost_device(cause)), None)
    if broken is not None:
        kind: FaultKind = "machine"
    elif isinstance(error, OPERATOR_ERRORS) or any(
        isinstance(cause, FloatingPointError) or _is_too_large(cause) for cause in chain
    ):
        kind = "operator"
    else:
        kind = "function"
    passes = broken is not None and may_pass(error)
    if isinstance(error, SynoError):  # its message is complete without a traceback
        return Fault(kind, str(error), _one_line(str(error)), lost, passes)
    message = visible("".join(traceback.format_exception(error))[-LONGEST_MESSAGE:].strip())
    return Fault(kind, message, _cause(broken or error) + (_place(error) if kind == "function" else ""), lost, passes)


def may_pass(error: BaseException) -> bool:
    """Return whether the command that ended with this error may succeed on a retry, because the machine failed.

    True if it ran out of memory or disk space, or lost a device or a connection; False if data or a device is missing.
    """
    if isinstance(error, SearchStoppedError):
        return error.may_pass
    if isinstance(error, SpecError | DataError) and not isinstance(error, StorageError):
        return False
    if isinstance(error, MemoryError):
        return True
    return any(_is_of_machine(cause) or _is_lost_device(cause) or _is_too_large(cause) for cause in _chain(error))


def alike(cause: str) -> str:
    """Return the signature that equal failures share: the cause without numbers, sizes, ids, addresses and paths."""
    return re.sub(r"(?:#[\s,x]*)+", "# ", re.sub(r"\S*[\d/]\S*|\b(?:nan|inf)\b", "#", cause)).strip()


def _chain(error: BaseException | None) -> Iterator[BaseException]:
    """Yield the exception and its causes, as a traceback shows them."""
    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        yield error
        error = error.__cause__ or (None if error.__suppress_context__ else error.__context__)


def _is_of_machine(error: BaseException) -> bool:
    if isinstance(error, OSError):
        return error.errno in MACHINE_NUMBERS
    if type(error).__module__.partition(".")[0] in STORAGE_PACKAGES:
        return True
    text = str(error)
    if isinstance(error, RuntimeError) and not isinstance(error, SynoError):
        return bool(WRITING.search(text) or THREADS.search(text)) or any(known in text for known in DISK_TEXTS)
    return isinstance(error, MACHINE_ERRORS)


def _is_lost_device(error: BaseException) -> bool:
    if isinstance(error, MissingDeviceError):
        return True
    return isinstance(error, RuntimeError | AssertionError) and LOST_DEVICE.search(str(error)) is not None


def _is_too_large(error: BaseException) -> bool:
    return isinstance(error, MemoryError | RuntimeError) and TOO_LARGE.search(str(error)) is not None


def _cause(error: BaseException) -> str:
    text = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
    if isinstance(error, RuntimeError) and WRITING.search(text):
        text = f"a file could not be written, as on a full disk ({text})"  # torch does not say so
    return _one_line(text)


def _one_line(text: str) -> str:
    first = " ".join(next((line for line in visible(text).splitlines() if line.strip()), "").split())
    return first if len(first) <= LONGEST_CAUSE else f"{first[:LONGEST_CAUSE]}..."


def _place(error: BaseException) -> str:
    """Return the file and line where an exception was raised: the last frame outside of installed packages."""
    frames = traceback.extract_tb(error.__traceback__)
    libraries = {sysconfig.get_path(name) for name in ("stdlib", "purelib", "platlib")}
    own = [frame for frame in frames if not any(frame.filename.startswith(folder) for folder in libraries)]
    return f" ({Path(own[-1].filename).name}, line {own[-1].lineno})" if own else ""
