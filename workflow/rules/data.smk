# Converts ImageNet, which has a folder of pictures for each class, to the files that FFCV reads.
rule convert:
    output:
        written_by("convert"),
    log:
        "{images}/{split}.beton.log",
    conda:
        ENVIRONMENTS["train"]
    threads: CONVERTING_THREADS
    resources:
        **needs_of("convert"),
    shell:
        "syno convert imagenet {wildcards.images:q}/{wildcards.split:q} --output {output:q} --workers {threads}"
        " 2>&1 | tee -i {log:q}"


rule data:
    input:
        before_the_data,
    output:
        written_by("data"),
    log:
        log_of("data"),
    benchmark:
        times_of("data")
    conda:
        ENVIRONMENTS["train"]
    resources:
        **needs_of("data"),
        **gpus_of(training_device("worker")),  # it runs one step of training
    params:
        config=CONFIG,
        settings=settings_of("data"),
    shell:
        "syno data {params.config:q} --output {output:q} 2>&1 | tee -i {log:q}"


# Imports the published data. Its folder is not an input, because published data does not change and results stay valid on machines that
# don't have it. To import a checkout again, for example after it was completed, delete artifact.json.
OF_PUBLISHED = "|".join(map(re.escape, PUBLISHED)) or "(?!)"  # matches no folder


rule artifact:
    output:
        written_by("artifact"),
    log:
        log_of("artifact"),
    wildcard_constraints:
        folder=OF_PUBLISHED,
    conda:
        ENVIRONMENTS["plot"]
    resources:
        **needs_of("artifact"),
    params:
        artifact=lambda wildcards: str(EXPERIMENTS[wildcards.folder].artifact),
    shell:
        "syno artifact import {params.artifact:q} --output {wildcards.folder:q} 2>&1 | tee -i {log:q}"


rule headlines:
    input:
        read_by("headlines"),
    output:
        written_by("headlines"),
    log:
        log_of("headlines"),
    conda:
        ENVIRONMENTS["plot"]
    resources:
        **needs_of("headlines"),
    shell:
        "syno artifact headlines {wildcards.folder:q} > {log:q} 2>&1"
