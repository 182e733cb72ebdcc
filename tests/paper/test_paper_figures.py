"""The paper's figures: their numbers of a small artifact made here, and the paper's own of the authors' data."""

from __future__ import annotations

import shutil
from pathlib import Path

import pandas
import pytest
from matplotlib.figure import Figure
from quick_cases import quick_cases
from small_artifact import imported_once, write_artifact
from typer.testing import CliRunner

from syno.base.errors import SpecError, UnknownNameError
from syno.cli import app
from syno.paper.figures.catalogue import PAPER_FIGURES, Numbers
from syno.paper.figures.headlines import UNKNOWN, Headline, headline_texts, headlines
from syno.paper.figures.language import scores
from syno.paper.figures.networks import best_over_best, case_study, fastest, geometric_mean, largest, layers, means, trade_offs
from syno.paper.numbers import A100, DEVICES, GUARD, INDUCTOR, MODELS
from syno.paper.places import LAYERS
from syno.paper.stages.figures import draw_paper, write_headlines
from syno.report.figures import drawn
from syno.run.table import measurement_table
from syno.stages.figures import FORMATS

pytestmark = pytest.mark.slow  # the figures and tables of the whole published artifact

NAMES = (
    "figure-5", "figure-5-by-compiler", "figure-6", "figure-8", "figure-9", "figure-9-by-compiler", "figure-10", "alpha-nas",
)  # fmt: skip
every_figure = pytest.mark.parametrize("name", quick_cases(NAMES, lambda name: not name.endswith("by-compiler")))


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What an import writes."""
    return Path(shutil.copytree(imported_once(tmp_path_factory), tmp_path_factory.mktemp("small") / "out"))


@pytest.fixture(scope="module")
def rows(small: Path) -> pandas.DataFrame:
    return pandas.read_parquet(small / "tables" / "measurements.parquet")


@pytest.fixture(scope="module")
def numbers(small: Path, rows: pandas.DataFrame) -> Numbers:
    return Numbers(rows, pandas.read_parquet(small / "tables" / "losses.parquet"))


@pytest.fixture(scope="module")
def computed(rows: pandas.DataFrame) -> list[Headline]:
    return headlines(rows)


@pytest.fixture
def empty() -> Numbers:
    return Numbers(measurement_table([]), pandas.DataFrame(columns=["step", "minutes", "loss"]))


def words(figure: Figure) -> str:
    """All texts of a figure."""
    texts = [text for axes in figure.axes for text in (*axes.texts, axes.title, *axes.get_yticklabels())]
    for legend in (*figure.legends, *(axes.get_legend() for axes in figure.axes)):
        texts += [] if legend is None else [*legend.get_texts(), legend.get_title()]
    return "\n".join([*(text.get_text() for text in texts), figure.get_suptitle(), figure.get_supxlabel()])


# ---- the numbers ------------------------------------------------------------------------------------------------


def test_the_mean_of_ratios_is_geometric() -> None:
    assert geometric_mean([4.0, 1.0]) == pytest.approx(2.0)
    with pytest.raises(ValueError, match="of no value"):
        geometric_mean([])


def test_the_fastest_of_those_that_are_accurate_enough(rows: pandas.DataFrame) -> None:
    best = fastest(rows)
    assert len(best) == 5 * 6
    here = best[(best["device"] == A100) & (best["compiler"] == "tvm")].set_index("model")
    assert list(here.index) == list(MODELS)
    assert here.loc["resnet18", "operator"] == "published_07801"  # "poor" is faster, and too bad
    assert here.loc["resnet34", "operator"] == "operator_1"  # whose network is better, so the one above is too bad for it
    assert here["speedup"].tolist() == pytest.approx([3, 2, 3, 3, 3])
    assert here.loc["resnet34", "accuracy"] == 0.799  # in ResNet-18
    assert means(best)["device"].tolist() == [*DEVICES, *DEVICES]
    assert means(best)["speedup"].tolist() == pytest.approx([(3 * 2 * 3 * 3 * 3) ** 0.2] * 6)


def test_speedups_over_the_original_with_tvm(rows: pandas.DataFrame) -> None:
    """All latencies with TorchInductor are doubled, so its speedups over TVM's original network are halved."""
    is_doubled = (rows["compiler"] == INDUCTOR) & (rows["metric"] == "latency")
    before, after = fastest(rows), fastest(rows.assign(value=rows["value"].where(~is_doubled, 2 * rows["value"])))
    halves = [0.5 if compiler == INDUCTOR else 1 for compiler in after["compiler"]]
    assert (after["relative"] / before["relative"]).tolist() == pytest.approx(halves)
    assert set(after["reference"]) == {"tvm"} and after["speedup"].tolist() == before["speedup"].tolist()
    tvm = after[after["compiler"] == "tvm"]
    assert tvm["relative"].tolist() == pytest.approx(tvm["speedup"].tolist())
    ratios = means(after)["relative"] / means(before)["relative"]
    assert ratios.tolist() == pytest.approx([0.5 if compiler == INDUCTOR else 1 for compiler in means(after)["compiler"]])
    alone = fastest(rows[rows["compiler"] != "tvm"])
    assert set(alone["reference"]) == {INDUCTOR} and alone["relative"].tolist() == pytest.approx(alone["speedup"].tolist())


