# The reproduction of the paper (syno/paper): published data, ablations, and results of several experiments joined.


ruleorder: join > artifact > tables


# Imports the published data. Its folder is not an input, because published data does not change and results stay valid on machines that
# don't have it. To import a checkout again, for example after it was completed, delete artifact.json.
rule artifact:
    output:
        "{folder}/artifact.json",
        "{folder}/tables/measurements.parquet",
        "{folder}/tables/losses.parquet",
        "{folder}/measurements.json",
        "{folder}/tables/measurements.csv",
        "{folder}/tables/losses.csv",
    log:
        "{folder}/log/artifact.log",
    wildcard_constraints:
        folder="|".join(re.escape(folder) for folder in EXPERIMENTS if EXPERIMENTS[folder].option == "artifact") or NONE,
    conda:
        "../../envs/plot.yaml"
    resources:
        **JOBS.of("artifact"),
    params:
        artifact=lambda wildcards: str(EXPERIMENTS[wildcards.folder].artifact),
    shell:
        "syno artifact import {params.artifact:q} --output {wildcards.folder:q} 2>&1 | tee -i {log:q}"


rule ablate:
    input:
        lambda wildcards: files_of(wildcards, "data"),  # the space follows from it
        lambda wildcards: files_of(wildcards, "artifact", "freeze", "select") if wildcards.name == "patterns" else [],
    output:
        "{folder}/tables/ablation-{name}.parquet",
        "{folder}/ablations/{name}.json",
        "{folder}/tables/ablation-{name}.csv",
    log:
        "{folder}/log/ablate/{name}.log",
    benchmark:
        "{folder}/benchmark/ablate/{name}.tsv"
    conda:
        "../../envs/search.yaml"
    resources:
        **JOBS.of("ablate"),
    params:
        config=CONFIG,
        settings=settings_of("ablations"),
    shell:
        "syno ablate run {params.config:q} {wildcards.name:q} 2>&1 | tee -i {log:q}"


rule join:
    input:
        lambda wildcards: read(FILES.elsewhere, wildcards.folder, "join"),
    output:
        "{folder}/joined.json",
        "{folder}/tables/measurements.parquet",
        "{folder}/tables/losses.parquet",
        "{folder}/tables/measurements.csv",
        "{folder}/tables/losses.csv",
    log:
        "{folder}/log/join.log",
    wildcard_constraints:
        folder="|".join(re.escape(folder) for folder in EXPERIMENTS if EXPERIMENTS[folder].option == "join") or NONE,
    conda:
        "../../envs/plot.yaml"
    resources:
        **JOBS.of("join"),
    params:
        config=CONFIG,
        settings=settings_of("join"),
    shell:
        "syno join {params.config:q} 2>&1 | tee -i {log:q}"


rule headlines:
    input:
        lambda wildcards: files_of(wildcards, "artifact", "join"),
    output:
        "{folder}/tables/headlines.parquet",
        "{folder}/tables/headlines.csv",
    log:
        "{folder}/log/headlines.log",
    conda:
        "../../envs/plot.yaml"
    resources:
        **JOBS.of("headlines"),
    shell:
        "syno artifact headlines {wildcards.folder:q} > {log:q} 2>&1"
