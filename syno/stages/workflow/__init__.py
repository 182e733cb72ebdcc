"""The workflow's side of Snakemake: how it is started, what its jobs read and take, and what becomes of failed ones."""
