"""Reports of runs: the page, tables and figures, and cards of operators."""
