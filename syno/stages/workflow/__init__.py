"""The workflow's side of Snakemake: its start, input files and resources of its jobs, and the handling of failed jobs."""
