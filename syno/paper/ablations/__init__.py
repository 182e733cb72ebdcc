"""The ablations: effects of canonicalization rules, shape distance and requirements on a search space, and common patterns."""
