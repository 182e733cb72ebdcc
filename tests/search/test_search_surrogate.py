"""The policy `surrogate`: what its model learns, from this search and from earlier ones."""

from __future__ import annotations

from pathlib import Path
from statistics import mean

import numpy as np
import pandas
import pytest
from search_trees import hidden_family_reward, wide_tree

import syno
from syno.base.errors import SpecError
from syno.config.experiment import Experiment
from syno.ir.graph import PGraph
from syno.search.goal import Goal
from syno.search.policies import POLICIES, Candidate, Proposal, Surrogate
from syno.search.policies.contract import drive, small_space
from syno.search.policies.earlier import Evaluated, rewards
from syno.search.policies.mcts import PRESETS, MctsSettings
from syno.search.policies.surrogate import Descriptions, Model, SurrogateSettings, expected_improvement
from syno.search.tree import Tree
from syno.space.features import OperatorFeatures
from syno.space.presets import preset
from syno.space.space import Space
from syno.train.contract import FIT_ERROR

ORIGINAL = {"flops": 2.3e11, "parameters": 1.1e7}
FEW = {"trees": 8, "walks": 4, "mutations": 4}
reward = hidden_family_reward(frozenset({2, 3, 7, 10, 13}))


def searched(name: str, seed: int, count: int) -> list[float]:
    settings = SurrogateSettings(**FEW) if name == "surrogate" else None
    policy = POLICIES[name](wide_tree(), seed, settings=settings)
    found = []
    for _ in range(count):
        proposal = policy.ask()
        assert isinstance(proposal, Proposal)
        found.append(reward(proposal.operator))
        policy.tell(proposal, found[-1])
    return found


def test_learns_a_family_of_operators_sooner_than_random_search() -> None:
    ours, blind = ([mean(searched(name, seed, 36)[18:]) for seed in range(2)] for name in ("surrogate", "random"))
    assert min(ours) > 1.5 * max(blind)


def test_learns_from_trials_that_did_not_end() -> None:
    """Estimates rise with values, and lie below what those with more have reached."""
    known = {0: (0.5, 0.9, 1.0), 1: (0.3, 0.6, 0.8), 2: (0.4, 0.7, 0.7)}  # values after two steps, and rewards
    begun = [Evaluated(str(one), reward, ((1, early), (2, late))) for one, (early, late, reward) in known.items()]
    paused = [Evaluated("late", None, ((1, 0.35), (2, 0.65)))]
    paused += [Evaluated(str(value), None, ((1, value),)) for value in (0.1, 0.2, 0.45, -float("inf"))]
    *told, late, low, middle, high, worst = rewards([*begun, *paused])
    assert told == [1.0, 0.8, 0.7] and 0 < worst < low < middle < 0.7 < high <= 1.0 and late == pytest.approx(0.75)
    assert rewards(paused)[1:] == [pytest.approx(place / 6) for place in (2, 3, 5, 1)]  # by rank, where nothing has ended


def test_200_workers_get_different_operators() -> None:
    policy = Surrogate(wide_tree(), 1, settings=SurrogateSettings(**FEW))
    happened = drive(policy, 220, at_once=200)
    proposed = [event.proposal.fingerprint for event in happened if event.outcome is None]
    assert len(proposed) == len(set(proposed)) == 220


def test_expects_less_from_operators_like_those_that_run() -> None:
    """Among equal candidates, the one that no running trial is like is proposed."""
    model = Model(8, 0)
    rows = np.array([[0.0, 0.0], [0.0, 1.0], [1.0, 0.0], [1.0, 1.0]])
    model.fit(rows, np.array([0.1, 0.4, 0.5, 0.9]))
    alike = model.alike(rows, rows[3:])
    assert alike[:, 0].argmax() == 3 and alike[3, 0] == 1 and alike[0, 0] < 1


def test_a_model_is_certain_of_what_it_knows_and_equal_for_equal_seeds() -> None:
    rows = np.linspace(0, 1, 12)[:, None]
    first, again = Model(16, 3), Model(16, 3)
    for model in (first, again):
        model.fit(rows, rows[:, 0] ** 2)
    between = (rows[1:] + rows[:-1]) / 2
    assert [*map(np.ndarray.tolist, first.predict(between))] == [*map(np.ndarray.tolist, again.predict(between))]
    assert first.predict(rows)[1].max() < first.predict(between)[1].min() * 1.001


def test_what_is_measured_later_is_a_column_that_is_predicted_where_it_is_not_known() -> None:
    draws = np.random.default_rng(1)
    rows, new = draws.random((12, 3)), draws.random((40, 3))
    measured = np.where(np.arange(12) % 3 == 0, np.nan, rows[:, 0])
    model, without, few = Model(32, 0), Model(32, 0), Model(32, 0)
    model.fit(rows, rows[:, 0], measured)
    without.fit(rows, rows[:, 0])
    few.fit(rows, rows[:, 0], np.where(np.arange(12) < 3, measured, np.nan))
    known = np.isfinite(measured)
    assert model.predict(rows[known])[0] == pytest.approx(rows[known, 0]) and model.alike(rows, rows).diagonal().min() == 1
    assert (model.predict(new)[0] != without.predict(new)[0]).any() and (few.predict(new)[0] == without.predict(new)[0]).all()


