"""The report page: what is on it, that nothing on it is taken for markup, and that it stands alone."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from collections import Counter
from math import inf, nan

import numpy as np
import pandas
import pytest
from html_document import Document
from result_tables import FAILURE, NAMES, NOTES, costs, latency_table, results, rewards, score_table, trial_table

from syno.base.errors import SpecError
from syno.base.interval import Interval
from syno.ir.builder import Builder
from syno.ir.graph import PGraph
from syno.ir.library import OPERATORS
from syno.lower.pytorch.source import class_name
from syno.report import result_figures as drawings
from syno.report.figures import Picture, drawn
from syno.report.page import inline_svg, page
from syno.report.page_tables import quantity, summary, trial_lines
from syno.run.run import Kept, LayerChoice, MixtureLayers, Run
from syno.train.metric import LOSS, METRICS

EVIL = "<script>alert(1)</script>&\"'"
EMPTY = pandas.DataFrame()


def pictures() -> list[Picture]:
    figures = {"Cost": costs(score_table(), NOTES), "Rewards": rewards(trial_table(), NOTES)}
    return [Picture(title, drawn(figure, "svg").decode(), f"Caption of {title}.") for title, figure in figures.items()]


def unplanned() -> PGraph:
    """An operator with more sums in a row than can be planned, for which no code is generated."""
    build = Builder("H; k=3", name="unplanned")
    (axis,) = build.output("H")
    for window in build.reduce(", ".join(["k"] * 7)):
        axis = build.unfold(axis, window)
    return build.finish([axis])


@pytest.fixture(scope="module")
def html() -> str:
    return page(results(), pictures())


def test_every_operator_has_a_card(html: str) -> None:
    document = Document(html)
    best_first = ["conv2d", "operator_1", "separable_conv2d", "shift_conv1x1", "operator_2"]
    assert [card["data-name"] for card in document.cards()] == best_first
    for name, operator in results().operators.items():
        assert operator.id in document.text, name
        assert f"class {class_name(operator)}(nn.Module)" in document.text


def test_a_card_has_the_numbers_to_sort_by(html: str) -> None:
    order = {card["data-name"]: json.loads(card["data-order"] or "") for card in Document(html).cards()}
    assert order["operator_1"]["accuracy"] == 0.9467
    assert order["shift_conv1x1"]["latency, inductor on cpu"] is None  # it failed
    assert order["shift_conv1x1"]["latency, eager on cpu"] > 0
    assert set(order["conv2d"]) <= set(re.findall(r"<option[^>]*>(.*?)</option>", html))


def test_tables_pictures_and_notes_are_there(html: str) -> None:
    text = Document(html).text
    expected = (
        "0.9467 ± 0.0040", "-1.3 points (95 %: -2.1 to -0.4)", "1.28 M (41 %)", "failed", "Caption of Cost.", "30 trials (",
        *NOTES, "for i0 in range(N):", "operator operator_1", "y[i0, i1, i2, i3] = sum(",
        "not to be trusted", "was not compared with a reference",
    )  # fmt: skip
    assert [part for part in expected if part not in text] == []
    assert FAILURE in text


def test_ids_are_unique_and_references_lead_somewhere(html: str) -> None:
    document = Document(html)
    ids = Counter(document.having("id"))
    assert [name for name, count in ids.items() if count > 1] == []
    references = re.findall(r"url\(#([^)]+)\)", html)
    references += [value[1:] for value in document.having("href") if value.startswith("#") and "=" not in value]
    assert len(references) > 20
    assert sorted(set(references) - set(ids)) == []
    assert set(document.having("aria-controls")) <= set(ids)


def test_the_header_counts_operators_and_baselines_apart(html: str) -> None:
    assert "3 operators found, 2 baselines; 30 trials (" in Document(html).text


def test_the_navigation_is_in_the_order_of_the_page() -> None:
    trials = trial_table().assign(path="Reduce Share", steps=[f"a {number}" for number in range(30)])
    network = ({"layer": "conv1", "kind": "convolution", "what": "replaced", "FLOPs": "40 %"},)
    kept = Kept("glyphs", networks=("operator_1",), settings="name: glyphs")
    choice = LayerChoice({"conv1": None}, frozenset(), (MixtureLayers("m", "original", {}, {}, 1.0, Interval(1, 1, 1)),))
    html = page(results(trials=trials, network=network, kept=kept, choice=choice), pictures())
    linked = re.findall(r'<a href="#([a-z-]+)">', html.partition("</nav>")[0])
    document = Document(html)
    sections = [attributes["id"] for tag, attributes in document.elements if tag == "section"]
    assert linked == sections
    assert {"summary", "figures", "network", "mixtures", "operators", "home", "search", "trials", "experiment"} <= set(linked)


def test_trials_have_the_names_of_their_operators() -> None:
    """All trials of a study have one name, that of the network; the id in the operator's text says which operator it is."""
    selected, other = (OPERATORS[name]() for name in ("operator_1", "conv1x1"))
    trials = trial_table(2).assign(name="resnet8", operator=[str(selected.renamed("resnet8")), str(other)])
    given = results(trials=trials, operators={"glyphs_0": selected})
    column = trial_lines(given).columns.index("operator")
    cells = [row[column] for row in trial_lines(given).rows]
    assert [(cell.text, cell.card) for cell in cells] == [("glyphs_0", "glyphs_0"), ("glyphs_1", "")]
    assert "found in trial 0, reward 0" in Document(page(given, [])).text


