"""From operators to code: the interpreter (the meaning), the plan, and the generators."""
