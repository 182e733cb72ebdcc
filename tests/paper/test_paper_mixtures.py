"""The paper's figures of joined results: published accuracies with own latencies, own networks, compilers and baselines."""

from __future__ import annotations

import pandas
import pytest
from small_artifact import imported_once
from small_mixture import DEVICE, FAILED, SMALL, accuracies, joined, latencies, measured, one, own_losses, own_rows

from syno.ir.library import OPERATORS
from syno.paper.figures.catalogue import PAPER_FIGURES, Numbers
from syno.paper.figures.headlines import NOT_IN_PAPER, headline_table, headlines
from syno.paper.figures.language import curves, mean_curve, perplexities, training_speedups
from syno.paper.figures.left_out import lines
from syno.paper.figures.mixture import FINAL, PROXY, scored, timed
from syno.paper.figures.networks import ON_PROXY, best_over_best, case_study, fastest, layers, shares, trade_offs
from syno.paper.figures.origins import is_mixed
from syno.paper.figures.page import paper_page
from syno.paper.figures.titles import compiler_title, model_title
from syno.paper.joined import Part
from syno.paper.joined import joined as put_together
from syno.paper.numbers import A100, INDUCTOR, MOBILE_CPU, MOBILE_GPU
from syno.report.figures import drawn
from syno.run.measurement import Measurement
from syno.run.table import measurement_table

pytestmark = pytest.mark.slow  # the figures and tables of the whole published artifact


@pytest.fixture(scope="module")
def rows(tmp_path_factory: pytest.TempPathFactory) -> pandas.DataFrame:
    table = imported_once(tmp_path_factory) / "tables" / "measurements.parquet"
    return joined(pandas.read_parquet(table), own_rows())


@pytest.fixture(scope="module")
def numbers(rows: pandas.DataFrame) -> Numbers:
    return Numbers(rows, own_losses())


def table(*rows: tuple[str, str | None, Measurement]) -> pandas.DataFrame:
    return pandas.concat([one(*row) for row in rows], ignore_index=True)


def here(found: pandas.DataFrame, model: str, compiler: str = "inductor") -> pandas.DataFrame:
    return found[(found["device"] == DEVICE) & (found["model"] == model) & (found["compiler"] == compiler)]


# ---- what is compared with what -------------------------------------------------------------------------------------


def test_own_latencies_with_published_accuracies(rows: pandas.DataFrame) -> None:
    (row,) = here(fastest(rows), "resnet18").to_dict("records")
    assert (row["operator"], row["speedup"], row["accuracy"], row["experiment"]) == ("operator_1", 2.0, 0.799, "latencies")
    assert (row["latency_origin"], row["accuracy_origin"], row["original_origin"]) == ("measured", "artifact", "paper")
    assert is_mixed(fastest(rows)) and not is_mixed(fastest(rows[rows["origin"] != "measured"]))


def test_own_networks_and_compilers_have_bars(rows: pandas.DataFrame) -> None:
    best = fastest(rows)
    (small,) = here(best, SMALL).to_dict("records")
    assert (small["operator"], small["speedup"], small["accuracy_origin"]) == ("found_1", 2.0, "measured")  # found_2 is worse
    assert here(best, "resnet18", "inductor-max-autotune")["speedup"].tolist() == [1.5]
    assert (best["latency_origin"] == "artifact").sum() == 5 * 6
    titles = {"inductor-max-autotune": "TorchInductor", "inductor": "TorchInductor, default mode", "eager": "eager"}
    assert {name: compiler_title(name) for name in titles} == titles and model_title(SMALL) == "ResNet-18, width 0.125"


def test_a_ratio_is_of_one_origin_and_setting() -> None:
    of_two = table(
        *latencies("a", None, "resnet18", {"original": 10.0, "operator_1": 5.0}),
        *latencies("a", None, "resnet18", {"operator_2": 5.0}, threads=4),
        *latencies("a", None, "resnet18", {"operator_3": 5.0}, batch=64),
        *latencies("a", None, "resnet18", {"operator_4": 5.0}, device="another"),
        *latencies("a", "proxy", "resnet18", {"operator_5": 5.0}),
    )
    published = measurement_table(
        [measured("latency", 1.0, "operator_6", model="resnet18", device=DEVICE, compiler="inductor")]
    )
    found = timed(pandas.concat([of_two, published.assign(origin="artifact", key=None)], ignore_index=True))
    assert found.dropna(subset=["speedup"])["operator"].tolist() == ["original", "operator_1"]


