"""The command that ssh runs on a machine that measures for another one: `python -m syno.measure.remote_measurement`.

`about DEVICE` prints what this machine is. `measure` reads an order, starts the measurement or finds it, prints what it finds,
and at the end the record; the measurement goes on if the connection ends before. `run FOLDER` is the process of a measurement.
`speedups` measures speedups for as long as the connection lasts.
"""

from __future__ import annotations

import importlib.util
import os
import select
import sys
import time
from pathlib import Path

from pydantic import ValidationError

from syno.base.devices import require_device
from syno.base.errors import DeviceError, SpecError, SynoError
from syno.base.record import versions
from syno.base.registry import is_path
from syno.measure.machine import device_name
from syno.measure.measuring import Request
from syno.measure.remote_measurement import jobs
from syno.measure.ssh.protocol import RECEIVED, SIGN_OF_LIFE_SECONDS, About, Code, Kind, Order, difference, line
from syno.measure.subjects import ModelSubject

LOOK_SECONDS = 0.5  # between two looks at the measurement
ANSWER_SECONDS = 60.0  # in which the other machine says that it has received the record


def main(arguments: list[str]) -> None:
    """Do what the arguments say; see the module."""
    if arguments[0] == "run":
        jobs.run(Path(arguments[1]))
        return
    if arguments[0] == "speedups":
        speedups()
        return
    try:
        _say("hello", Code.of_this().model_dump())
        try:
            if arguments[0] == "about":
                _say("about", about(arguments[1]).model_dump())
            else:
                _measure(Lines())
        except (SynoError, OSError) as error:
            if isinstance(error, BrokenPipeError):
                raise
            _say("fault", str(error))
    except BrokenPipeError:  # the connection has ended
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # nothing is left to be flushed


def speedups() -> None:
    """Measure speedups, one request after another, until the connection ends."""
    from syno.measure.speedup_measuring import main as answer

    answer()


def about(device: str) -> About:
    """Return what this machine is. Raises DeviceError if it cannot measure on the device."""
    _require_torch()
    require_device(device)
    found = versions(("torch", "apache-tvm"))
    return About(
        device=device_name(device),
        python=found["python"],
        torch=found.get("torch", ""),
        tvm=found.get("apache-tvm", ""),
        free_mib=jobs.free_mib(jobs.place()),
        measurements=len(jobs.folders()),
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


class Lines:
    """The lines of the standard input, which is where the other machine speaks."""

    def __init__(self) -> None:
        self._rest, self.ended = b"", False

    def next(self, seconds: float | None = None) -> str | None:
        """Return the next line; None if there is none within so many seconds, or no more."""
        end = None if seconds is None else time.monotonic() + seconds
        while b"\n" not in self._rest and not self.ended:
            left = None if end is None else max(0.0, end - time.monotonic())
            if not select.select([0], [], [], left)[0]:
                return None
            read = os.read(0, 2**16)
            self._rest, self.ended = self._rest + read, not read
        found, newline, self._rest = self._rest.partition(b"\n")
        return found.decode(errors="replace") if newline else None


def _measure(lines: Lines) -> None:
    given = lines.next()
    if given is None:  # the connection has ended
        return
    order = Order.model_validate_json(given)
    if different := difference(here=order.code, there=Code.of_this()):
        raise DeviceError(different)
    try:
        request = Request.model_validate(order.request)
    except ValidationError as error:
        raise DeviceError(f"the request cannot be read: {error}") from None
    folder = jobs.place() / order.name
    if jobs.ending(folder) is None and not jobs.is_alive(folder):
        _require_torch()
        _require_importable(request)
        jobs.require_room()
    jobs.ensure_started(folder, request)
    _follow(folder, lines)


def _follow(folder: Path, lines: Lines) -> None:
    """Say what the measurement finds, until it has ended and its record is received, or the connection ends."""
    said, at = None, time.monotonic()
    while True:
        lives, ended = jobs.is_alive(folder), jobs.ending(folder)  # in this order: its process ends after its record is written
        if ended is not None:
            _say(*ended)  # type: ignore[arg-type]
            if lines.next(ANSWER_SECONDS) == RECEIVED:
                jobs.remove(folder)
            return
        if not lives:
            why = jobs.death(folder) if folder.exists() else "another connection has received the record; measure again"
            jobs.remove(folder)
            raise DeviceError(why)
        found = jobs.findings(folder)
        if found != said and found is not None:
            _say("findings", found.model_dump(mode="json"))
            said, at = found, time.monotonic()
        elif time.monotonic() - at > SIGN_OF_LIFE_SECONDS:
            _say("alive", None)
            at = time.monotonic()
        lines.next(LOOK_SECONDS)
        if lines.ended:
            return


def _say(kind: Kind, content: object) -> None:
    sys.stdout.write(line(kind, content))
    sys.stdout.flush()


if __name__ == "__main__":
    main(sys.argv[1:])
