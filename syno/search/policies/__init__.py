"""Search policies, each of which passes one conformance suite.

>>> list(POLICIES)
['evolution', 'mcts', 'random']
"""

from syno.search.policies.contract import EXHAUSTED, Candidate, Exhausted, Policy, PolicySettings, Proposal
from syno.search.policies.evolution import Evolution
from syno.search.policies.mcts import MonteCarloTreeSearch
from syno.search.policies.random_walk import RandomWalk
from syno.search.policies.registry import POLICIES

__all__ = [
    "EXHAUSTED",
    "POLICIES",
    "Candidate",
    "Evolution",
    "Exhausted",
    "MonteCarloTreeSearch",
    "Policy",
    "PolicySettings",
    "Proposal",
    "RandomWalk",
]
