# The study itself (its storage) is no output: Snakemake would delete it when a worker fails. Workers share it; what they leave
# are records, and the table that is frozen when all of them have ended. An experiment with a source has no study.
rule worker:
    input:
        network_record,
    output:
        "{folder}/search/worker{number}.json",
    params:
        config=CONFIG,
        settings=settings_of("search"),
    log:
        "{folder}/log/worker{number}.log",
    benchmark:
        "{folder}/benchmark/worker{number}.tsv"
    conda:
        ENVIRONMENTS["search"]
    threads: training_threads
    priority: 10
    retries: RETRIES
    resources:
        mem_mb=growing(4000),
        runtime=A_DAY,
        gpu=training_gpus,
    shell:
        # SIGTERM comes to all processes of a job. Slurm kills what is left when the first of them has ended, so the shell and
        # `tee` wait until the worker has given its trial back.
        "trap : TERM; OMP_NUM_THREADS={threads}"
        " syno worker {params.config:q} --number {wildcards.number:q} --output {output:q} 2>&1"
        " | (trap '' TERM; exec tee -i {log:q})"


rule freeze:
    input:
        worker_records,
    output:
        "{folder}/trials.parquet",
    params:
        config=CONFIG,
    log:
        "{folder}/log/freeze.log",
    benchmark:
        "{folder}/benchmark/freeze.tsv"
    conda:
        ENVIRONMENTS["search"]
    resources:
        mem_mb=growing(2000),
        runtime=growing(10),
    shell:
        "syno freeze {params.config:q} --output {output:q} 2>&1 | tee -i {log:q}"


checkpoint select:
    input:
        selectable,
    output:
        "{folder}/selected.json",
    params:
        config=CONFIG,
        settings=settings_of("select"),
    log:
        "{folder}/log/select.log",
    conda:
        ENVIRONMENTS["search"]
    resources:
        mem_mb=growing(2000),
        runtime=growing(10),
    shell:
        "syno select {params.config:q} --output {output:q} 2>&1 | tee -i {log:q}"
