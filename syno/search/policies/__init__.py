"""Search policies. Each passes the checks of `syno.search.policies.contract`.

>>> POLICIES["random"]
<class 'syno.search.policies.random_walk.RandomWalk'>
"""

from syno.search.policies.contract import (
    EXHAUSTED,
    POLICIES,
    Candidate,
    Exhausted,
    LayerError,
    Policy,
    PolicySettings,
    Proposal,
)
from syno.search.policies.evolution import Evolution
from syno.search.policies.mcts import MonteCarloTreeSearch
from syno.search.policies.random_walk import RandomWalk
from syno.search.policies.surrogate import Surrogate

__all__ = [
    "EXHAUSTED",
    "POLICIES",
    "Candidate",
    "Evolution",
    "Exhausted",
    "LayerError",
    "MonteCarloTreeSearch",
    "Policy",
    "PolicySettings",
    "Proposal",
    "RandomWalk",
    "Surrogate",
]
