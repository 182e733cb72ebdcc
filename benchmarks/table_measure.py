"""Trainings and latencies for the table of truth."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from statistics import median
from typing import Any

import torch
from table_records import ORIGINAL, Record, keep, missing
from torch import nn

from syno.ir.text import parse_stored
from syno.measure.inductor import frozen
from syno.train.workload import Workload

ROUNDS = 15  # in which the original and the operator are timed in turns
ROUND_SECONDS = 0.02  # of each
TOGETHER = 6  # networks compiled between two resets: PyTorch compiles one piece of code at most 8 times


def trainings(workload: Workload, operators: Sequence[Record], seed: int, records: Path) -> Iterator[str]:
    """Train the operators that have no record of this seed yet; yields a line for each."""
    folder, texts = records / f"training-{seed}", {row["id"]: row["text"] for row in operators}
    for name in missing(folder, [ORIGINAL, *texts]):
        graph = None if name == ORIGINAL else parse_stored(texts[name])
        result = workload.train(graph, seed=seed)
        content = {
            "id": name,
            "seed": seed,
            "accuracies": result.scores,
            "losses": result.losses,
            "curve": [list(point) for point in result.curve],
            "broken": result.broken,
            "stopped": result.stopped,
            "cpu_seconds": result.cpu_seconds,
            "torch": torch.__version__,
        }
        keep(folder, name, content)
        yield f"{name}, seed {seed}: {' '.join(f'{one:.3f}' for one in result.scores)}; {result.cpu_seconds:.1f} CPU-s"


def latencies(workload: Workload, operators: Sequence[Record], records: Path) -> Iterator[str]:
    """Time the operators that have no record yet, in turns with the original; yields a line for each."""
    folder, texts = records / "latency", {row["id"]: row["text"] for row in operators}
    pictures = workload.data.test_images[:64].float()
    original: dict[str, Callable[..., Any]] = {}
    for number, name in enumerate(missing(folder, list(texts))):
        if number % TOGETHER == 0:
            torch._dynamo.reset()
            network = workload.network(None, 0).eval()
            original = {"eager": network, "inductor": frozen(network, (pictures,))}
        network = workload.network(parse_stored(texts[name]), 0).eval()
        began = time.process_time()
        compiled = frozen(network, (pictures,))
        content: dict[str, Any] = {"id": name, "compile_cpu_seconds": time.process_time() - began}
        for compiler, own in (("eager", network), ("inductor", compiled)):
            content[compiler] = in_turns(own, original[compiler], pictures)
        keep(folder, name, content)
        yield f"{name}: " + ", ".join(f"{compiler} {content[compiler]['speedup']:.2f}x" for compiler in original)


def in_turns(own: Callable[..., Any], original: Callable[..., Any], pictures: torch.Tensor) -> dict[str, Any]:
    """Time a network and the original in turns: milliseconds of one call in each round, and the median of the ratios."""
    times: list[list[float]] = []
    with torch.no_grad():
        for one in (own, original):
            one(pictures)
        for _ in range(ROUNDS):
            times.append([milliseconds(one, pictures) for one in (own, original)])
    ratios = [there / here for here, there in times]
    return {
        "ms": [one for one, _ in times],
        "original_ms": [one for _, one in times],
        "speedup": median(ratios),
    }


def milliseconds(network: Callable[..., Any] | nn.Module, pictures: torch.Tensor) -> float:
    """The fastest of a few calls."""
    best, end = float("inf"), time.perf_counter() + ROUND_SECONDS
    while time.perf_counter() < end:
        began = time.perf_counter()
        network(pictures)
        best = min(best, (time.perf_counter() - began) * 1e3)
    return best