def test_latencies_on_large_pictures_come_first(rows: pandas.DataFrame) -> None:
    found = here(timed(rows), SMALL).set_index("operator")
    assert found.loc["original", "latency_ms"] == 4.0  # not 1.0, of the small ones
    only_small = rows[rows["experiment"] != "large"]
    assert here(timed(only_small), SMALL).set_index("operator").loc["original", "latency_ms"] == 1.0


def test_an_accuracy_measured_here_comes_first_and_has_its_own_original() -> None:
    values = {"original": (0.9,), "operator_1": (0.8,)}
    published = [
        ("p", "proxy", m.model_copy(update={"origin": "artifact", "key": None})) for _, _, m in accuracies("", "", "m", values)
    ]
    own = accuracies("a", "proxy", "m", {"original": (0.7,), "operator_1": (0.6,), "operator_2": (0.5,)})
    found = scored(table(*published, *own), PROXY).set_index("operator")
    assert found.loc["operator_1", ["accuracy", "original_accuracy", "original_origin"]].tolist() == [0.6, 0.7, "measured"]
    without = scored(table(*published, *own[1:]), PROXY).set_index("operator")  # its own original is missing
    assert without.loc["operator_1", ["accuracy", "original_accuracy", "original_origin"]].tolist() == [0.6, 0.9, "artifact"]
    other_data = [(a, b, m.model_copy(update={"data": "other"})) for a, b, m in own[2:]]
    assert scored(table(*published, *other_data), PROXY).set_index("operator")["original_accuracy"].isna()["operator_2"]


def test_without_roles_the_only_data_set_is_both() -> None:
    rows = table(*accuracies("a", None, "m", {"original": (0.9,), "found": (0.9,)}))
    assert len(scored(rows, PROXY)) == len(scored(rows, FINAL)) == 2


def test_integers_are_a_candidate_of_the_case_study(rows: pandas.DataFrame) -> None:
    found = here(case_study(rows), "resnet18").set_index("candidate")
    assert found["speedup"].to_dict() == {"original": 1.0, "INT8": 1.6, "good_baseline": 40 / 30, "Operator 1": 2.0}
    assert found.loc["INT8", ["accuracy", "accuracy_origin"]].tolist() == [0.7029, "paper"]
    small = here(case_study(rows), SMALL).set_index("candidate")
    assert small["accuracy_origin"].to_dict() == {"original": "measured", "good_baseline": "measured", "found_1": "measured"}
    assert small.index[-1] == "found_1"  # found_2 is faster, and too inaccurate


def test_own_baselines_are_points_and_no_operators(rows: pandas.DataFrame) -> None:
    found = here(trade_offs(rows), SMALL)
    assert dict(zip(found["operator"], found["is_baseline"], strict=True)) == {
        "found_1": False, "good_baseline": True, "original": False,
    }  # fmt: skip
    assert "good_baseline" not in set(fastest(rows, most_lost=1.0)["operator"])


def test_own_layers_follow_those_of_the_paper() -> None:
    times = {"original": 4.0, "found_1": 1.0, "nas_pte_sequence_1": 2.0}
    names = ("layer4.0.conv1", "conv_io128", "conv_io64")
    found = layers(table(*(row for name in names for row in latencies("l", None, "resnet34", times, layer=name))))
    assert list(dict.fromkeys(found["label"])) == ["L1", "L8", "layer4.0.conv1"]
    (over,) = best_over_best(found).to_dict("records")
    assert (over["speedup"], over["layers"], over["latency_origin"]) == (pytest.approx(2.0), 3, "measured")


def test_own_costs_are_shares_of_the_own_original() -> None:
    values = {"original": 200.0, "found_1": 50.0}
    rows = table(
        *(
            ("a", "proxy", measured(what, n, name, model="m", data="d"))
            for name, n in values.items()
            for what in ("flops", "parameters")
        )
    )
    assert shares(rows)[["operator", "fewer_flops", "cost_origin"]].values.tolist() == [["found_1", 0.75, "measured"]]


# ---- GPT-2 ----------------------------------------------------------------------------------------------------------


