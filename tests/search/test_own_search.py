"""Policies and rewards of a user's own, by their path `package.module:name`."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import own_search
import pytest
from small_specs import matmul

from syno.base.errors import SpecError, UnknownNameError
from syno.config import Experiment
from syno.ir.graph import PGraph
from syno.search.policies import POLICIES, Policy
from syno.search.policies.contract import CHECKS, check_proposing_changes_nothing, check_seed
from syno.search.reward import REWARDS, Failure, from_settings
from syno.space.space import Space
from syno.stages.opening import open_study
from syno.train.contract import Report

MODULE = """
    from own_search import BestOfDrafts, FewWeights

    class Mine(BestOfDrafts): pass
    class Weights(FewWeights): pass
"""


def experiment(storage: str = "memory:", **changes: Any) -> Experiment:
    fields: dict[str, Any] = {
        "name": "own",
        "spec": matmul().model_dump(exclude={"name"}),
        "evaluate": "cost",
        "policy": {"name": "own_search:BestOfDrafts", "drafts": 2},
        "reward": {"name": "own_search:FewWeights", "scale": 500},
        "study": {"storage": storage, "n_trials": 10, "seed": 4},
    }
    return Experiment(**{**fields, **changes})


def evaluate(operator: PGraph, report: Report) -> Mapping[str, float]:
    parameters = float(int(operator.id, 16) % 1000)
    report(1, -parameters)
    return {"parameters": parameters}


class TestStudy:
    @pytest.mark.slow
    def test_a_study_by_paths_from_a_new_module_goes_on_with_the_same_trials(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        (tmp_path / "mine_for_test.py").write_text(textwrap.dedent(MODULE), encoding="utf-8")
        monkeypatch.chdir(tmp_path)

        def run(storage: str, n_trials: int) -> list[tuple[Any, ...]]:
            study_settings = {"storage": storage, "n_trials": 10}
            policy, reward = ({"name": f"mine_for_test:{name}"} for name in ("Mine", "Weights"))
            one = experiment(policy=policy, reward=reward, study=study_settings)
            study = open_study(one, Space(one.operator_spec))
            study.run(evaluate, n_trials)
            return [tuple(row) for row in study.trials[["fingerprint", "outcome", "reward"]].itertuples(index=False)]

        run("sqlite:///trials.db", 4)
        resumed, whole = run("sqlite:///trials.db", 10), run("memory:", 10)
        assert resumed == whole and len(whole) == 10
        assert {outcome for _, outcome, _ in whole} == {"complete"}

    def test_settings_of_ones_own_are_stored_and_compared(self, tmp_path: Path) -> None:
        storage = f"sqlite:///{tmp_path}/trials.db"
        one = experiment(storage)
        open_study(one, Space(one.operator_spec)).run(evaluate, 2)
        other = experiment(storage, policy={"name": "own_search:BestOfDrafts", "drafts": 3})
        with pytest.raises(SpecError, match=r"other settings: policy\.drafts is 2 there, 3 here"):
            open_study(other, Space(other.operator_spec))


class TestMistakes:
    @pytest.mark.parametrize(
        ("changes", "message"),
        [
            ({"policy": {"name": "nowhere:Mine"}}, 'the search policy is "nowhere:Mine", which cannot be imported: No module'),
            ({"policy": {"name": "own_search:BestOfDraft"}}, 'has no "BestOfDraft". Did you mean "BestOfDrafts"?'),
            ({"policy": {"name": "own_search:no_class"}}, "it must be a subclass of syno.search.policies.Policy"),
            ({"policy": {"name": "own_search:WithoutChoice"}}, "with a method _choose"),
            (
                {"policy": {"name": "own_search:BestOfDrafts", "drafts": 0}},
                "policy: drafts: Input should be greater than or equal",
            ),
            ({"policy": {"name": "own_search:BestOfDrafts", "draft": 1}}, 'Did you mean "drafts"?'),
            ({"reward": {"name": "nowhere:Mine"}}, 'the reward is "nowhere:Mine", which cannot be imported: No module'),
            ({"reward": {"name": "own_search:BestOfDrafts"}}, "it must be a subclass of syno.search.reward.Reward"),
            ({"reward": {"name": "own_search:FewWeights", "scale": 0}}, "reward: scale: Input should be greater than 0"),
        ],
    )
    def test_each_is_one_clear_error(self, changes: dict[str, Any], message: str) -> None:
        with pytest.raises(ValueError, match=re.escape(message)):
            experiment(**changes).use_code()

    def test_an_unknown_name_says_how_to_give_ones_own(self) -> None:
        with pytest.raises(
            UnknownNameError, match=r'unknown search policy "mine"; there are: .* Your own is "package.module:name"'
        ):
            POLICIES.find("mine")
        with pytest.raises(UnknownNameError, match='Your own is "package.module:name"'):
            REWARDS.find("mine")

    def test_a_reward_that_is_no_number_is_the_functions_fault(self) -> None:
        failure = from_settings({"name": "own_search:NoNumber"})({"parameters": 2.0})
        assert failure == Failure('the reward "own_search:NoNumber" is NaN; it must be a number', "function")


class TestConformance:
    @pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
    def test_a_policy_of_ones_own_keeps_the_contract(self, check: Callable[[type[Policy]], None]) -> None:
        check(own_search.BestOfDrafts)

    def test_a_wrong_policy_is_found(self) -> None:
        with pytest.raises(AssertionError, match="a call of propose changed the next one"):
            check_proposing_changes_nothing(own_search.Forgetful)
        with pytest.raises(AssertionError, match="two policies with equal seeds made different proposals"):
            check_seed(own_search.Unseeded)

    def test_names_are_paths_by_default(self) -> None:
        assert own_search.BestOfDrafts.name == "own_search:BestOfDrafts"
        assert from_settings({"name": "own_search:FewWeights"}).settings() == {"name": "own_search:FewWeights", "scale": 100.0}
