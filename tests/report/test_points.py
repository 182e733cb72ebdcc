"""Points of figures in SVG: each says what it is, and the rest of the drawing stays as it was."""

from __future__ import annotations

import re
from xml.etree import ElementTree

import pytest
from html_document import Document
from result_tables import NAMES, costs, latency_table, pareto, results, score_table, trial_table

from syno.report.figures import drawn
from syno.report.page import page, search_tree
from syno.report.points import SVG
from syno.report.result_figures import learning_figure, pictures
from syno.report.trial_points import TrialPoints
from syno.run.values import Round


def titles(svg: bytes) -> dict[str, str | None]:
    """The operator of each point, by its title."""
    root = ElementTree.fromstring(svg)
    points = [element for element in root.iter() if element.get("class") == "point"]
    return {point.findtext(f"{{{SVG}}}title", ""): point.get("data-operator") for point in points}


def test_every_point_has_its_name_and_numbers() -> None:
    found = titles(drawn(pareto(score_table(), latency_table()), "svg"))
    assert found["operator_1: accuracy 0.9467, latency/ms (batch of 8, 1 thread): 9.74"] == "operator_1"
    assert set(found.values()) == {"original", *NAMES}
    assert len(found) == 11  # six with one compiler, and one less with the other, where one failed


def test_names_are_text_and_ids_stay_clean() -> None:
    scores = score_table()
    scores.loc[1, "operator"] = name = "<b>\"a' & points:[</b>"
    svg = drawn(costs(scores), "svg")
    assert name in titles(svg).values()
    assert b'id="points:' not in svg and b"id='points:" not in svg


def test_bars_and_trials_have_titles_too() -> None:
    given = results()
    found = {picture.title: titles(picture.svg.encode()) for picture in pictures(given, ["speedup", "reward", "search-time"])}
    assert found["Speedup over the original"]["operator_1: 2.05 times as fast with eager on cpu"] == "operator_1"
    for title in ("Rewards of the search", "Search over time"):
        assert len(found[title]) == len(trial_table())
        assert found[title]["trial 3, operator_1: reward 0.11, accuracy 0.5550"] == "operator_1"
        assert found[title]["trial 2, glyphs_2: pruned"] is None


def test_points_of_learning_curves_and_of_the_search_tree_have_titles() -> None:
    curves = [Round("operator_1", "accuracy", seed, at, 0.8 + at / 10 + seed / 100) for seed in (0, 2) for at in (0, 1)]
    found = titles(drawn(learning_figure(curves), "svg"))
    assert found["operator_1: accuracy 0.9100 (0.9000 to 0.9200) after round 1"] == "operator_1" and len(found) == 2
    trials = trial_table().assign(path="Reduce Share", steps=[f"a {number}" for number in range(30)])
    run = results(trials=trials)
    picture = search_tree(run.trials, TrialPoints(run))
    assert picture is not None
    points = titles(picture.svg.encode())
    assert points["trial 3, operator_1: reward 0.11, accuracy 0.5550; Share"] == "operator_1" and len(points) == 32


def test_the_page_shows_notes_once_and_as_text() -> None:
    given = results(notes=("a note that is nowhere else",))
    html = page(given, pictures(given, ["score-flops", "reward"]))
    assert html.count("a note that is nowhere else") == 1  # a figure has its texts as comments, too
    assert "a note that is nowhere else" in Document(html).text


@pytest.mark.slow
def test_the_page_of_a_long_search_is_not_large() -> None:
    trials = trial_table(2000).assign(path="Reduce Share Share", steps=[f"a b{n % 40} c{n}" for n in range(2000)])
    given = results(trials=trials)
    html = page(given, pictures(given, ["score-flops", "reward", "search-time"]))
    assert len(re.findall(r"<title>trial ", html)) == 4000
    assert len(html.encode()) < 5_000_000