def test_own_curves_have_seeds_and_perplexities(numbers: Numbers) -> None:
    found = curves(numbers.losses, numbers.rows)
    original = found[found["operator"] == "original"]
    assert original["seed"].nunique() == 2
    assert mean_curve(original)["loss"].tolist() == pytest.approx([4.03 + 2.0 / step for step in range(1, 11)])
    first, best = perplexities(found)
    assert first is not None and best is not None
    assert (best.operator, best.origin, best.steps) == ("found_3", "measured", 100)
    figure = PAPER_FIGURES["figure-10"].draw(numbers, {"figure-10": found}, ())
    assert [len(axes.lines) for axes in figure.axes] == [4, 6, 6, 6]  # two seeds, two means; and marks
    labels = [text.get_text() for text in figure.legends[0].get_texts()]
    assert labels[:2] == ["found_3 (measured here)", "original (measured here, mean of 2 seeds)"]


def test_a_table_of_three_columns_is_the_artifacts_log() -> None:
    log = pandas.DataFrame({"step": [1, 2], "minutes": [0.5, 1.0], "loss": [0.0, 1.0]})
    found = curves(log, measurement_table([]))
    assert found[["operator", "model", "origin"]].drop_duplicates().values.tolist() == [["original", "gpt2", "artifact"]]
    assert found["perplexity"].tolist() == pytest.approx([1.0, 2.718281828])


def test_the_speed_of_training_is_a_ratio() -> None:
    rows = table(
        *(
            ("g", None, measured("throughput", n, name, model="gpt2", device=DEVICE))
            for name, n in (("original", 10), ("found_3", 12))
        )
    )
    (row,) = training_speedups(rows.assign(metric="training_throughput")).to_dict("records")
    assert (row["operator"], row["speedup"]) == ("found_3", 1.2)


# ---- own devices that stand for the paper's -------------------------------------------------------------------------

# The devices of the paper as own experiments have them: their settings' names, what the machines call themselves (over RPC,
# nothing), and the mode of the compiler that one had to take.
MACHINES = {
    (A100, "tvm"): ("cuda", "NVIDIA A100-SXM4-80GB"),
    (A100, INDUCTOR): ("cuda", "NVIDIA A100-SXM4-80GB"),
    (MOBILE_CPU, "tvm"): ("jetson-cpu", "jetson-cpu"),
    (MOBILE_CPU, INDUCTOR): ("jetson-cpu", "NVIDIA Jetson Orin Nano Developer Kit"),
    (MOBILE_GPU, "tvm"): ("jetson-gpu", "jetson-gpu"),
    (MOBILE_GPU, INDUCTOR): ("jetson-gpu", "Orin"),
}
STANDS_FOR = {"cuda": A100, "jetson-cpu": MOBILE_CPU, "jetson-gpu": MOBILE_GPU, "inductor": INDUCTOR}


def under_machine_names(published: pandas.DataFrame) -> pandas.DataFrame:
    """Published rows, as if they had been measured by own experiments on the same boards."""
    rows = published.copy()
    for (device, compiler), (setting, machine) in MACHINES.items():
        there = (published["device"] == device) & (published["compiler"] == compiler)
        rows.loc[there, ["device", "device_setting"]] = machine, setting
    return rows.assign(compiler=rows["compiler"].replace(INDUCTOR, "inductor"))


@pytest.fixture(scope="module")
def published(rows: pandas.DataFrame) -> pandas.DataFrame:
    return rows[rows["origin"] != "measured"].drop(columns=["data_role", "experiment"]).reset_index(drop=True)


def numbers_of(rows: pandas.DataFrame, **named: dict[str, str]) -> Numbers:
    losses = own_losses()
    return Numbers(put_together([Part("published", rows, losses, **named)], with_paper=False).rows, losses)


@pytest.mark.slow
def test_rows_under_machine_names_give_the_same_page(published: pandas.DataFrame, monkeypatch: pytest.MonkeyPatch) -> None:
    expected = numbers_of(published)
    renamed = under_machine_names(published)
    assert not set(renamed["device"].dropna()) & {A100, MOBILE_CPU, MOBILE_GPU}
    found = numbers_of(renamed, stands_for=STANDS_FOR)
    assert headline_table(headlines(*found)).equals(headline_table(headlines(*expected)))
    without = headline_table(headlines(*numbers_of(renamed)))
    assert set(without.loc[without["figure"].isin(["5", "9"]) & without["paper"].notna(), "verdict"]) == {"unknown"}
    for name, figure in PAPER_FIGURES.items():
        for key, table in figure.tables(expected).items():
            pandas.testing.assert_frame_equal(figure.tables(found)[key], table, obj=f"{name}: {key}")
    monkeypatch.setattr("syno.paper.figures.page.PAPER_FIGURES", {})  # they are drawn from these tables
    assert paper_page(found, {}) == paper_page(expected, {})


