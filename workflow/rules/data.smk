# ImageNet's pictures in the form that FFCV reads, made of a folder with a folder for each class.
rule convert:
    output:
        "{images}/{split}.beton",
    log:
        "{images}/{split}.beton.log",
    conda:
        ENVIRONMENTS["train"]
    threads: CONVERTING_THREADS
    resources:
        mem_mb=growing(4000),
        runtime=A_DAY,
    shell:
        "syno convert imagenet {wildcards.images:q}/{wildcards.split:q} --output {output:q} --workers {threads}"
        " 2>&1 | tee -i {log:q}"


rule data:
    input:
        converted,
    output:
        "{folder}/data.json",
    params:
        config=CONFIG,
        settings=settings_of("data"),
    log:
        "{folder}/log/data.log",
    benchmark:
        "{folder}/benchmark/data.tsv"
    conda:
        ENVIRONMENTS["train"]
    resources:
        mem_mb=growing(4000),
        runtime=growing(120),
        gpu=training_gpus,  # one step of training is tried
    shell:
        "syno data {params.config:q} --output {output:q} 2>&1 | tee -i {log:q}"


# What others published is read; nothing is searched or trained. Its folder is no input: published data doesn't change, and
# the results stay good where it is no longer at hand. For a checkout that has become whole, take artifact.json away.
OF_PUBLISHED = "|".join(map(re.escape, PUBLISHED)) or "(?!)"  # no folder


rule artifact:
    output:
        "{folder}/artifact.json",
        "{folder}/measurements.json",
        multiext("{folder}/tables/measurements", ".parquet", ".csv"),
        multiext("{folder}/tables/losses", ".parquet", ".csv"),
    wildcard_constraints:
        folder=OF_PUBLISHED,
    params:
        artifact=lambda wildcards: str(EXPERIMENTS[wildcards.folder].artifact),
    log:
        "{folder}/log/artifact.log",
    conda:
        ENVIRONMENTS["plot"]
    resources:
        mem_mb=growing(2000),
        runtime=growing(10),
    shell:
        "syno artifact import {params.artifact:q} --output {wildcards.folder:q} 2>&1 | tee -i {log:q}"


rule headlines:
    input:
        "{folder}/tables/measurements.parquet",
    output:
        multiext("{folder}/tables/headlines", ".parquet", ".csv"),
    wildcard_constraints:
        folder=OF_PUBLISHED,
    log:
        "{folder}/log/headlines.log",
    conda:
        ENVIRONMENTS["plot"]
    resources:
        mem_mb=growing(2000),
        runtime=growing(10),
    shell:
        "syno artifact headlines {wildcards.folder:q} > {log:q} 2>&1"