@pytest.mark.parametrize("goal", [None, Goal(lose_at_most=0.1)], ids=["reward", "goal"])
def test_the_policy_learns_from_the_errors_of_fits(goal: Goal | None) -> None:
    """The errors of fits as a column, which some operators lack."""
    for fitted in (False, True):
        policy = Surrogate(wide_tree(), 1, settings=SurrogateSettings(**FEW), goal=goal)
        for number in range(12):
            proposal = policy.ask()
            assert isinstance(proposal, Proposal)
            found = reward(proposal.operator)
            error = {FIT_ERROR: 1 - found} if fitted and number % 3 else {}
            policy.measure(proposal, {"speedup": 1.2, "accuracy": found, **error})
            policy.tell(proposal, found)
        assert isinstance(policy.propose(), Proposal)
        models = policy._fitted_to_goal()
        model = policy._fitted() if models is None else models.score
        assert model is not None and (model._column is not None) == fitted


class TestLayerErrors:
    """A policy that fits candidates to a layer of the trained original."""

    def errors_of_proposals(
        self, count: int, *, is_fitted: bool = True, goal: Goal | None = None, **changes: int
    ) -> tuple[list[float], list[int]]:
        """Return the errors of the operators that are proposed, and how many were fitted for each."""
        fitted: list[str] = []

        def error(operator: PGraph) -> float:
            fitted.append(operator.id)
            return 1 - reward(operator)

        settings = SurrogateSettings(**{**FEW, "beginner_walks": 24, **changes})
        policy = Surrogate(wide_tree(), 1, settings=settings, goal=goal, layer_error=error if is_fitted else None)
        errors, counts = [], []
        for _ in range(count):
            before = len(fitted)
            proposal = policy.ask()
            assert isinstance(proposal, Proposal)
            counts.append(len(fitted) - before)
            errors.append(1 - reward(proposal.operator))
            policy.measure(proposal, {"speedup": 1.2})
            policy.tell(proposal, 1 - errors[-1])
        assert len(set(fitted)) == len(fitted)
        return errors, counts

    @pytest.mark.parametrize("goal", [None, Goal(speedup=1.1)], ids=["reward", "goal"])
    def test_those_with_small_errors_are_proposed(self, goal: Goal | None) -> None:
        fitted, counts = self.errors_of_proposals(12, walks=12, mutations=12, fits=24, goal=goal)
        blind, _ = self.errors_of_proposals(12, walks=12, mutations=12, fits=24, goal=goal, is_fitted=False)
        assert mean(fitted) < 0.8 * mean(blind) and max(counts) <= 24 and min(counts) >= 1
        assert self.errors_of_proposals(12, walks=12, mutations=12, fits=24, goal=goal) == (fitted, counts)

    def test_only_the_most_promising_ones_are_fitted(self) -> None:
        assert max(self.errors_of_proposals(8, fits=3)[1]) == 3

    def test_operators_of_the_warm_start_are_proposed_as_they_are(self) -> None:
        first = Surrogate(wide_tree(), 5, settings=SurrogateSettings(**FEW)).ask()
        assert isinstance(first, Proposal)
        policy = Surrogate(wide_tree(), 1, warm_start=[first], layer_error=lambda operator: pytest.fail("it is given"))
        assert policy.ask() == first


def test_expected_improvement_is_the_mean_of_what_lies_above_the_best() -> None:
    draws = np.random.default_rng(0).normal(0.4, 0.2, 200_000)
    found = expected_improvement(np.array([0.4]), np.array([0.2]), 0.5)[0]
    assert found == pytest.approx(np.maximum(draws - 0.5, 0).mean(), rel=0.02)


def test_an_operator_is_described_alike_with_and_without_its_graph() -> None:
    """A rebuilt policy knows paths only, and finds the operators in the tree."""
    for event in drive(POLICIES["random"](small_space(), 3), 4, at_once=5):
        proposal = event.proposal
        by_path = Candidate(proposal.path, proposal.fingerprint)
        by_text = Candidate(proposal.path, proposal.fingerprint, text=str(proposal.operator))
        found = [Descriptions(small_space()).of(one) for one in (proposal, by_path, by_text)]
        assert found[0] == found[1] == found[2] != (0.0,) * len(found[0])