@pytest.mark.slow
def test_own_numbers_meet_the_papers_with_the_difference(published: pandas.DataFrame, monkeypatch: pytest.MonkeyPatch) -> None:
    """An operator that is 10 % faster here than in the published data, in all networks, by a GPU and two ways to a board."""
    own = under_machine_names(published)
    is_whole = (own["metric"] == "latency") & own["layer"].isna() & own["device_setting"].notna()
    own = own[is_whole].assign(origin="measured", key=own["operator"], role="found", batch=1, threads=1, source="x.json")
    own.loc[own["operator"] == "original", "role"] = "original"
    own["value"] = own["value"].where(own["operator"] == "original", own["value"] / 1.1)
    none = own_losses().iloc[:0]
    parts = [Part("published", published, none), Part("here", own, none, stands_for=STANDS_FOR)]
    numbers = Numbers(put_together(parts, lambda name: FINAL if name == "here" else None, with_paper=False).rows, own_losses())
    both = timed(numbers.rows)
    mine = both[(both["latency_origin"] == "measured") & (both["operator"] != "original")]
    assert len(mine) > 10 and mine["difference"].tolist() == pytest.approx([10.0] * len(mine))
    assert mine["relative_difference"].tolist() == pytest.approx([10.0] * len(mine)) and set(mine["reference"]) == {"tvm"}
    assert both[both["latency_origin"] != "measured"][["difference", "relative_difference"]].isna().all(axis=None)

    table = headline_table(headlines(*numbers)).set_index(["what", "origin"])
    means_here = table[[what.endswith("mean speedup of networks") for what, _ in table.index]].reset_index()
    assert len(means_here) == 12 and set(means_here["figure"]) == {"5"} and means_here["paper"].notna().all()
    ours = means_here["origin"].str.startswith("latency measured")
    ratios = means_here[ours]["computed"].to_numpy() / means_here[~ours]["computed"].to_numpy()
    assert ours.sum() == 6 and ratios == pytest.approx([1.1] * 6)
    assert means_here["difference"].notna().all()

    monkeypatch.setattr("syno.paper.figures.page.PAPER_FIGURES", {"figure-5": PAPER_FIGURES["figure-5"]})
    html = paper_page(numbers, {})
    beside = html.partition('<section id="beside">')[2].partition("</section>")[0]
    assert beside.count("+10.0 %") == len(mine) and "A100, measured" in beside
    assert "A100 (NVIDIA A100-SXM4-80GB)" in html and "(+10 %)" in html
    figure = PAPER_FIGURES["figure-5"].draw(numbers, PAPER_FIGURES["figure-5"].tables(numbers), ())
    titles = [axes.get_title().partition(" (")[0] for axes in figure.axes]
    assert titles == ["mobile CPU", "mobile GPU", "A100"]  # a panel for each device, for both


def beside_own(published: pandas.DataFrame, compilers: tuple[str, ...], *, model: str, slower: str = "") -> Numbers:
    """Published numbers beside own ones of one network: as fast as those, but one operator is slower here."""
    own = under_machine_names(published)
    there = (own["metric"] == "latency") & own["layer"].isna() & own["device_setting"].notna() & (own["model"] == model)
    own = own[there & own["compiler"].isin(compilers)]
    roles = own["operator"].map(lambda name: "original" if name == "original" else "found")
    own = own.assign(origin="measured", key=own["operator"], role=roles, batch=1, threads=1, source="x.json")
    own["value"] = own["value"].where(own["operator"] != slower, 100 * own["value"])
    parts = [Part("published", published, none := own_losses().iloc[:0]), Part("here", own, none, stands_for=STANDS_FOR)]
    return Numbers(put_together(parts, lambda name: FINAL if name == "here" else None, with_paper=False).rows, none)


def bars(numbers: Numbers, name: str = "figure-5") -> tuple[list[str], list[tuple[float, float]]]:
    """The texts above the bars of a figure, and the limits of its axes."""
    axes = PAPER_FIGURES[name].draw(numbers, PAPER_FIGURES[name].tables(numbers), ()).axes
    return [text.get_text().strip() for one in axes for text in one.texts], [one.get_ylim() for one in axes]


