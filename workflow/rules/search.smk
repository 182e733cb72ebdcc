# Workers share the storage of the study. It is not an output, because Snakemake would delete it when a worker fails. The outputs are the
# workers' records. When all workers have ended, the trials are written to a table. An experiment with a source has no study. A search
# that compares its trials with rivals waits for their records.
rule worker:
    input:
        read_by("worker"),
        rivals_before,
    output:
        written_by("worker"),
    log:
        log_of("worker"),
    benchmark:
        times_of("worker")
    priority: 10
    retries: RETRIES
    conda:
        ENVIRONMENTS["search"]
    threads: training_threads("worker")
    resources:
        **training_needs("worker"),
    params:
        config=CONFIG,
        settings=settings_of("worker"),
    shell:
        # SIGTERM goes to all processes of a job, and Slurm kills the other processes when the first has ended. Therefore the shell
        # and `tee` wait until the worker has returned its trial to the study.
        "trap : TERM; OMP_NUM_THREADS={threads}"
        " syno worker {params.config:q} --number {wildcards.number:q} --output {output:q} 2>&1"
        " | (trap '' TERM; exec tee -i {log:q})"


rule freeze:
    input:
        read_by("freeze"),
    output:
        written_by("freeze"),
    log:
        log_of("freeze"),
    benchmark:
        times_of("freeze")
    conda:
        ENVIRONMENTS["search"]
    resources:
        **needs_of("freeze"),
    params:
        config=CONFIG,
    shell:
        "syno freeze {params.config:q} --output {output:q} 2>&1 | tee -i {log:q}"


# Of a selection by latency: operators whose latency is measured before the fastest of them are selected.
checkpoint shortlist:
    input:
        selectable,
    output:
        written_by("shortlist"),
    log:
        log_of("shortlist"),
    conda:
        ENVIRONMENTS["search"]
    resources:
        **needs_of("shortlist"),
    params:
        config=CONFIG,
        settings=settings_of("shortlist"),
    shell:
        "syno shortlist {params.config:q} --output {output:q} 2>&1 | tee -i {log:q}"


checkpoint select:
    input:
        selected_from,
    output:
        written_by("select"),
    log:
        log_of("select"),
    conda:
        ENVIRONMENTS["search"]
    resources:
        **needs_of("select"),
    params:
        config=CONFIG,
        settings=settings_of("select"),
    shell:
        "syno select {params.config:q} --output {output:q} 2>&1 | tee -i {log:q}"
