"""The joined table: one name for each operator, each row once, and a role for each data set."""

from __future__ import annotations

from typing import Any

import pandas
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from syno.ir.library import OPERATORS
from syno.ir.rewriting import normal_form
from syno.paper.joined import JOINED_COLUMNS, Part, joined
from syno.paper.numbers import told
from syno.paper.stages.join import gaps
from syno.run.measurement import Measurement
from syno.run.table import LOSS_COLUMNS, loss_table, measurement_table

ONE, TWO = "1" * 32, "2" * 32  # ids of operators
NONE = loss_table([])


def row(
    operator: str, operator_id: str | None = None, metric: str = "accuracy", value: float = 0.5, **fields: Any
) -> Measurement:
    place = {"model": "resnet8", "data": "glyphs", "role": "found", "origin": "measured", "source": "train/x", "seed": 1}
    return Measurement.of(metric, value, operator=operator, operator_id=operator_id, **(place | fields))  # type: ignore[arg-type]


def part(name: str, *rows: Measurement, **fields: Any) -> Part:
    return Part(name, measurement_table(rows), fields.pop("losses", NONE), **fields)


def table(*parts: Part, **options: Any) -> pandas.DataFrame:
    return joined(parts, with_paper=options.pop("with_paper", False), **options).rows


def named(*parts: Part) -> list[str]:
    return table(*parts)["operator"].tolist()


class TestNames:
    def test_an_operator_with_two_names_has_the_first_experiments(self) -> None:
        found = joined([part("a", row("a_3", ONE)), part("b", row("b_7", ONE, value=0.6))], with_paper=False)
        assert found.rows["operator"].tolist() == ["a_3", "a_3"]
        assert [(one.experiment, one.operator, one.name) for one in found.renamed] == [("b", "b_7", "a_3")]

    def test_a_published_name_goes_before_that_of_an_earlier_experiment(self) -> None:
        published = row("published_1", ONE, origin="artifact", role=None)
        assert named(part("a", row("a_3", ONE)), part("published", published)) == ["published_1", "published_1"]

    def test_the_librarys_name_goes_before_all_also_for_the_normal_form(self) -> None:
        graph = OPERATORS["operator_1"]()
        other = normal_form(graph).id
        assert other != graph.id
        rows = [row("a_3", other), row("operator_1", graph.id, value=0.6), row("operator_1", value=0.7)]
        assert set(named(part("a", *rows))) == {"operator_1"}

    def test_two_operators_with_one_name_are_told_apart(self) -> None:
        assert named(part("a", row("found_3", ONE)), part("b", row("found_3", TWO))) == ["found_3", "found_3_222222"]

    def test_a_network_in_integers_has_a_name_of_its_own(self) -> None:
        """Though its rows have the id of the network that was quantized."""
        names = ["pruned_0.5", "pruned_0.5_int8"]
        assert named(part("a", *(row(name, ONE, role="rival") for name in names))) == names

    def test_a_name_without_an_id_stays(self) -> None:
        paper = row("int8", origin="paper", role=None)
        assert named(part("a", row("int8", ONE)), part("published", paper)) == ["int8_111111", "int8"]

    def test_an_operator_called_original_does_not_become_the_original(self) -> None:
        assert named(part("a", row("original"), row("original", ONE))) == ["original", "original_111111"]

    @settings(max_examples=20, deadline=None)
    @given(st.lists(st.tuples(st.sampled_from("xy"), st.sampled_from([ONE, TWO, None]), st.sampled_from("ab")), max_size=6))
    def test_names_and_operators_belong_together_one_to_one(self, given_: list[tuple[str, str | None, str]]) -> None:
        parts = [part(name, *(row(o, i, value=n / 100) for n, (o, i, at) in enumerate(given_) if at == name)) for name in "ab"]
        found = table(*parts)
        ids = found.assign(operator_id=found["operator_id"].fillna("none"))[["operator", "operator_id"]].drop_duplicates()
        assert ids["operator"].is_unique
        assert ids.loc[ids["operator_id"] != "none", "operator_id"].is_unique


