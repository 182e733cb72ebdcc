"""Distributed training on one machine: processes with a share of every batch each, by DistributedDataParallel.

Process 0 tests, writes checkpoints and weights, and makes all decisions that depend on time; the others follow. If one process
dies, the others are ended, too; when started again, the training resumes from its checkpoint.
"""

from __future__ import annotations

import json
import logging
import os
import signal
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from datetime import timedelta
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.parallel import DistributedDataParallel

from syno.base import errors
from syno.base.errors import DeviceError, SynoError, TrainingError, one_line
from syno.base.files import write_whole
from syno.base.fork_server import end_with
from syno.data.contract import Share

Result = TypeVar("Result")
PATIENCE = timedelta(days=7)  # how long processes wait for process 0, which may test for long, or wait for cores
GRACE_SECONDS = 5.0  # time before a failed process exits, so that a killed process is detected first
BACKENDS = {"cpu": "gloo", "cuda": "cpu:gloo,cuda:nccl"}
SIGNALS = (
    signal.SIGTERM,
    signal.SIGINT,
    signal.SIGHUP,
    signal.SIGQUIT,
)  # torchrun sets handlers for them and does not restore the old ones
LOGS = ("torch.distributed.elastic", "torch.multiprocessing")  # loggers whose messages the error repeats


class Processes:
    """The processes of a training, as seen by one of them.

    Args:
        number: number of this process, from 0.
        count: number of processes.
    """

    def __init__(self, number: int = 0, count: int = 1) -> None:
        self.share = Share(number, count)
        self.number, self.count = number, count

    @property
    def is_first(self) -> bool:
        """Whether this is process 0, which tests, writes files and decides."""
        return self.number == 0

    def seed(self, seed: int) -> int:
        """Return the seed of this process's own random numbers, such as for dropout; `seed` itself in process 0."""
        return seed if self.is_first else (seed + (self.number << 40)) % 2**63

    def agreed(self, value: float) -> float:
        """Return process 0's value in all processes (broadcast)."""
        if self.count == 1:
            return value
        told = torch.tensor(float(value), dtype=torch.float64)
        dist.broadcast(told, 0)
        return float(told)

    def total(self, values: torch.Tensor) -> torch.Tensor:
        """Return the sum of tensors over all processes (all-reduce)."""
        if self.count > 1:
            values = values.clone()
            dist.all_reduce(values)
        return values

    def gathered(self, values: torch.Tensor) -> list[torch.Tensor]:
        """Return the tensors of all processes, which have equal shapes (all-gather)."""
        if self.count == 1:
            return [values]
        tensors = [torch.empty_like(values) for _ in range(self.count)]
        dist.all_gather(tensors, values)
        return tensors

    @contextmanager
    def first_alone(self) -> Iterator[None]:
        """Run the block in process 0 first, then in the others."""
        if not self.is_first:
            self.agreed(0.0)
        yield
        if self.is_first:
            self.agreed(0.0)

    def joined(self, network: nn.Module) -> nn.Module:
        """Return a wrapper of the network with the same parameters, whose gradients are averaged over all processes."""
        if self.count == 1:
            return network
        # Without find_unused_parameters, DDP would wait for gradients of unused weights.
        return DistributedDataParallel(network, find_unused_parameters=True, gradient_as_bucket_view=True)

    def apart(self, network: nn.Module) -> AbstractContextManager[None]:
        """Return a context without gradient synchronization.

        In it, gradients of a `joined` network accumulate in this process only.
        """
        context: AbstractContextManager[None] = nullcontext() if self.count == 1 else network.no_sync()
        return context

    @contextmanager
    def synchronized(self, network: nn.Module, batch_norm: str) -> Iterator[None]:
        """Let BatchNorm layers use the statistics over all processes in the block, if `batch_norm` is "synchronized"."""
        layers = [layer for layer in network.modules() if isinstance(layer, _BatchNorm)]
        chosen = layers if self.count > 1 and batch_norm == "synchronized" else []
        for layer in chosen:
            layer.forward = partial(_normalized, layer, self)
        try:
            yield
        finally:
            for layer in chosen:
                del layer.forward


ALONE = Processes()


@torch.compiler.disable  # type: ignore[untyped-decorator]
def _normalized(layer: _BatchNorm, processes: Processes, x: torch.Tensor) -> torch.Tensor:
    """Return this process's rows of a BatchNorm over the samples of all processes, which have equally many samples."""
    if not (layer.training or layer.running_mean is None):
        normalized: torch.Tensor = type(layer).forward(layer, x)
        return normalized
    layer._check_input_dim(x)
    weight, bias = layer.weight, layer.bias
    y, mean, variance = _Normalization.apply(x, weight, bias, layer.eps, processes)
    if layer.training and layer.track_running_stats:
        layer.num_batches_tracked.add_(1)
        part = 1 / float(layer.num_batches_tracked) if layer.momentum is None else layer.momentum
        samples = x.numel() // x.shape[1] * processes.count
        with torch.no_grad():
            layer.running_mean.lerp_(mean.to(layer.running_mean.dtype), part)
            layer.running_var.lerp_((variance * (samples / max(1, samples - 1))).to(layer.running_var.dtype), part)
    return y


