"""The rows of a table of truth."""

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
        rows, columns: how many different rows and columns.
        positions: how many different positions.
        channels: how many different channels.
        centred: whether the 3x3 positions around the output's own are among them.
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
        accuracies: after each epoch, by seed.
        losses: mean training loss of each epoch, by seed.
        recent_losses: mean training loss over each quarter of each epoch, by seed.
        cpu_seconds: of the whole training, by seed.
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
        """Return the mean training loss over a quarter of an epoch, after so many epochs, a multiple of 1/4 above 0."""
        return self.recent_losses[seed][round(epochs * PARTS) - 1]

    def accuracy(self, seed: int | None = None) -> float:
        """Return the accuracy after the last epoch: of a seed, or by default the mean over the seeds there are."""
        return self.accuracies[seed][-1] if seed is not None else fmean(one[-1] for one in self.accuracies.values())


@dataclass(frozen=True)
class Original(TrainedRow):
    """The network itself."""


@dataclass(frozen=True)
class TableEntry(TrainedRow):
    """A row of the table: the network with an operator.

    Attributes:
        id, fingerprint, text: of the operator.
        natural: whether random walks drew it; else it was drawn by walks and kept because it meets the requirement.
        meets: whether it meets the requirement: applied twice, it reads the 3x3 positions around its own, and all channels.
        once, twice: its receptive field if it is applied once, and if it is applied twice in sequence.
        latency: by compiler; empty where it was not measured.
        proxies: zero-cost proxies by name; empty where they were not computed.
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
        """The operator."""
        return parse_stored(self.text)
