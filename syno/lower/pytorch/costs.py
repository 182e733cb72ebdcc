"""Cost model of generated PyTorch statements, by which the cheapest of several equivalent forms of an operator is chosen.

The constants were measured once, on one machine, so that an operator has the same code for the same sizes on every machine.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from syno.algebra import Size, Valuations

FEW_CHANNELS = 16  # per group: below this number a convolution takes longer for each multiply-add
CHANNELS_LAST = ", channels last"


@dataclass(frozen=True)
class StatementRate:
    """The time of one kind of statement in microseconds: per call, per million multiply-adds, per million elements moved."""

    call: float
    multiplications: float
    elements: float


# Fitted on 2026-11-23 by benchmarks/eager_costs.py: Intel(R) Xeon(R) Processor, one thread, torch 2.13.0+cpu.
RATES = {
    "copy": StatementRate(4.83, 0, 149),  # 98 sizes; median error 30 %
    "slices": StatementRate(17.6, 0, 188),  # 20 sizes; median error 16 %
    "convolution": StatementRate(8.53, 17, 168),  # 480 sizes; median error 37 %
    "convolution, channels last": StatementRate(13.8, 15.4, 94),  # 480 sizes; median error 24 %
    "grouped convolution": StatementRate(61.1, 90.9, 371),  # 400 sizes; median error 39 %
    "grouped convolution, channels last": StatementRate(49.9, 56.1, 111),  # 400 sizes; median error 42 %
    "product": StatementRate(18.5, 14.8, 70.7),  # 120 sizes; median error 28 %
}


@dataclass(frozen=True)
class StatementWork:
    """The work of a statement, as symbolic sizes.

    Attributes:
        kind: a key of RATES; for a convolution without the prefix "grouped", which follows from `channels`.
        elements: the numbers of elements of the tensors that are read and written.
        multiplications: the number of multiply-adds; None if there are none.
        channels: the number of channels in a group, for a convolution with groups; else None.
    """

    kind: str
    elements: tuple[Size, ...]
    multiplications: Size | None = None
    channels: Size | None = None

    def channels_last(self) -> StatementWork:
        """Return the work of the same convolution with channels-last data."""
        return replace(self, kind=self.kind + CHANNELS_LAST)


def estimated_microseconds(work: Iterable[StatementWork], valuations: Valuations) -> float:
    """Return the estimated time of the statements in microseconds, summed over the valuations."""
    return sum(_microseconds(statement, valuations) for statement in work)


def _microseconds(work: StatementWork, valuations: Valuations) -> float:
    is_few = work.channels is not None and valuations.values(work.channels).highest < FEW_CHANNELS
    rate = RATES[f"grouped {work.kind}" if is_few else work.kind]
    elements = sum(float(valuations.values(size).total) for size in work.elements)
    multiplications = 0.0 if work.multiplications is None else float(valuations.values(work.multiplications).total)
    moved, multiplied = rate.elements * elements / 1e6, rate.multiplications * multiplications / 1e6
    return rate.call * len(valuations) + moved + multiplied
