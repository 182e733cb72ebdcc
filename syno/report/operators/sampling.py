"""Draw operators at random into a folder, and the progress of this and of the ablations. A stopped run is continued."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from dataclasses import dataclass
from random import Random

from syno.base.collection import seldom_collected
from syno.base.errors import SpecError
from syno.base.progress import Display, Progress
from syno.report.operators.folder import OperatorFolder
from syno.space.sample import Sampler
from syno.space.space import Space
from syno.space.state_graph import check_not_empty, why_empty

TOP_RULES = 3  # the rules that reject most are shown
Show = Callable[[str, int, int], None]  # shows a title, how much is done, and the total


@dataclass(frozen=True)
class SamplingProgress(Progress):
    """Progress of drawing operators.

    Attributes:
        walks: random walks since this process began.
        dead_ends: those that led nowhere.
    """

    walks: int = 0
    dead_ends: int = 0

    @property
    def valid_rate(self) -> float | None:
        """The share of walks that ended in an operator; None before the first."""
        return 1 - self.dead_ends / self.walks if self.walks else None


def draw_into(
    folder: OperatorFolder,
    count: int,
    *,
    seed: int = 0,
    by_kind: bool = True,
    seconds: float | None = None,
    display: Display | None = None,
) -> Sampler:
    """Draw operators at random until the folder holds `count` of them, or none is left, or the time is up.

    The same seed draws the same operators into an empty folder. Operators that the folder holds already are not drawn again.
    The folder's table is written at the end, also after an error.

    Args:
        folder: the folder of operators.
        count: the number of operators to reach, including those that the folder holds already.
        seed: the seed of the random walks.
        by_kind: whether the kind of a step is drawn first, then one of the kind; else one of all.
        seconds: the most seconds; None for any number.
        display: shows the progress.

    Raises:
        SpecError: the space is empty.
    """
    space = folder.space
    if len(folder) < count:
        check_not_empty(space)
    sampler = Sampler(space, Random(f"{seed} {len(folder)}"), by_kind, space.distinct(folder.operators.values()))
    began, before = time.monotonic(), len(folder)
    try:
        with seldom_collected(), display or nullcontext():
            while len(folder) < count and not sampler.is_exhausted:
                found = sampler.draw()
                if found is not None:
                    folder.add(found, space.fingerprint(found))
                passed = time.monotonic() - began
                if display is not None:
                    display.show(_progress(sampler, len(folder), count, before, passed))
                if seconds is not None and passed >= seconds:
                    break
    finally:
        if len(folder):
            folder.write_table()
    if not len(folder) and sampler.is_exhausted:
        raise SpecError(why_empty(space.spec))
    return sampler


def _progress(sampler: Sampler, finished: int, total: int, before: int, seconds: float) -> SamplingProgress:
    return SamplingProgress(
        f"sample {sampler.space.spec.name}",
        finished,
        total,
        valid=finished,
        seconds=seconds,
        rate=(finished - before) / seconds if seconds > 0 else 0.0,
        notes=rejections(sampler.space),
        walks=sampler.walks,
        dead_ends=sampler.dead_ends,
    )


def rejections(space: Space) -> Mapping[str, str]:
    """Return the rules that have rejected most steps so far, as a note of progress."""
    found = space.rules.rejections
    if not found:
        return {}
    return {"rejected by": " ".join(f"{rule} {count:,}" for rule, count in found.most_common(TOP_RULES))}


# ---- parts of an ablation -------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Part(Progress):
    """Progress of a part of a measurement, which has no valid and invalid results."""

    @property
    def valid_rate(self) -> None:
        """None: there is no share of valid results."""
        return None


def silent(title: str, finished: int, total: int) -> None:
    """Show nothing."""


def shown_on(display: Display | None) -> Show:
    """Return a function that shows parts on a display, each with its own time and rate; without a display, `silent`."""
    if display is None:
        return silent
    title_now, began = "", time.monotonic()

    def show(title: str, finished: int, total: int) -> None:
        nonlocal title_now, began
        if title != title_now:
            title_now, began = title, time.monotonic()
        seconds = time.monotonic() - began
        rate = finished / seconds if seconds > 0 else 0.0
        display.show(Part(title, finished, total, valid=0, seconds=seconds, rate=rate))

    return show
