rule report:
    input:
        read_by("report"),
    output:
        report(written_by("report")[0], caption="../report/page.rst", category="Report", subcategory="{folder}"),
    log:
        log_of("report"),
    conda:
        ENVIRONMENTS["plot"]
    resources:
        **needs_of("report"),
    params:
        config=CONFIG,
    shell:
        "syno report {params.config:q} --output {output:q} > {log:q} 2>&1"
