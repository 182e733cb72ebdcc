"""Fields of the record of a speedup, and the measurement of them over TVM's RPC."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

from syno.base.errors import SpecError
from syno.measure.compiled_subject import job_of
from syno.measure.job import Phase
from syno.measure.measuring import SpeedupRequest
from syno.measure.network_subject import BackboneSubject
from syno.measure.output_check import check_of
from syno.measure.turns import Turns
from syno.measure.tvm.settings import DeviceSettings

Fields: TypeAlias = dict[str, Any]


def status_for(shortcomings: Sequence[str]) -> Fields:
    """Return status and reason of a measurement whose compiled code lacks something, or nothing if all are empty."""
    found = " ".join(sorted({one for one in shortcomings if one}))
    return {"status": "partial", "reason": found} if found else {"status": "ok"}


def times_of(turns: Turns) -> Fields:
    """Return the fields about times in turns."""
    found: Fields = {
        "original_ms": turns.latencies[0],
        "latency_ms": turns.latencies[1],
        "ratio": turns.speedups[0],
        "drift": turns.drift,
        "attempts": turns.attempts,
        "unsteady": turns.unsteady,
    }
    return found


def remote_fields(request: SpeedupRequest, device: DeviceSettings, begin: Callable[[Phase], None]) -> Fields:
    """Measure on a device that TVM's RPC reaches, where both networks are timed in turns in one session.

    Raises DeviceError if the device does not answer, and as TVM's compiler does.
    """
    from syno.measure.tvm.compiler import network_of, turns_on
    from syno.measure.tvm.integers import network_in_integers

    ways = {"tvm": network_of, "tvm-int8": network_in_integers}
    if request.compiler not in ways or request.measured != "network":
        raise SpecError(
            f"over TVM's RPC whole networks are measured, compiled by {' or '.join(ways)}, not by {request.compiler}"
        )
    assert isinstance(request.subject, BackboneSubject)
    lacking: list[str] = []
    begin("building")
    jobs, materials = [], []
    for subject in (request.subject.model_copy(update={"operator": None}), request.subject):
        material = subject.make("cpu", request.settings.batch)
        check = check_of(material, request.settings, "cpu")
        jobs.append(job_of(request.model_copy(update={"subject": subject}), material, check, begin, lacking.append))
        materials.append(material)
    deviations, turns = turns_on(jobs, device, ways[request.compiler])
    return {
        **status_for(lacking),
        **times_of(turns),
        "flops": materials[1].flops,
        "parameters": materials[1].parameters,
        "checked": True,
        "reference": materials[1].reference_name,
        "share_of_allowed": max(one.of_allowed for one in deviations),
    }
