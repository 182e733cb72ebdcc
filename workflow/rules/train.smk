# An operator is named by its id, so a record stays good while the settings do, whatever is selected beside it.
rule train:
    input:
        rules.data.output,
    output:
        f"{RESULTS}/train/{{key}}/seed{{seed}}.json",
    params:
        config=CONFIG,
        settings=EXPERIMENT.stage("train"),
    log:
        f"{RESULTS}/log/train/{{key}}/seed{{seed}}.log",
    benchmark:
        f"{RESULTS}/benchmark/train/{{key}}/seed{{seed}}.tsv"
    conda:
        ENVIRONMENT
    threads: EXPERIMENT.workload.training.threads if TRAINS else 1
    retries: 1
    resources:
        mem_mb=more_memory,
    shell:
        "OMP_NUM_THREADS={threads} syno train {params.config} {wildcards.key} --seed {wildcards.seed} --output {output}"
        " 2>&1 | tee -i {log}"
