# From networks to their latencies. A measurement on this machine's processor runs alone. One on a GPU has a GPU of its own, and its part
# of the cores. What cannot be compiled or measured is in the record with the reason, and the exit code is 1: these jobs succeed.


# The whole network.
rule tune:
    input:
        "{folder}/data.json",
    output:
        "{folder}/tune/{key}/{compiler}-{device}.json",
    log:
        "{folder}/log/tune/{key}/{compiler}-{device}.log",
    benchmark:
        "{folder}/benchmark/tune/{key}/{compiler}-{device}.tsv"
    priority: -10
    retries: JOBS.retries
    conda:
        "../../envs/tune.yaml"
    threads: JOBS.measuring_threads
    resources:
        **JOBS.of_measurement("tune"),
    params:
        config=CONFIG,
        settings=settings_of("tune"),
        remote=measured_remotely,
        device=JOBS.device,
        compiler=JOBS.compiler,
    shell:
        "(syno tune model {params.config:q} {wildcards.key:q} --compiler {params.compiler:q} --device {params.device:q}"
        " --output {output:q} || {{ code=$?; test -s {output:q} || exit $code; }}) 2>&1 | tee -i {log:q}"


# Each distinct replaced layer of the network by itself.
rule layers:
    input:
        "{folder}/data.json",
    output:
        "{folder}/layers/{key}/{compiler}-{device}.json",
    log:
        "{folder}/log/layers/{key}/{compiler}-{device}.log",
    benchmark:
        "{folder}/benchmark/layers/{key}/{compiler}-{device}.tsv"
    priority: -10
    retries: JOBS.retries
    conda:
        "../../envs/tune.yaml"
    threads: JOBS.measuring_threads
    resources:
        **JOBS.of_layers("layers"),
    params:
        config=CONFIG,
        settings=settings_of("tune"),
        remote=measured_remotely,
        device=JOBS.device,
        compiler=JOBS.compiler,
    shell:
        "(syno tune layers {params.config:q} {wildcards.key:q} --compiler {params.compiler:q} --device {params.device:q}"
        " --output {output:q} || {{ code=$?; test -s {output:q} || exit $code; }}) 2>&1 | tee -i {log:q}"


# Where the time of the network goes, by replaced layer and stage.
rule breakdown:
    input:
        "{folder}/data.json",
    output:
        "{folder}/breakdown/{key}/{compiler}-{device}.json",
    log:
        "{folder}/log/breakdown/{key}/{compiler}-{device}.log",
    benchmark:
        "{folder}/benchmark/breakdown/{key}/{compiler}-{device}.tsv"
    priority: -10
    retries: JOBS.retries
    conda:
        "../../envs/tune.yaml"
    threads: JOBS.measuring_threads
    resources:
        **JOBS.of_layers("breakdown"),
    params:
        config=CONFIG,
        settings=settings_of("tune"),
        device=JOBS.device,
        compiler=JOBS.compiler,
    shell:
        "(syno tune breakdown {params.config:q} {wildcards.key:q} --compiler {params.compiler:q} --device {params.device:q}"
        " --output {output:q} || {{ code=$?; test -s {output:q} || exit $code; }}) 2>&1 | tee -i {log:q}"


# How fast the network trains, in turns with the original.
rule speed:
    input:
        "{folder}/data.json",
    output:
        "{folder}/speed/{key}/{device}.json",
    log:
        "{folder}/log/speed/{key}/{device}.log",
    benchmark:
        "{folder}/benchmark/speed/{key}/{device}.tsv"
    priority: -10
    retries: JOBS.retries
    conda:
        "../../envs/train.yaml"
    threads: JOBS.speed_threads
    resources:
        **JOBS.of_speed("speed"),
    params:
        config=CONFIG,
        settings=settings_of("speed"),
        device=JOBS.device,
    shell:
        "syno tune training {params.config:q} {wildcards.key:q} --device {params.device:q} --output {output:q}"
        " 2>&1 | tee -i {log:q}"


# The selected operators once more, each in turns with the original: the speedups by which they were selected are too high. It does
# not wait for the trainings of the same operators, which wait for it while it times (syno/base/core_locks.py).
rule speedup:
    input:
        "{folder}/data.json",
        "{folder}/selected.json",
    output:
        "{folder}/speedup/{compiler}-{device}.json",
    log:
        "{folder}/log/speedup/{compiler}-{device}.log",
    benchmark:
        "{folder}/benchmark/speedup/{compiler}-{device}.tsv"
    priority: 5
    retries: JOBS.retries
    conda:
        "../../envs/tune.yaml"
    threads: lambda wildcards: EXPERIMENTS[wildcards.folder].tune.latency.threads
    resources:
        **JOBS.of_layers("speedup"),
    params:
        config=CONFIG,
        settings=settings_of("tune"),
        remote=measured_remotely,
    shell:
        "(syno tune selected {params.config:q}"
        " --output {output:q} || {{ code=$?; test -s {output:q} || exit $code; }}) 2>&1 | tee -i {log:q}"
