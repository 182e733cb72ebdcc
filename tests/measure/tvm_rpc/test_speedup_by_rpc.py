"""Speedups measured on a device that TVM's RPC reaches: servers on this machine, as if they were elsewhere."""

from __future__ import annotations

from pathlib import Path

import pytest
from tvm_servers import Here

from syno.ir.library import OPERATORS
from syno.measure.network_subject import NetworkSubject
from syno.measure.speedups import Speedups
from syno.measure.timing import LatencySettings
from syno.measure.tvm.targets import TvmSettings

pytest.importorskip("tvm", reason="TVM is not installed: pip install 'syno-operators[tvm]'")
NETWORK = NetworkSubject(model="resnet8", width=0.25, classes=4, image_shape=(1, 8, 8))
FAST = LatencySettings(warm_up_ms=0, least_repeats=6, most_repeats=6, least_ms=0, batch=2)


@pytest.mark.slow
def test_both_networks_are_timed_in_turns_in_one_session(here: Here, tmp_path: Path) -> None:
    given = {"settings": FAST, "store": tmp_path / "store", "tvm": TvmSettings(trials_per_task=0)}
    with Speedups(NETWORK, "tvm", "jetson", remote=here.settings(), folder=tmp_path / "tvm", **given) as speedups:
        record = speedups.of(OPERATORS["conv1x1"]())
        assert (record.status, record.reason, record.checked) == ("ok", "", True)
        assert record.ratio is not None and record.conditions.device.name == "jetson"
        assert speedups.of(OPERATORS["conv1x1"]()) == record
        assert speedups.of(OPERATORS["gpt2_projection"]()).status == "misfit"
