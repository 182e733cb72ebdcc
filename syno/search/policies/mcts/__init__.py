"""Monte Carlo tree search."""

from syno.search.policies.mcts.policy import MonteCarloTreeSearch
from syno.search.policies.mcts.settings import MctsSettings
from syno.search.policies.mcts.statistics import Statistics

__all__ = ["MctsSettings", "MonteCarloTreeSearch", "Statistics"]
