# Files are named by the operator's id, so a record stays valid when other operators are selected.
def training_settings(wildcards):
    """Return the settings on which a training depends, as text; only the original network may also be tested in 8-bit integers."""
    in_int8 = wildcards.key == ORIGINAL and EXPERIMENTS[wildcards.folder].train.int8
    return settings_text(wildcards.folder, STAGES["train"].settings) + " int8" * in_int8


rule train:
    input:
        read_by("train"),
    output:
        written_by("train"),
    params:
        config=CONFIG,
        settings=training_settings,
    log:
        log_of("train"),
    benchmark:
        times_of("train")
    conda:
        ENVIRONMENTS["train"]
    threads: training_threads
    retries: RETRIES
    resources:
        **needs_of("train"),
        gpu=training_gpus,
    shell:
        "OMP_NUM_THREADS={threads} syno train {params.config:q} {wildcards.key:q} --seed {wildcards.seed:q} --output {output:q}"
        " 2>&1 | tee -i {log:q}"
