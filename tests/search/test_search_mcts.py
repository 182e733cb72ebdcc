"""Monte Carlo tree search: its four functions, its statistics, the published constants, and that it beats random search."""

from __future__ import annotations

import math
from dataclasses import FrozenInstanceError

import pytest
from pydantic import ValidationError
from scipy.stats import mannwhitneyu
from search_tree_paths import any_node, asked, path_to, rewards
from search_trees import MockTree, chosen_of, hard_tree, hidden_family_reward, small_tree, wide_tree

from syno.search.policies import Candidate, MonteCarloTreeSearch, Proposal
from syno.search.policies.mcts import (
    PRESETS,
    GlobalRewards,
    MctsSettings,
    Rewards,
    Statistics,
    VisitStatistics,
    add_virtual_loss,
    backpropagate,
    best_child,
    expand,
    select,
    simulate,
    widen,
)
from syno.search.policies.random_walk import RandomWalk
from syno.search.reward import Failure
from syno.search.tree import Action
from syno.search.walks import Draws, Walks

SETTINGS = MctsSettings()
DRAWS = Draws("test")
FAMILY = frozenset({2, 3, 7, 10, 13})


def visits(*values: float, outstanding: int = 0) -> VisitStatistics:
    return VisitStatistics(rewards(*values), outstanding)


def any_name(name: str) -> bool:
    return True


class TestSettings:
    def test_defaults_are_the_published_constants_but_for_two(self) -> None:
        assert SETTINGS.exploration == pytest.approx(5.656854249)
        assert (SETTINGS.virtual_loss, SETTINGS.widening, SETTINGS.local_rave, SETTINGS.reveal_noise) == (0.3, 0.8, 3.0, 0.3)
        assert (SETTINGS.suppress_visits, SETTINGS.suppress_deviation) == (30, 0.001)
        published = PRESETS["published"]
        assert published == SETTINGS.model_copy(update={"failure_reward": None, "share_values": False})
        assert published.model_fields_set == set(MctsSettings.model_fields)  # no default counts

    @pytest.mark.slow
    def test_the_published_policy_ends_whatever_fails(self) -> None:
        """It learns nothing of failures, and must come to the last operator all the same."""
        policy = MonteCarloTreeSearch(tree := hard_tree(), settings=PRESETS["published"])
        everywhere = RandomWalk(tree)
        for each in (policy, everywhere):
            while isinstance(proposal := each.ask(), Proposal):
                each.tell(proposal, Failure("broken"))
        assert policy.walks.taken == everywhere.walks.taken and len(policy.walks.taken) > 10

    def test_are_frozen_and_checked(self) -> None:
        with pytest.raises(ValidationError, match="frozen"):
            SETTINGS.widening = 0.5  # type: ignore[misc]
        with pytest.raises(ValidationError, match="less than or equal to 1"):
            MctsSettings(widening=1.5)
        with pytest.raises(ValidationError, match="Extra inputs"):
            MctsSettings(exploratoin=1.0)  # type: ignore[call-arg]


class TestStatistics:
    def test_mean_deviation_and_promise(self) -> None:
        some = rewards(0.2, 0.4, 0.6)
        assert some.mean == pytest.approx(0.4)
        assert some.variance == pytest.approx(0.08 / 3)
        assert some.promise == pytest.approx(0.4 + math.sqrt(0.08 / 3) - 1 / 3)
        assert (Rewards().mean, Rewards().deviation, Rewards().promise) == (0.0, 0.0, 0.0)

    def test_are_frozen(self) -> None:
        with pytest.raises(FrozenInstanceError):
            rewards(0.5).count = 2  # type: ignore[misc]

    def test_what_is_unknown_promises_the_mean_of_what_is_known(self) -> None:
        table = GlobalRewards().add({"a", "b"}, 1.0).add({"a"}, 0.5).add({"c"}, 0.0)
        known = [table.of[name].promise for name in "abc"]
        assert table.promise("new") == pytest.approx(sum(known) / 3)
        assert table.promise("a") == known[0]
        assert GlobalRewards().promise("new") == 0.0


class TestReveal:
    @pytest.mark.parametrize(("count", "room"), [(0, 1), (1, 1), (2, 1), (3, 2), (10, 6), (32, 16)])
    def test_a_node_considers_visits_to_the_power_of_widening(self, count: int, room: int) -> None:
        names = [f"{number:02}" for number in range(20)]
        assert widen(names, 0, count, lambda name: 0.0, any_name, SETTINGS) == names[:room]

    def test_the_most_promising_first(self) -> None:
        promise = {"a": 0.1, "b": 0.9, "c": 0.5}
        assert widen("abc", 0, 3, promise.__getitem__, any_name, SETTINGS) == ["b", "c"]
        assert widen("ac", 1, 3, promise.__getitem__, any_name, SETTINGS) == ["c"]
        assert widen("ac", 1, 2, promise.__getitem__, any_name, SETTINGS) == []

    def test_what_has_nothing_left_does_not_count(self) -> None:
        assert widen("abc", 0, 3, lambda name: 0.0, {"b", "c"}.__contains__, SETTINGS) == ["b", "c"]

    def test_no_more_are_looked_at_than_come_into_consideration(self) -> None:
        looked: list[str] = []

        def leads_on(name: str) -> bool:
            looked.append(name)
            return name != "a"

        assert widen("abcd", 0, 2, lambda name: 0.0, leads_on, SETTINGS) == ["b"]
        assert looked == ["a", "b"]


