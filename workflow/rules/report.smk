rule report:
    input:
        reportable,
        drawable,
        lambda wildcards: figures_of(wildcards.folder),
    output:
        report("{folder}/report.html", caption="../report/page.rst", category="Report", subcategory="{folder}"),
    params:
        config=CONFIG,
    log:
        "{folder}/log/report.log",
    conda:
        ENVIRONMENTS["plot"]
    resources:
        mem_mb=growing(2000),
        runtime=growing(10),
    shell:
        "syno report {params.config:q} --output {output:q} > {log:q} 2>&1"
