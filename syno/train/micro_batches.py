"""Micro-batches: the parts of a batch that go through the network at once, so that a large batch fits into a small memory.

The gradients of the parts add up to those of the mean loss of the whole batch. All else, such as clipping, the optimizer and
the schedule, sees the batch only. Layers that look at several samples at once, as BatchNorm does, see a micro-batch.
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
FEW = 2  # least samples with which memory is measured: BatchNorm takes no single one
MEASURED = 64  # the smaller of the two micro-batches of which memory is measured has the batch's 64th part
USED = 0.85  # share of the free memory that may be used: blocks of the allocator are larger than what is in them
STATES = {"sgd": 1, "adamw": 2}  # numbers that an optimizer keeps for each weight, from its first step on


def add_gradients(
    task: DeviceTask,
    network: nn.Module,
    batch: Any,
    most: int | None,
    scaled: Callable[[torch.Tensor], torch.Tensor] | None = None,
    processes: Processes = ALONE,
) -> torch.Tensor:
    """Add the gradients of a batch's mean loss to those of the network's weights, and return this loss, detached.

    With several processes, it is the part of the loss that comes from this one's samples.

    Args:
        task: which loss it is.
        network: that is trained.
        batch: of the task.
        most: samples that go through the network at once; None: the whole batch.
        scaled: the loss whose gradients are added, as a function of the loss.
        processes: that have a share of the batch each; the network is what their `joined` returned.

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
                loss = loss * processes.count  # gradients are means over processes
            with user_code(f"the backward pass of the network on a batch of {task.name}"):
                (loss if scaled is None else scaled(loss)).backward()
    return total


def first_part(task: DeviceTask, batch: Any) -> Any:
    """Return the first micro-batch of a batch, to look at; where it is still to be chosen, a small one."""
    most, share = task.settings.micro_batch, task.samples(batch)
    if most == AUTO:
        most = _few(share) if task.device.type == "cuda" else None
    return task.parts(batch, share if most is None else min(int(most), share))[0]


def chosen(task: DeviceTask, network: nn.Module, batch: Any) -> int | None:
    """Return how many samples go through the network at once; None for the whole batch, if nothing was asked for.

    For `auto` on a GPU it is the batch, halved as often as needed. The memory that is needed is measured with two small
    micro-batches, and linear in the number of samples. On a CPU it is the whole batch.

    Args:
        task: with the settings.
        network: on its device, not compiled. Its buffers and the random numbers are left as they were; it has no gradients.
        batch: of the task.
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
    free = torch.cuda.mem_get_info(task.device)[0] + torch.cuda.memory_reserved(task.device)  # and what PyTorch has of its own
    weights = sum(weight.numel() * weight.element_size() for weight in network.parameters())
    kept = (STATES[settings.optimizer] + 1) * weights  # and once more while gradients are clipped
    return fitting(share, few, peaks[0], peaks[1], USED * free - kept)


def fitting(batch: int, few: int, peak: float, peak_of_twice: float, memory: float) -> int:
    """Return the batch, halved until its peak of memory fits; at least 1.

    Args:
        batch: the number of samples.
        few: with so many samples, and twice as many, memory was measured.
        peak, peak_of_twice: these two peaks in bytes.
        memory: bytes that there are.
    """
    each = max(0.0, peak_of_twice - peak) / few
    while batch > 1 and peak + (batch - few) * each > memory:
        batch = halved(batch)
    return batch


def halved(samples: int) -> int:
    """Return half of the samples, rounded up."""
    return -(-samples // 2)


def _few(share: int) -> int:
    return max(FEW, share // MEASURED)


def _peak(task: DeviceTask, network: nn.Module, part: Any) -> int:
    """Return the most bytes that PyTorch had in use while it ran forward and backward."""
    torch.cuda.reset_peak_memory_stats(task.device)
    task.loss(network, part).backward()
    network.zero_grad(set_to_none=True)
    return int(torch.cuda.max_memory_allocated(task.device))
