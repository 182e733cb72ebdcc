# ImageNet's pictures in the form that FFCV reads, made of a folder with a folder for each class.
rule convert:
    output:
        "{images}/{split}.beton",
    log:
        "{images}/{split}.beton.log",
    conda:
        ENVIRONMENT
    threads: min(ALL_CORES, 16)
    resources:
        mem_mb=more_memory,
    shell:
        "syno convert imagenet {wildcards.images}/{wildcards.split} --output {output} --workers {threads} 2>&1 | tee -i {log}"


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
        ENVIRONMENT
    resources:
        mem_mb=more_memory,
    shell:
        "syno data {params.config} --output {output} 2>&1 | tee -i {log}"
