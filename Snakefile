# The workflow is workflow/Snakefile: `snakemake --cores 2` runs config/quickstart.yaml, and `--configfile FILE` other experiments.
include: "workflow/Snakefile"


rule default:  # Snakemake takes no default target from a file that is included
    default_target: True
    input:
        rules.all.input,
