# The speed of training is a measurement, too: on this machine's processor, it runs alone.
rule speed:
    input:
        read_by("speed"),
    output:
        written_by("speed"),
    log:
        log_of("speed"),
    benchmark:
        times_of("speed")
    priority: -10
    retries: RETRIES
    conda:
        ENVIRONMENTS["train"]
    threads: speed_threads
    resources:
        **needs_of("speed", **gpus_of(local_device)),
    params:
        config=CONFIG,
        settings=settings_of("speed"),
        device=tuned_device,
    shell:
        "syno tune training {params.config:q} {wildcards.key:q} --device {params.device:q} --output {output:q} 2>&1"
        " | tee -i {log:q}"
