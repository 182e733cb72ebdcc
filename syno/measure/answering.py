"""The server side of measurement, `python -m syno.measure.answering`: reads requests from stdin, and answers on stdout.

`here FOLDER` is started by `syno.measure.measuring_process` on the same machine.

The other commands are started by ssh on a machine that measures for another one. `about DEVICE` prints a description of this
machine; `there` measures each request in a process of this machine. All processes end with the connection, and the client sends
its request again. TVM's trials are kept in ~/.cache/syno/measurements (or below $XDG_CACHE_HOME), so that tuning is resumed.
"""

from __future__ import annotations

import importlib.util
import os
import shutil
import signal
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn, TextIO, TypeAlias

from pydantic import ValidationError

from syno.base.devices import require_device
from syno.base.errors import DeviceError, SpecError, SynoError
from syno.base.record import versions
from syno.base.registry import is_path
from syno.measure.compilers import CPP, compiler_named, cpp_version
from syno.measure.machine import device_name
from syno.measure.measuring import findings
from syno.measure.measuring_process import MIB, MeasuringProcess
from syno.measure.native.store import StoreWarning
from syno.measure.protocol import SIGN_OF_LIFE_SECONDS, About, Asking, Code, Findings, Kind, Request, Tell, line
from syno.measure.subjects import ModelSubject
from syno.measure.tuning import tune

if TYPE_CHECKING:
    from syno.measure.speedup_measuring import SpeedupMeasuring

Say: TypeAlias = Callable[[Kind, object], None]

MEASURING, TRIALS = "measuring.lock", "trials"  # in the folder `place`
LOOK_SECONDS = 0.5  # interval at which the lock is polled
LEAST_FREE_MIB = 64


def main(arguments: list[str]) -> None:
    """Run the command in `arguments`; see the module."""
    if arguments[0] == "here":
        here(Path(arguments[1]))
    say = partial(_say, sys.stdout)
    try:
        say("hello", Code.of_this())
        try:
            if arguments[0] == "about":
                say("about", about(arguments[1]))
            else:
                there(Asking(), say)
        except BrokenPipeError:
            raise
        except (SynoError, OSError) as error:
            say("fault", str(error))
        except Exception as error:
            say("fault", f"{type(error).__name__}: {error}")
            raise
    except BrokenPipeError:  # the connection has ended
        return


def _say(stream: TextIO, kind: Kind, content: object) -> None:
    stream.write(line(kind, content))
    stream.flush()


class Parent(Asking):
    """The client, which is the parent process that started this one. When it ends, this process ends, too."""

    def __init__(self, working: Path) -> None:
        self._working = working
        super().__init__()

    def ended(self) -> None:
        """Remove the folder of temporary files, and kill this process and its group, including compilers that it started."""
        shutil.rmtree(self._working, ignore_errors=True)
        os.killpg(0, signal.SIGKILL)  # it leads its group


def here(working: Path) -> NoReturn:
    """Answer measurement requests in this process until the client process has ended.

    Args:
        working: the folder for temporary files.
    """
    say = partial(_say, os.fdopen(os.dup(1), "w", encoding="utf-8"))
    os.dup2(2, 1)  # the output of compilers must not mix with messages
    sys.stdout = sys.stderr
    parent, speedups = Parent(working), None
    _pass_on_warnings(say)
    while True:
        request = Request.model_validate_json(parent.request())
        if request.folder == Path():
            request = request.model_copy(update={"folder": working})
        tell = partial(say, "findings")
        try:
            if request.is_speedup:
                speedups = speedups or _speedups()
                tell(speedups.findings(request, tell))
            else:
                tell(findings(request, tell))
        except DeviceError as error:
            if not request.is_speedup:
                raise  # the machine is at fault: the client retries in a new process
            say("fault", str(error))


def _pass_on_warnings(say: Say) -> None:
    """Send warnings of the kernel store to the client, since nobody reads this process's stderr."""
    shown = warnings.showwarning

    def show(message: Warning | str, category: type[Warning], *place: Any) -> None:
        if issubclass(category, StoreWarning):
            say("warning", str(message))
        else:
            shown(message, category, *place)

    warnings.showwarning = show  # type: ignore[assignment]  # it takes the same, and names what it uses


def _speedups() -> SpeedupMeasuring:
    from syno.measure.speedup_measuring import SpeedupMeasuring  # imports torch

    return SpeedupMeasuring()


def there(asking: Asking, say: Say) -> NoReturn:
    """Answer requests of another machine by measuring in processes of this machine, until the connection ends.

    Raises:
        BrokenPipeError: the connection has ended, and with it the measuring processes.
        DeviceError, SpecError: this machine cannot measure a request.
    """
    _pass_on_warnings(say)
    with MeasuringProcess() as process:
        while True:
            _answer(asking, say, process)


def _answer(asking: Asking, say: Say, process: MeasuringProcess) -> None:
    """Answer the next request: wait until no other measurement runs on this machine, measure, and send the findings."""
    try:
        request = Request.model_validate_json(asking.request())
    except ValidationError as error:
        raise DeviceError(f"the request cannot be read: {error}") from None
    _require_torch()
    _require_importable(request)
    _require_room()
    require_device(request.device)  # before it waits for others
    said, at = Findings(), time.monotonic()

    def tell(findings: Findings) -> None:
        nonlocal said, at
        asking.require()
        if findings != said:
            say("findings", findings)
            said, at = findings.model_copy(deep=True), time.monotonic()
        elif time.monotonic() - at > SIGN_OF_LIFE_SECONDS:
            say("alive", None)
            at = time.monotonic()

    if request.folder != Path():
        request = request.model_copy(update={"folder": place() / TRIALS / request.folder.name})
    with _alone_here(lambda: tell(Findings(phase="waiting"))):
        tell(process.findings(request, tell) if request.is_speedup else _tuned(request, tell))


@contextmanager
def _alone_here(wait: Callable[[], None]) -> Iterator[None]:
    """Hold this login's measurement lock for the block; call `wait` repeatedly while another measurement holds the lock.

    The holder may also be the measurement of a connection that was lost.
    """
    from filelock import FileLock, Timeout

    place().mkdir(parents=True, exist_ok=True)
    lock = FileLock(place() / MEASURING)
    while True:
        try:
            lock.acquire(timeout=LOOK_SECONDS)
            break
        except Timeout:
            wait()  # raises if the connection has ended
    try:
        yield
    finally:
        lock.release()


def _tuned(request: Request, tell: Tell) -> Findings:
    """Return the record of a tuned latency as findings, with this machine's versions and peak performance."""
    compiler = compiler_named(request.compiler)
    own: dict[str, Any] = (
        {} if compiler.settings is None else {compiler.group: compiler.settings.model_validate(request.options)}
    )
    record = tune(
        request.subject,
        request.compiler,
        request.device,
        request.settings,
        time_limit_s=request.time_limit_s,
        memory_limit_mib=request.memory_limit_mib,
        folder=request.folder if request.folder != Path() else None,
        progress=tell,
        **own,
    )
    return Findings(status=record.status, reason=record.reason, fields=record.model_dump(mode="json"))


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


def place() -> Path:
    """Return the folder of files that are kept between connections."""
    cache = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return Path(cache).expanduser() / "syno" / "measurements"


def free_mib(folder: Path) -> int:
    """Return the free space in MiB on the disk of a folder, which need not exist yet."""
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
    """Raise SpecError if the package of a user's own model or compiler is not installed on this machine."""
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


if __name__ == "__main__":
    main(sys.argv[1:])