def test_accuracy_that_is_just_lost_does_not_pass(rows: pandas.DataFrame) -> None:
    least = 0.78836 - 0.785
    assert "published_07801" in set(fastest(rows, least + 1e-9)["operator"])
    assert "published_07801" not in set(fastest(rows, least - 1e-9)["operator"])


def test_trade_offs_on_imagenet_have_a_front(rows: pandas.DataFrame) -> None:
    points = trade_offs(rows)
    assert len(points) == (3 + 3 + 2 + 2 + 2) * 6  # the poor one was not trained there
    here = points[(points["device"] == A100) & (points["compiler"] == "tvm")]
    assert here["on_front"].all()
    best = largest(points, "tvm", 0.02)
    assert best is not None and best["speedup"] == pytest.approx(3)
    assert largest(points, "tvm", -0.1) is None


def test_a_point_that_others_better_is_not_on_the_front(rows: pandas.DataFrame) -> None:
    is_worse = (rows["operator"] == "operator_1") & (rows["metric"] == "accuracy") & (rows["data"] == "imagenet")
    points = trade_offs(rows.assign(value=rows["value"].where(~is_worse, 0.5)))
    assert set(points[~points["on_front"]]["operator"]) == {"operator_1"}


def test_the_case_study(rows: pandas.DataFrame) -> None:
    found = case_study(rows)
    here = found[found["device"] == A100]
    assert here["candidate"].tolist() == ["original", "INT8", "stacked convolution", "Operator 1"]
    assert here["speedup"].tolist() == pytest.approx([1, 4 / 3, 3 / 2, 2])
    assert here["accuracy"].tolist() == [0.70679, 0.70290, 0.69242, 0.70451]


def test_layers_beside_those_of_nas_pte(rows: pandas.DataFrame) -> None:
    found = layers(rows)
    assert len(found) == 10 * 5 * 6
    assert list(dict.fromkeys(found["label"])) == list(LAYERS.values())
    best = found[found["is_best"]]
    assert set(best["operator"]) == {"original", "nas_pte_sequence_1", "operator_1"}
    over = best_over_best(found)
    assert over["speedup"].tolist() == pytest.approx([8.0] * 6)  # theirs takes twice the convolution's time, ours a quarter
    assert over["speedup_with_original"].tolist() == pytest.approx([4.0] * 6)
    assert over["layers"].tolist() == [10] * 6


