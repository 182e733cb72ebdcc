"""Canonicalization rules: each rejects steps whose result is also reached in another way."""

from syno.space.rules import order, symmetry, views  # noqa: F401  # importing them fills the table
from syno.space.rules.table import RULES, Rule, RuleSet
from syno.space.steps import KINDS, CandidateStep

__all__ = ["KINDS", "RULES", "CandidateStep", "Rule", "RuleSet"]
