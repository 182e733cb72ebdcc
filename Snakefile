# The workflow from synthesis to figures. `snakemake --cores 2` runs config/quickstart.yaml, and `--configfile FILE` runs other experiments.
# With the name of one of several experiments, only that one runs. Every rule runs one `syno` command, which can also be run by hand.
from snakemake.utils import min_version

min_version("9.14")

if not workflow.overwrite_configfiles:  # otherwise the quickstart's settings would be merged with the given ones

    configfile: f"{workflow.basedir}/config/quickstart.yaml"


include: "workflow/rules/common.smk"
include: "workflow/rules/state.smk"
include: "workflow/rules/data.smk"
include: "workflow/rules/search.smk"
include: "workflow/rules/train.smk"
include: "workflow/rules/tune.smk"
include: "workflow/rules/ablate.smk"
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
