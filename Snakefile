# From synthesis to figures: `snakemake --cores 2` runs config/quickstart.yaml, `--configfile FILE` other experiments, and with the
# name of one of several experiments, only that one. Every rule runs one `syno` command, which does the same by hand.
from snakemake.utils import min_version

min_version("9.14")

if not workflow.overwrite_configfiles:  # else the quickstart's settings would be mixed with the given ones

    configfile: f"{workflow.basedir}/config/quickstart.yaml"


include: "workflow/rules/common.smk"
include: "workflow/rules/state.smk"
include: "workflow/rules/data.smk"
include: "workflow/rules/search.smk"
include: "workflow/rules/train.smk"
include: "workflow/rules/tune.smk"
include: "workflow/rules/figures.smk"
include: "workflow/rules/report.smk"


rule all:
    default_target: True
    input:
        [results_of(folder) for folder in EXPERIMENTS],


for folder, experiment in EXPERIMENTS.items():
    if not workflow.is_rule(experiment.name):

        rule:
            name:
                experiment.name
            input:
                results_of(folder),
