"""TorchInductor for inference: weights are constants.

Compiled code cannot be trained: it has weights of its own, which do not change with the module's.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeAlias

import torch
from torch import nn
from torch._inductor import config
from torch.utils._pytree import tree_leaves, tree_map
from torch.utils.flop_counter import FlopCounterMode

from syno.base.errors import NotCompiledError
from syno.base.text_tables import plural
from syno.measure.job import SHARED_TEMPORARY
from syno.measure.tuning_record import CompiledCode
from syno.model.module import OperatorModule

Inputs: TypeAlias = tuple[torch.Tensor, ...]

# The vector instructions that the processor lists are assumed to work. Otherwise Inductor would, in each process, compile a
# program for each set of them, and run it in a new Python with PyTorch: 8 of the 23 seconds that compiling ResNet-8 takes.
FLAGS = {"cpp.vec_isa_ok": True}

HEADERS = "precompiled_headers"  # Inductor's folder, below its default cache
MAGIC = (b"gpch", b"CPCH")  # first bytes of a precompiled header of GCC and of Clang
BEING_WRITTEN_SECONDS = 120  # a file that has not changed for so long is not being written


def frozen(module: nn.Module, example: Inputs, **options: Any) -> Callable[..., Any]:
    """Compile a module with `torch.compile` and constant weights, for the shapes of `example`.

    Constants are folded into each other, and laid out as the kernels read them; the module keeps its own weights. Operators
    with groups keep their own layout on a GPU: Inductor's choice, channels-last for all convolutions, is slow with these.

    Args:
        module: the module, in evaluation mode.
        example: an input of the module.
        options: arguments of `torch.compile`.

    Raises NotCompiledError if PyTorch would run more than a small share of the FLOPs without the compiler.
    """
    return frozen_with_code(module, example, **options)[0]


def frozen_with_code(module: nn.Module, example: Inputs, **options: Any) -> tuple[Callable[..., Any], CompiledCode]:
    """Return the compiled function of `frozen`, and the code that was compiled for it."""
    share_headers()
    remove_broken_headers()
    inductor = _Inductor(options.pop("mode", None), options, dynamic=False)
    compiled: Callable[..., Any] = torch.compile(module, dynamic=False, backend=inductor)
    flags = {"freezing": True, **FLAGS}
    if any(one.is_cuda for one in tree_leaves(example) if isinstance(one, torch.Tensor)) and any(
        isinstance(one, OperatorModule) and one.is_channels_first_on_gpus for one in module.modules()
    ):
        flags["layout_optimization"] = False
    dynamo = torch._dynamo
    counters = dynamo.utils.counters
    frames, breaks = counters["frames"].copy(), counters["graph_break"].copy()
    # Read when the first call compiles. An error that is suppressed would leave the network to eager.
    with torch.no_grad(), config.patch(**flags), dynamo.config.patch(suppress_errors=False):
        compiled(*example)
    frames, breaks = counters["frames"] - frames, counters["graph_break"] - breaks
    is_whole = frames == {"total": 1, "ok": 1} and not breaks and inductor.graphs < 2
    share = 1.0 if is_whole else 0.0
    if inductor.graphs and not is_whole:
        share = share_of_flops(module, example)
    if share < LEAST_SHARE:
        raise NotCompiledError(_why_not(inductor.graphs, share, list(breaks)))
    return compiled, CompiledCode(graphs=inductor.graphs, flops_share=share)


class _Inductor(torch._TorchCompileInductorWrapper):  # type: ignore[misc]  # mypy does not look into torch
    """Inductor as a backend that counts the graphs it compiles. Instances are unequal, so that PyTorch shares no code between
    modules."""

    graphs = 0
    __eq__, __hash__ = object.__eq__, object.__hash__

    def __call__(self, *args: Any, **options: Any) -> Any:
        """Compile a graph of a module."""
        made = super().__call__(*args, **options)
        self.graphs += 1
        return made


def share_of_flops(module: nn.Module, example: Inputs) -> float:
    """Return the share of a module's FLOPs that PyTorch's compiler captures in graphs; 1 if it has no FLOPs."""
    inside = 0

    def backend(graph: Any, _: Any) -> Callable[..., Any]:
        def run(*args: Any) -> Any:
            nonlocal inside
            with FlopCounterMode(display=False) as counter:
                outputs = graph(*args)
            inside += int(counter.get_total_flops())
            return outputs

        disabled: Callable[..., Any] = torch.compiler.disable(run)
        return disabled

    with torch.no_grad():
        with FlopCounterMode(display=False) as counter:
            module(*example)
        torch.compile(module, dynamic=False, backend=backend)(*example)
    total = int(counter.get_total_flops())
    return inside / total if total else 1.0


def _why_not(graphs: int, share: float, breaks: Sequence[str]) -> str:
    """Return the error message for too few compiled FLOPs, with the reasons for PyTorch's graph breaks."""
    said = f"PyTorch's compiler compiled {plural(graphs, 'graph')}" + (
        f" with {100 * share:.0f} % of the FLOPs" if graphs else ""
    )
    said += ", so the time would be that of eager: "
    for name, harmless in TURNS_OFF.items():
        if os.environ.get(name, harmless) != harmless:
            return f"{said}the environment variable {name}={os.environ[name]} turns it off; unset it"
    if breaks:
        reason = " ".join(breaks[0].split()).partition(" Explanation:")[0]
        return f"{said}{reason[:MOST_CHARACTERS]}; mend that in the network's forward, or take another compiler"
    return (
        f"{said}it is turned off, or it skips the code of {'some layers' if graphs else 'this network'}; take another compiler"
    )


