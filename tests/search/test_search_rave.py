"""RAVE: which nodes an operator's reward is credited to, and when."""

from __future__ import annotations

from collections.abc import Hashable, Sequence

from search_tree_paths import any_node, asked, path_to, rewards
from search_trees import MockTree, hidden_family_reward, wide_tree

from syno.search.policies import MonteCarloTreeSearch, Proposal
from syno.search.policies.mcts import (
    MctsSettings,
    Rewards,
    Statistics,
    add_virtual_loss,
    backpropagate,
    expand,
    rave_at,
    select,
)
from syno.search.tree import Action
from syno.search.walks import Draws

DRAWS = Draws("test")
FAMILY = frozenset({2, 3, 7, 10, 13})


def below(statistics: Statistics, root: Hashable, path: Sequence[Action]) -> dict[Hashable, frozenset[str]]:
    """The nodes of the search tree that steps of `path` lead to, in any order, and the ids of the steps to each."""
    found: dict[Hashable, frozenset[str]] = {root: frozenset()}
    pending = [root]
    while pending:
        node = pending.pop()
        for arc in path:
            child = statistics.at(node).child(arc)
            if child is not None and child not in found:
                found[child] = found[node] | {arc.id}
                pending.append(child)
    return found


class TestRave:
    def test_credits_every_node_below_the_operator(self) -> None:
        """Of what is in the search tree, {3} and {3, 5} are below {3, 5, 7}; {1} is not."""
        tree = MockTree(8, (3,))
        statistics = Statistics()
        for path in (path_to(tree, 3, 5, 6), path_to(tree, 3, 5, 6), path_to(tree, 1, 2, 3)):
            statistics, _ = add_virtual_loss(statistics, tree, path)
        operator = path_to(tree, 3, 5, 7)
        back = backpropagate(statistics, (), operator, 0.5)
        assert set(rave_at(back, tree.root).operations) == {"add 3", "add 5", "add 7", operator[-1].id}
        assert set(rave_at(back, frozenset({3})).operations) == {"add 5", "add 7", operator[-1].id}
        assert set(rave_at(back, frozenset({3, 5})).kinds) == {"Split", "Finalize"}
        assert not rave_at(back, frozenset({1})).operations
        assert back.operations.of["add 7"] == rewards(0.5)
        assert back.kinds.of["Finalize"] == rewards(0.5)

    def test_is_what_crediting_each_node_as_rewards_come_back_gives(self) -> None:
        tree, policy = wide_tree(), MonteCarloTreeSearch(wide_tree())
        outstanding: list[Proposal] = []
        credited: dict[Hashable, dict[str, Rewards]] = {}
        for _ in range(300):
            outstanding.append(asked(policy))
            if len(outstanding) > 20:
                told = outstanding.pop(0)
                reward = hidden_family_reward(FAMILY)(told.operator)
                for node, done in below(policy.statistics, tree.root, told.path).items():
                    here = credited.setdefault(node, {})
                    for id_ in {arc.id for arc in told.path} - done:
                        here[id_] = here.get(id_, Rewards()).add(reward)
                policy.tell(told, reward)
        assert len(credited) > 100
        assert {node: rave_at(policy.statistics, node).operations for node in credited} == credited

    def test_statistics_that_went_different_ways_do_not_mix(self) -> None:
        tree = MockTree(8, (3,))
        start = backpropagate(Statistics(), (), path_to(tree, 1, 2, 3), 0.5)
        good, bad = (backpropagate(start, (), path_to(tree, 3, 5, 7), reward) for reward in (1.0, 0.0))
        for statistics, last in ((good, 1.0), (bad, 0.0), (good, 1.0)):
            assert rave_at(statistics, tree.root).operations["add 3"] == rewards(0.5, last)
        assert rave_at(start, tree.root).operations["add 3"] == rewards(0.5)

    def test_a_node_is_not_credited_with_what_came_back_before_it_joined(self) -> None:
        tree = MockTree(8, (3,))
        before = backpropagate(Statistics(), (), path_to(tree, 3, 5, 7), 0.5)
        joined, _ = add_virtual_loss(before, tree, path_to(tree, 3, 5, 6))
        after = backpropagate(joined, (), path_to(tree, 3, 5, 6), 1.0)
        assert rave_at(after, frozenset({3})).operations["add 5"] == rewards(1.0)

    def test_operations_of_good_operators_are_considered_first(self) -> None:
        settings = MctsSettings(reveal_noise=0.0)
        tree = MockTree(6, (2,))  # every operation has a kind of its own
        statistics = Statistics()
        for chosen, reward in (((0, 1), 0.1), ((2, 3), 0.9), ((4, 5), 0.1)):
            statistics = backpropagate(statistics, (), path_to(tree, *chosen), reward)
        frontier = select(statistics, tree, any_node, settings, DRAWS)
        assert expand(frontier, DRAWS).id in ("add 2", "add 3")
