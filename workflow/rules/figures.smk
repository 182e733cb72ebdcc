# These rules make tables/measurements; `artifact` is only for published data, and `join` only for joined results.
ruleorder: join > artifact > tables


rule join:
    input:
        joinable,
    output:
        written_by("join"),
    log:
        log_of("join"),
    wildcard_constraints:
        folder="|".join(map(re.escape, JOINED)) or "(?!)",  # matches no folder
    conda:
        ENVIRONMENTS["plot"]
    resources:
        **needs_of("join"),
    params:
        config=CONFIG,
        settings=settings_of("join"),
    shell:
        "syno join {params.config:q} 2>&1 | tee -i {log:q}"


rule tables:
    input:
        read_by("tables"),
    output:
        written_by("tables"),
    log:
        log_of("tables"),
    conda:
        ENVIRONMENTS["plot"]
    resources:
        **needs_of("tables"),
    params:
        config=CONFIG,
        stands_for=lambda wildcards: str(sorted(EXPERIMENTS[wildcards.folder].tune.stands_for.items())),
    shell:
        "syno tables {params.config:q} 2>&1 | tee -i {log:q}"


rule figure:
    input:
        read_by("figure"),
    output:
        report(written_by("figure")[0], caption="../report/figure.rst", category="Figures", subcategory="{folder}"),
        written_by("figure")[1:],
    log:
        log_of("figure"),
    conda:
        ENVIRONMENTS["plot"]
    resources:
        **needs_of("figure"),
        drawing=1,
    params:
        config=CONFIG,
    shell:
        "syno figure {params.config:q} {wildcards.name:q} > {log:q} 2>&1"


# All figures of all experiments, unless an experiment has this name.
if "figures" not in [experiment.name for experiment in EXPERIMENTS.values()]:

    rule figures:
        input:
            [files_of(folder, ["figure"]) for folder in EXPERIMENTS],