def test_links_to_cards_name_operators(html: str) -> None:
    linked = {value.removeprefix("#card=") for value in Document(html).having("href") if value.startswith("#card=")}
    assert linked == set(NAMES)


def test_nothing_is_fetched(html: str) -> None:
    document = Document(html)
    assert all(value.startswith("#") for value in document.having("href"))
    assert document.having("src") == []
    assert not {"link", "img", "iframe", "object", "base"} & {tag for tag, _ in document.elements}
    assert re.findall(r"https?://|@import", html) == []


def test_the_policy_allows_the_script_of_the_page_and_no_other(html: str) -> None:
    scripts = re.findall(r"<script>(.*?)</script>", html, re.DOTALL)
    assert len(scripts) == 1
    allowed = base64.b64encode(hashlib.sha256(scripts[0].encode()).digest()).decode()
    assert f"script-src &#39;sha256-{allowed}&#39;" in html or f"script-src 'sha256-{allowed}'" in html


def test_the_styles_of_a_picture_reach_no_other(html: str) -> None:
    styles = re.findall(r"<style[^>]*>(.*?)</style>", html, re.DOTALL)[1:]
    assert [style.split(" ")[0] for style in styles] == ["#figure-1", "#figure-2"]


def test_given_texts_are_shown_as_text() -> None:
    names = ("conv2d",)
    scores, latency, trials = score_table(names), latency_table(names), trial_table()
    for table in (scores, latency):
        table.loc[table["operator"] == "conv2d", "operator"] = EVIL
        table["role"] = table["role"].replace("baseline", EVIL)
    latency["device"] = latency["device_name"] = latency["compiler"] = EVIL
    latency.loc[0, ["status", "reason"]] = EVIL
    trials["name"] = trials["message"] = trials["outcome"] = EVIL
    operators = {EVIL: OPERATORS["conv2d"]()}
    evil = results(name=EVIL, trials=trials, scores=scores, latencies=latency, operators=operators, notes=(EVIL,))
    html = page(evil, [Picture(EVIL, "<svg/>", EVIL)])
    assert "<script>alert" not in html
    document = Document(html)
    assert document.text.count("<script>alert(1)</script>") > 10
    assert document.cards()[0]["data-name"] == EVIL
    assert sum(tag == "script" for tag, _ in document.elements) == 1


