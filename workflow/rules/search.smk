# The study itself (its storage) is no output: Snakemake would delete it when a worker fails. Workers share it; what they leave
# are records, and the table that is frozen when all of them have ended.
rule worker:
    input:
        rules.data.output if TRAINS else [],
    output:
        f"{RESULTS}/search/worker{{number}}.json",
    params:
        config=CONFIG,
        settings=EXPERIMENT.stage("search"),
    log:
        f"{RESULTS}/log/worker{{number}}.log",
    benchmark:
        f"{RESULTS}/benchmark/worker{{number}}.tsv"
    conda:
        ENVIRONMENT
    threads: EXPERIMENT.workload.training.threads if TRAINS else 1
    priority: 10
    retries: 1
    resources:
        mem_mb=more_memory,
    shell:
        "OMP_NUM_THREADS={threads} syno worker {params.config} --number {wildcards.number} --output {output} 2>&1 | tee -i {log}"


rule freeze:
    input:
        expand(rules.worker.output, number=range(1, EXPERIMENT.study.workers + 1)),
    output:
        f"{RESULTS}/trials.parquet",
    params:
        config=CONFIG,
    log:
        f"{RESULTS}/log/freeze.log",
    benchmark:
        f"{RESULTS}/benchmark/freeze.tsv"
    conda:
        ENVIRONMENT
    shell:
        "syno freeze {params.config} --output {output} 2>&1 | tee -i {log}"


checkpoint select:
    input:
        rules.freeze.output,
    output:
        f"{RESULTS}/selected.json",
    params:
        config=CONFIG,
        settings=EXPERIMENT.stage("select"),
    log:
        f"{RESULTS}/log/select.log",
    conda:
        ENVIRONMENT
    shell:
        "syno select {params.config} --output {output} 2>&1 | tee -i {log}"
