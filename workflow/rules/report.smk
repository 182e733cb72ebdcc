rule report:
    input:
        rules.freeze.output,
        rules.select.output,
        rules.figures.input,
        rules.tables.output if TRAINS else [],
    output:
        report(f"{RESULTS}/report.html", caption="../report/page.rst", category="Report"),
    params:
        config=CONFIG,
    log:
        f"{RESULTS}/log/report.log",
    conda:
        ENVIRONMENT
    shell:
        "syno report {params.config} --output {output} > {log} 2>&1"
