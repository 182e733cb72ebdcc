"""MetaSchedule on this machine: its builder, its runner, and its intrinsics, those of the target only.

TVM's package of intrinsics parses the instructions of all kinds of processors, each time it is imported: 20 of its 25 seconds
go to those of NVIDIA's GPUs. This module is light, because processes that build schedules import it.
"""

from __future__ import annotations

import importlib
import sys
from types import ModuleType
from typing import Any

from syno.measure.tvm.settings import TvmSettings

PACKAGE = "tvm.s_tir.tensor_intrin"
ELSEWHERE = ("cuda", "rocm", "hexagon")  # kinds of targets that have a module of instructions


def build_schedule(module: Any, target: Any, parameters: Any) -> Any:
    """Build a scheduled PrimFunc. TVM's own function would first import all intrinsics.

    It runs in a fresh process, to which it is sent, so it imports what it needs.
    """
    import tvm
    from tvm.s_tir.transform import RemoveWeightLayoutRewriteBlock

    return tvm.tirx.build(RemoveWeightLayoutRewriteBlock(skip_tensor_rewrite=True)(module), target=target)


def local_builder(settings: TvmSettings) -> Any:
    """Return a `meta_schedule.builder.Builder` on this machine."""
    from tvm.s_tir import meta_schedule

    return meta_schedule.builder.LocalBuilder(
        max_workers=settings.builders, timeout_sec=settings.build_seconds, f_build=build_schedule
    )


def local_runner(settings: TvmSettings) -> Any:
    """Return a `meta_schedule.runner.Runner` on this machine, with as many threads as TVM_NUM_THREADS says."""
    from tvm.s_tir import meta_schedule

    return meta_schedule.runner.LocalRunner(
        timeout_sec=settings.run_seconds,
        evaluator_config=meta_schedule.runner.EvaluatorConfig(number=1, repeat=2, min_repeat_ms=settings.least_ms // 2),
    )


def load_intrinsics(kind: str) -> None:
    """Load the intrinsics of processors, and those of targets of this kind, before MetaSchedule makes its first schedule."""
    if PACKAGE not in sys.modules:
        absent = [f"{PACKAGE}.{name}" for name in ELSEWHERE if f"{PACKAGE}.{name}" not in sys.modules]
        sys.modules.update((name, ModuleType(name)) for name in absent)  # an import that finds them looks no further
        try:
            package = importlib.import_module(PACKAGE)
        finally:
            for name in absent:
                del sys.modules[name]
        for name in absent:
            package.__dict__.pop(name.rpartition(".")[2], None)
    if kind in ELSEWHERE:
        importlib.import_module(f"{PACKAGE}.{kind}")
