# A measurement on this machine's processor runs alone. One on a GPU has a GPU of its own, and its part of the cores.
rule tune:
    input:
        read_by("tune"),
    output:
        written_by("tune"),
    log:
        log_of("tune"),
    benchmark:
        times_of("tune")
    priority: -10
    retries: RETRIES
    conda:
        ENVIRONMENTS["tune"]
    threads: tuning_threads
    resources:
        **needs_of("tune", runtime=tuning_minutes, **gpus_of(local_device), **SHARED),
    params:
        config=CONFIG,
        settings=settings_of("tune"),
        remote=lambda wildcards: EXPERIMENTS[wildcards.folder].tune.made_for(tuned_device(wildcards)),
        device=tuned_device,
        compiler=tuned_compiler,
    shell:
        # If a network cannot be compiled or measured, there is a record with the reason, and exit code 1.
        "(syno tune model {params.config:q} {wildcards.key:q} --compiler {params.compiler:q} --device {params.device:q}"
        " --output {output:q} || {{ code=$?; test -s {output:q} || exit $code; }}) 2>&1 | tee -i {log:q}"


# The selected operators once more, each in turns with the original: the speedups by which they were selected are too high. It does
# not wait for the trainings of the same operators, which wait for it while it times (syno/base/core_locks.py).
rule speedup:
    input:
        read_by("speedup"),
    output:
        written_by("speedup"),
    log:
        log_of("speedup"),
    benchmark:
        times_of("speedup")
    priority: 5
    retries: RETRIES
    conda:
        ENVIRONMENTS["tune"]
    threads: lambda wildcards: EXPERIMENTS[wildcards.folder].tune.latency.threads
    resources:
        **needs_of("speedup", runtime=layers_minutes, **gpus_of(local_device), **SHARED),
    params:
        config=CONFIG,
        settings=settings_of("speedup"),
        remote=lambda wildcards: EXPERIMENTS[wildcards.folder].tune.made_for(tuned_device(wildcards)),
    shell:
        # What cannot be compiled or measured is in the record with the reason, and the exit code is 1.
        "(syno tune selected {params.config:q}"
        " --output {output:q} || {{ code=$?; test -s {output:q} || exit $code; }}) 2>&1 | tee -i {log:q}"


# The distinct layers that operators replace, each by itself. An interrupted job goes on at the layer where it was.
rule layers:
    input:
        read_by("layers"),
    output:
        written_by("layers"),
    log:
        log_of("layers"),
    benchmark:
        times_of("layers")
    priority: -10
    retries: RETRIES
    conda:
        ENVIRONMENTS["tune"]
    threads: tuning_threads
    resources:
        **needs_of("layers", runtime=layers_minutes, **gpus_of(local_device), **SHARED),
    params:
        config=CONFIG,
        settings=settings_of("layers"),
        remote=lambda wildcards: EXPERIMENTS[wildcards.folder].tune.made_for(tuned_device(wildcards)),
        device=tuned_device,
        compiler=tuned_compiler,
    shell:
        # As for a network: what cannot be compiled or measured is in the record with the reason, and the exit code is 1.
        "(syno tune layers {params.config:q} {wildcards.key:q} --compiler {params.compiler:q} --device {params.device:q}"
        " --output {output:q} || {{ code=$?; test -s {output:q} || exit $code; }}) 2>&1 | tee -i {log:q}"
