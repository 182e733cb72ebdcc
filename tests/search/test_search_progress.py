"""What is shown of a long search."""

from __future__ import annotations

import io

import pytest

from syno.base.progress import LogDisplay, Progress, TerminalDisplay, display

HALF = Progress("search", 50, 200, valid=45, running=2, best=0.71234, seconds=100, rate=0.5, notes={"rejected": 12})


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_line_says_all() -> None:
    assert str(HALF) == "search: 50/200, 30/min, 90% valid, 2 running, best 0.7123, rejected 12, 5 min left"


def test_nothing_is_said_of_what_is_not_known() -> None:
    assert str(Progress("search", 0, 10, valid=0)) == "search: 0/10, 0/s"
    assert Progress("search", 0, 10, valid=0).remaining_seconds is None
    assert Progress("search", 0, 10, valid=0).valid_rate is None
    assert Progress("search", 12, 10, valid=12, rate=1).remaining_seconds == 0


@pytest.mark.parametrize(("rate", "shown"), [(123.4, "123/s"), (2.0, "2/s"), (0.5, "30/min"), (0.01, "36/h")])
def test_rates_have_a_unit_that_fits(rate: float, shown: str) -> None:
    assert f", {shown}," in f"{Progress('search', 0, 10, valid=0, rate=rate)},"


def test_a_log_gets_lines_now_and_then() -> None:
    stream = io.StringIO()
    with LogDisplay(stream, interval=1000) as shown:
        for finished in range(5):
            shown.show(Progress("search", finished, 5, valid=finished))
    assert stream.getvalue().splitlines() == ["search: 0/5, 0/s", "search: 4/5, 0/s, 100% valid"]


def test_a_log_gets_no_line_twice() -> None:
    stream = io.StringIO()
    with LogDisplay(stream) as shown:
        shown.show(HALF)
    assert len(stream.getvalue().splitlines()) == 1


def test_a_terminal_gets_a_bar() -> None:
    stream = Terminal()
    with display(stream) as shown:
        assert isinstance(shown, TerminalDisplay)
        shown.show(HALF)
    assert "search" in stream.getvalue() and "50/200" in stream.getvalue()


def test_lines_unless_it_is_a_terminal() -> None:
    assert isinstance(display(io.StringIO()), LogDisplay)
