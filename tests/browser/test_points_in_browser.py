"""Figures of the report page respond to the pointer and the keyboard, and the page fits a telephone."""

from __future__ import annotations

from pathlib import Path

import pytest
from browser_control import Tab, opened
from result_tables import results

from syno.report.page import page
from syno.report.result_figures import FIGURES, pictures
from syno.run.run import Kept

pytestmark = pytest.mark.slow
TIP = "(tip => tip.hidden ? '' : tip.textContent)(document.querySelector('.tip'))"
OPEN = "[...document.querySelectorAll('.card.open')].map(card => card.dataset.name)"
FIRST = "document.querySelector('#figures .point[data-operator=operator_1]')"


@pytest.fixture(scope="module")
def html() -> str:
    given = results(kept=Kept("glyphs", networks=("operator_1",), settings=f"name: {'long' * 60}"))
    return page(given, pictures(given, FIGURES))


def middle(tab: Tab) -> tuple[float, float]:
    """The middle of the first point of `operator_1`, once it is in the window."""
    box = f"{FIRST}.getBoundingClientRect()"
    tab.value(f"{FIRST}.scrollIntoView({{block: 'center', behavior: 'instant'}})")
    x, y = tab.value(f"(box => [box.x + box.width / 2, box.y + box.height / 2])({box})")
    return x, y


def test_the_pointer_shows_a_point_and_a_click_opens_its_card(html: str, tmp_path: Path) -> None:
    with opened(html, tmp_path) as tab:
        assert tab.value(TIP) == ""
        x, y = middle(tab)
        tab.move(x + 3, y)  # marks are small: nearby is enough
        assert tab.value(TIP).startswith("operator_1: ") and tab.value(TIP).endswith("click for its card")
        tab.move(x, 2)
        assert tab.value(TIP) == ""
        tab.click(x, y)
        assert tab.value(f"new Promise(done => setTimeout(() => done({OPEN}), 0))") == ["operator_1"]


def test_the_keyboard_goes_from_point_to_point(html: str, tmp_path: Path) -> None:
    with opened(html, tmp_path) as tab:
        stops = (
            "[...document.querySelectorAll('#figures svg')].map(svg => svg.querySelectorAll('.point[tabindex=\"0\"]').length)"
        )
        assert set(tab.value(stops)) <= {0, 1}  # one stop for each figure, however many points it has
        tab.value("document.querySelector('#figures .point[tabindex=\"0\"]').focus()")
        first = tab.value(TIP)
        tab.press("ArrowRight")
        second = tab.value(TIP)
        assert first and second and first != second
        tab.value(f"{FIRST}.focus()")
        tab.press("Enter")
        assert tab.value(f"new Promise(done => setTimeout(() => done({OPEN}), 0))") == ["operator_1"]


def test_a_telephone_needs_no_sideways_scrolling(html: str, tmp_path: Path) -> None:
    with opened(html, tmp_path, width=420) as tab:
        tab.value("for (const part of document.querySelectorAll('details')) part.open = true")
        tab.value("document.getElementById('open-all').click()")
        assert tab.value("document.documentElement.scrollWidth") <= 420
        texts = "[...document.querySelectorAll('.small, footer p, figcaption, td, dt')]"
        small = f"{texts}.map(text => parseFloat(getComputedStyle(text).fontSize))"
        assert min(tab.value(small)) >= 11
