# From synthesis to figures: `snakemake --cores 2` runs config/quickstart.yaml, `--configfile` another experiment.
# Every rule is one `syno` command, which does the same when it is run by hand; what they share is in common.smk.
from snakemake.utils import min_version

min_version("9.14")

if not workflow.overwrite_configfiles:  # else the quickstart's settings would be mixed with those that were asked for

    configfile: f"{workflow.basedir}/config/quickstart.yaml"


include: "workflow/rules/common.smk"
include: "workflow/rules/data.smk"
include: "workflow/rules/search.smk"
include: "workflow/rules/train.smk"
include: "workflow/rules/tune.smk"
include: "workflow/rules/figures.smk"
include: "workflow/rules/report.smk"


rule all:
    default_target: True
    input:
        rules.report.output,
        rules.figures.input,
        trainings_of([ORIGINAL, *EXPERIMENT.baselines]) if TRAINS else [],  # they need not wait for the search
        [trainings, measurements] if TRAINS else [],  # else one that was taken away would not be missed


onstart:
    with in_words():
        keep_config(EXPERIMENT)
