rule data:
    output:
        "{folder}/data.json",
    params:
        config=CONFIG,
        settings=settings_of("data"),
    log:
        "{folder}/log/data.log",
    benchmark:
        "{folder}/benchmark/data.tsv"
    conda:
        ENVIRONMENT
    resources:
        mem_mb=more_memory,
    shell:
        "syno data {params.config} --output {output} 2>&1 | tee -i {log}"
