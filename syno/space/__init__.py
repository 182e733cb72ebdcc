"""The space of operators: what is allowed, what is canonical, how far a partial operator is from complete."""

from syno.space.options import Budget
from syno.space.presets import paper
from syno.space.sample import Sampler
from syno.space.space import Space
from syno.space.spec import OperatorSpec
from syno.space.steps import Step

__all__ = ["Budget", "OperatorSpec", "Sampler", "Space", "Step", "paper"]
