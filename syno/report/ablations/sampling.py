"""Drawing operators at random into a folder, with progress; it goes on where it was stopped."""

from __future__ import annotations

import time
from collections.abc import Mapping
from contextlib import nullcontext
from dataclasses import dataclass
from random import Random

from syno.base.errors import SpecError
from syno.base.progress import Display, Progress
from syno.report.operators.folder import OperatorFolder
from syno.space.emptiness import check_not_empty, empty
from syno.space.sample import Sampler
from syno.space.space import Space

TOP_RULES = 3  # the rules that reject most are shown


@dataclass(frozen=True)
class SamplingProgress(Progress):
    """Of operators; `walks` are the random walks since this process began, `dead_ends` those that led nowhere."""

    walks: int = 0
    dead_ends: int = 0

    @property
    def valid_rate(self) -> float | None:
        """The share of walks that ended in an operator."""
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

    The same seed draws the same operators into an empty folder. One that holds some already gets others: what is there is
    not drawn again. Whatever ends this, the folder's table is written.

    Args:
        folder: where operators are kept.
        count: how many there are to be, those that are there already included.
        seed: of the random walks.
        by_kind: whether the kind of a step is drawn first, then one of the kind; else one of all.
        seconds: when to stop; None for never.
        display: is shown how it goes.

    Raises SpecError if the space is empty.
    """
    space = folder.space
    if len(folder) < count:
        check_not_empty(space)
    sampler = Sampler(space, Random(f"{seed} {len(folder)}"), by_kind, dict(folder.operators))
    began, before = time.monotonic(), len(folder)
    try:
        with display or nullcontext():
            while len(folder) < count and not sampler.is_exhausted:
                found = sampler.draw()
                if found is not None:
                    folder.add(found, next(reversed(sampler.operators)))
                passed = time.monotonic() - began
                if display is not None:
                    display.show(_progress(sampler, len(folder), count, before, passed))
                if seconds is not None and passed >= seconds:
                    break
    finally:
        if len(folder):
            folder.write_table()
    if not len(folder) and sampler.is_exhausted:
        raise SpecError(empty(space.spec))
    return sampler


def rejections(space: Space) -> Mapping[str, str]:
    """The rules that have rejected most steps so far, to be shown beside progress."""
    found = space.rules.rejections
    if not found:
        return {}
    return {"rejected by": " ".join(f"{rule} {count:,}" for rule, count in found.most_common(TOP_RULES))}


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
