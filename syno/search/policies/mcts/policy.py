"""Monte Carlo tree search as a policy."""

from __future__ import annotations

from collections.abc import Hashable

from syno.search.draws import Draws
from syno.search.policies.contract import Candidate, Policy
from syno.search.policies.mcts.search import Visit, backpropagate, depart, expand, select, simulate
from syno.search.policies.mcts.settings import MctsSettings
from syno.search.policies.mcts.statistics import Statistics
from syno.search.policies.registry import POLICIES
from syno.search.reward import Failure, Outcome
from syno.search.tree import Step


@POLICIES.register("mcts")
class MonteCarloTreeSearch(Policy):
    """The published search: UCB1-tuned with virtual losses, progressive widening in the order of RAVE statistics.

    A node with nothing left below it is closed for good; one below which nothing was found in time is hidden until its
    statistics change.

    Source: the published system's search.
    """

    name = "mcts"
    Settings = MctsSettings
    settings: MctsSettings

    def _prepare(self) -> None:
        self.statistics = Statistics()
        self._visits: dict[str, tuple[Visit, ...]] = {}
        self._hidden: dict[Hashable, int] = {}  # nodes, and how often they had been visited

    def _choose(self, draws: Draws) -> tuple[Step, ...] | None:
        root = self.tree.root
        while not self.walks.is_closed(root):
            frontier = select(self.statistics, self.tree, self._is_open, self.settings, draws)
            if not frontier.choices:
                if frontier.node == root:  # all that is left below it is hidden
                    return self.walks.anywhere(draws)
                self._set_aside(frontier.node)
                continue
            step = expand(frontier, draws)
            rest = simulate(self.walks, step, draws)
            if rest is not None:
                return (*frontier.path, step, *rest)
            if not self.walks.is_closed(step.node):
                self._hidden[step.node] = self.statistics.at(step.node).visits.count
        return None

    def _is_open(self, node: Hashable) -> bool:
        return not self.walks.is_closed(node) and not self._is_hidden(node)

    def _is_hidden(self, node: Hashable) -> bool:
        visits = self._hidden.get(node)
        return visits is not None and visits == self.statistics.at(node).visits.count

    def _set_aside(self, node: Hashable) -> None:
        """Close a node whose steps have nothing left; hide it if some are only hidden."""
        if self.walks.has_more(node):
            self._hidden[node] = self.statistics.at(node).visits.count
        else:
            self.walks.close(node)

    def _adopted(self, candidate: Candidate) -> None:
        self.statistics, visits = depart(self.statistics, self.tree, candidate.path)
        self._visits[candidate.fingerprint] = visits

    def _told(self, candidate: Candidate, outcome: Outcome) -> None:
        reward = self.settings.failure_reward if isinstance(outcome, Failure) else outcome
        visits = self._visits.pop(candidate.fingerprint)
        self.statistics = backpropagate(self.statistics, visits, candidate.path, reward)
