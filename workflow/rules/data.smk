rule data:
    output:
        f"{RESULTS}/data.json",
    params:
        config=CONFIG,
        settings=EXPERIMENT.stage("data"),
    log:
        f"{RESULTS}/log/data.log",
    benchmark:
        f"{RESULTS}/benchmark/data.tsv"
    conda:
        ENVIRONMENT
    resources:
        mem_mb=more_memory,
    shell:
        "syno data {params.config} --output {output} 2>&1 | tee -i {log}"
