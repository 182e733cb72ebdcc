"""The space of operators: specs, states and steps, canonicalization rules, the shape distance, fingerprints."""

from syno.space.options import Budget
from syno.space.presets import preset
from syno.space.sample import Sampler
from syno.space.space import Space
from syno.space.spec import OperatorSpec
from syno.space.steps import Step

__all__ = ["Budget", "OperatorSpec", "Sampler", "Space", "Step", "preset"]
