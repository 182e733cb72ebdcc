"""Timing networks in turns on a remote device, in one session: the device's own clock times a series of calls of each."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from syno.base.errors import DeviceError
from syno.measure.timing import LatencySettings
from syno.measure.turns import Turns, take_turns
from syno.measure.tvm.sessions import Lease, Uploaded, Workers, borrow, last_words

if TYPE_CHECKING:
    from syno.measure.expected import Deviation, Expected


def measure_in_turns(
    lease: Lease, libraries: Sequence[Path], expected: Sequence[Sequence[Expected]], settings: LatencySettings, kind: str
) -> tuple[list[Deviation], Turns]:
    """Upload networks, check their outputs, time them in turns, and check the outputs of the last timed calls.

    Args:
        lease: of the device.
        libraries: the networks, as for `syno.measure.tvm.sessions.measure_remote`; the original is the first.
        expected: for each, inputs and their expected outputs.
        settings: how to measure.
        kind: "cpu" or "cuda".

    Raises:
        WrongOutputError, DeviceError: as `measure_remote`.
    """
    from syno.measure.output_check import wrong_output

    processes = Workers(lease)
    try:
        names = [str(library) for library in libraries]
        found, turns = processes.call(run_turns, lease, names, [list(one) for one in expected], settings, kind)
    except Exception as failure:  # of any kind: TVM's, the worker's, the network's
        said = last_words(str(failure)) or f"no answer within {lease.limit_seconds:g} s"
        raise DeviceError(f"{lease.device.describe()} failed while it measured {libraries[-1].name}: {said}") from None
    finally:
        processes.close()
    if turns is None:
        worst = max(found, key=lambda deviation: deviation.of_allowed)
        raise wrong_output(worst, settings.tolerance, f"on {lease.device.describe()} the output")
    return found, turns


def run_turns(
    lease: Lease, libraries: Sequence[str], expected: Sequence[Sequence[Expected]], settings: LatencySettings, kind: str
) -> tuple[list[Deviation], Turns | None]:
    """Return the largest deviation of each network's outputs, and the times if none is too large; in a worker's process."""
    session = borrow(lease)
    networks = [Uploaded(session, library, kind) for library in libraries]
    found = [network.check(one) for network, one in zip(networks, expected, strict=True)]
    if not all(deviation.of_allowed <= 1 for deviation in found):
        return found, None
    turns = take_turns([network.evaluate for network in networks], settings)
    last = [network.deviation(one[-1]) for network, one in zip(networks, expected, strict=True)]
    found = [one.worse(other) for one, other in zip(found, last, strict=True)]
    return found, turns if all(deviation.of_allowed <= 1 for deviation in found) else None