@pytest.mark.parametrize("compilers", [("inductor",), ("tvm",), ("inductor", "tvm")])
@pytest.mark.parametrize("layers", [False, True])
def test_published_speedups_are_the_same_beside_own_ones(
    published: pandas.DataFrame, compilers: tuple[str, ...], layers: bool
) -> None:
    alone, both = (
        timed(one.rows, layers=layers) for one in (numbers_of(published), beside_own(published, compilers, model="resnet18"))
    )
    columns = ["model", "layer", "device", "compiler", "operator", "latency_ms", "speedup", "reference", "relative"]
    theirs = both[both["latency_origin"] != "measured"]
    pandas.testing.assert_frame_equal(theirs[columns].reset_index(drop=True), alone[columns].reset_index(drop=True))
    if not layers:
        own = both[both["latency_origin"] == "measured"]
        over_own = own["reference"] == own["compiler"]
        assert over_own.all() if compilers == ("inductor",) else set(own["reference"]) == {"tvm"}
        assert own.loc[over_own, "relative"].equals(own.loc[over_own, "speedup"])


def test_own_bars_without_tvm_are_marked_and_so_is_the_mean_of_one_network(published: pandas.DataFrame) -> None:
    (alone, limits), (beside, wider) = bars(numbers_of(published)), bars(beside_own(published, ("inductor",), model="resnet18"))
    new = [text for text in beside if "‡" in text]
    assert [text for text in beside if "‡" not in text] == alone and len(new) == 6
    assert [text.partition("‡")[2] for text in new] == ["", " (1 network)"] * 3
    assert [high for _, high in wider] == pytest.approx([high for _, high in limits], rel=0.2)
    assert "‡" in PAPER_FIGURES["figure-5"].caption and not any("%" in text for text in beside)
    assert not any(
        "‡" in text for text in bars(beside_own(published, ("inductor",), model="resnet18"), "figure-5-by-compiler")[0]
    )


def test_a_difference_in_percent_stands_beside_the_same_operator_only(published: pandas.DataFrame) -> None:
    best = fastest(numbers_of(published).rows).set_index(["model", "compiler", "device"])
    shown = str(best.loc[("resnet18", "tvm", A100), "operator"])
    for slower, differs in (("", False), (shown, True)):
        found = fastest(beside_own(published, ("tvm",), model="resnet18", slower=slower).rows)
        (own,) = found[(found["latency_origin"] == "measured") & (found["device"] == A100)].to_dict("records")
        assert (own["operator"] != shown) == differs
        assert (own["difference"] != own["difference"], own["relative_difference"] != own["relative_difference"]) == (
            differs,
        ) * 2


def test_figure_6_has_a_line_of_panels_for_each_compiler(published: pandas.DataFrame) -> None:
    numbers = beside_own(published, ("inductor",), model="resnet18")
    figure = PAPER_FIGURES["figure-6"].draw(numbers, PAPER_FIGURES["figure-6"].tables(numbers), ())
    lines: dict[int, set[str]] = {}
    for axes in figure.axes:
        if axes.get_title():
            lines.setdefault(axes.get_subplotspec().rowspan.start, set()).add(axes.get_title().partition(",")[0])
    assert lines == {0: {"TVM"}, 1: {"TorchInductor"}}


# ---- what figures and the page say ----------------------------------------------------------------------------------


@pytest.mark.slow
def test_data_that_is_left_out_is_listed(rows: pandas.DataFrame, numbers: Numbers) -> None:
    told = {name: " ".join(lines(figure.left_out(numbers))) for name, figure in PAPER_FIGURES.items()}
    assert f"Operator 1 in ResNet-18, TVM (failed: {FAILED})" in told["figure-5"]
    assert f"ResNet-18, TVM, {DEVICE} (no operator with an accuracy and a latency there)" in told["figure-6"]
    assert "found_2 in ResNet-18, width 0.125 (no accuracy on the final data set)" in told["figure-6"]
    assert f"ResNet-18, width 0.125, TorchInductor, default mode, {DEVICE} (no latency of INT8)" in told["figure-8"]
    assert "original in GPT-2 (artifact) (no curve of its loss, only the score)" in told["figure-10"]
    without = rows[~((rows["operator"] == "original") & (rows["device"] == DEVICE) & (rows["metric"] == "latency"))]
    again = " ".join(lines(PAPER_FIGURES["figure-5"].left_out(Numbers(without, numbers.losses))))
    assert f"ResNet-18, TorchInductor, {DEVICE}" in again and "no latency of the original network there" in again
    many = lines(PAPER_FIGURES["figure-6"].left_out(Numbers(rows[rows["metric"] != "accuracy"], numbers.losses)), 2)
    assert any(line.count(";") == 2 and "more (" in line for line in many)


