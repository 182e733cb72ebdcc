# The workflow checks results before it plans jobs, and writes their manifest at the end. A job on a cluster is a workflow of its own. It
# does neither; the workflow that submitted it does both.
import sys

from syno.config.left_out import record_devices
from syno.stages.workflow import end_with_program, start_fork_server
from syno.stages.restore import deleted, look_over, write_manifest
from syno.stages.selection import why_none
from syno.stages.workflow import asked_for, before_planning, check_source
from syno.stages.workflow import say_at_the_end, tell_failures_apart

FAILED = tell_failures_apart(workflow) if workflow.is_main_process else None
if workflow.is_main_process:
    end_with_program()
ASKED_FOR = list(EXPERIMENTS.values())


def look_over_results():
    """Find the experiments that are requested, and those of their files that must be made again; return the deleted ones."""
    ASKED_FOR[:] = asked_for(EXPERIMENTS, workflow.dag_settings.targets)
    if workflow.touch or not workflow.is_main_process:
        return []
    with in_words():
        for experiment in ASKED_FOR:
            check_source(experiment, EXPERIMENTS)
        again = [str(file) for experiment in ASKED_FOR for file in look_over(experiment, change=not workflow.dryrun)]
        missing = [file for experiment in ASKED_FOR for file in deleted(experiment)]
    workflow.dag_settings.forcerun = {*workflow.dag_settings.forcerun, *again}
    return missing


before_planning(workflow, look_over_results)


onstart:
    with in_words():
        for experiment in ASKED_FOR:
            keep_config(experiment)
            record_devices(experiment)
    start_fork_server(workflow)  # for the jobs


onsuccess:  # Snakemake runs only the last `onsuccess` of all files
    with in_words():
        for experiment in ASKED_FOR:
            write_manifest(experiment, complete=True)
    if workflow.is_main_process:
        for experiment in ASKED_FOR:
            page, nothing = experiment.folder / "report.html", why_none(experiment.folder / SELECTED)
            if nothing is not None:
                print(f"{experiment.name}: {nothing}", file=sys.stderr)
            if page.is_file():
                print(f"The report: file://{page.absolute()}", file=sys.stderr)


onerror:
    with in_words():
        for experiment in ASKED_FOR:
            write_manifest(experiment, complete=False)
    if FAILED is not None:
        say_at_the_end(FAILED)
