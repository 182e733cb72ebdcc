# What is measured on this machine's processor has the machine to itself.
rule tune:
    input:
        rules.data.output,
    output:
        f"{RESULTS}/tune/{{key}}/{{compiler}}-{{device}}.json",
    params:
        config=CONFIG,
        settings=EXPERIMENT.stage("tune"),
        remote=lambda wildcards: EXPERIMENT.tune.made_for(device_named(EXPERIMENT, wildcards.device)),
        device=lambda wildcards: device_named(EXPERIMENT, wildcards.device),
    log:
        f"{RESULTS}/log/tune/{{key}}/{{compiler}}-{{device}}.log",
    benchmark:
        f"{RESULTS}/benchmark/tune/{{key}}/{{compiler}}-{{device}}.tsv"
    conda:
        ENVIRONMENT
    threads: ALL_CORES
    priority: -10
    retries: 1
    resources:
        mem_mb=more_memory,
    shell:
        # A network that cannot be compiled or measured is a record with the reason, and exit code 1.
        "(syno tune model {params.config} {wildcards.key} --compiler {wildcards.compiler} --device {params.device}"
        " --output {output} || test -s {output}) 2>&1 | tee -i {log}"
