# Files are named by the operator's id, so a record stays valid when other operators are selected.
rule train:
    input:
        read_by("train"),
        original_before,
    output:
        written_by("train"),
    log:
        log_of("train"),
    benchmark:
        times_of("train")
    retries: RETRIES
    conda:
        ENVIRONMENTS["train"]
    threads: training_threads("train")
    resources:
        **training_needs("train"),
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
        read_by("choose"),
    output:
        written_by("choose"),
    log:
        log_of("choose"),
    benchmark:
        times_of("choose")
    priority: 6
    retries: RETRIES
    conda:
        ENVIRONMENTS["train"]
    threads: training_threads("choose")
    resources:
        **training_needs("choose"),
    params:
        config=CONFIG,
        settings=settings_of("choose"),
    shell:
        "OMP_NUM_THREADS={threads} syno choose {params.config:q} --output {output:q} 2>&1 | tee -i {log:q}"


# What a user would do without synthesis, and mixtures: pruning, fewer channels, known layers, 8-bit integers, also of networks with operators. It
# measures and trains, and begins with trained networks.
rule rival:
    input:
        read_by("rival"),
        trained_before,
    output:
        written_by("rival"),
    log:
        log_of("rival"),
    benchmark:
        times_of("rival")
    retries: RETRIES
    conda:
        ENVIRONMENTS["train"]
    threads: training_threads("rival")
    resources:
        **training_needs("rival"),
    params:
        config=CONFIG,
        settings=settings_of("rival"),
    shell:
        "OMP_NUM_THREADS={threads} syno rival {params.config:q} {wildcards.rival:q} --output {output:q} 2>&1 | tee -i {log:q}"