class TestWithLess:
    def test_a_page_without_latencies_has_no_table_of_them(self) -> None:
        text = Document(page(results(latencies=EMPTY), [])).text
        assert text.count("Its latency was not measured.") == len(NAMES)
        assert "Figures" not in text

    def test_a_page_without_results_says_so(self) -> None:
        text = Document(page(Run("nothing"), [])).text
        for part in (
            "No operator has been trained or measured.",
            "There are no operators.",
            "There are no trials.",
            "0 trials.",
        ):
            assert part in text

    def test_a_page_of_operators_alone_is_written(self) -> None:
        assert len(Document(page(results(trials=EMPTY, scores=EMPTY, latencies=EMPTY), [])).cards()) == len(NAMES)

    def test_an_operator_that_was_only_measured_is_in_the_summary(self) -> None:
        found = summary(results(scores=EMPTY))
        lines = found.rows
        assert found.columns == ("operator", "role", "eager on cpu", "inductor on cpu")  # nothing that is not known of any
        assert [line[0].text for line in lines] == ["original", *NAMES]
        assert lines[4][1].text == "found"
        assert lines[4][2].value == pytest.approx(20 * 0.487)

    def test_an_operator_that_has_no_code_says_so(self) -> None:
        text = Document(page(results(operators={"unplanned": unplanned()}), [])).text
        assert re.search("There is no code for this operator: .* sums 7 reductions in one stage; up to 6 can be planned", text)

    def test_a_missing_column_is_named(self) -> None:
        with pytest.raises(SpecError, match='no column "reward".*"rewards"'):
            results(trials=trial_table().rename(columns={"reward": "rewards"}))


class TestMetric:
    """The page of networks whose score is a loss."""

    @pytest.mark.slow
    def test_headings_units_and_differences_go_by_the_metric(self) -> None:
        given = results(metric="loss")
        html = page(given, drawings.pictures(given, ["score-latency", "score-flops"]))
        text = Document(html).text
        expected = (
            "loss (nats per token)", "Loss (nats per token): mean ± standard deviation", "1.9030 ± 0.0040",
            "+0.092 nats (95 %: +0.083 to +0.101)", "Loss against FLOPs.",
        )  # fmt: skip
        assert [part for part in expected if part not in text] == []
        assert "accuracy" not in html.lower()

    @pytest.mark.parametrize("metric", METRICS)
    def test_the_best_score_is_first(self, metric: str) -> None:
        html = page(results(metric=metric), [])
        document = Document(html)
        best_first = ["conv2d", "operator_1", "separable_conv2d", "shift_conv1x1", "operator_2"]
        assert [card["data-name"] for card in document.cards()] == best_first
        options = [attributes for tag, attributes in document.elements if tag == "option"]
        assert [option.get("data-first") for option in options[:2]] == ["most" if metric == "accuracy" else None, None]
        assert f">{metric}</option>" in html

    def test_the_metric_of_trials_counts_where_nothing_was_trained_again(self) -> None:
        given = results(metric="loss", scores=EMPTY, latencies=EMPTY)
        assert given.metric is LOSS
        table = trial_lines(given)
        column = table.columns.index("loss (nats per token)")
        assert [row[column].value for row in table.rows] == [trial.metrics.get("loss") for trial in given.trials]
        assert not {"loss", "accuracy"} & set(table.columns)  # no column twice

    def test_an_infinite_loss_is_shown_and_the_last(self) -> None:
        scores = score_table(metric="loss")
        scores.loc[scores["operator"] == "conv2d", ["score", "difference"]] = inf
        scores.loc[scores["operator"] == "conv2d", ["score_std", "difference_low", "difference_high"]] = nan
        document = Document(page(results(metric="loss", scores=scores), []))
        card = document.cards()[-1]
        assert card["data-name"] == "conv2d"
        order = json.loads(card["data-order"] or "", parse_constant=pytest.fail)  # a browser reads no Infinity
        assert order["loss"] is None
        (line,) = [row for row in summary(results(metric="loss", scores=scores)).rows if row[0].text == "conv2d"]
        assert [cell.text for cell in line[2:4]] == ["inf", "–"]
        assert "inf" not in document.having("data-value")

    def test_without_an_interval_no_difference_is_told(self) -> None:
        scores = score_table().assign(difference_low=nan, difference_high=nan)
        assert {row[3].text for row in summary(results(scores=scores)).rows} == {"–"}
        assert "points" not in Document(page(results(scores=scores), [])).text

    def test_scores_of_several_metrics_are_refused(self) -> None:
        with pytest.raises(SpecError, match="is accuracy, loss; it must be one of"):
            page(results(scores=pandas.concat([score_table(), score_table(metric="loss")])), [])


