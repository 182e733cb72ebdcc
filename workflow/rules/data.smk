# From the data to its record: its hash, the layers that operators replace, and what they cost.


# Converts ImageNet, which has a folder of pictures for each class, to the files that FFCV reads.
rule convert:
    output:
        "{images}/{split}.beton",
    log:
        "{images}/{split}.beton.log",
    conda:
        "../../envs/train.yaml"
    threads: JOBS.converting_threads
    resources:
        **JOBS.of("convert"),
    shell:
        "syno convert imagenet {wildcards.images:q}/{wildcards.split:q} --output {output:q} --workers {threads}"
        " 2>&1 | tee -i {log:q}"


rule data:
    input:
        converted_files,
        experiments_before,
    output:
        report("{folder}/data.json", caption="../report/data.rst", category="Provenance", subcategory="{folder}"),
    log:
        "{folder}/log/data.log",
    benchmark:
        "{folder}/benchmark/data.tsv"
    conda:
        "../../envs/train.yaml"
    resources:
        **JOBS.of_first_step("data"),
    params:
        config=CONFIG,
        settings=settings_of("data"),
    shell:
        "syno data {params.config:q} --output {output:q} 2>&1 | tee -i {log:q}"
