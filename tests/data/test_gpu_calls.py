"""The calls of PyTorch that only a GPU takes, with doubles of them: tests/gpu has the same on a GPU."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch

from syno.base.errors import MissingPackageError
from syno.data.language import moved
from syno.data.pictures import Augmentation
from syno.data.settings import AugmentationSettings
from syno.ir.library import OPERATORS
from syno.measure import measuring_process
from syno.measure.measuring import take_gpu
from syno.measure.measuring_process import MeasuringProcess
from syno.measure.protocol import Request
from syno.measure.subjects import OperatorSubject
from syno.measure.timing import LatencySettings


@pytest.mark.parametrize(("device", "number"), [("cuda", 0), ("cuda:1", 1)])
def test_the_process_that_measures_takes_its_gpu_by_number(device: str, number: int, monkeypatch: pytest.MonkeyPatch) -> None:
    taken: list[Any] = []
    properties = {number: SimpleNamespace(total_memory=1024 * 2**20)}
    monkeypatch.setattr(torch.cuda, "set_device", lambda given: taken.append(torch._utils._get_device_index(given)))
    monkeypatch.setattr(torch.cuda, "get_device_properties", properties.__getitem__)
    monkeypatch.setattr(torch.cuda, "set_per_process_memory_fraction", lambda *given: taken.append(given))
    take_gpu(device, 256)
    assert taken == [number, (0.25, number)]


def test_colours_are_copied_to_the_device_once(monkeypatch: pytest.MonkeyPatch) -> None:
    images = torch.randint(256, (4, 3, 8, 8), dtype=torch.uint8)
    made = Augmentation.of(AugmentationSettings(size=None, pad=0, cutout=0), images)
    expected = made.test(images)
    monkeypatch.setattr(torch, "tensor", lambda *given, **options: pytest.fail("the host waits for the GPU in each batch"))
    assert torch.equal(made.test(images), expected)


def test_tokens_go_to_a_gpu_without_waiting_for_it() -> None:
    calls: list[object] = []

    class Tokens:
        def pin_memory(self) -> Tokens:
            calls.append("pinned")
            return self

        def to(self, device: str, non_blocking: bool = False) -> Tokens:
            calls.append((device, non_blocking))
            return self

    for device in ("cuda:1", "cpu"):
        moved(Tokens(), device)  # type: ignore[arg-type]
    assert calls == ["pinned", ("cuda:1", True), ("cpu", False)]


def test_without_psutil_processes_run_and_memory_limits_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(measuring_process, "psutil", None)
    monkeypatch.setattr(measuring_process, "COMMAND", ("sh", "-c", "sleep 60 & wait"))
    subject = OperatorSubject.of(OPERATORS["conv2d"](), {"C_in": 4, "C_out": 4, "H": 6})
    request = Request(subject=subject, compiler="eager", device="cpu", settings=LatencySettings(), time_limit_s=0.1)
    with MeasuringProcess() as process:
        assert process.findings(request).status == "timeout"
        with pytest.raises(MissingPackageError, match="pip install psutil, or set no memory limit"):
            process.findings(request.model_copy(update={"memory_limit_mib": 100}))
