"""Targets: presets are what they say, and what means nothing is one clear error, before any process is started."""

from __future__ import annotations

from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError
from pathlib import Path

import pytest
from pydantic import ValidationError

from syno.base.errors import MissingPackageError, SpecError, UnknownNameError
from syno.ir.library import OPERATORS
from syno.lower.tvm import installed
from syno.measure.subjects import OperatorSubject
from syno.measure.tuning import tune
from syno.measure.tvm.targets import TARGETS, X86_LEVELS, TvmSettings, host, of_device, target, x86_level

CONV2D = OperatorSubject.of(OPERATORS["conv2d"](), {"C_in": 4, "C_out": 4, "H": 6})
V2 = X86_LEVELS["x86-64-v2"]
V3, V4 = V2 | X86_LEVELS["x86-64-v3"], X86_LEVELS["x86-64-v4"]


@pytest.fixture
def absent(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """TVM is not installed."""

    def version(package: str) -> str:
        raise PackageNotFoundError(package)

    installed.tvm.cache_clear()
    monkeypatch.setattr(installed, "version", version)
    yield
    installed.tvm.cache_clear()


@pytest.mark.parametrize(
    ("flags", "level"),
    [
        (frozenset(), "x86-64"),
        (V2, "x86-64-v2"),
        (V2 | V4, "x86-64-v2"),  # a level has all below it, too
        (V3 | {"avx512f"}, "x86-64-v3"),
        (V3 | V4 | {"amx_tile"}, "x86-64-v4"),
    ],
)
def test_the_level_of_a_processor(flags: frozenset[str], level: str) -> None:
    assert x86_level(flags) == level


@pytest.mark.usefixtures("absent")
def test_tvm_that_is_absent_is_said_before_a_process_is_started(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("syno.measure.tuning.MeasuringProcess", lambda: pytest.fail("a process was started"))
    with pytest.raises(MissingPackageError, match=r"TVM is not installed.*syno-operators\[tvm\]"):
        tune(CONV2D, "tvm")


def test_an_unknown_preset_is_an_error_without_tvm() -> None:
    with pytest.raises(ValidationError, match='unknown target "jetson-nano"; there are: host.*Did you mean "jetson'):
        TvmSettings(target="jetson-nano")


class TestWithTvm:
    @pytest.fixture(autouse=True)
    def needed(self) -> None:
        pytest.importorskip("tvm", reason="TVM is not installed")

    @pytest.mark.parametrize("name", TARGETS)
    def test_every_preset_is_one(self, name: str) -> None:
        made = target(name)
        cpu = made if made.kind.name == "llvm" else made.host
        assert cpu.attrs["mcpu"]  # what TVM would find out itself may be another processor
        if name.startswith("jetson"):
            assert (cpu.attrs["mtriple"], cpu.attrs["mcpu"], cpu.attrs["num-cores"]) == ("aarch64-linux-gnu", "cortex-a78", 6)
        architectures = {"jetson-orin-nano-gpu": "sm_87", "a100": "sm_80", "h100": "sm_90"}
        assert made.attrs.get("arch") == architectures.get(name)

    def test_this_machine(self) -> None:
        from tvm.target import codegen

        made = target(of_device("cpu", threads=3))
        assert made.attrs["num-cores"] == 3
        information = Path("/proc/cpuinfo")
        if str(made.attrs["mcpu"]).startswith("x86-64") and information.exists():
            flags = set(information.read_text(encoding="utf-8").split())
            assert X86_LEVELS[str(made.attrs["mcpu"])] <= flags
            assert not X86_LEVELS["x86-64-v3"] <= flags or "avx2" in codegen.llvm_get_cpu_features(made)

    def test_this_machines_gpu(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("torch.cuda.is_available", lambda: True)
        monkeypatch.setattr("torch.cuda.get_device_capability", lambda device: (8, 7))
        made = target(of_device("cuda", threads=2))
        assert (made.kind.name, made.attrs["arch"]) == ("cuda", "sm_87")
        assert (made.host.attrs["mcpu"], made.host.attrs["num-cores"]) == (host(2)["mcpu"], 2)
        monkeypatch.setattr("torch.cuda.is_available", lambda: False)
        with pytest.raises(SpecError, match='the device is "cuda", and PyTorch finds no GPU here'):
            of_device("cuda", threads=2)

    def test_attributes_of_ones_own(self) -> None:
        made = target({"kind": "llvm", "mtriple": "x86_64-linux-gnu", "mcpu": "znver4", "num-cores": 16})
        assert (made.attrs["mcpu"], made.attrs["num-cores"]) == ("znver4", 16)

    @pytest.mark.parametrize(
        ("given", "said"),
        [
            ({"kind": "lvm", "mcpu": "znver4"}, 'Target kind "lvm" is not defined'),
            ({"mcpu": "znver4"}, '"kind" is not found'),
            ({"kind": "llvm", "mcpu": "znver4", "cores": 3}, "Unknown config option 'cores'"),
            ({"kind": "llvm", "mcpu": "znver4", "num-cores": "two"}, "expected type 'int'"),
            ({"kind": "llvm"}, 'without the attribute "mcpu"'),
            ({"kind": "llvm", "mtriple": "x86_64-linux-gnu", "mcpu": "zen4"}, 'LLVM knows no processor "zen4"'),
            ({"kind": "cuda", "arch": "sm_80", "host": {"kind": "llvm", "mcpu": "zen4"}}, 'no processor "zen4"'),
        ],
    )
    def test_what_tvm_does_not_take(self, given: dict[str, object], said: str) -> None:
        with pytest.raises(SpecError, match=said):
            target(given)

    def test_an_unknown_name(self) -> None:
        with pytest.raises(UnknownNameError, match='unknown target "a10"; there are: host, .*Did you mean "a100"'):
            target("a10")

    def test_a_target_for_another_device(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("syno.measure.tuning.MeasuringProcess", lambda: pytest.fail("a process was started"))
        with pytest.raises(SpecError, match='the target a100 is of kind "cuda"; on the device "cpu" it has to be "llvm"'):
            tune(CONV2D, "tvm", tvm=TvmSettings(target="a100"))
        with pytest.raises(SpecError, match="the machine's own"):
            tune(CONV2D, "tvm", tvm=TvmSettings(target="jetson-orin-nano-cpu"))
        monkeypatch.setattr("torch.cuda.device_count", lambda: 2)
        with pytest.raises(SpecError, match="CUDA_VISIBLE_DEVICES"):
            tune(CONV2D, "tvm", "cuda:1", tvm=TvmSettings(target="a100"))

    def test_the_host_is_a_target_of_its_own_device(self) -> None:
        assert target("host").attrs["mcpu"] == host(1)["mcpu"]
