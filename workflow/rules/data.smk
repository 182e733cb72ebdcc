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
        ENVIRONMENTS["train"]
    resources:
        mem_mb=growing(4000),
        runtime=growing(120),
    shell:
        "syno data {params.config} --output {output} 2>&1 | tee -i {log}"
