"""Experiments that go on from another one, whose operator is in the network already."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import pandas
import pytest
import torch

import syno
from syno.base.errors import SpecError
from syno.base.files import ORIGINAL
from syno.config import Experiment, load_experiments
from syno.model.counting import model_cost
from syno.model.networks import Network
from syno.run.table import write_table
from syno.stages.data import data_text, look
from syno.stages.measure import subject_of
from syno.stages.opening import check_goes_on, keep_config
from syno.stages.provenance import check, check_shown, write_kept
from syno.stages.store import OperatorStore
from syno.train.training_record import TrainingRecord

DATA = {"preset": "micro", "train": 64, "test": 32}
WORKLOAD: Mapping[str, Any] = {"width": 0.25, "data_settings": DATA, "training": {"epochs": 1, "batch": 32}}
EARLIER, LATER = "blocks.0.conv*, blocks.1.conv*", "blocks.2.conv*"
FIRST = Path("results/first")
SHUFFLED, SEPARABLE = "shift_rows_conv1x1", "separable_conv2d"


def experiment(**fields: Any) -> Experiment:
    named = {"name": "next", "workload": {**WORKLOAD, "layers": LATER}, "after": "results/first", "spec": {"depth": 4}}
    return Experiment(**{**named, **fields})


def searched(scores: Sequence[tuple[str, float]], verdicts: Sequence[str] = (), name: str = "first", **fields: Any) -> None:
    """Leave the results of an experiment: its file, its operators, and their scores, the best first."""
    first = Experiment(**{"name": name, "workload": {**WORKLOAD, "layers": EARLIER}, **fields})
    write_kept(first)
    rows = [{"operator": "original", "key": "original", "role": "original", "score": 0.9}]
    for operator, score in scores:
        key = OperatorStore(first.folder).add(syno.OPERATORS[operator]())
        rows.append({"operator": operator, "key": key, "role": "found", "score": score})
    table = pandas.DataFrame(rows)
    write_table(table.assign(verdict=[None, *verdicts]) if verdicts else table, first.folder, "scores")


@pytest.fixture(autouse=True)
def _in_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def placed_names(found: Experiment) -> list[str]:
    assert found.workload is not None
    return [one.replacement.name for one in found.workload.placed]


class TestTheOperator:
    def test_it_is_the_best_one_or_the_one_that_is_named(self) -> None:
        searched([(SHUFFLED, 0.8), (SEPARABLE, 0.7)])
        assert placed_names(experiment()) == [SHUFFLED]
        assert placed_names(experiment(after={"source": FIRST, "operator": SEPARABLE})) == [SEPARABLE]

    def test_one_that_meets_the_goal_goes_before_a_better_one_that_misses_it(self) -> None:
        searched([(SHUFFLED, 0.8), (SEPARABLE, 0.7)], ["misses", "may meet"])
        assert placed_names(experiment()) == [SEPARABLE]

    def test_those_that_were_there_already_stay(self) -> None:
        searched([(SHUFFLED, 0.8)])
        searched([(SEPARABLE, 0.7)], name="second", after="results/first", workload={**WORKLOAD, "layers": "blocks.1.conv*"})
        assert placed_names(experiment(after="results/second")) == [SHUFFLED, SEPARABLE]

    def test_before_there_is_one_the_network_is_unknown_and_the_settings_are_the_same(self) -> None:
        before = experiment()
        with pytest.raises(SpecError, match="goes on from results/first, which has no tables with trained operators yet; run"):
            before.network  # noqa: B018
        searched([(SHUFFLED, 0.8)])
        after = experiment()
        assert after.part("train") == before.part("train") != experiment(after=None).part("train")
        kept = Experiment.load(write_kept(after))  # in it is where the operator comes from, not the operator
        assert "placed" not in after.model_dump()["workload"] and placed_names(kept) == [SHUFFLED]

    @pytest.mark.parametrize(
        ("changes", "problem"),
        [
            ({"after": {"source": FIRST, "operator": "nobody"}}, f'no operator "nobody"; it has: {SHUFFLED}'),
            ({"workload": {"model": "resnet6", **WORKLOAD}}, "the model resnet8, and that of this experiment resnet6"),
            ({"workload": None, "spec": "resnet18"}, "after: needs a workload"),
        ],
        ids=["operator", "model", "workload"],
    )
    def test_wrong_input_is_one_message(self, changes: dict[str, Any], problem: str) -> None:
        searched([(SHUFFLED, 0.8)])
        with pytest.raises(SpecError, match=problem):
            experiment(**changes)

    def test_names_in_one_file_are_folders_and_may_not_wait_for_each_other(self) -> None:
        plan: dict[str, Any] = {"common": {"workload": WORKLOAD}, "experiments": {"one": {}, "two": {"after": "one"}}}
        assert load_experiments(plan, "both")["two"].goes_first == (Path("results/both/one"),)
        plan["experiments"]["one"] = {"after": "two"}
        with pytest.raises(SpecError, match='"one": after leads back to itself: results/both/one waits for results/both/two'):
            load_experiments(plan, "both")
        plan["experiments"]["one"] = {"after": "twoo"}
        with pytest.raises(SpecError, match='after: source: .* is called "twoo".*two'):
            load_experiments(plan, "both")


class TestTheNetwork:
    def test_it_has_the_operator_where_it_is_trained_and_where_it_is_measured(self) -> None:
        searched([(SEPARABLE, 0.8)])
        found = experiment()
        network, plain = found.network, experiment(after=None).network
        assert network.placed_layers == {f"blocks.{block}.conv{one}": SEPARABLE for block in (0, 1) for one in (1, 2)}
        by_hand = syno.substitute(plain.model(), syno.OPERATORS[SEPARABLE](), plain.example, where=EARLIER)
        assert network.original == model_cost(by_hand, plain.example)
        assert network.original.flops < plain.original.flops

        assert found.workload is not None
        measured = subject_of(found.workload, look(found), syno.OPERATORS["conv2d"](), "eager")
        assert type(measured).model_validate(measured.model_dump(mode="json")) == measured
        assert model_cost(measured.backbone(), network.example).flops == network.original.flops
        material = measured.make("cpu", 2)
        inputs = torch.rand(2, 3, 16, 16)
        torch.testing.assert_close(material.module(inputs), material.reference(inputs.double()).float(), rtol=1e-3, atol=1e-4)

    @pytest.mark.slow
    def test_equal_seeds_make_equal_weights_and_layers_of_their_own(self) -> None:
        searched([(SEPARABLE, 0.8)])
        one, same, other = (experiment().network.network(syno.OPERATORS[SEPARABLE](), seed).state_dict() for seed in (1, 1, 2))
        assert all(torch.equal(one[name], same[name]) for name in one)
        weights = [one[f"blocks.{block}.conv2.w1"] for block in (0, 1, 2)]
        assert not any(torch.equal(first, second) for first, second in pairwise(weights))
        assert not torch.equal(weights[0], other["blocks.0.conv2.w1"])

    @pytest.mark.slow
    def test_it_is_told(self) -> None:
        searched([(SEPARABLE, 0.8)])
        found = experiment()
        record = look(found)
        lines = data_text(found, record).splitlines()
        assert lines[1].startswith(f"these layers have the operator {SEPARABLE} already") and "blocks.1.conv2" in lines[1]
        assert set(record.layers) == {"blocks.2.conv1", "blocks.2.conv2"}

    @pytest.mark.slow
    def test_results_are_of_the_operator_that_was_there_whether_it_is_named_or_not(self) -> None:
        searched([(SEPARABLE, 0.8), (SHUFFLED, 0.7)])
        found = experiment()
        look(found).write(found.folder / "data.json")
        keep_config(found)
        named, other = (experiment(after={"source": FIRST, "operator": name}) for name in (SEPARABLE, SHUFFLED))
        for checks in (check_goes_on, check_shown):
            checks(named)
            with pytest.raises(
                SpecError, match=f"with {SEPARABLE}, .* have {SHUFFLED}.*source: results.first, operator: {SEPARABLE}"
            ):
                checks(other)

    def test_records_of_a_network_with_another_operator_are_refused(self) -> None:
        searched([(SEPARABLE, 0.8), (SHUFFLED, 0.7)])
        one, other = experiment(), experiment(after={"source": FIRST, "operator": SHUFFLED})
        assert one.workload is not None
        told = {"name": "original", "operator": None, "operator_id": None, "seed": 0, "initial_weights": None}
        record = TrainingRecord.model_construct(None, workload=one.workload, **told)
        check(Path("record.json"), record, one, Network.parse(ORIGINAL))
        with pytest.raises(SpecError, match="record.json is of other settings than the experiment: workload.placed"):
            check(Path("record.json"), record, other, Network.parse(ORIGINAL))


def test_settings_without_such_an_operator_are_written_as_before() -> None:
    plain = experiment(after=None)
    assert plain.workload is not None and "placed" not in plain.workload.model_dump()
    assert "placed" not in subject_of(plain.workload, look(plain), None, "eager").model_dump()
    assert "after" not in plain.part("train")
    assert "after" not in plain.model_dump(exclude_defaults=True)