@pytest.mark.slow
def test_headlines_of_own_devices_stand_beside_the_papers(rows: pandas.DataFrame, numbers: Numbers) -> None:
    counts = {"space": "s", "variant": "all rules", "primitives": [1, None], "sampled": [900, 8000], "canonical": [900, 100]}
    ablations = {"ablation-canonical": pandas.DataFrame({**counts, "origin": "measured"})}
    found = {one.what: one for one in headlines(*numbers._replace(ablations=ablations))}
    own = found[f"TorchInductor, default mode, {DEVICE}: mean speedup of networks"]
    assert (own.computed, own.verdict, own.paper) == (pytest.approx(2.0), "no number", None)
    assert own.origin == "latency measured; accuracy artifact, measured, paper"
    theirs = found["TorchInductor, A100: mean speedup of networks"]
    assert theirs.origin == "latency artifact; accuracy artifact, paper"
    assert found["Random samples without canonicalization for each distinct operator"].verdict == "holds"


@pytest.mark.slow
def test_the_fastest_rival_stands_beside_the_operator_of_the_same_rule() -> None:
    scores = {"original": (0.9,), "found_1": (0.895,), "pruned_0.5": (0.893,), "pruned_0.3": (0.88,)}
    times = {"original": 12.0, "found_1": 4.0, "pruned_0.5": 3.0, "pruned_0.3": 1.0}
    known = table(*accuracies("a", None, "m", scores), *latencies("a", None, "m", times))
    (row,) = [one for one in headlines(known) if one.printed == NOT_IN_PAPER]
    where, rule = f"TorchInductor, default mode, {DEVICE}", f"largest speedup that loses less than {ON_PROXY}"
    assert row.what == f"m without synthesis, {where}: {rule}"
    assert (row.figure, row.computed, row.verdict, row.origin) == ("5", 4.0, "no number", "measured")
    assert row.note == "pruned_0.5, which loses 0.0070; found_1 has 3.00"
    assert fastest(known)["operator"].tolist() == ["found_1"]  # a rival is no operator in figures
    assert trade_offs(known).set_index("operator")["is_baseline"].to_dict() == {
        "found_1": False, "original": False, "pruned_0.3": True, "pruned_0.5": True,
    }  # fmt: skip

    (absent,) = [one for one in headlines(known[known["role"] != "rival"]) if one.printed == NOT_IN_PAPER]
    assert (absent.verdict, absent.computed) == ("unknown", None) and absent.note.startswith("neither the paper nor its data")
    (worse,) = [one for one in headlines(known[known["operator"] != "pruned_0.5"]) if one.printed == NOT_IN_PAPER]
    assert worse.verdict == "unknown" and worse.note == "those here have no latency beside the original's, or lose more"


@pytest.mark.slow
def test_the_page_says_where_each_number_comes_from(numbers: Numbers, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "syno.paper.figures.page.PAPER_FIGURES", {"figure-5": PAPER_FIGURES["figure-5"]}
    )  # the others take long
    html = paper_page(numbers, {name: OPERATORS[name]() for name in ("operator_1", "operator_2")}, ["joined here"])
    sources = html.partition('<section id="sources">')[2].partition("</section>")[0]
    assert all(name in sources for name in ("latencies", "published", "large", DEVICE, "inductor-max-autotune"))
    assert "from the results at hand" in html and "joined here" in html and FAILED in html
    assert 'data-name="operator_1"' in html and 'data-name="operator_2"' not in html  # of which there is no number
    assert "A dark outline: the latency was measured here" in html


@pytest.mark.slow
@pytest.mark.parametrize("name", PAPER_FIGURES)
def test_every_figure_of_a_mixture_can_be_written(name: str, numbers: Numbers) -> None:
    figure = PAPER_FIGURES[name]
    assert len(drawn(figure.draw(numbers, figure.tables(numbers), figure.notes(numbers)), "png")) > 10_000
