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
        ENVIRONMENT
    shell:
        "syno report {params.config} --output {output} > {log} 2>&1"
