# Where the time of a network goes is a measurement, too: on this machine's processor, it runs alone.
rule breakdown:
    input:
        read_by("breakdown"),
    output:
        written_by("breakdown"),
    log:
        log_of("breakdown"),
    benchmark:
        times_of("breakdown")
    priority: -10
    retries: RETRIES
    conda:
        ENVIRONMENTS["tune"]
    threads: tuning_threads
    resources:
        **needs_of("breakdown", runtime=layers_minutes, **gpus_of(local_device), **SHARED),
    params:
        config=CONFIG,
        settings=settings_of("breakdown"),
        device=tuned_device,
        compiler=tuned_compiler,
    shell:
        # What cannot be compiled or measured is in the record with the reason, and the exit code is 1.
        "(syno tune breakdown {params.config:q} {wildcards.key:q} --compiler {params.compiler:q} --device {params.device:q}"
        " --output {output:q} || {{ code=$?; test -s {output:q} || exit $code; }}) 2>&1 | tee -i {log:q}"
