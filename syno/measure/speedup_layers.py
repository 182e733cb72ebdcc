"""The speedup of a network by its layers: each size is timed by itself, and times are summed as often as the sizes occur."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from syno.measure.network_subject import BackboneSubject
from syno.measure.speedup_record import LayerSpeedup
from syno.measure.turns import Turns


@dataclass(frozen=True)
class Layers:
    """The distinct sizes of a network's replaced layers.

    Attributes:
        names: of one layer of each size, in the network.
        titles: of the sizes, as in the paper: "conv_io64".
        counts: how many layers have each size.
    """

    names: tuple[str, ...]
    titles: tuple[str, ...]
    counts: tuple[int, ...]

    def total(self, times: Sequence[float]) -> float:
        """Return the time of all layers for the time of one of each size."""
        return sum(count * time for count, time in zip(self.counts, times, strict=True))

    def summed(self, times: Sequence[float], rest: float) -> tuple[float, float]:
        """Return the times of the original network and of the network with the operator.

        Args:
            times: of one original layer of each size, and then of the operator in each.
            rest: the share of the original network's time that is spent outside of these layers.
        """
        before, after = self.total(times[: len(self.names)]), self.total(times[len(self.names) :])
        whole = before / (1 - rest)
        return whole, rest * whole + after


def layers_of(subject: BackboneSubject) -> Layers:
    """Return the distinct sizes of the layers that are replaced in a network. Raises SpecError if there is none."""
    from syno.model.extraction import distinct_layers, replaceable, size_of

    network, example = subject.backbone(), subject.example()
    sizes = [size_of(layer) for layer in replaceable(network, example, subject.layers)]
    found = distinct_layers(network, example, subject.layers)
    return Layers(
        names=tuple(one.layer.name for one in found),
        titles=tuple(one.name for one in found),
        counts=tuple(sizes.count(size_of(one.layer)) for one in found),
    )


def layer_speedups(layers: Layers, turns: Turns) -> tuple[LayerSpeedup, ...]:
    """Return the times of each size from rounds with the times of all originals, and then of the operator in each."""
    found = []
    for place, (title, count) in enumerate(zip(layers.titles, layers.counts, strict=True)):
        pair = Turns.of([(times[place], times[place + len(layers.names)]) for times in turns.rounds])
        original, own = pair.latencies
        found.append(LayerSpeedup(name=title, count=count, original_ms=original, latency_ms=own, speedup=pair.speedups[0]))
    return tuple(found)
