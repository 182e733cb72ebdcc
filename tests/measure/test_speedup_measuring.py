"""Measuring speedups in this process: of whole networks and by layers, and what is said of operators that fail."""

from __future__ import annotations

import re
import signal
import time
from itertools import count
from pathlib import Path
from typing import Any

import pytest
import torch
from command_lines import HANGS_AFTER

from syno.base.errors import DeviceError, SpecError
from syno.ir.library import OPERATORS
from syno.measure.job import Job
from syno.measure.measuring_process import MeasuringProcess
from syno.measure.network_subject import NetworkSubject
from syno.measure.protocol import Request
from syno.measure.speedup_measuring import Layers, SpeedupMeasuring
from syno.measure.speedup_record import OtherCompiler
from syno.measure.speedups import Speedups
from syno.measure.timing import LatencySettings

NETWORK = NetworkSubject(model="resnet8", width=0.25, classes=4, image_shape=(1, 8, 8))
ORIGINALS: list[dict[str, str]] = [{}, {"original_compiler": "eager"}, {"original_compiler": "fastest"}]
FAST = LatencySettings(warm_up_ms=0, least_repeats=6, most_repeats=6, least_ms=0, batch=2)


def by_name(job: Job) -> Any:
    """Compile badly, each operator in its own way, and the original well."""
    name = job.name.partition("-")[0]
    if name == "fails":
        raise RuntimeError("no such instruction")
    if name == "killed":  # as GCC says it where memory is short
        try:
            raise RuntimeError("g++: fatal error: Killed signal terminated program cc1plus")
        except RuntimeError as error:
            raise ValueError("the compiler failed") from error
    if name == "halves":
        return lambda x: 0.5 * job.module(x)
    if name == "forgets":
        calls = count()
        return lambda x: job.module(x) * (1.0 if next(calls) < 3 else 0.0)  # right when it is checked, wrong when it is timed
    return job.module


def slow(job: Job) -> Any:
    def call(x: torch.Tensor) -> torch.Tensor:
        time.sleep(0.03)
        return job.module(x)

    return call


def never(job: Job) -> Any:
    raise RuntimeError("no compiler at all")


def request(operator: str, compiler: str = "by_name", name: str = "", **changes: Any) -> Request:
    graph = OPERATORS[operator]()
    subject = NETWORK.model_copy(update={"operator": str(graph.renamed(name or graph.name))})
    own = f"{__name__}:{compiler}"
    return Request(**{"subject": subject, "compiler": own, "device": "cpu", "settings": FAST, "measured": "network", **changes})


@pytest.fixture(scope="module")
def measuring() -> SpeedupMeasuring:
    """One for all tests, so that the original is made once."""
    return SpeedupMeasuring()


def test_a_network_is_timed_in_turns_with_the_original_which_is_made_once(measuring: SpeedupMeasuring) -> None:
    found = measuring.findings(request("conv1x1"))
    fields = found.fields
    assert (found.status, fields["checked"], fields["reference"]) == ("ok", True, "network of literal modules")
    assert fields["ratio"].low <= fields["ratio"].value <= fields["ratio"].high and 0 <= fields["share_of_allowed"] <= 1
    phases: list[str] = []
    measuring.findings(request("conv1x1"), lambda found: phases.append(found.phase))
    assert phases == ["waiting", "building", "compiling", "waiting", "measuring"]


def test_the_original_may_have_a_compiler_of_its_own(measuring: SpeedupMeasuring) -> None:
    other = OtherCompiler(name="fastest", options={"compilers": [f"{__name__}:slow"]})
    fields = measuring.findings(request("conv1x1", original_compiler=other)).fields
    assert fields["original_ms"].value > 30 > fields["latency_ms"].value and fields["choice"] is None
    assert fields["original_choice"].compiler == f"{__name__}:slow"
    keys = [Speedups(NETWORK, "eager", store=None, **given).conditions(OPERATORS["conv1x1"]()) for given in ORIGINALS]
    assert [one.original_compiler and one.original_compiler.name for one in keys] == [None, None, "fastest"]
    assert keys[0].key == keys[1].key != keys[2].key and "original_compiler" not in keys[0].model_dump()
    with pytest.raises(SpecError, match="layers, and networks over TVM's RPC, are compared with the original by eager only"):
        Speedups(NETWORK, "eager", store=None, measured="layers", original_compiler="fastest")


@pytest.mark.slow
def test_by_layers_each_size_is_timed_once_and_the_times_are_summed(measuring: SpeedupMeasuring) -> None:
    found = measuring.findings(request("conv1x1", measured="layers"))
    assert [(one.name, one.count) for one in found.fields["layers"]] == [
        ("conv_io4", 2), ("conv_i4_o8", 1), ("conv_io8", 1), ("conv_i8_o16", 1), ("conv_io16", 1),
    ]  # fmt: skip
    assert found.status == "ok" and found.fields["rest_ms"] >= 0
    assert found.fields["flops"] == measuring.findings(request("conv1x1")).fields["flops"]


def test_sums_of_layers_keep_the_share_of_the_rest() -> None:
    layers = Layers(names=("a", "b"), titles=("conv_io4", "conv_io8"), counts=(3, 1))
    assert layers.summed([1.0, 2.0, 0.5, 1.0], rest=0.5) == (10.0, 5.0 + 2.5)


@pytest.mark.parametrize(
    ("operator", "name", "status", "reason"),
    [
        ("conv1x1", "fails", "compile_failed", "compiling: RuntimeError: no such instruction"),
        ("conv1x1", "halves", "wrong_output", "the output differs from its reference"),
        ("conv1x1", "forgets", "wrong_output", "the output of a timed call differs"),
        ("gpt2_projection", "", "misfit", "gpt2_projection"),
    ],
)
def test_what_fails_has_a_status_and_no_speedup(
    measuring: SpeedupMeasuring, operator: str, name: str, status: str, reason: str
) -> None:
    found = measuring.findings(request(operator, name=name))
    assert found.status == status and reason in found.reason and "ratio" not in found.fields


def test_a_compiler_that_was_killed_is_not_the_outcome_of_an_operator(measuring: SpeedupMeasuring) -> None:
    """It has crashed, so another process tries again; and what is said of it is said in one line."""
    found = measuring.findings(request("conv1x1", name="killed"))
    assert found.status == "crashed" and "\n" not in found.reason
    assert re.match(
        "compiling: the machine is at fault: RuntimeError: g... fatal error: Killed signal terminated program cc1plus",
        found.reason,
    )


def test_an_original_that_fails_is_an_error_because_no_operator_is_the_cause(measuring: SpeedupMeasuring) -> None:
    with pytest.raises(DeviceError, match="the original network cannot be measured with the compiler .*no compiler at all"):
        measuring.findings(request("conv1x1", "never"))


@pytest.mark.slow
def test_the_process_measures_what_this_one_does_and_ends_with_its_input(tmp_path: Path) -> None:
    with Speedups(NETWORK, "eager", settings=FAST, store=tmp_path / "store") as speedups:
        record = speedups.of(OPERATORS["conv1x1"]())
        assert (record.status, record.checked, record.reference) == ("ok", True, "network of literal modules")
        assert isinstance(speedups._process, MeasuringProcess)
        local = speedups._process._local
        assert local is not None and local.process.poll() is None and local.process.stdin
        local.process.stdin.close()  # as when this process is killed
        assert local.process.wait(timeout=HANGS_AFTER) == -signal.SIGKILL
        assert not Path(local._folder.name).exists()  # this process would not have removed it
        speedups.close()
        assert speedups.of(OPERATORS["gpt2_projection"]()).status == "misfit"  # by a new process