def test_headlines_say_where_the_paper_has_another_number(computed: list[Headline]) -> None:
    by_text = {headline.what: headline for headline in computed}
    mobile = by_text["Operator 1, TVM, mobile CPU: speedup of ResNet-18"]
    assert (mobile.computed, mobile.paper, mobile.same) == (pytest.approx(2.0), 2.68, False)
    assert mobile.note == "60.0000 ms over 30.0000 ms is 2.0000"
    nas = by_text["TVM, A100: our best over NAS-PTE's best, mean over layers"]
    assert nas.note == "it is 4.00 if the convolution itself counts among NAS-PTE's candidates"
    unknown = by_text["Operator 2, TVM, A100: speedup of ResNet-18"]
    assert (unknown.computed, unknown.same, unknown.note) == (None, False, UNKNOWN)
    equal = by_text["GPT-2 with the operator: loss after 30 minutes"]
    assert (equal.computed, equal.same) == (5.67, False)


def test_the_papers_own_rivals_stand_beside_operator_1(computed: list[Headline]) -> None:
    (mobile, *others) = [one for one in computed if one.figure == "8" and "without synthesis" in one.what]
    assert mobile.what == "ResNet-18 without synthesis, TVM, mobile CPU: largest speedup that loses at most 0.02 on ImageNet"
    assert (mobile.computed, mobile.verdict, mobile.printed) == (pytest.approx(3 / 2), "no number", "as a bar")
    assert mobile.note == "stacked convolution, which loses 0.0144; Operator 1 has 2.00" and len(others) == 2


def test_a_mean_of_fewer_networks_is_said_to_be_one(rows: pandas.DataFrame) -> None:
    found = headlines(
        rows[(rows["model"] != "densenet121") & ~((rows["layer"] == "conv_io64") & (rows["operator"] == "operator_1"))]
    )
    assert found[0].note == "of 4 of 5 networks only"
    means = [one for one in found if one.figure == "9" and "mean over layers" in one.what]
    assert [one.note.rpartition("; ")[2] for one in means] == ["of 9 of 10 layers only"] * 6


def test_without_data_no_number_is_computed(empty: Numbers) -> None:
    found = headlines(*empty)
    assert all((one.computed, one.verdict, one.origin) == (None, "unknown", "") and one.note for one in found)
    assert sum(one.note == UNKNOWN for one in found) == 33  # the others say what they would need


# ---- the pictures -----------------------------------------------------------------------------------------------


LABELS: dict[str, tuple[str, ...]] = {
    "figure-5": (*DEVICES.values(), "pale: the original network"),
    "figure-6": tuple(MODELS.values()),
    "figure-8": ("60 ms (1.00x)", "INT8\naccuracy 0.7029\n(paper)"),
    "figure-9": ("TVM, A100: 8.00 over NAS-PTE", "NAS-PTE 1"),
    "figure-9-by-compiler": ("best of NAS-PTE",),
    "figure-10": ("as the paper prints it: 5.8516", "with the operator, after 30 minutes (artifact): 5.6700"),
}


@every_figure
def test_a_figure_has_labels_and_says_where_its_numbers_come_from(name: str, numbers: Numbers) -> None:
    figure = PAPER_FIGURES[name]
    text = words(figure.draw(numbers, figure.tables(numbers), figure.notes(numbers)))
    assert "the authors' published data" in text.replace("\n", " ")
    assert (GUARD in text.replace("\n", " ")) == (name != "figure-10")
    assert [label for label in LABELS.get(name, ()) if label not in text] == []
    assert name != "figure-5" or text.count("TorchInductor") == 1  # one legend for all panels
    assert name != "figure-5-by-compiler" or "pale" not in text


@every_figure
def test_without_data_a_figure_says_so(name: str, empty: Numbers) -> None:
    figure = PAPER_FIGURES[name]
    drawing = figure.draw(empty, figure.tables(empty), figure.notes(empty))
    assert any(words(drawing).startswith(start) for start in ("No ", "The log of GPT-2's training is not in the data"))
    assert len(drawn(drawing, "png")) > 1000


@pytest.mark.parametrize("name", quick_cases(NAMES, lambda name: name in ("figure-5", "figure-9", "figure-10")))
def test_what_one_machine_lacks_is_left_out(name: str, numbers: Numbers) -> None:
    figure, rest = PAPER_FIGURES[name], numbers._replace(rows=numbers.rows[numbers.rows["device"] != A100])
    text = words(figure.draw(rest, figure.tables(rest), figure.notes(rest)))
    assert "A100" not in text and (name in ("figure-10", "alpha-nas") or "mobile CPU" in text)


