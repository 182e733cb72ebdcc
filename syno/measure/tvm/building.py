"""Building schedules in processes of their own."""

from __future__ import annotations

from typing import Any

from syno.measure.tvm.settings import TvmSettings


def build_schedule(module: Any, target: Any, parameters: Any) -> Any:
    """Build a scheduled PrimFunc. TVM's own function first parses the instructions of all kinds of processors: 20 seconds.

    It runs in a fresh process, to which it is sent, so it imports what it needs.
    """
    import tvm
    from tvm.s_tir.transform import RemoveWeightLayoutRewriteBlock

    return tvm.tirx.build(RemoveWeightLayoutRewriteBlock(skip_tensor_rewrite=True)(module), target=target)


def local_builder(settings: TvmSettings) -> Any:
    """A `meta_schedule.builder.Builder` on this machine."""
    from tvm.s_tir import meta_schedule

    return meta_schedule.builder.LocalBuilder(
        max_workers=settings.builders, timeout_sec=settings.build_seconds, f_build=build_schedule
    )


def local_runner(settings: TvmSettings) -> Any:
    """A `meta_schedule.runner.Runner` on this machine, with as many threads as the environment says (TVM_NUM_THREADS)."""
    from tvm.s_tir import meta_schedule

    return meta_schedule.runner.LocalRunner(
        timeout_sec=settings.run_seconds,
        evaluator_config=meta_schedule.runner.EvaluatorConfig(number=1, repeat=2, min_repeat_ms=settings.least_ms // 2),
    )