class TestBest:
    def test_is_ucb1_tuned(self) -> None:
        """By hand: ln(10) = 2.3026; both spreads are cut at 1/4."""
        taken = {"a": visits(*[0.5] * 4), "b": visits(*[0.4] * 6)}

        def score(mean: float, variance: float, count: int) -> float:
            ratio = math.log(10) / count
            return mean + 4 * math.sqrt(2) * math.sqrt(ratio * min(0.25, variance + math.sqrt(2 * ratio)))

        assert score(0.5, 0, 4) > score(0.4, 0, 6)
        assert best_child(taken, 10, {}, SETTINGS, DRAWS) == "a"
        without_exploration = SETTINGS.model_copy(update={"exploration": 0.0})
        assert best_child({"a": visits(0.5), "b": visits(*[0.6] * 20)}, 21, {}, without_exploration, DRAWS) == "b"
        assert best_child({"a": visits(0.5), "b": visits(*[0.6] * 20)}, 21, {}, SETTINGS, DRAWS) == "a"

    def test_each_outstanding_trial_takes_its_virtual_loss_off(self) -> None:
        alike = SETTINGS.model_copy(update={"exploration": 0.0})
        assert best_child({"a": visits(0.9, outstanding=1), "b": visits(0.7)}, 3, {}, alike, DRAWS) == "b"
        assert best_child({"a": visits(0.9, outstanding=1), "b": visits(0.5)}, 3, {}, alike, DRAWS) == "a"

    def test_settled_children_are_left_alone_while_there_are_others(self) -> None:
        alike = SETTINGS.model_copy(update={"exploration": 0.0})
        settled = visits(*[1.0] * 31)
        assert best_child({"a": settled, "b": visits(0.1)}, 32, {}, alike, DRAWS) == "b"
        assert best_child({"a": visits(*[1.0] * 30), "b": visits(0.1)}, 31, {}, alike, DRAWS) == "a"
        assert best_child({"a": settled, "b": visits(*[0.5] * 31)}, 62, {}, alike, DRAWS) == "a"

    def test_only_outstanding_visits_are_no_trouble(self) -> None:
        assert best_child({"a": visits(outstanding=2), "b": visits(outstanding=1)}, 3, {}, SETTINGS, DRAWS) == "b"


class TestTheFourFunctions:
    def test_select_stops_where_a_step_was_never_taken(self) -> None:
        tree = wide_tree()
        frontier = select(Statistics(), tree, any_node, SETTINGS, DRAWS)
        assert (frontier.path, frontier.node) == ((), tree.root)
        assert len(frontier.choices) == 1

    def test_select_descends_once_enough_was_taken(self) -> None:
        tree = MockTree(1, (1,))
        statistics, _ = add_virtual_loss(Statistics(), tree, path_to(tree, 0)[:1])
        frontier = select(statistics, tree, any_node, SETTINGS, DRAWS)
        assert [step.id for step in frontier.path] == ["add 0"]
        assert [step.kind for step in frontier.choices] == ["Finalize"]

    def test_expand_and_simulate_complete_the_path(self) -> None:
        tree = wide_tree()
        step = expand(select(Statistics(), tree, any_node, SETTINGS, DRAWS), DRAWS)
        rest = simulate(Walks(tree), step, DRAWS)
        assert rest is not None and rest[-1].operator is not None
        assert int(step.id.split()[1]) in chosen_of(rest[-1].operator)

    def test_a_proposal_adds_one_step_to_the_search_tree(self) -> None:
        tree = wide_tree()
        path = path_to(tree, 3, 5, 6, 10)
        statistics = Statistics()
        for depth in range(1, len(path) + 1):
            statistics, along = add_virtual_loss(statistics, tree, path)
            assert [visit.action for visit in along] == list(path[:depth])
            assert len(statistics.nodes) == depth + 1
        assert add_virtual_loss(statistics, tree, path)[1] == along

    def test_virtual_losses_come_and_go(self) -> None:
        tree = wide_tree()
        path = path_to(tree, 3, 5, 6, 10)
        before, _ = add_virtual_loss(Statistics(), tree, path)
        after, along = add_virtual_loss(before, tree, path)
        assert after.at(tree.root).visits == VisitStatistics(Rewards(), 2)
        back = backpropagate(after, along, path, 0.5)
        assert back.at(tree.root).visits == VisitStatistics(rewards(0.5), 1)
        for node, arc, child in along:
            kind = back.at(node).kinds[arc.kind]
            assert kind.visits.rewards == kind.steps[arc.id].rewards == rewards(0.5)
            assert back.at(child).visits.rewards == rewards(0.5)

    def test_nothing_changes_in_place(self) -> None:
        tree = wide_tree()
        path = path_to(tree, 3, 5, 6, 10)
        empty = Statistics()
        departed, along = add_virtual_loss(empty, tree, path)
        assert empty == Statistics() != departed
        again, _ = add_virtual_loss(empty, tree, path)
        backpropagate(departed, along, path, 0.5)
        assert departed == again

    def test_an_outcome_that_counts_as_nothing_only_takes_the_virtual_loss_back(self) -> None:
        tree = wide_tree()
        path = path_to(tree, 3, 5, 6, 10)
        departed, along = add_virtual_loss(Statistics(), tree, path)
        back = backpropagate(departed, along, path, None)
        assert back.at(tree.root).visits == VisitStatistics()
        assert not back.operations.of


