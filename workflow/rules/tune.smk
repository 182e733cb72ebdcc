# What is measured on this machine's processor has the machine to itself.
rule tune:
    input:
        rules.data.output,
    output:
        "{folder}/tune/{key}/{compiler}-{device}.json",
    params:
        config=CONFIG,
        settings=settings_of("tune"),
        remote=lambda wildcards: EXPERIMENTS[wildcards.folder].tune.made_for(tuned_device(wildcards)),
        compiler=tuned_compiler,
        device=tuned_device,
    log:
        "{folder}/log/tune/{key}/{compiler}-{device}.log",
    benchmark:
        "{folder}/benchmark/tune/{key}/{compiler}-{device}.tsv"
    conda:
        ENVIRONMENTS["tune"]
    threads: tuning_threads
    priority: -10
    retries: RETRIES
    resources:
        mem_mb=growing(4000),
        runtime=tuning_minutes,
        gpu=tuning_gpus,
        **SHARED,
    shell:
        # A network that cannot be compiled or measured is a record with the reason, and exit code 1.
        "(syno tune model {params.config:q} {wildcards.key:q} --compiler {params.compiler:q} --device {params.device:q}"
        " --output {output:q} || test -s {output:q}) 2>&1 | tee -i {log:q}"
