"""The picture of the search tree: how trials share steps, what its circles say, and what is left out."""

from __future__ import annotations

from xml.etree import ElementTree

import pytest

from syno.report import page as tree
from syno.report.page import Walk, grown, inline_svg, search_tree
from syno.run.values import Trial

SVG = "{http://www.w3.org/2000/svg}"
# Three trials part after "Reduce", and two of these after "Split Share"; one goes another way.
ROWS: list[tuple[str, str, float | None]] = [
    ("Reduce Split Share Unfold", "a b c d", 0.2),
    ("Reduce Split Share Share", "a b c e", 0.6),
    ("Reduce Merge", "a f", None),
    ("Unfold Finalize", "g h", 1.0),
]


def trials(rows: list[tuple[str, str, float | None]] = ROWS) -> list[Trial]:
    return [
        Trial(number, "failed" if reward is None else "complete", reward, path=path, steps=steps)
        for number, (path, steps, reward) in enumerate(rows)
    ]


def drawn(rows: list[Trial]) -> ElementTree.Element:
    picture = search_tree(rows)
    assert picture is not None
    return ElementTree.fromstring(picture.svg)


def circles(svg: ElementTree.Element) -> dict[str, dict[str, str]]:
    """Return circles by their tooltips."""
    return {str(circle.findtext(f"{SVG}title")): circle.attrib for circle in svg.iter(f"{SVG}circle")}


def test_walks_share_the_steps_that_they_begin_with() -> None:
    root = grown([Walk(n, tuple(zip(p.split(), s.split(), strict=True)), r) for n, (p, s, r) in enumerate(ROWS)])
    first, second = root.children
    assert (root.kinds, len(root.walks), root.mean) == ((), 4, pytest.approx(0.6))
    assert (first.kinds, first.depth, len(first.walks), first.mean) == (("Reduce",), 1, 3, pytest.approx(0.4))
    assert (second.kinds, second.depth, second.mean) == (("Unfold", "Finalize"), 2, 1.0)
    assert [(child.kinds, child.depth) for child in first.children] == [(("Split", "Share"), 3), (("Merge",), 2)]
    assert root.leaves() == 4


def test_equal_kinds_of_different_steps_are_different_branches() -> None:
    root = grown([Walk(0, (("Share", "a"),), 0.1), Walk(1, (("Share", "b"),), 0.2)])
    assert len(root.children) == 2


def test_a_walk_that_ends_where_another_goes_on_is_no_branch_of_it() -> None:
    root = grown([Walk(0, (("Share", "a"),), 0.1), Walk(1, (("Share", "a"), ("Merge", "b")), 0.2)])
    (share,) = root.children
    assert (share.kinds, len(share.walks), [len(child.walks) for child in share.children]) == (("Share",), 2, [1])


def test_areas_are_visits_and_colours_mean_rewards() -> None:
    found = circles(drawn(trials()))
    assert set(found) == {
        "all: 4 trials, mean reward 0.600", "Reduce: 3 trials, mean reward 0.400", "Split, Share: 2 trials, mean reward 0.400",
        "Unfold: trial 0: 0.200", "Share: trial 1: 0.600", "Merge: trial 2", "Unfold, Finalize: trial 3: 1.000",
    }  # fmt: skip
    radius = {title: float(circle["r"]) for title, circle in found.items()}
    whole, half = radius["all: 4 trials, mean reward 0.600"], radius["Split, Share: 2 trials, mean reward 0.400"]
    assert whole**2 / half**2 == pytest.approx(2, rel=0.02)
    colour = {title: circle["fill"] for title, circle in found.items()}
    assert colour["Merge: trial 2"] == tree.UNKNOWN
    assert colour["Reduce: 3 trials, mean reward 0.400"] == colour["Split, Share: 2 trials, mean reward 0.400"]
    assert (colour["Unfold: trial 0: 0.200"], colour["Unfold, Finalize: trial 3: 1.000"]) == ("#440154", "#fde725")


def test_seldom_visited_branches_are_left_out_of_a_large_tree(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tree, "MOST_LEAVES", 2)
    picture = search_tree(trials())
    assert picture is not None and picture.caption.endswith("Branches with fewer than 2 trials are left out.")
    assert len(list(ElementTree.fromstring(picture.svg).iter(f"{SVG}circle"))) == 3


def test_the_picture_can_stand_on_a_page() -> None:
    picture = search_tree(trials([("<b>", "a", 0.5)]))
    assert picture is not None and "<b>" not in inline_svg(picture.svg, "search-tree")


@pytest.mark.parametrize("rows", [[], [Trial(0, "complete", 0.5)]])
def test_without_paths_there_is_no_picture(rows: list[Trial]) -> None:
    assert search_tree(rows) is None
