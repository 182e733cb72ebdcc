"""Canonicalization rules."""

from syno.space.rules import order, other_forms, symmetry, unordered, views  # noqa: F401  # importing them fills the table
from syno.space.rules.table import KINDS, RULES, Candidate, Rule, RuleSet

__all__ = ["KINDS", "RULES", "Candidate", "Rule", "RuleSet"]
