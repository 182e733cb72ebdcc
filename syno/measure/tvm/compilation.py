"""From a network in Relax to something that can be called: fusing, scheduling, building."""

from __future__ import annotations

import os
from contextlib import nullcontext
from pathlib import Path
from typing import Any


def fused(module: Any, target: Any) -> Any:
    """The network with its operations as PrimFuncs, neighbours fused: what tasks are taken from, and schedules put into."""
    import tvm
    from tvm.relax import transform

    passes = [
        transform.DecomposeOpsForInference(),
        transform.CanonicalizeBindings(),
        transform.FoldConstant(),
        transform.LegalizeOps(),
        transform.AnnotateTIROpPattern(),
        transform.FoldConstant(),
        transform.FuseOps(),
        transform.FuseTIR(),
        transform.DeadCodeElimination(),
    ]
    with target:
        return tvm.transform.Sequential(passes)(module)


def scheduled(module: Any, target: Any, database: Any = None) -> Any:
    """The fused network with the best schedules of a MetaSchedule database.

    A PrimFunc that it has none for runs as it is on processors; on GPUs, where that is impossible, it gets a default.
    """
    import tvm
    from tvm import relax
    from tvm.s_tir import dlight

    chosen = nullcontext() if database is None else database  # an empty database is false
    with target, chosen, tvm.transform.PassContext(opt_level=3):
        if database is not None:
            module = relax.transform.MetaScheduleApplyDatabase(enable_warning=False)(module)
        if "gpu" in target.keys:
            rules = dlight.gpu
            module = dlight.ApplyDefaultSchedule(
                rules.Matmul(), rules.GEMV(), rules.Reduction(), rules.GeneralReduction(), rules.Fallback()
            )(module)
    return module


def built(module: Any, target: Any) -> Any:
    """A scheduled network as a `relax.VMExecutable`."""
    import tvm
    from tvm import relax
    from tvm.relax import transform

    passes = [
        transform.RewriteDataflowReshape(),
        transform.ToNonDataflow(),
        transform.RemovePurityChecking(),
        transform.CallTIRRewrite(),
        transform.StaticPlanBlockMemory(),
        transform.LowerAllocTensor(),
        transform.KillAfterLastUse(),
        transform.LowerRuntimeBuiltin(),
        transform.ComputePrimValue(),
        transform.VMShapeLower(),
        transform.AttachGlobalSymbol(),
    ]
    with target, tvm.transform.PassContext(opt_level=3):
        return relax.build(module, target, relax_pipeline=tvm.transform.Sequential(passes))


def saved(executable: Any, path: Path) -> None:
    """Write a built network to a `.tar` file, which TVM and a linker are needed to load: `tvm.runtime.load_module`.

    Nothing in Syno loads it again: what is in a folder of results may come from elsewhere.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{os.getpid()}.{path.name}")
    try:
        executable.export_library(str(temporary))
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)
