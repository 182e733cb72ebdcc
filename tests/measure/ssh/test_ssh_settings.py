"""Machines that are reached by ssh, in an experiment."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from syno.base.errors import SpecError
from syno.config import Experiment
from syno.config.stages import TuneSettings
from syno.ir.library import OPERATORS
from syno.measure import tuning
from syno.measure.devices import SshSettings, place_of
from syno.measure.protocol import Request
from syno.measure.ssh import as_ordered
from syno.measure.subjects import OperatorSubject
from syno.measure.tvm.targets import DeviceSettings, TvmSettings
from syno.stages.plan import Assumptions, plan

BOARD: dict[str, Any] = {"kind": "ssh", "host": "jetson"}
TRACKED: dict[str, Any] = {"target": "jetson-orin-nano-cpu", "tracker": "192.168.1.2:9190"}


def experiment(**settings: Any) -> Experiment:
    return Experiment(name="x", workload={}, tune={"compilers": ["inductor", "tvm"], **settings})


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"host": "-oProxyCommand=rm"}, "is no host; it looks like jetson, user@192.168.1.7"),
        ({"host": "jetson; rm"}, "is no host"),
        ({"host": ""}, "is no host"),
        ({"python": "-c"}, "is no program; it looks like python3"),
        ({"python": "python\nrm"}, "is no program"),
        ({"device": "cpu:1"}, "device"),
        ({"compilers": ["inducto"]}, 'unknown compiler "inducto"'),
        ({"target": "jetson-nano"}, "jetson-orin-nano-cpu"),
        ({"tracker": "192.168.1.2:9190"}, "board.ssh.tracker: there is no such option"),
        ({"tvm": {"tracker": "local"}}, "target: is missing"),
        ({"wait_seconds": 0}, "greater than 0"),
        ({"kind": "shh"}, "board.rpc.kind: Input should be 'cpu' or 'cuda'"),
    ],
)
def test_what_means_nothing_is_an_error(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(SpecError, match=re.escape(message)):
        experiment(remote_devices={"board": {**BOARD, **changes}})


def test_a_device_takes_its_compilers_and_tvm_by_rpc_where_that_is_described() -> None:
    devices = {"all": BOARD, "some": {**BOARD, "compilers": ["inductor"]}, "both": {**BOARD, "tvm": TRACKED}}
    settings = experiment(devices=["cpu", *devices], remote_devices=devices).tune
    assert settings.pairs == (
        *(("inductor", "cpu"), ("tvm", "cpu"), ("inductor", "all"), ("tvm", "all")),
        *(("inductor", "some"), ("inductor", "both"), ("tvm", "both")),
    )
    assert isinstance(settings.device("all", "tvm"), SshSettings)
    assert isinstance(settings.device("both", "inductor"), SshSettings)
    assert settings.device("both", "tvm") == DeviceSettings(**TRACKED)
    with pytest.raises(SpecError, match='the device "some" has the compilers inductor, and not "tvm"'):
        settings.device("some", "tvm")
    with pytest.raises(SpecError, match="devices: some: .*add one that reaches it"):
        experiment(compilers=["tvm"], devices=["some"], remote_devices=devices)


def test_results_depend_on_what_a_device_is_and_not_on_where() -> None:
    def made_for(**changes: Any) -> dict[str, Any]:
        return experiment(remote_devices={"board": {**BOARD, **changes}}).tune.made_for("board")

    assert made_for() == made_for(host="10.0.0.1", python="~/env/bin/python", wait_seconds=5, ssh_config="x")
    assert made_for() != made_for(device="cuda")
    assert made_for() != made_for(target="host")
    assert made_for(tvm=TRACKED) == made_for(tvm={**TRACKED, "tracker": "local"}) != made_for()
    one = TuneSettings(remote_devices={"jetson": DeviceSettings(**TRACKED)})
    assert one.made_for("jetson") == {"kind": "cpu", "target": "jetson-orin-nano-cpu"}  # as in earlier versions


def test_devices_of_one_host_are_one_place() -> None:
    assert place_of("a", SshSettings(**BOARD)) == place_of("b", SshSettings(**BOARD, device="cuda")) == "jetson"
    assert place_of("a", DeviceSettings(**TRACKED)) == "a"


def test_the_plan_counts_its_hours() -> None:
    planned = plan(experiment(devices=["cpu", "board"], remote_devices={"board": BOARD}), Assumptions())
    assert planned.tuning_hours["board"] == planned.tuning_hours["cpu"] > 0


def test_a_machine_gets_the_request_for_its_own_device(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    asked: list[tuple[str, Request]] = []

    def measured_there(name: str, device: SshSettings, request: Request, progress: object) -> None:
        asked.append((name, as_ordered(request, device)))

    monkeypatch.setattr(tuning, "measured_there", measured_there)
    subject = OperatorSubject.of(OPERATORS["conv2d"](), {"C_in": 4, "C_out": 4, "H": 6})
    board = SshSettings(**BOARD, device="cuda:1", target="jetson-orin-nano-gpu")
    for folder in (tmp_path / "a", tmp_path / "b", None):
        tuning.tune(subject, "tvm", "board", folder=folder, remote=board, tvm=TvmSettings(target="a100", trials_per_task=7))
    names, (first, second, last) = {name for name, _ in asked}, [request for _, request in asked]
    assert names == {"board"}
    assert (first.device, first.options["target"], first.options["trials_per_task"]) == ("cuda:1", "jetson-orin-nano-gpu", 7)
    assert first.remote is None and first.folder != second.folder and last.folder == Path()
    assert not first.folder.is_absolute() and len(first.folder.parts) == 1  # a name, and no path of this machine
