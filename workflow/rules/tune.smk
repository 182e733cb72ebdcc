# The kinds of measurements of each network (syno/stages/measurements.py). A measurement on this machine's processor runs alone. One
# on a GPU has a GPU of its own, and its part of the cores.
#
# The shell command is looked up once more when a job runs: then `rule` is the name of the job's rule.
for rule in KINDS:

    rule:
        name:
            rule
        input:
            read_by(rule),
        output:
            written_by(rule),
        log:
            log_of(rule),
        benchmark:
            times_of(rule)
        priority: -10
        retries: RETRIES
        conda:
            ENVIRONMENTS["tune" if KINDS[rule].has_compiler else "train"]
        threads: tuning_threads if KINDS[rule].has_compiler else speed_threads
        resources:
            **resources_of(KINDS[rule]),
        params:
            **params_of(KINDS[rule]),
        shell:
            KINDS[rule].shell


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
