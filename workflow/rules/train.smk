# An operator is named by its id, so a record stays good while the settings do, whatever is selected beside it.
rule train:
    input:
        rules.data.output,
    output:
        "{folder}/train/{key}/seed{seed}.json",
    params:
        config=CONFIG,
        settings=settings_of("train"),
    log:
        "{folder}/log/train/{key}/seed{seed}.log",
    benchmark:
        "{folder}/benchmark/train/{key}/seed{seed}.tsv"
    conda:
        ENVIRONMENTS["train"]
    threads: training_threads
    retries: RETRIES
    resources:
        mem_mb=growing(4000),
        runtime=A_DAY,
        gpu=training_gpus,
    shell:
        "OMP_NUM_THREADS={threads} syno train {params.config:q} {wildcards.key:q} --seed {wildcards.seed:q} --output {output:q}"
        " 2>&1 | tee -i {log:q}"