class TestInlineSvg:
    @pytest.mark.parametrize(
        "inner",
        [
            "<script>1</script>", "<g onclick='1'/>", "<a href='https://a.b'/>", "<image href='picture.png'/>",
            "<g style='fill: url(http://a.b)'/>", "<style>@import 'a.css'; a {b: c}</style>", "<foreignObject/>",
            "<style>a {fill: url(http://a.b)}</style>",
        ],
    )  # fmt: skip
    def test_pictures_that_do_more_than_draw_are_refused(self, inner: str) -> None:
        with pytest.raises(SpecError):
            inline_svg(f"<svg xmlns='http://www.w3.org/2000/svg'>{inner}</svg>", "p")

    @pytest.mark.parametrize("text", ["", "no picture", "<html></html>", "<svg>"])
    def test_text_that_is_no_svg_is_an_error(self, text: str) -> None:
        with pytest.raises(SpecError, match="SVG document"):
            inline_svg(text, "p")

    def test_ids_and_references_are_renamed(self) -> None:
        given = (
            '<svg xmlns="http://www.w3.org/2000/svg" xmlns:xlink="http://www.w3.org/1999/xlink" aria-labelledby="a b">'
            '<g id="a" clip-path="url(#b)" style="fill: url(\'#c\')"/><use xlink:href="#a"/>'
            "<style>g, * {fill: red}</style></svg>"
        )
        made = inline_svg(given, "p")
        for part in ('id="p-a"', "url(#p-b)", "url(#p-c)", '<use href="#p-a"', "#p g, #p * {", 'aria-labelledby="p-a p-b"'):
            assert part in made


@pytest.mark.parametrize(
    ("value", "text"), [(999.4, "999"), (999.7, "1 k"), (12_345, "12.3 k"), (998_400, "998 k"), (999_600, "1 M"), (1e6, "1 M")]
)
def test_a_quantity_has_three_digits_of_its_unit(value: float, text: str) -> None:
    assert quantity(value).text == text


def many_trials(count: int) -> pandas.DataFrame:
    """Of two trials one is complete, the best of them the last; each has an operator of its own and a path of ten steps."""
    numbers = np.arange(count)
    is_complete = numbers % 2 == 1
    reward = np.where(is_complete, (numbers * 7919 % 100_003) / 200_003, np.nan)
    reward[-1] = 0.75
    began = pandas.Timestamp("2026-01-01 12:00") + pandas.to_timedelta(2 * numbers, unit="s")
    return pandas.DataFrame({
        "number": numbers, "outcome": np.where(is_complete, "complete", np.where(numbers % 4, "screened", "failed")),
        "reward": reward, "metric_accuracy": 0.5 + reward / 2, "metric_speedup": 1 + reward, "metric_flops": 1e6 + numbers,
        "metric_original_flops": 4e6, "seconds": 2.0, "message": np.where(is_complete, "", "too slow: 1.2 times as fast"),
        "operator": [f"operator x\nid {number:032x}\n" for number in numbers],
        "path": " ".join(["Unfold", "Share"] * 5),
        "steps": [" ".join(f"{number >> 2 * depth:x}" for depth in reversed(range(10))) for number in numbers],
        "started": began, "ended": began + pandas.Timedelta("2s"),
    })  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize(("count", "most_bytes"), [(12_000, 4e6), (100_000, 1e7)])
def test_the_page_of_very_many_trials_shows_what_people_can_look_at_and_says_so(count: int, most_bytes: float) -> None:
    shown = results(("operator_1",), trials=many_trials(count))
    found = drawings.pictures(shown, ["reward", "search-time"])
    text = page(shown, found)
    assert len(text.encode()) <= most_bytes  # a page with all of them has 900 bytes for each
    assert f"The 1,000 trials with the highest rewards of {count:,}. All are in" in text
    assert text.count('<td class="text">complete</td>') == 1000
    for picture in found:
        points = picture.svg.count('class="point"')
        assert 6000 <= points <= 6100  # of each outcome 2,000, and those that were the best so far
        assert f"complete ({count // 2:,}, of which 2," in picture.svg
        assert f"trial {count - 1}, glyphs_{count - 1}: reward 0.75, accuracy 0.8750" in picture.svg
