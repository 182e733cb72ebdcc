"""The rows of the table of trained operators (`syno.paper.replay.table`)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from statistics import fmean

from syno.ir.graph import PGraph
from syno.ir.text import parse_stored

PARTS = 4  # of an epoch, with a recent loss each


@dataclass(frozen=True)
class Reading:
    """The input elements that one output element depends on.

    Attributes:
        rows, columns: numbers of different rows and columns read.
        positions: number of different positions read.
        channels: number of different channels read.
        centred: whether the 3x3 positions around the output's own position are among them.
    """

    rows: int
    columns: int
    positions: int
    channels: int
    centred: bool


@dataclass(frozen=True)
class Latency:
    """The latency of the network with an operator, measured in turns with the original.

    Attributes:
        ms: median in milliseconds.
        original_ms: median of the original in the same rounds.
        speedup: median over the rounds of original / own.
        low, high: 95 % confidence interval of the speedup.
    """

    ms: float
    original_ms: float
    speedup: float
    low: float
    high: float


@dataclass(frozen=True)
class TrainedRow:
    """A row of the table: a network that was trained.

    Attributes:
        accuracies: accuracy after each epoch, by seed.
        losses: mean training loss of each epoch, by seed.
        recent_losses: mean training loss over each quarter of each epoch, by seed.
        cpu_seconds: CPU-seconds of the whole training, by seed.
        flops, parameters, memory_bytes: costs of the network for one batch; one multiply-add counts as one.
    """

    accuracies: Mapping[int, tuple[float, ...]]
    losses: Mapping[int, tuple[float, ...]]
    recent_losses: Mapping[int, tuple[float, ...]]
    cpu_seconds: Mapping[int, float]
    flops: float
    parameters: float
    memory_bytes: float

    def recent_loss(self, seed: int, epochs: float) -> float:
        """Return the mean training loss over the last quarter of an epoch before `epochs`, a positive multiple of 1/4."""
        return self.recent_losses[seed][round(epochs * PARTS) - 1]

    def accuracy(self, seed: int | None = None) -> float:
        """Return the accuracy after the last epoch: of one seed, or by default the mean over all seeds."""
        return self.accuracies[seed][-1] if seed is not None else fmean(one[-1] for one in self.accuracies.values())


@dataclass(frozen=True)
class Original(TrainedRow):
    """The row of the original network."""


@dataclass(frozen=True)
class TableEntry(TrainedRow):
    """A row of the table: the network with an operator.

    Attributes:
        id, fingerprint, text: the operator's id, fingerprint and text.
        natural: whether it is from the unfiltered sample of random walks; else from the sample filtered by the requirement.
        meets: whether it meets the requirement: applied twice, it reads the 3x3 positions around its own, and all channels.
        once, twice: its receptive field if it is applied once, and if it is applied twice in sequence.
        latency: latencies by compiler; empty if they were not measured.
        proxies: zero-cost proxies by name; empty if they were not computed.
    """

    id: str
    fingerprint: str
    text: str = field(repr=False)
    natural: bool
    meets: bool
    once: Reading
    twice: Reading
    latency: Mapping[str, Latency]
    proxies: Mapping[str, float]

    @cached_property
    def operator(self) -> PGraph:
        """The operator as a graph, parsed from its text."""
        return parse_stored(self.text)
