# From records to tables, figures and the page.


rule tables:
    input:
        "{folder}/selected.json",
        records,
    output:
        "{folder}/tables/measurements.parquet",
        "{folder}/tables/scores.parquet",
        "{folder}/tables/latency.parquet",
        "{folder}/tables/losses.parquet",
        "{folder}/tables/measurements.csv",
        report(
            "{folder}/tables/scores.csv",
            caption="../report/table.rst",
            category="Tables",
            subcategory="{folder}",
            labels={"table": "scores"},
        ),
        report(
            "{folder}/tables/latency.csv",
            caption="../report/table.rst",
            category="Tables",
            subcategory="{folder}",
            labels={"table": "latencies"},
        ),
        "{folder}/tables/losses.csv",
    log:
        "{folder}/log/tables.log",
    conda:
        "../../envs/plot.yaml"
    resources:
        **JOBS.of("tables"),
    params:
        config=CONFIG,
        stands_for=lambda wildcards: str(sorted(EXPERIMENTS[wildcards.folder].tune.stands_for.items())),
    shell:
        "syno tables {params.config:q} 2>&1 | tee -i {log:q}"


rule figure:
    input:
        drawn,
    output:
        report(
            "{folder}/figures/{name}.svg",
            caption="../report/figure.rst",
            category="Figures",
            subcategory="{folder}",
            labels={"figure": "{name}"},
        ),
        "{folder}/figures/{name}.png",
        "{folder}/figures/{name}.pdf",
    log:
        "{folder}/log/figures/{name}.log",
    conda:
        "../../envs/plot.yaml"
    resources:
        **JOBS.of("figure"),
        drawing=1,
    params:
        config=CONFIG,
    shell:
        "syno figure {params.config:q} {wildcards.name:q} > {log:q} 2>&1"


rule report:
    input:
        shown,
    output:
        report("{folder}/report.html", caption="../report/page.rst", category="Report", subcategory="{folder}"),
    log:
        "{folder}/log/report.log",
    conda:
        "../../envs/plot.yaml"
    resources:
        **JOBS.of("report"),
    params:
        config=CONFIG,
    shell:
        "syno report {params.config:q} --output {output:q} > {log:q} 2>&1"


if "figures" not in [experiment.name for experiment in EXPERIMENTS.values()]:

    # A target for the figures of all experiments, unless an experiment has this name.
    rule figures:
        input:
            lambda wildcards: [read(FILES.of, folder, "figure") for folder in EXPERIMENTS],
