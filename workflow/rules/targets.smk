# A target for each experiment, with its name: `snakemake imagenet-resnet18 --cores all --configfile config/paper.yaml`.
for folder, experiment in EXPERIMENTS.items():
    if not workflow.is_rule(experiment.name):

        rule:
            name:
                experiment.name
            input:
                FILES.results(folder),
