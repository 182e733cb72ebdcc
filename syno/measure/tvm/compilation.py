"""Compilation of a Relax network: operator fusion, schedules, build, and the callable module."""

from __future__ import annotations

import os
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import torch

from syno.base.errors import ShapeError

ALIGNMENT = 64  # bytes: TVM allocates tensors so (kAllocAlignment), and its code loads whole vectors from such addresses


def fused(module: Any, target: Any) -> Any:
    """Lower a network's operations to PrimFuncs, and fuse neighbours. Tuning tasks and schedules refer to these PrimFuncs."""
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
    """Return the fused network with the best schedules of a MetaSchedule database.

    A PrimFunc without a schedule runs unscheduled on CPUs; on GPUs, where that is impossible, it gets a default schedule.
    """
    import tvm
    from tvm import relax
    from tvm.s_tir import dlight

    chosen = nullcontext() if database is None else database  # an empty database is false
    with target, chosen, tvm.transform.PassContext(opt_level=3):
        if database is not None:
            module = relax.transform.MetaScheduleApplyDatabase(enable_warning=False)(module)
        if "gpu" in target.keys:
            given = dlight.gpu
            rules = (given.Matmul(), given.GEMV(), given.Reduction(), given.GeneralReduction(), given.Fallback())
            module = dlight.ApplyDefaultSchedule(*map(_where_it_works, rules))(module)
    return module


def _where_it_works(rule: Any) -> Any:
    """Return a default schedule rule that is skipped if it fails: some rules assert properties that operators lack."""
    from tvm.s_tir.dlight import ScheduleRule

    def tried(kernel: Any, target: Any, tunable: bool) -> Any:
        try:
            return rule.apply(kernel, target, tunable)
        except Exception:
            return None

    return ScheduleRule.from_callable(type(rule).__name__)(tried)


def built(module: Any, target: Any) -> Any:
    """Return a scheduled network as a `relax.VMExecutable`."""
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
    """Write a built network to a `.tar` file, which `tvm.runtime.load_module` loads with a linker.

    Syno never loads such a file from a folder of results, since the folder may come from an untrusted source.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{os.getpid()}.{path.name}")
    try:
        executable.export_library(str(temporary))
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


class TvmModule:
    """A built network as a function of PyTorch tensors on its device.

    Outputs are not copied, and neither are inputs with aligned memory: tensors that PyTorch allocated are aligned, but not all
    views of others, nor all arrays that NumPy allocated.

    Args:
        executable: a `relax.VMExecutable`.
        device: "cpu", or "cuda" for the first GPU of this process.
    """

    def __init__(self, executable: Any, device: str) -> None:
        import tvm
        from tvm import relax

        self._machine = relax.VirtualMachine(executable, tvm.runtime.device(device, 0))
        self._main = self._machine["main"]

    def __call__(self, *tensors: torch.Tensor) -> Any:
        """Return the network's output, a tensor or a list of them.

        Raises ShapeError for a tensor that is not dense in the order of its axes, such as one in channels-last format.
        """
        import tvm_ffi

        for tensor in tensors:
            if not tensor.is_contiguous():
                raise ShapeError(
                    f"TVM takes tensors that are dense in the order of their axes; this one has shape {tuple(tensor.shape)} "
                    f'and strides {tensor.stride()}: use the memory format "contiguous"'
                )
        return _tensors(self._main(*(tvm_ffi.from_dlpack(_aligned(tensor.detach())) for tensor in tensors)))


def _aligned(tensor: torch.Tensor) -> torch.Tensor:
    """Return the tensor, or an aligned copy: on unaligned memory, the generated code would crash the process."""
    return tensor.clone() if tensor.data_ptr() % ALIGNMENT else tensor


def _tensors(output: Any) -> Any:
    if hasattr(output, "__dlpack__"):
        return torch.from_dlpack(output)
    return None if output is None else [_tensors(part) for part in output]
