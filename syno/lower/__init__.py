"""Lowering of operators to code: the interpreter, which defines their meaning, plans, and code generators."""
