"""The space of operators: what is allowed, what is canonical, how far a partial operator is from complete."""