def test_the_tables_of_all_figures(numbers: Numbers) -> None:
    assert set(PAPER_FIGURES) == set(NAMES)
    tables = {table for figure in PAPER_FIGURES.values() for table in figure.tables(numbers)}
    assert tables == {name.removesuffix("-by-compiler") for name in NAMES} | {"figure-5-means", "figure-9-means"}


@pytest.mark.slow
def test_drawing_writes_pictures_and_tables_and_the_same_again(small: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Drawing all figures, here a list of two."""
    two = {name: PAPER_FIGURES[name] for name in ("figure-6", "figure-8")}
    monkeypatch.setattr("syno.paper.figures.catalogue.PAPER_FIGURES", two)
    files = draw_paper(small)
    names = {file.name for file in files if file.parent.name == "figures"}
    assert names == {f"{name}.{kind}" for name in two for kind in FORMATS}
    assert {file.stem for file in files if file.parent.name == "tables"} == set(two)
    before = {file: file.read_bytes() for file in files}
    assert all(before.values())
    again = draw_paper(small, ["figure-6"])
    assert {file.parent.name for file in again} == {"figures", "tables"}
    assert {file: file.read_bytes() for file in again} == {file: before[file] for file in again}


def test_drawing_needs_an_import(tmp_path: Path, small: Path) -> None:
    with pytest.raises(SpecError, match=r"measurements.parquet .*`syno artifact import`"):
        draw_paper(tmp_path)
    with pytest.raises(UnknownNameError, match=r'"figure-7"; .*figure-5'):
        draw_paper(small, ["figure-7"])


def test_headlines_as_text(small: Path) -> None:
    table, notes = headline_texts(write_headlines(small))
    assert table[0] == {
        "figure": "5",
        "number": "TVM, mobile CPU: mean speedup of networks",
        "computed": "2.77",
        "paper": "2.06",
        "agrees": "differs",
        "origin": "latency artifact; accuracy artifact, paper",
    }
    assert [row["computed"] for row in table if "Operator 2, TVM" in str(row["number"])] == ["–"] * 3
    assert {row["agrees"] for row in table if row["computed"] == "–"} == {"unknown"}
    assert notes[-1] == f"- {GUARD}"
    assert (small / "tables" / "headlines.csv").exists()


@pytest.mark.slow
def test_one_command_from_the_data_to_the_figures(tmp_path: Path) -> None:
    data = write_artifact(tmp_path / "data")
    output = ["--output", str(tmp_path / "out")]
    result = CliRunner().invoke(app, ["artifact", "figures", str(data), *output, "--only", "figure-8"])
    assert result.exit_code == 0, result.output
    assert sorted(file.name for file in (tmp_path / "out" / "figures").iterdir()) == [
        f"figure-8.{kind}" for kind in sorted(FORMATS)
    ]
    assert "| 8       | Operator 1, TVM, mobile CPU: speedup of ResNet-18" in result.stdout
    assert GUARD in result.stdout
    again = CliRunner().invoke(app, ["artifact", "figures", str(tmp_path / "out"), "--only", "figure-5"])
    assert again.exit_code == 0 and "measurements and" not in again.stdout  # nothing was imported again
    assert (tmp_path / "out" / "figures" / "figure-5.pdf").exists()
    assert CliRunner().invoke(app, ["artifact", "figures", str(tmp_path / "out"), *output]).exit_code == 2
    wrong = CliRunner().invoke(app, ["artifact", "figures", str(data), *output, "--only", "figure-7"])
    assert wrong.exit_code == 2 and 'Did you mean "figure-' in wrong.stderr.splitlines()[-1]


def test_scores_tell_what_is_known(rows: pandas.DataFrame) -> None:
    assert scores(rows) == (pytest.approx(5.1895), 5.8516, 5.67)