class TestPolicy:
    def test_a_node_reached_in_two_ways_has_one_statistic(self) -> None:
        tree = MockTree(3, (2,))
        policy = MonteCarloTreeSearch(tree)
        both = [(Action("Reduce", "add 0"), Action("Split", "add 1")), (Action("Split", "add 1"), Action("Reduce", "add 0"))]
        for number, path in enumerate(both * 2):
            candidate = Candidate(path, str(number))
            policy.adopt(candidate)
            policy.tell(candidate, 0.5)
        assert policy.statistics.at(frozenset({0, 1})).visits.rewards.count == 2
        assert policy.statistics.at(tree.root).visits.rewards.count == 4

    def test_failures_count_as_the_settings_say(self) -> None:
        for value, count in ((0.0, 1), (None, 0)):
            policy = MonteCarloTreeSearch(wide_tree(), settings=MctsSettings(failure_reward=value))
            policy.tell(asked(policy), Failure("broken"))
            visited = policy.statistics.at(policy.tree.root).visits
            assert (visited.rewards.count, visited.outstanding) == (count, 0)

    def test_workers_that_ask_at_once_are_sent_to_different_places(self) -> None:
        policy = MonteCarloTreeSearch(wide_tree())
        for _ in range(50):
            proposal = asked(policy)
            policy.tell(proposal, hidden_family_reward(FAMILY)(proposal.operator))
        assert len({asked(policy).path[0] for _ in range(10)}) >= 3

    def test_a_node_where_nothing_was_found_in_time_is_hidden_not_closed(self) -> None:
        """Everything that holds operation 0 is a dead end, as far as anybody can look."""
        forbidden = frozenset((0, other) for other in range(1, 14))
        tree = MockTree(14, (6,), forbidden=forbidden)
        policy = MonteCarloTreeSearch(tree)
        for _ in range(40):
            proposal = asked(policy)
            assert 0 not in chosen_of(proposal.operator)
            policy.tell(proposal, 0.5)
        assert frozenset({0}) in policy._hidden and not policy.walks.is_closed(frozenset({0}))

    def test_no_steps_are_asked_for_without_need(self) -> None:
        """One completion looks at a node for each step; the tree remembers the rest."""
        tree = wide_tree()
        policy = MonteCarloTreeSearch(tree)
        for _ in range(100):
            policy.tell(asked(policy), 0.5)
        assert tree.looked_at <= 100 * 20  # a path has five steps; the dead ends take some more

    def test_small_trees_are_exhausted_with_any_constants(self) -> None:
        for settings in (
            MctsSettings(widening=0.0),
            MctsSettings(widening=1.0, exploration=0.0),
            MctsSettings(virtual_loss=0.0),
        ):
            policy = MonteCarloTreeSearch(small_tree(), settings=settings)
            count = 0
            while isinstance(proposal := policy.ask(), Proposal):
                policy.tell(proposal, 1.0)
                count += 1
            assert count == len(small_tree().leaves())


@pytest.mark.slow  # test_search_benchmark.py says the same of fewer trials
def test_beats_random_search() -> None:
    """At 200 trials each, over 20 seeds, with the published constants: mean reward of all proposals, one-sided."""
    reward = hidden_family_reward(FAMILY)

    def mean_reward(kind: type[MonteCarloTreeSearch] | type[RandomWalk], seed: int) -> float:
        policy, total = kind(wide_tree(), seed), 0.0
        for _ in range(200):
            proposal = policy.ask()
            assert isinstance(proposal, Proposal)
            policy.tell(proposal, reward(proposal.operator))
            total += reward(proposal.operator)
        return total / 200

    guided = [mean_reward(MonteCarloTreeSearch, seed) for seed in range(20)]
    blind = [mean_reward(RandomWalk, seed) for seed in range(20)]
    assert mannwhitneyu(guided, blind, alternative="greater").pvalue < 1e-4
