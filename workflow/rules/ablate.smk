# The ablations of an experiment. Patterns are those of the operators that were found; the others depend on the space alone.
rule ablate:
    input:
        ablated,
    output:
        written_by("ablate"),
    log:
        log_of("ablate"),
    benchmark:
        times_of("ablate")
    conda:
        ENVIRONMENTS["search"]
    resources:
        **needs_of("ablate"),
    params:
        config=CONFIG,
        settings=settings_of("ablate"),
    shell:
        "syno ablate run {params.config:q} {wildcards.name:q} 2>&1 | tee -i {log:q}"
