rule tables:
    input:
        rules.select.output,
        trainings,
        measurements,
    output:
        multiext("{folder}/tables/measurements", ".parquet", ".csv"),
        multiext("{folder}/tables/scores", ".parquet", ".csv"),
        multiext("{folder}/tables/latency", ".parquet", ".csv"),
    params:
        config=CONFIG,
    log:
        "{folder}/log/tables.log",
    conda:
        ENVIRONMENTS["plot"]
    resources:
        mem_mb=growing(2000),
        runtime=growing(10),
    shell:
        "syno tables {params.config:q} 2>&1 | tee -i {log:q}"


rule figure:
    input:
        drawable,
    output:
        report("{folder}/figures/{name}.svg", caption="../report/figure.rst", category="Figures", subcategory="{folder}"),
        multiext("{folder}/figures/{name}", ".png", ".pdf"),
    params:
        config=CONFIG,
    log:
        "{folder}/log/figures/{name}.log",
    conda:
        ENVIRONMENTS["plot"]
    resources:
        mem_mb=growing(2000),
        runtime=growing(10),
        drawing=1,
    shell:
        "syno figure {params.config:q} {wildcards.name:q} > {log:q} 2>&1"


rule figures:
    input:
        [figures_of(folder) for folder in EXPERIMENTS],
