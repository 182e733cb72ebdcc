"""Devices in an experiment, and the timing of calls on one that is not here."""

from __future__ import annotations

import re
from typing import Any

import pytest
from typer.testing import CliRunner

from syno.base.errors import SpecError
from syno.cli import app
from syno.config import Experiment
from syno.config.stages import TuneSettings
from syno.measure.timing import LatencySettings, time_repeats
from syno.measure.tvm.sessions import last_words
from syno.measure.tvm.targets import Address, DeviceSettings, find_device
from syno.stages.measurements import KINDS, measure
from syno.stages.places import device_named

JETSON: dict[str, Any] = {"target": "jetson-orin-nano-cpu", "tracker": "192.168.1.2:9190"}


def experiment(**settings: Any) -> Experiment:
    return Experiment(name="x", workload={}, tune={"compilers": [], **settings})


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"devices": ["jetson"]}, '"jetson" is no device; there are: cpu, cuda'),
        ({"devices": ["jetsen"], "remote_devices": {"jetson": JETSON}}, 'remote: jetson. Did you mean "jetson"?'),
        ({"devices": ["jetson"], "remote_devices": {"jetson": JETSON}, "compilers": ["eager"]}, "only the compiler tvm"),
        ({"remote_devices": {"cuda1": JETSON}}, "this machine"),
        ({"remote_devices": {"Jetson": JETSON}}, "a name begins with a letter"),
        ({"remote_devices": {"jetson": {**JETSON, "tracker": "192.168.1.2"}}}, "it looks like 192.168.1.2:9190"),
        ({"remote_devices": {"jetson": {**JETSON, "tracker": "host:70000"}}}, '"host:70000" is no address'),
        ({"remote_devices": {"jetson": {**JETSON, "servers": 2}}}, "give servers only with tracker: local"),
        ({"remote_devices": {"jetson": {**JETSON, "key": "a:b"}}}, "key"),
        ({"remote_devices": {"jetson": {**JETSON, "kind": "tpu"}}}, "'cpu' or 'cuda'"),
        ({"remote_devices": {"jetson": {**JETSON, "target": "jetson-nano"}}}, "jetson-orin-nano-cpu"),
        ({"remote_devices": {"jetson": {"tracker": "local"}}}, "target: is missing"),
    ],
)
def test_what_means_nothing_is_an_error_that_says_what_does(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(SpecError, match=re.escape(message)):
        experiment(**settings)


def test_devices_of_this_machine_need_no_description() -> None:
    for name in ("cpu", "cuda", "cuda:1"):
        assert find_device(name, {}) is None


def test_a_remote_device_is_measured_by_the_compiler_that_reaches_it() -> None:
    settings = TuneSettings(compilers=("eager",), devices=("cpu",), remote_devices={"jetson": DeviceSettings(**JETSON)})
    both = settings.model_copy(update={"compilers": ("eager", "tvm"), "devices": ("cpu", "jetson")})
    assert both.pairs == (("eager", "cpu"), ("tvm", "cpu"), ("tvm", "jetson"))
    assert settings.device("jetson", "tvm") == settings.remote_devices["jetson"]
    assert settings.device("cpu", "eager") is None


def test_the_command_refuses_a_device_before_it_measures() -> None:
    remote = experiment(remote_devices={"jetson": JETSON})
    with pytest.raises(SpecError, match='the compiler "eager" makes runs on this machine only'):
        measure("tune", remote, "original", "eager", "jetson")
    with pytest.raises(SpecError, match="remote: jetson"):
        measure("tune", remote, "original", "eager", "phone")


def test_files_of_different_devices_have_different_names() -> None:
    names = ["cpu", "cuda", "cuda:1", "a", "a-b", "a_b", "tvm", "max-autotune"]
    remote = dict.fromkeys(names[3:], JETSON)
    described = experiment(devices=names, remote_devices=remote)
    pairs = [(compiler, name) for compiler in ("inductor", "inductor-max-autotune") for name in names]
    files = {KINDS["tune"].file(described, "key", *pair) for pair in pairs}
    assert len(files) == 2 * len(names)
    for file in files:
        compiler, _, part = file.stem.rpartition("-")
        assert KINDS["tune"].file(described, "key", compiler, device_named(described, part)) == file


def test_results_depend_on_what_a_device_is_and_not_on_where() -> None:
    def stage(**changes: Any) -> tuple[str, dict[str, Any]]:
        made = experiment(devices=["jetson"], remote_devices={"jetson": {**JETSON, **changes}})
        return made.part("tune"), made.tune.made_for("jetson")

    assert stage() == stage(tracker="10.0.0.1:9190", key="other", wait_seconds=5)
    assert stage() != stage(target="a100")
    assert stage() != stage(kind="cuda")


def test_addresses() -> None:
    assert Address.parse("[::1]:9190") == Address("::1", 9190)
    assert str(Address.parse("[::1]:9190")) == "[::1]:9190"
    assert str(Address.parse("pi.local:9190")) == "pi.local:9190"


class Clock:
    """A device on which every call takes this long, except for the first of all."""

    def __init__(self, call_ms: float) -> None:
        self.call_ms, self.asked = call_ms, list[tuple[int, int]]()

    def __call__(self, calls: int, repeats: int) -> list[float]:
        self.asked.append((calls, repeats))
        return [self.call_ms * (1 + place / 1000) for place in range(repeats)]


@pytest.mark.parametrize("call_ms", [0.0, 0.01, 0.3, 7.0, 900.0])
def test_repeats_go_on_as_the_settings_say(call_ms: float) -> None:
    settings = LatencySettings(warm_up_ms=20, least_repeats=10, most_repeats=50, least_ms=200)
    clock = Clock(call_ms)
    timing = time_repeats(clock, settings)
    timed = [(calls, repeats) for calls, repeats in clock.asked if calls == timing.calls_per_repeat]
    assert 10 <= timing.repeats <= 50
    assert timing.calls_per_repeat * max(call_ms, 1e-4) >= 1  # a repeat is not shorter than a clock can tell
    assert timing.repeats == 50 or timing.repeats * timing.calls_per_repeat * call_ms >= 199
    assert sum(repeats for _, repeats in timed) >= timing.repeats
    assert timing.low_ms <= timing.median_ms <= timing.high_ms and timing.minimum_ms == pytest.approx(call_ms)


def test_the_last_words_of_an_error_are_its_last_line() -> None:
    assert last_words('Traceback:\n  File "x"\nRPCError: the device\n') == "RPCError: the device"
    assert last_words("") == ""


def test_checking_no_devices_says_so(tmp_path: Any) -> None:
    file = tmp_path / "x.yaml"
    file.write_text("workload: {}\n")
    done = CliRunner().invoke(app, ["devices", "check", str(file)])
    assert done.exit_code == 0 and "no remote devices" in done.stdout
