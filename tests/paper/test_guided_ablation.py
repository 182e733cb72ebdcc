"""The ablation of the shape distance keeps to its time, and says which side it is at."""

from __future__ import annotations

import io
import itertools
from random import Random

import pytest
import small_specs

from syno.base.progress import TerminalDisplay
from syno.paper.ablations.guided import run
from syno.report.operators.folder import shown_on
from syno.space import Sampler, Space
from syno.space.options import DistanceKind


@pytest.mark.parametrize("distance", ["exact", "paper", "published", "none"])
def test_walks_end_when_the_time_is_up(distance: DistanceKind) -> None:
    ticks = itertools.count()
    shown: list[tuple[str, int, int]] = []
    found = run(
        small_specs.convolution(),
        distance=distance,
        seconds=20,
        show=lambda *progress: shown.append(progress),
        clock=lambda: float(next(ticks)),
    )
    assert 20 <= found.used <= 22  # a clock that is one second on whenever it is asked
    assert 0 < found.walks < 20
    assert shown[0] == (f"walks, distance {distance}", 0, 20) and shown[-1] == (f"walks, distance {distance}", 20, 20)


def test_walks_end_after_so_many_trials() -> None:
    assert run(small_specs.convolution(), trials=3, seconds=1e9).walks == 3


def test_a_walk_that_is_given_up_is_not_counted() -> None:
    sampler = Sampler(Space(small_specs.convolution()), Random(0))
    asked = iter([False, False, True])
    assert sampler.draw(lambda: next(asked)) is None
    assert sampler.walks == sampler.dead_ends == 0
    while not sampler.operators:
        sampler.draw()
    assert sampler.walks > 0


def test_a_bar_on_a_terminal_has_a_name_from_the_start() -> None:
    stream = io.StringIO()
    stream.isatty = lambda: True  # type: ignore[method-assign]
    with TerminalDisplay(stream) as display:
        display._bar.refresh()
        before = stream.getvalue()
        shown_on(display)("random graphs", 3, 10)
        display._bar.refresh()
    assert "\u2501" not in before  # no bar as long as there is nothing to name it after
    bars = [line for line in stream.getvalue().replace("\r", "\n").splitlines() if "\u2501" in line]
    assert bars and all("random graphs" in line for line in bars)
