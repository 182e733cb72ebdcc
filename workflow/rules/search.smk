# From the data's record to the operators that are selected. An experiment that takes the operators of another one has no search.


# Workers share the storage of the study. It is not an output, because Snakemake would delete it when a worker fails. The outputs are the
# workers' records.
rule worker:
    input:
        data_of_search,
        rivals_before,
    output:
        "{folder}/search/worker{number}.json",
    log:
        "{folder}/log/worker{number}.log",
    benchmark:
        "{folder}/benchmark/worker{number}.tsv"
    priority: 10
    retries: JOBS.retries
    conda:
        "../../envs/search.yaml"
    threads: JOBS.training_threads("worker")
    resources:
        **JOBS.of_training("worker"),
    params:
        config=CONFIG,
        settings=settings_of("search"),
    shell:
        # SIGTERM goes to all processes of a job, and Slurm kills the other processes when the first has ended. Therefore the shell
        # and `tee` wait until the worker has returned its trial to the study.
        "trap : TERM; OMP_NUM_THREADS={threads}"
        " syno worker {params.config:q} --number {wildcards.number:q} --output {output:q} 2>&1"
        " | (trap '' TERM; exec tee -i {log:q})"


# When all workers have ended, the trials are written to a table.
rule freeze:
    input:
        workers,
    output:
        "{folder}/trials.parquet",
    log:
        "{folder}/log/freeze.log",
    benchmark:
        "{folder}/benchmark/freeze.tsv"
    conda:
        "../../envs/search.yaml"
    resources:
        **JOBS.of("freeze"),
    params:
        config=CONFIG,
    shell:
        "syno freeze {params.config:q} --output {output:q} 2>&1 | tee -i {log:q}"


# Of a selection by latency: operators whose latency is measured before the fastest of them are selected.
checkpoint shortlist:
    input:
        selectable,
    output:
        "{folder}/shortlist.json",
    log:
        "{folder}/log/shortlist.log",
    conda:
        "../../envs/search.yaml"
    resources:
        **JOBS.of("shortlist"),
    params:
        config=CONFIG,
        settings=settings_of("select"),
    shell:
        "syno shortlist {params.config:q} --output {output:q} 2>&1 | tee -i {log:q}"


checkpoint select:
    input:
        selected_from,
    output:
        report("{folder}/selected.json", caption="../report/selected.rst", category="Provenance", subcategory="{folder}"),
    log:
        "{folder}/log/select.log",
    conda:
        "../../envs/search.yaml"
    resources:
        **JOBS.of("select"),
    params:
        config=CONFIG,
        settings=settings_of("select"),
    shell:
        "syno select {params.config:q} --output {output:q} 2>&1 | tee -i {log:q}"
