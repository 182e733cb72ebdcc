"""Measuring on a machine that is reached by ssh: the record comes back, also over a connection that is lost and comes again."""

from __future__ import annotations

import tempfile
import time
import warnings
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TypeAlias, TypeVar

from pydantic import BaseModel, ValidationError

from syno.base.errors import DeviceError, SpecError, one_line
from syno.measure.devices import SshSettings
from syno.measure.measuring import Findings, Request
from syno.measure.ssh.connection import TICK_SECONDS, ConnectionLostError, Session
from syno.measure.ssh.protocol import RECEIVED, About, Code, Order, difference
from syno.measure.tuning_record import TuningRecord

FIRST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS = 1.0, 30.0  # between two attempts to connect again

Tell: TypeAlias = Callable[[Findings], None]
Model = TypeVar("Model", bound=BaseModel)


def measured_there(name: str, device: SshSettings, request: Request, progress: Tell | None = None) -> TuningRecord:
    """Return the record of a measurement on another machine.

    An equal request that is running there, or whose record was not fetched, is not measured again: its record is returned.

    Args:
        name: of the device, for messages.
        device: its settings.
        request: what to measure; its device is that machine's own.
        progress: gets what is known so far, about twice a second.

    Raises:
        DeviceError: the machine cannot be reached, cannot measure, or was lost for longer than `wait_seconds`.
    """
    order, tell = Order.of(request), progress or (lambda _: None)
    heard, pause = 0.0, FIRST_PAUSE_SECONDS  # when something was last heard; 0 for never
    while True:
        with Session(name, device, "measure") as session:
            try:
                return _followed(session, order, tell)
            except ConnectionLostError as error:
                lost = error
            except KeyboardInterrupt:
                if heard or session.heard:
                    warnings.warn(_goes_on(name, request), stacklevel=2)
                raise
        if session.heard:
            heard, pause = session.heard, FIRST_PAUSE_SECONDS
        if not heard:
            raise lost  # it cannot be reached: there is nothing to wait for
        if time.monotonic() - heard > device.wait_seconds:
            raise DeviceError(
                f"{lost}; it did not come back within {device.wait_seconds:g} s (wait_seconds). {_goes_on(name, request)}"
            )
        warnings.warn(f"{one_line(lost)}; trying again", stacklevel=2)
        _wait(pause, tell)
        pause = min(2 * pause, LONGEST_PAUSE_SECONDS)


def about(name: str, device: SshSettings) -> About:
    """Return what a machine says of itself. Raises DeviceError if it cannot be reached, or cannot measure on the device."""
    with Session(name, device, "about", device.device) as session:
        session.close_input()
        for kind, content in session.messages():
            if kind == "hello" and (different := difference(here=Code.of_this(), there=_read(Code, content, session.where))):
                raise DeviceError(f"{session.where}: {different}")
            if kind == "fault":
                raise DeviceError(f"{session.where}: {content}")
            if kind == "about":
                return _read(About, content, session.where)
    raise DeviceError(f"{session.where}: it said nothing; is {device.python} a Python?")


def _followed(session: Session, order: Order, tell: Tell) -> TuningRecord:
    """Send the order, and return the record that comes back."""
    session.send(order.model_dump_json())
    found = Findings(phase="connecting")
    for kind, content in session.messages():
        if kind == "findings":
            found = _read(Findings, content, session.where)
        elif kind in ("record", "fault"):
            record = _record(content, session.where) if kind == "record" else None
            _finish(session)
            if record is None:
                raise DeviceError(f"{session.where}: {content}")
            return record
        tell(found)
    raise ConnectionLostError(f"{session.where}: the connection ended")


def _finish(session: Session) -> None:
    """Have the other side remove its files. If the connection is lost before, the next equal request gets the record again."""
    session.send(RECEIVED)
    session.close_input()
    with suppress(DeviceError):
        for _ in session.messages():
            pass


def _record(content: object, where: str) -> TuningRecord:
    """Return the record in the content of its file."""
    with tempfile.TemporaryDirectory(prefix="syno-ssh-") as folder:
        file = Path(folder) / "record.json"
        file.write_text(str(content), encoding="utf-8")
        try:
            return TuningRecord.read(file)
        except SpecError as error:
            raise DeviceError(f"{where}: its record cannot be read: {error}") from None


def _read(model: type[Model], content: object, where: str) -> Model:
    try:
        return model.model_validate(content)
    except ValidationError as error:
        raise DeviceError(f"{where}: it says what this version of Syno does not understand: {one_line(error)}") from None


def _goes_on(name: str, request: Request) -> str:
    return (
        f'The measurement on "{name}" goes on without this machine until its limit of {request.time_limit_s:g} s; the same '
        "command again gets its record"
    )


def _wait(seconds: float, tell: Tell) -> None:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        tell(Findings(phase="connecting"))
        time.sleep(min(TICK_SECONDS, seconds))
