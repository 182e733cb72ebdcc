"""Which GPUs of this machine a process sees, by what the driver tells and CUDA_VISIBLE_DEVICES."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from pretended_gpus import pretend, uuid

from syno.base import devices
from syno.base.devices import parse_list, require_device, visible_gpus
from syno.base.errors import MissingDeviceError

DIVIDED = """GPU 0: NVIDIA A100-SXM4-40GB (UUID: GPU-aaaa1111-0000)
  MIG 3g.20gb     Device  0: (UUID: MIG-0a-0)
  MIG 3g.20gb     Device  1: (UUID: MIG-0a-1)
GPU 1: NVIDIA A100-SXM4-40GB (UUID: GPU-bbbb2222-0000)
"""


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """A machine with four pretended GPUs."""
    for name, value in pretend(tmp_path, 4).items():
        monkeypatch.setenv(name, value)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    return monkeypatch


def names(visible: str | None = None) -> list[str]:
    return [gpu.name for gpu in visible_gpus(visible)]


def test_all_gpus_are_seen_if_nothing_says_which(machine: pytest.MonkeyPatch) -> None:
    assert names() == [uuid(number) for number in range(4)]
    machine.setenv("CUDA_VISIBLE_DEVICES", "2")
    assert names() == [uuid(2)]


@pytest.mark.parametrize(
    ("visible", "numbers"),
    [
        ("2,0", [2, 0]),
        (f"{uuid(3)}, 1", [3, 1]),
        ("GPU-00000002", [2]),  # the beginning of one
        ("GPU-0000000", []),  # of several
        ("1,-1,0", [1]),  # the list ends at a name that is unknown
        ("0,7,1", [0]),
        ("1,1", []),
        ("", []),
        ("NoDevFiles", []),  # what Slurm writes
    ],
)
def test_the_variable_is_read_as_cuda_reads_it(visible: str, numbers: list[int], machine: pytest.MonkeyPatch) -> None:
    assert names(visible) == [uuid(number) for number in numbers]


@pytest.mark.parametrize(
    ("visible", "expected"),
    [
        (None, ["MIG-0a-0", "MIG-0a-1", "GPU-bbbb2222-0000"]),
        ("MIG-0a-1", ["MIG-0a-1"]),
        ("MIG-GPU-aaaa1111-0000/1/0", ["MIG-GPU-aaaa1111-0000/1/0"]),
        ("1,0", ["GPU-bbbb2222-0000", "MIG-0a-0"]),
    ],
)
def test_each_part_of_a_divided_gpu_is_one(visible: str | None, expected: list[str], machine: pytest.MonkeyPatch) -> None:
    machine.setattr(devices, "_installed", lambda path: parse_list(DIVIDED))
    assert names(visible) == expected


def test_the_files_of_the_driver_are_read_without_its_program(tmp_path: Path) -> None:
    for place, number in (("0000:17:00.0", 0), ("0000:65:00.0", 1)):
        (tmp_path / place).mkdir()
        text = f"Model: \t\t NVIDIA H100\nIRQ:   \t\t 40\nGPU UUID: \t {uuid(number)}\nBus Location: \t {place}\n"
        (tmp_path / place / "information").write_text(text)
    assert [(gpu.name, gpu.model) for gpu in devices._gpus_in_driver_files(tmp_path)] == [
        (uuid(0), "NVIDIA H100"),
        (uuid(1), "NVIDIA H100"),
    ]
    (tmp_path / place / "information").write_text("GPU UUID: \t GPU-????????-????\n")  # it sleeps
    assert devices._gpus_in_driver_files(tmp_path) == () == devices._gpus_in_driver_files(tmp_path / "absent")


def test_gpus_of_different_models_are_in_the_order_of_cuda(machine: pytest.MonkeyPatch) -> None:
    """The fastest has number 0, and the driver lists it last here."""
    listed = parse_list("GPU 0: T4 (UUID: GPU-1a)\nGPU 1: H200 (UUID: GPU-2b)\n")
    machine.setattr(devices, "_installed", lambda path: listed)
    machine.setattr(devices, "ASK_PYTORCH", "print('2b', '1a')")
    devices._fastest_first.cache_clear()
    assert names() == ["GPU-2b", "GPU-1a"] and names("1") == ["GPU-1a"]
    machine.setenv("CUDA_DEVICE_ORDER", "PCI_BUS_ID")
    assert names() == ["GPU-1a", "GPU-2b"]


def test_a_device_is_required_of_those_that_are_seen(machine: pytest.MonkeyPatch) -> None:
    machine.setattr(torch.version, "cuda", "13.0")
    machine.setenv("CUDA_VISIBLE_DEVICES", "1,3")
    require_device("cuda:1")
    with pytest.raises(MissingDeviceError, match='"cuda:2", but PyTorch finds 2 GPUs here, cuda:0 to cuda:1'):
        require_device("cuda:2")
