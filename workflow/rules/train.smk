# From the selected operators to trained networks. Files are named by the operator's id, so a record stays valid when other operators are
# selected.


rule train:
    input:
        "{folder}/data.json",
        original_before,
    output:
        "{folder}/train/{key}/seed{seed}.json",
    log:
        "{folder}/log/train/{key}/seed{seed}.log",
    benchmark:
        "{folder}/benchmark/train/{key}/seed{seed}.tsv"
    retries: JOBS.retries
    conda:
        "../../envs/train.yaml"
    threads: JOBS.training_threads("train")
    resources:
        **JOBS.of_training("train"),
    params:
        config=CONFIG,
        settings=training_settings,
    shell:
        "OMP_NUM_THREADS={threads} syno train {params.config:q} {wildcards.key:q} --seed {wildcards.seed:q} --output {output:q}"
        " 2>&1 | tee -i {log:q}"


# An operator for each layer: it measures what the selected operators save in each, and fits them. It takes the longest of all that
# follows the selection, on one core, so it begins first.
rule choose:
    input:
        "{folder}/data.json",
        "{folder}/selected.json",
    output:
        "{folder}/choice.json",
    log:
        "{folder}/log/choose.log",
    benchmark:
        "{folder}/benchmark/choose.tsv"
    priority: 6
    retries: JOBS.retries
    conda:
        "../../envs/train.yaml"
    threads: JOBS.training_threads("choose")
    resources:
        **JOBS.of_training("choose"),
    params:
        config=CONFIG,
        settings=settings_of("choice"),
    shell:
        "OMP_NUM_THREADS={threads} syno choose {params.config:q} --output {output:q} 2>&1 | tee -i {log:q}"


# What a user would do without synthesis, and mixtures: pruning, fewer channels, known layers, 8-bit integers, also of networks with operators. It
# measures and trains, and begins with trained networks.
rule rival:
    input:
        "{folder}/data.json",
        trained_before,
    output:
        "{folder}/rivals/{rival}.json",
    log:
        "{folder}/log/rivals/{rival}.log",
    benchmark:
        "{folder}/benchmark/rivals/{rival}.tsv"
    retries: JOBS.retries
    conda:
        "../../envs/train.yaml"
    threads: JOBS.training_threads("rival")
    resources:
        **JOBS.of_training("rival"),
    params:
        config=CONFIG,
        settings=settings_of("rivals"),
    shell:
        "OMP_NUM_THREADS={threads} syno rival {params.config:q} {wildcards.rival:q} --output {output:q} 2>&1 | tee -i {log:q}"