# torch.nn.SyncBatchNorm does not run on a CPU.
class _Normalization(torch.autograd.Function):  # type: ignore[misc]  # mypy does not look into torch
    """BatchNorm over the samples of all processes. Also returns mean and variance, without gradient."""

    @staticmethod
    def forward(
        context: Any, x: torch.Tensor, weight: torch.Tensor | None, bias: torch.Tensor | None, eps: float, processes: Processes
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        variance, mean = torch.var_mean(_precise(x), _axes(x), correction=0)
        means, variances = torch.stack(processes.gathered(torch.stack([mean, variance]))).unbind(1)
        mean = means.mean(0)
        variance = (variances + (means - mean).square()).mean(0)
        context.processes, context.eps = processes, eps
        context.save_for_backward(x, weight, mean, variance)
        context.mark_non_differentiable(mean, variance)
        return nn.functional.batch_norm(x, mean, variance, weight, bias, False, 0.0, eps), mean, variance

    @staticmethod
    def backward(context: Any, gradient: torch.Tensor, *_: Any) -> tuple[torch.Tensor | None, ...]:
        x, weight, mean, variance = context.saved_tensors
        shape = (1, -1, *(1 for _ in _axes(x)[1:]))
        scale = torch.rsqrt(variance + context.eps)
        deviation = (_precise(x) - mean.view(shape)) * scale.view(shape)
        arriving = _precise(gradient)
        sums = torch.stack(
            [arriving.sum(_axes(x)), (arriving * deviation).sum(_axes(x))]
        )  # of this process; DDP averages them like other gradients
        samples = x.numel() // x.shape[1] * context.processes.count
        shift, slope = (context.processes.total(sums) / samples).unbind()
        factor = scale if weight is None else scale * weight
        back = (arriving - shift.view(shape) - deviation * slope.view(shape)) * factor.view(shape)
        of_weights = (None, None) if weight is None else (sums[1].to(weight.dtype), sums[0].to(weight.dtype))
        return back.to(x.dtype), *of_weights, None, None


def _axes(x: torch.Tensor) -> list[int]:
    return [0, *range(2, x.dim())]


def _precise(x: torch.Tensor) -> torch.Tensor:
    return x.float() if x.dtype in (torch.float16, torch.bfloat16) else x


def together(function: Callable[..., Result], arguments: Sequence[Any], count: int, device: str) -> Result:
    """Run `function(processes, *arguments)` in `count` new processes, and return the result of process 0.

    The processes are started as by torchrun. Function, arguments and result are pickled.

    Args:
        function: a function at the top level of a module.
        arguments: arguments of the function.
        count: number of processes.
        device: "cpu", or "cuda" for one GPU per process: the first ones that this process sees.

    Raises a SynoError that the function raises in a process, TrainingError for other exceptions, and DeviceError if a process
    was killed, so that a cluster restarts the job.
    """
    from torch.distributed.elastic.multiprocessing import DefaultLogsSpecs, SignalException
    from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
    from torch.distributed.launcher.api import LaunchConfig, elastic_launch

    before = {number: signal.getsignal(number) for number in SIGNALS}
    os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")  # suppresses a warning of each process that all parameters are used
    levels = {log: log.level for log in map(logging.getLogger, LOGS)}
    with TemporaryDirectory(prefix="syno-processes-") as folder:
        try:
            for log in levels:
                log.setLevel(logging.CRITICAL + 1)
            config = LaunchConfig(
                *(1, 1, count),
                run_id=str(os.getpid()),
                rdzv_backend="c10d",
                rdzv_endpoint="localhost:0",
                local_addr="localhost",
                max_restarts=0,
                logs_specs=DefaultLogsSpecs(log_dir=folder),
            )
            result: Result = elastic_launch(config, _run)(function, tuple(arguments), device, os.getpid(), folder)[0]
            return result
        except ChildFailedError as failed:
            number, failure = failed.get_first_failure()
            process = f"process {number + 1} of {count}, which train together,"
            raise _error_in(Path(folder, f"{number}.error"), process) or DeviceError(
                f"{process} {_end_of(failure.exitcode)}, so the others were ended, too; the same command resumes from the last "
                "checkpoint"
            ) from None
        except SignalException as stopped:
            if stopped.sigval == signal.SIGINT:
                raise KeyboardInterrupt from None
            raise SystemExit(128 + stopped.sigval) from None
        finally:
            for log, level in levels.items():
                log.setLevel(level)
            for signal_number, handler in before.items():
                with suppress(ValueError, TypeError):  # in another thread, or a handler that Python did not set
                    signal.signal(signal_number, handler)


def _end_of(exitcode: int) -> str:
    if exitcode >= 0:
        return f"ended with exit code {exitcode}"
    killed = f"was killed by {signal.Signals(-exitcode).name}"
    return f"{killed} (as the system does where memory is short)" if exitcode == -signal.SIGKILL else killed


def _run(function: Callable[..., Any], arguments: tuple[Any, ...], device: str, parent: int, folder: str) -> Any:
    """Call the function in a child process. An exception is written to a file in `folder`."""
    end_with(parent)
    number, count = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")  # all processes are on this machine, whose host name may not resolve
    try:
        if device != "cpu":
            torch.cuda.set_device(number)
        dist.init_process_group(BACKENDS[device], timeout=PATIENCE)
        result = function(Processes(number, count), *arguments)
        dist.barrier()  # a process that exits early would close connections
        return result if number == 0 else None
    except Exception as error:
        write_whole(Path(folder, f"{number}.error"), json.dumps([type(error).__name__, str(error)]), durable=False)
        time.sleep(GRACE_SECONDS)
        if not isinstance(error, SynoError):  # a consequence of another process's failure would have ended this process by now
            traceback.print_exc()
        os._exit(1)


def _error_in(file: Path, process: str) -> SynoError | None:
    """Return the exception that a process has written to a file; None if there is none."""
    if not file.exists():
        return None
    name, message = json.loads(file.read_text(encoding="utf-8"))
    kind = getattr(errors, name, None)
    if isinstance(kind, type) and issubclass(kind, SynoError):
        return kind(message)
    return TrainingError(f"{process} failed: {name}: {one_line(message)}")
