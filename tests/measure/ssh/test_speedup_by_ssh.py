"""Speedups measured on a machine that is reached by ssh: a real server on the loopback address."""

from __future__ import annotations

from pathlib import Path

import pytest
from ssh_server import SshServer

from syno.ir.library import OPERATORS
from syno.measure.network_subject import NetworkSubject
from syno.measure.speedups import Speedups
from syno.measure.timing import LatencySettings

NETWORK = NetworkSubject(model="resnet8", width=0.25, classes=4, image_shape=(1, 8, 8))
FAST = LatencySettings(warm_up_ms=0, least_repeats=6, most_repeats=6, least_ms=0, batch=2)


@pytest.mark.slow
def test_a_remote_machine_is_asked_measures_in_turns_and_goes_on_after_a_cut(server: SshServer, tmp_path: Path) -> None:
    given = {"settings": FAST, "store": tmp_path / "store"}
    with Speedups(NETWORK, "eager", "board", remote=server.settings(), **given) as there:
        first = there.of(OPERATORS["conv1x1"]())
        assert first.status == "ok" and first.speedup is not None and first.checked
        assert first.conditions.machine == f"ssh {server.settings().host} cpu" and first.conditions.device.name
        assert server.cut() > 0
        with pytest.warns(UserWarning, match="trying again"):
            assert there.of(OPERATORS["gpt2_projection"]()).status == "misfit"  # over a new connection
        assert there.of(OPERATORS["conv1x1"]()) == first
    with Speedups(NETWORK, "eager", **given) as here:
        assert here.known(OPERATORS["conv1x1"]()) is None  # what another machine measured is not believed
