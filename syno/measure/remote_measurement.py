"""What ssh runs on a machine that measures for another one: `python -m syno.measure.remote_measurement`.

`about DEVICE` prints what this machine is. `measure` reads an order, measures, prints what it finds, and at the end the record.
`speedups` measures speedups, one request after another. Nothing outlives the connection: the other machine asks again.

In ~/.cache/syno/measurements (or $XDG_CACHE_HOME) are TVM's trials, so that tuning goes on where it was.
"""

from __future__ import annotations

import fcntl
import importlib.util
import os
import select
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from syno.base.devices import require_device
from syno.base.errors import DeviceError, SpecError, SynoError
from syno.base.record import versions
from syno.base.registry import is_path
from syno.measure.compilers import CPP, compiler_named, cpp_version
from syno.measure.machine import device_name
from syno.measure.measuring import Findings, Request
from syno.measure.ssh.protocol import MIB, SIGN_OF_LIFE_SECONDS, SILENCE_SECONDS, About, Code, Kind, Order, difference, line
from syno.measure.subjects import ModelSubject
from syno.measure.tuning import tune
from syno.measure.tuning_record import TuningRecord

MEASURING, TRIALS = "measuring.lock", "trials"  # in the folder `place`
LOOK_SECONDS = 0.5  # between two looks at the lock
LEAST_FREE_MIB = 64


def main(arguments: list[str]) -> None:
    """Do what the arguments say; see the module."""
    if arguments[0] == "speedups":
        from syno.measure.speedup_measuring import main as answer

        answer()
        return
    try:
        _say("hello", Code.of_this().model_dump())
        try:
            if arguments[0] == "about":
                _say("about", about(arguments[1]).model_dump())
            else:
                measure(Asking())
        except BrokenPipeError:
            raise
        except (SynoError, OSError) as error:
            _say("fault", str(error))
        except Exception as error:
            _say("fault", f"{type(error).__name__}: {error}")
            raise
    except BrokenPipeError:  # the connection has ended
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # nothing is left to be flushed


def about(device: str) -> About:
    """Return the description of this machine. Raises DeviceError if it cannot measure on the device."""
    _require_torch()
    require_device(device)
    found = versions(("torch", "apache-tvm"))
    return About(
        device=device_name(device),
        python=found["python"],
        torch=found.get("torch", ""),
        tvm=found.get("apache-tvm", ""),
        free_mib=free_mib(place()),
        cpp=cpp_version().get(CPP, ""),
    )


class Asking:
    """The machine that asks, at the other end of the standard input."""

    def __init__(self) -> None:
        self._rest, self._heard = b"", time.monotonic()

    def line(self) -> str:
        """Return the next line that is not empty. Raises BrokenPipeError if the connection ends before."""
        while True:
            found, newline, rest = self._rest.partition(b"\n")
            if newline:
                self._rest = rest
                if found:
                    return found.decode(errors="replace")
            else:
                self.require(SILENCE_SECONDS)

    def require(self, seconds: float = 0.0) -> None:
        """Take what comes within so many seconds. Raises BrokenPipeError if the connection has ended, or nothing came for long.

        A network that fails does not end the connection on this side; then the other one is silent.
        """
        if select.select([0], [], [], seconds)[0]:
            read = os.read(0, 2**16)
            if not read:
                raise BrokenPipeError("the connection has ended")
            self._rest, self._heard = self._rest + read, time.monotonic()
        elif time.monotonic() - self._heard > SILENCE_SECONDS:
            raise BrokenPipeError("the machine that asks is silent")


def measure(asking: Asking) -> None:
    """Measure what an order says, once no other measurement runs here, and print the record.

    Raises:
        BrokenPipeError: the connection has ended; so have the processes that measured.
        DeviceError, SpecError: this machine cannot measure that.
    """
    order = Order.model_validate_json(asking.line())
    if different := difference(here=order.code, there=Code.of_this()):
        raise DeviceError(different)
    try:
        request = Request.model_validate(order.request)
    except ValidationError as error:
        raise DeviceError(f"the request cannot be read: {error}") from None
    _require_torch()
    _require_importable(request)
    _require_room()
    require_device(request.device)  # before it waits for others
    said, at = Findings(), time.monotonic()

    def tell(found: Findings) -> None:
        nonlocal said, at
        asking.require()
        if found != said:
            _say("findings", found.model_dump(mode="json"))
            said, at = found.model_copy(deep=True), time.monotonic()
        elif time.monotonic() - at > SIGN_OF_LIFE_SECONDS:
            _say("alive", None)
            at = time.monotonic()

    with _alone_here(lambda: tell(Findings(phase="waiting"))):
        record = _measured(request, tell)
    _say("record", record.model_dump(mode="json"))


@contextmanager
def _alone_here(wait: Callable[[], None]) -> Iterator[None]:
    """Wait until no other measurement runs for this login, also one whose connection was lost; call `wait` meanwhile."""
    place().mkdir(parents=True, exist_ok=True)
    with (place() / MEASURING).open("a") as file:
        while True:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                wait()  # a lock that blocks would not notice that the connection ends
                time.sleep(LOOK_SECONDS)
        yield


def _measured(request: Request, tell: Callable[[Findings], None]) -> TuningRecord:
    compiler = compiler_named(request.compiler)
    own: dict[str, Any] = (
        {} if compiler.settings is None else {compiler.group: compiler.settings.model_validate(request.options)}
    )
    return tune(
        request.subject,
        request.compiler,
        request.device,
        request.settings,
        time_limit_s=request.time_limit_s,
        memory_limit_mib=request.memory_limit_mib,
        folder=place() / TRIALS / request.folder.name if str(request.folder) != "." else None,
        progress=tell,
        **own,
    )


# ---- what this machine can do ------------------------------------------------------------------------------------------


def place() -> Path:
    """Return the folder of what stays here."""
    cache = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return Path(cache).expanduser() / "syno" / "measurements"


def free_mib(folder: Path) -> int:
    """Return the free MiB on the disk of a folder, which need not exist yet."""
    there = next(one for one in (folder, *folder.parents) if one.exists())
    return shutil.disk_usage(there).free // MIB


def _require_room() -> None:
    """Raise DeviceError if a disk that measurements write to is full."""
    for folder in (place(), Path(tempfile.gettempdir())):
        free = free_mib(folder)
        if free < LEAST_FREE_MIB:
            raise DeviceError(
                f"the disk of {folder} is full: {free} MiB are free, and a measurement needs {LEAST_FREE_MIB} MiB"
            )


def _require_torch() -> None:
    if importlib.util.find_spec("torch") is None:
        raise DeviceError(f"PyTorch is not installed in {sys.executable}: install it there")


def _require_importable(request: Request) -> None:
    """Raise SpecError if a model or a compiler of the user's own is not on this machine."""
    named = {"compiler": request.compiler, "model": getattr(request.subject, "model", "")}
    if isinstance(request.subject, ModelSubject):
        named["model"] = request.subject.factory
    for what, given in named.items():
        package = given.partition(":")[0].partition(".")[0]
        if is_path(given) and importlib.util.find_spec(package) is None:
            raise SpecError(
                f'the {what} "{given}" cannot be imported: there is no module {package}; copy it to {Path.cwd()}, or install '
                f"its package in {sys.executable}"
            )


def _say(kind: Kind, content: object) -> None:
    sys.stdout.write(line(kind, content))
    sys.stdout.flush()


if __name__ == "__main__":
    main(sys.argv[1:])