# Environment variables that turn PyTorch's compiler off, each with the value that has no effect.
TURNS_OFF = {"TORCHDYNAMO_DISABLE": "0", "TORCH_COMPILE_DISABLE": "0", "TORCH_COMPILE_OVERRIDE_BACKENDS": ""}
LEAST_SHARE = 0.95  # of the FLOPs, in compiled graphs
MOST_CHARACTERS = 300


class InBfloat16(nn.Module):  # type: ignore[misc]  # mypy does not look into torch
    """A module whose products and convolutions are computed in bfloat16; inputs and outputs keep their types.

    Constant weights are converted once, when the module is compiled with `frozen`.
    """

    def __init__(self, module: nn.Module, device: str) -> None:
        super().__init__()
        self.module, self.device = module, device.partition(":")[0]

    def forward(self, *inputs: Any) -> Any:
        """Return the module's output for these inputs."""
        with torch.autocast(self.device, torch.bfloat16):
            outputs = self.module(*inputs)
        return tree_map(lambda one: one.float() if _is_bfloat16(one) else one, outputs)


def _is_bfloat16(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and value.dtype == torch.bfloat16


def share_headers() -> None:
    """Let all measuring processes share Inductor's precompiled headers, which take 6 s to compile.

    Inductor stores them below the folder of temporary files, and each measuring process has its own. Does nothing in other
    processes.
    """
    from torch._inductor.runtime.cache_dir_utils import default_cache_dir

    own, place = Path(default_cache_dir()), os.environ.get(SHARED_TEMPORARY)
    if place is None or own.parent == Path(place) or (own / HEADERS).exists():
        return
    shared = Path(place) / own.name / HEADERS
    with suppress(OSError):  # another process makes them at the same time, or the folder is another user's
        shared.mkdir(parents=True, exist_ok=True)
        if os.access(shared, os.W_OK):
            own.mkdir(parents=True, exist_ok=True)
            (own / HEADERS).symlink_to(shared)


def remove_broken_headers(cache: Path | None = None) -> None:
    """Delete incomplete precompiled headers, which a killed compiler leaves.

    Inductor precompiles its header once for all programs, and takes whatever file is there. With a broken one, compilers warn
    that it "is not a PCH file" and read the header anew for each kernel, which takes four times as long.

    Args:
        cache: Inductor's cache; by default that of this user.
    """
    if cache is None:
        from torch._inductor.runtime.cache_dir_utils import default_cache_dir

        cache = Path(default_cache_dir())
    for file in (cache / HEADERS).glob("*.gch"):
        with suppress(OSError):  # another process deletes it, too, or it is another user's
            with file.open("rb") as opened:
                is_broken = opened.read(4) not in MAGIC
                is_written = time.time() - os.fstat(opened.fileno()).st_mtime > BEING_WRITTEN_SECONDS
            if is_broken and is_written:
                file.unlink()
