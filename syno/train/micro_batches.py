"""Micro-batches: parts of a batch that run through the network one after the other, so that a large batch fits into memory.

The gradients of the parts add up to those of the mean loss of the whole batch. Clipping, the optimizer and the schedule work on
the whole batch. Layers that combine several samples, such as BatchNorm, work on a micro-batch.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import torch
from torch import nn

from syno.base.user_code import user_code
from syno.model.calls import left_as_it_was
from syno.train.processes import ALONE, Processes
from syno.train.tasks import DeviceTask

AUTO = "auto"  # the setting `micro_batch`
FEW = 2  # least samples of a memory measurement: BatchNorm needs more than one
MEASURED = 64  # the smaller of the two measured micro-batches is this fraction of the batch
USED = 0.85  # usable share of the free memory: the allocator's blocks are larger than their tensors
STATES = {"sgd": 1, "adamw": 2}  # state values of an optimizer per weight


def add_gradients(
    task: DeviceTask,
    network: nn.Module,
    batch: Any,
    most: int | None,
    scaled: Callable[[torch.Tensor], torch.Tensor] | None = None,
    processes: Processes = ALONE,
) -> torch.Tensor:
    """Add the gradients of a batch's mean loss to those of the network's weights; return this loss, detached.

    With several processes, it is the contribution of this process's samples.

    Args:
        task: defines the loss.
        network: the network in training.
        batch: a batch of the task.
        most: size of a micro-batch; None: the whole batch.
        scaled: function applied to the loss before the backward pass, such as gradient scaling; None: no function.
        processes: the processes, each with a share of the batch; the network is the result of `joined`.

    Raises the errors of `DeviceTask.loss`, and UserCodeError if the backward pass fails.
    """
    parts = [batch] if most is None else task.parts(batch, most)
    whole, total = processes.total(task.counted(batch).double()), torch.zeros((), device=task.device)
    whole, are_several = torch.where(whole > 0, whole, 1.0), len(parts) * processes.count > 1
    for number, part in enumerate(parts, 1):
        with processes.apart(network) if number < len(parts) else nullcontext():
            loss = task.loss(network, part, is_part=are_several)
            if are_several:
                loss = loss * (task.counted(part) / whole).to(loss.dtype)
            total = total + loss.detach()
            if processes.count > 1:
                loss = loss * processes.count  # DistributedDataParallel averages gradients over processes
            with user_code(f"the backward pass of the network on a batch of {task.name}"):
                (loss if scaled is None else scaled(loss)).backward()
    return total


def first_part(task: DeviceTask, batch: Any) -> Any:
    """Return the first micro-batch of a batch, for checks; if the size is `auto`, a small one."""
    most, share = task.settings.micro_batch, task.samples(batch)
    if most == AUTO:
        most = _few(share) if task.device.type == "cuda" else None
    return task.parts(batch, share if most is None else min(int(most), share))[0]


def chosen(task: DeviceTask, network: nn.Module, batch: Any) -> int | None:
    """Return the size of a micro-batch from the settings; None for the whole batch, which is the default.

    For `auto` on a GPU, it is the batch size, halved until it fits into memory. The required memory is measured with two small
    micro-batches, and extrapolated linearly in the number of samples. On a CPU, it is the batch size.

    Args:
        task: the task, with the settings.
        network: on its device, not compiled, without gradients. Its buffers and the random states are restored.
        batch: a batch of the task.
    """
    settings, share = task.settings, task.samples(batch)
    if settings.micro_batch is None:
        return None
    if settings.micro_batch != "auto":
        return min(settings.micro_batch, share)
    few = _few(share)
    if task.device.type != "cuda" or 2 * few >= share:
        return share
    with left_as_it_was(network):
        peaks = [_peak(task, network, task.parts(batch, count)[0]) for count in (few, 2 * few)]
    free = torch.cuda.mem_get_info(task.device)[0] + torch.cuda.memory_reserved(
        task.device
    )  # includes memory that PyTorch has reserved
    weights = sum(weight.numel() * weight.element_size() for weight in network.parameters())
    kept = (STATES[settings.optimizer] + 1) * weights  # optimizer states, and a copy of the gradients while they are clipped
    return fitting(share, few, peaks[0], peaks[1], USED * free - kept)


def fitting(batch: int, few: int, peak: float, peak_of_twice: float, memory: float) -> int:
    """Return the batch size, halved until its estimated peak memory fits; at least 1.

    Args:
        batch: the number of samples.
        few: the number of samples of the first measurement; the second had twice as many.
        peak, peak_of_twice: measured peak memory in bytes.
        memory: available memory in bytes.
    """
    each = max(0.0, peak_of_twice - peak) / few
    while batch > 1 and peak + (batch - few) * each > memory:
        batch = halved(batch)
    return batch


def halved(samples: int) -> int:
    """Return half of a number of samples, rounded up."""
    return -(-samples // 2)


def _few(share: int) -> int:
    return max(FEW, share // MEASURED)


def _peak(task: DeviceTask, network: nn.Module, part: Any) -> int:
    """Return the peak memory in bytes that PyTorch allocates in a forward and backward pass on this part of a batch."""
    torch.cuda.reset_peak_memory_stats(task.device)
    task.loss(network, part).backward()
    network.zero_grad(set_to_none=True)
    return int(torch.cuda.max_memory_allocated(task.device))
