rule tables:
    input:
        selected=f"{RESULTS}/selected.json",
        trainings=trainings,
        measurements=measurements,
    output:
        expand(f"{RESULTS}/tables/{{table}}.{{format}}", table=["scores", "latency"], format=["parquet", "csv"]),
    params:
        config=CONFIG,
    log:
        f"{RESULTS}/log/tables.log",
    conda:
        ENVIRONMENT
    shell:
        "syno tables {params.config} 2>&1 | tee -i {log}"


rule figure:
    input:
        rules.freeze.output,
        rules.tables.output if TRAINS else [],
    output:
        report(f"{RESULTS}/figures/{{name}}.svg", caption="../report/figure.rst", category="Figures"),
        multiext(f"{RESULTS}/figures/{{name}}", ".png", ".pdf"),
    params:
        config=CONFIG,
    log:
        f"{RESULTS}/log/figures/{{name}}.log",
    conda:
        ENVIRONMENT
    shell:
        "syno figure {params.config} {wildcards.name} > {log} 2>&1"


rule figures:
    input:
        expand(f"{RESULTS}/figures/{{name}}.svg", name=drawing.names(EXPERIMENT)),
