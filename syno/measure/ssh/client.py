"""Measuring on a machine that is reached by ssh: the record comes back. If the connection is lost, it is measured again."""

from __future__ import annotations

import json
import time
import warnings
from collections.abc import Callable
from typing import TypeAlias, TypeVar

from pydantic import BaseModel, ValidationError

from syno.base.errors import DeviceError, one_line
from syno.measure.devices import SshSettings
from syno.measure.measuring import Findings, Request
from syno.measure.ssh.connection import TICK_SECONDS, ConnectionLostError, Session
from syno.measure.ssh.protocol import SIGN_OF_LIFE_SECONDS, About, Code, Order, difference
from syno.measure.tuning_record import TuningRecord

FIRST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS = 1.0, 30.0  # between two attempts to connect again
MOST_LOSSES = 5  # of a connection while it is measured: each time, all is measured again

Tell: TypeAlias = Callable[[Findings], None]
Model = TypeVar("Model", bound=BaseModel)


def measured_there(name: str, device: SshSettings, request: Request, progress: Tell | None = None) -> TuningRecord:
    """Return the record of a measurement on another machine.

    What was measured over a connection that is lost is lost with it: over the next one, the measurement begins again. TVM's
    trials stay there, so that tuning goes on.

    Args:
        name: of the device, for messages.
        device: its settings.
        request: what to measure; its device is that machine's own.
        progress: gets what is known so far, about twice a second.

    Raises:
        DeviceError: the machine cannot be reached, cannot measure, was lost for longer than `wait_seconds`, or again and again.
    """
    order, tell = Order.of(request), progress or (lambda _: None)
    heard, pause, losses = 0.0, FIRST_PAUSE_SECONDS, 0  # when something was last heard; 0 for never
    while True:
        with Session(name, device, "measure") as session:
            try:
                return _followed(session, order, tell)
            except ConnectionLostError as error:
                lost = error
        if session.heard:
            heard, pause, losses = session.heard, FIRST_PAUSE_SECONDS, losses + 1
        if not heard:
            raise lost  # it cannot be reached: there is nothing to wait for
        if losses >= MOST_LOSSES:
            raise DeviceError(f"{lost}; it was lost {losses} times, and with it what was measured: look at the network")
        if time.monotonic() - heard > device.wait_seconds:
            raise DeviceError(f"{lost}; it did not come back within {device.wait_seconds:g} s (wait_seconds)")
        warnings.warn(f"{one_line(lost)}; trying again, and the measurement begins anew", stacklevel=2)
        _wait(pause, tell)
        pause = min(2 * pause, LONGEST_PAUSE_SECONDS)


def about(name: str, device: SshSettings) -> About:
    """Return a machine's description of itself. Raises DeviceError if it cannot be reached, or cannot measure on the device."""
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
    found, said = Findings(phase="connecting"), time.monotonic()
    for kind, content in session.messages():
        if kind == "findings":
            found = _read(Findings, content, session.where)
        elif kind == "record":
            try:
                return TuningRecord.model_validate_json(json.dumps(content))  # as JSON: dates are text, tuples are lists
            except ValidationError as error:
                raise DeviceError(f"{session.where}: its record cannot be read: {one_line(error)}") from None
        elif kind == "fault":
            raise DeviceError(f"{session.where}: {content}")
        if time.monotonic() - said > SIGN_OF_LIFE_SECONDS:
            session.send("")
            said = time.monotonic()
        tell(found)
    raise ConnectionLostError(f"{session.where}: the connection ended")


def _read(model: type[Model], content: object, where: str) -> Model:
    try:
        return model.model_validate(content)
    except ValidationError as error:
        raise DeviceError(f"{where}: it says what this version of Syno does not understand: {one_line(error)}") from None


def _wait(seconds: float, tell: Tell) -> None:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        tell(Findings(phase="connecting"))
        time.sleep(min(TICK_SECONDS, seconds))