class TestRows:
    def test_the_joined_table_has_the_columns_of_measurements_and_two_more(self) -> None:
        assert list(table(part("a", row("x", ONE))).columns) == list(JOINED_COLUMNS)

    def test_a_row_is_in_the_joined_table_once(self) -> None:
        """Also when an experiment is joined twice, under another name, or through another join."""
        first = part("a", row("x", ONE), row("original"))
        once = table(first)
        again = Part("c", joined([first], with_paper=False).rows, NONE)
        assert table(first, first).equals(once) and table(first, part("copy", row("x", ONE), row("original"))).equals(once)
        assert table(again).equals(once) and table(first, again).equals(once)

    def test_two_seeds_with_one_score_are_two_rows(self) -> None:
        assert len(table(part("a", row("x", ONE, seed=1), row("x", ONE, seed=2)))) == 2

    def test_a_join_of_a_join_keeps_experiments_and_roles(self) -> None:
        inner = joined([part("small", row("x", ONE))], lambda name: "proxy")
        outer = table(Part("figures", inner.rows, NONE), part("other", row("y", TWO)), with_paper=True)
        assert outer.set_index("operator").loc[["x", "y"], "experiment"].tolist() == ["small", "other"]
        assert outer.set_index("operator").loc["x", "data_role"] == "proxy"
        assert (outer["origin"] == "paper").sum() == len(told())

    def test_own_records_that_are_no_longer_used_are_left_out(self) -> None:
        assert named(part("a", row("x", ONE), row("y", TWO, role=None))) == ["x"]

    def test_the_papers_numbers_are_added_once_and_only_if_wanted(self) -> None:
        an_import = part("published", row("z", origin="artifact", role=None), *told())
        for parts in ([part("a", row("x", ONE))], [an_import]):
            found = table(*parts, with_paper=True)
            assert (found["experiment"] == "paper").sum() == (found["origin"] == "paper").sum() == len(told())
        assert not (table(part("a", row("x", ONE)))["origin"] == "paper").any()


class TestNetworks:
    def test_another_width_is_another_network(self) -> None:
        curve = loss_table([{"step": 1, "minutes": 0.5, "loss": 2.0, "operator": "x", "operator_id": ONE, "model": "resnet8"}])
        found = joined([part("a", row("x", ONE), width=0.125, losses=curve), part("b", row("x", ONE))], with_paper=False)
        assert found.rows["model"].tolist() == ["resnet8@0.125", "resnet8"]
        assert found.losses[["model", "experiment"]].values.tolist() == [["resnet8@0.125", "a"]]
        assert list(found.losses.columns) == list(LOSS_COLUMNS)

    def test_the_head_for_1000_classes_matters_for_latencies_only(self) -> None:
        rows = [
            row("x", ONE, model="resnext29_2x64d_1000"),
            row("x", ONE, "latency", 3.0, model="resnext29_2x64d_1000", data=None),
        ]
        assert table(part("a", *rows))["model"].tolist() == ["resnext29_2x64d", "resnext29_2x64d_1000"]


class TestRoles:
    @pytest.mark.parametrize(
        ("data", "role"), [("cifar100", "proxy"), ("lm1b", "proxy"), ("imagenet", "final"), ("glyphs", None), ("shapes", None)]
    )
    def test_roles_follow_from_the_data_set_also_for_latencies(self, data: str, role: str | None) -> None:
        rows = [row("x", ONE, data=data), row("x", ONE, "latency", 3.0, data=None)]
        found = table(part("a", *rows, data=data))["data_role"]
        assert [None if pandas.isna(one) else one for one in found] == [role, role]

    def test_an_experiment_may_say_otherwise(self) -> None:
        parts = [part("small-a", row("x", ONE)), part("large", row("x", ONE, data="imagenet"))]
        found = table(*parts, role=lambda name: "proxy" if name.startswith("small") else None)
        assert found["data_role"].tolist() == ["proxy", "final"]


def test_gaps_are_failures_and_networks_without_latencies_or_originals() -> None:
    timed = {"data": None, "compiler": "inductor", "device": "a processor", "model": "resnet18"}
    rows = [
        row("x", ONE),
        row("x", ONE, "latency", 3.0, **timed),
        row("y", TWO, "latency", None, **timed, status="timeout", reason="too\nslow"),  # type: ignore[arg-type]
    ]
    assert gaps(table(part("a", *rows))) == [
        "a: latency of y in resnet18, inductor on a processor: timeout: too slow",
        "resnet8: no latency of the network",
        "resnet18, inductor on a processor: no latency of the original, so no speedup",
    ]