class TestFeatures:
    def test_say_what_is_read_and_what_it_costs(self) -> None:
        spec = preset("resnet18")
        features = OperatorFeatures(spec)
        operator = syno.OPERATORS["operator_1"]()
        found = dict(zip(features.columns, features(operator), strict=True))
        assert found["once: least positions"] == pytest.approx(np.log2(3))
        assert found["twice: least positions"] == pytest.approx(np.log2(5))
        assert found["twice: neighbours"] == 1 and found["weights"] == 2
        assert 2 ** found["FLOPs"] == pytest.approx(Space(spec).completion.cost(operator).flops)

    def test_a_space_whose_output_has_another_shape_has_no_second_reading(self) -> None:
        space = small_space()
        operator = next(event.proposal.operator for event in drive(POLICIES["random"](space), 1))
        features = OperatorFeatures(space.spec)
        found = dict(zip(features.columns, features(operator), strict=True))
        assert found["twice: share"] == 0 < found["once: share"]

    def test_a_tree_without_a_spec_is_described_by_paths(self) -> None:
        tree = wide_tree()
        one, other = (event.proposal for event in drive(POLICIES["random"](tree), 2) if event.outcome is None)
        descriptions = Descriptions(tree)
        assert descriptions.of(one) != descriptions.of(other)
        assert sum(descriptions.of(one)) == len(one.path) - 1


class TestEarlierStudies:
    @staticmethod
    def write(folder: Path, space: Space) -> Path:
        """Write the trials of a search that has evaluated all operators."""
        happened = drive(POLICIES["random"](space), 100)
        rows = [(str(event.proposal.operator), event.outcome) for event in happened if isinstance(event.outcome, float)]
        frame = pandas.DataFrame(rows, columns=["operator", "reward"]).assign(outcome="complete")
        folder.mkdir()
        frame.to_parquet(folder / "trials.parquet")
        return folder

    def test_the_first_proposal_is_among_the_best_of_an_earlier_study(self, tmp_path: Path) -> None:
        folder = self.write(tmp_path / "earlier", small_space())
        settings = SurrogateSettings(learn_from=(str(folder),), walks=64, mutations=0)
        policy = Surrogate(small_space(), 5, settings=settings)
        known = pandas.read_parquet(folder / "trials.parquet").set_index("operator")["reward"]
        first = policy.ask()
        assert isinstance(first, Proposal) and known[str(first.operator)] >= known.quantile(0.8)

    def test_a_study_remembers_what_it_learnt_from(self, tmp_path: Path) -> None:
        folder = self.write(tmp_path / "earlier", small_space())
        settings = SurrogateSettings(learn_from=(str(folder),))
        before = settings.model_dump(mode="json")
        frame = pandas.read_parquet(folder / "trials.parquet")
        frame.head(3).to_parquet(folder / "trials.parquet")
        assert settings.model_dump(mode="json")["learnt"] != before["learnt"]

    def test_what_cannot_be_learnt_from_is_an_error_that_names_it(self, tmp_path: Path) -> None:
        def learning(given: Path, tree: Tree) -> Surrogate:
            return Surrogate(tree, settings=SurrogateSettings(learn_from=(str(given),)))

        (tmp_path / "empty").mkdir()
        with pytest.raises(SpecError, match='learn_from names ".*empty", which has no trials.parquet; give the folder of a'):
            learning(tmp_path / "empty", small_space())
        (tmp_path / "text").write_text("no table")
        with pytest.raises(SpecError, match="text of learn_from cannot be read"):
            learning(tmp_path / "text", small_space())
        pandas.DataFrame({"a": [1]}).to_parquet(tmp_path / "other")
        with pytest.raises(SpecError, match='no table of trials: it has no column "operator"'):
            learning(tmp_path / "other", small_space())
        folder = self.write(tmp_path / "earlier", small_space())
        with pytest.raises(SpecError, match=r"none of the \d+ operators of .* fits the layers of this search"):
            learning(folder, Space(preset("gpt2")))
        with pytest.raises(SpecError, match="learn_from needs a space with a spec"):
            learning(folder, wide_tree())
        frame = pandas.read_parquet(folder / "trials.parquet")
        frame.assign(outcome="running", reward=None).to_parquet(folder / "trials.parquet")
        with pytest.raises(SpecError, match="holds no evaluated operator"):
            learning(folder, small_space())


@pytest.mark.parametrize("given", ["published", {"name": "published"}])
def test_the_published_policy_is_mcts_with_all_its_constants(given: object) -> None:
    found = Experiment(name="own", spec="resnet18", original=ORIGINAL, policy=given)
    assert set(found.policy) == {"name", *MctsSettings.model_fields} and found.policy["name"] == "mcts"
    assert found.policy_settings == PRESETS["published"]
    assert Experiment(**found.model_dump()).policy == found.policy  # as it is kept beside results


def test_a_preset_with_settings_is_an_error() -> None:
    with pytest.raises(
        SpecError, match=r'policy "published" is a preset and takes no settings; with settings, give \{name: mcts'
    ):
        Experiment(name="own", spec="resnet18", original=ORIGINAL, policy={"name": "published", "exploration": 1})
