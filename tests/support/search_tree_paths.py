"""What tests of Monte Carlo tree search have in common: paths of explicit trees, rewards, and what a policy is asked."""

from __future__ import annotations

from collections.abc import Hashable

from search_trees import MockTree, operator_of

from syno.search.policies import MonteCarloTreeSearch, Proposal
from syno.search.policies.mcts import Rewards
from syno.search.tree import Action, actions


def rewards(*values: float) -> Rewards:
    found = Rewards()
    for value in values:
        found = found.add(value)
    return found


def any_node(node: Hashable) -> bool:
    return True


def path_to(tree: MockTree, *chosen: int) -> tuple[Action, ...]:
    return actions(tree.path(operator_of(frozenset(chosen))))


def asked(policy: MonteCarloTreeSearch) -> Proposal:
    proposal = policy.ask()
    assert isinstance(proposal, Proposal)
    return proposal
