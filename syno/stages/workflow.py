"""Functions that the Snakefile calls beside the commands of its rules.

Snakemake's plugin for Slurm (2.5 to 2.8, at least) misreads three answers of Slurm, so that a run never ends;
`understand_slurm` mends this. A cancelled job is "CANCELLED by 0" to `sacct`, which the plugin takes for a job that still runs.
After several failed queries in a row, the plugin forgets its jobs. A job that lost its node is NODE_FAIL also while it waits
for another node: the plugin asks for its node, gets "None assigned", and excludes that from later submissions, which fail.
"""

from __future__ import annotations

import asyncio
import atexit
import logging
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import warnings
from asyncio.subprocess import DEVNULL, PIPE
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from contextlib import suppress
from functools import partial
from importlib.util import find_spec
from itertools import pairwise
from pathlib import Path
from typing import Any, TypeAlias

from syno.base.devices import usable_cores
from syno.base.errors import MissingPackageError, SpecError, suggestion
from syno.base.fork_client import OFF, THREADS, VARIABLE
from syno.base.release import pip_install
from syno.base.validation import read_yaml
from syno.config import AnyExperiment, Experiment, load_any, load_experiments
from syno.config.files import parted
from syno.config.kept_file import KEPT
from syno.run import MEASUREMENTS
from syno.search.faults import LATER
from syno.stages.kinds import source_of
from syno.stages.places import SCORES_FILE, SELECTED, TABLE
from syno.stages.workflow_stages import STAGES

# The end of a program that has started a workflow.


def end_with_program() -> None:
    """Let SIGHUP interrupt this process and its jobs, as Ctrl-C does, if it leads a session.

    A program that starts the workflow asks the system for this signal at its own end. Snakemake alone, when it is interrupted,
    waits for jobs that were not told to end.
    """
    if os.getsid(0) == os.getpid():
        with suppress(ValueError):  # in another thread than the first, signals have no handlers
            signal.signal(signal.SIGHUP, lambda *_: os.killpg(0, signal.SIGINT))


# The fork server of a workflow: `syno.base.fork_server` for the jobs that Snakemake runs on this machine.


MODULE = "syno.cli.forked"
# With these, no library starts a thread when it is imported.
ONE_THREAD = {**dict.fromkeys(THREADS, "1"), "JE_ARROW_MALLOC_CONF": "background_thread:false"}


def start_fork_server(workflow: Any) -> None:
    """Start the server for the jobs of a workflow, which find it by a variable. It ends with this process.

    Does nothing where jobs run on other machines or in environments of their own, with `SYNO_FORK_SERVER=off`, and on systems
    other than Linux. If the variable names a server that there is, jobs have that one.

    Args:
        workflow: Snakemake's workflow.
    """
    runs_jobs = workflow.is_main_process and workflow.local_exec and not workflow.touch
    is_of_use = runs_jobs and not workflow.deployment_settings.deployment_method
    if not is_of_use or os.environ.get(VARIABLE) == OFF or not hasattr(os, "pidfd_open"):
        return
    if Path(os.environ.get(VARIABLE, "")).is_socket():
        _count_children(Path(os.environ[VARIABLE]).parent)
        return
    folder = Path(tempfile.mkdtemp(prefix="syno-fork-"))  # for this user only
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    address = str(folder / "server")
    with socket.socket(socket.AF_UNIX) as listener:
        try:
            listener.bind(address)
        except OSError:  # the path is too long for a socket
            return
        Path(address).chmod(0o600)
        listener.listen(socket.SOMAXCONN)
        server = subprocess.Popen(
            [sys.executable, "-m", MODULE, str(listener.fileno())],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            cwd=folder,  # Python finds modules in it first
            env={**os.environ, **ONE_THREAD},
            start_new_session=True,  # Ctrl-C is for the clients
            pass_fds=[listener.fileno()],
        )
    assert server.stdin is not None
    atexit.register(server.stdin.close)  # the server ends when this pipe does, however this process ends
    os.environ[VARIABLE] = address
    _count_children(folder)


def _count_children(folder: Path) -> None:
    """Let the times and the memory that Snakemake measures of a job count the server's child, too.

    Snakemake measures a job's process and its descendants. The child of the server is none of them; the server's folder has a
    link to it, with the process id of the client as its name.
    """
    # Snakemake has no hook for what a job's numbers cover, and Linux lets no process adopt another's child: without this, the
    # files in `benchmark/` would tell of the client, which only waits.
    try:
        from snakemake.benchmark import BenchmarkTimer
    except ImportError:  # another version of Snakemake
        return
    made = BenchmarkTimer.__init__

    def make(timer: Any, *arguments: Any, **named: Any) -> None:
        made(timer, *arguments, **named)
        if hasattr(timer, "main"):  # the job's process, whose descendants it asks for
            timer.main.children = partial(_with_child, timer.main, timer.main.children, folder)

    BenchmarkTimer.__init__ = make


def _with_child(job: Any, children: Callable[..., list[Any]], folder: Path, recursive: bool = False) -> list[Any]:
    """Return the descendants of a job's process, and the server's child that runs the job with its descendants."""
    import psutil

    found = children(recursive=recursive)
    for client in (job, *found):
        with suppress(OSError, psutil.Error):
            child = psutil.Process(int(str((folder / str(client.pid)).readlink())))
            return [*found, child, *child.children(recursive=True)]
    return found


# Where the workflow lies: beside the package in a checkout, in the package where Syno was installed from a wheel.


PARTS = ("Snakefile", "workflow", "envs", "config")  # setup.py copies them into the wheel
INSTALLED = "_workflow"
LOCAL = "local"
HERE = "local"  # the executor that runs jobs on this machine
# Options with which Snakemake runs no jobs; so do those that begin with --list.
RUN_NOTHING = frozenset({
    "-n", "--dry-run", "--dryrun", "-t", "--touch", "--unlock", "--lint", "-S", "--summary", "-D", "--detailed-summary",
    "--dag", "--rulegraph", "--filegraph", "--d3dag", "--report", "--archive", "--cleanup-metadata", "--delete-all-output",
    "--version", "--help",
})  # fmt: skip


def workflow_folder() -> Path:
    """Return the folder with the Snakefile. SpecError if there is none."""
    package = Path(__file__).resolve().parents[1]
    for folder in (package / INSTALLED, package.parent):
        if (folder / "Snakefile").is_file():
            return folder
    raise SpecError(f"Syno's workflow lies neither in {package / INSTALLED} nor in {package.parent}; install Syno again")


def config_file(name: str, folder: Path) -> Path:
    """Return an experiment's file: the one given, or the one of this name in `config` of the workflow's folder.

    Raises SpecError if there is neither.
    """
    if Path(name).is_file():
        return Path(name)
    known = {file.stem: file for file in sorted((folder / "config").glob("*.yaml"))}
    if name in known:
        return known[name]
    file = name.rpartition(":")[0] or name  # FILE:NAME is an experiment in a file
    raise SpecError(f"{file} is no file; Syno brings the experiments {', '.join(known)}.{suggestion(file, known)}")


def profile_folder(name: str, folder: Path) -> Path:
    """Return the folder of a profile of Snakemake: the one given, or the one of this name in the workflow.

    Raises SpecError if there is neither.
    """
    for found in (Path(name), folder / "workflow" / "profiles" / name):
        if found.is_dir():
            return found
    names = sorted(found.name for found in (folder / "workflow" / "profiles").iterdir())
    raise SpecError(f'there is no profile "{name}"; give {" or ".join(names)}, or a folder')


def runs_elsewhere(profile: str, more: Sequence[str] = ()) -> bool:
    """Return whether jobs run on other machines: whether a profile, or further arguments of Snakemake, name an executor."""
    files = sorted(profile_folder(profile, workflow_folder()).glob("config*.yaml"))
    settings = [content for file in files if isinstance(content := read_yaml(file), Mapping)]
    named = [str(content.get("executor", HERE)) for content in settings]
    named += [after for word, after in pairwise((*more, HERE)) if word in ("--executor", "-e")]
    named += [word.partition("=")[2] for word in more if word.startswith("--executor=")]
    return any(name != HERE for name in named)


def asks_for_other_machines(workflow: Any) -> bool:
    """Return whether the executor that Snakemake was asked for runs jobs on other machines, in a dry run, too.

    When Snakemake reads a Snakefile, it has not told the workflow its executor, and in a dry run it has one core, whatever
    executor was asked for. Only its function that turns arguments into calls knows it by then. Without that function, as in a
    program that calls Snakemake and in the jobs of a cluster, a number of cores means this machine.
    """
    frame = sys._getframe() if workflow.is_main_process else None
    while frame is not None and frame.f_code.co_name != "args_to_api":
        frame = frame.f_back
    plugin = None if frame is None else frame.f_locals.get("executor_plugin")
    return workflow.resource_settings.cores is None if plugin is None else not plugin.common_settings.local_exec


def chosen_experiments(source: str) -> list[AnyExperiment]:
    """Return the experiments of a file, or FILE:NAME and those that it needs; FILE may be the name of one that Syno brings.

    Raises SpecError if there is no such file or experiment, or one is invalid.
    """
    file, name = parted(source)
    if (file / KEPT).is_file():
        file = file / KEPT
    elif not file.is_file():
        file = config_file(source, workflow_folder())
    found = load_experiments(file)
    if name is not None:
        load_any(source)  # raises if there is none of that name
    return asked_for({str(one.folder): one for one in found.values()}, [] if name is None else [name])


def experiments_to_run(config: str, more: Sequence[str]) -> list[AnyExperiment]:
    """Return the experiments whose jobs Snakemake will run; none if it will run no job, as for a dry run.

    Args:
        config: as for `command`.
        more: further arguments of Snakemake. Without the name of an experiment among them, it runs all of the file.
    """
    if any(word.startswith("--list") or word.partition("=")[0] in RUN_NOTHING for word in more):
        return []
    found = load_experiments(config_file(config, workflow_folder()))
    return asked_for({str(one.folder): one for one in found.values()}, [word for word in more if word in found])


def command(config: str, profile: str, cores: int | None, more: Sequence[str], place: Path) -> list[str]:
    """Return the command that runs the workflow in the folder `place`, where results go.

    Args:
        config: the experiment's file, or the name of one that Syno brings.
        profile: a profile's name or folder.
        cores: of the processor; None: all that this process may use, and as the profile says elsewhere.
        more: further arguments of Snakemake.
        place: the folder where it runs.

    Raises SpecError if a file is missing, MissingPackageError without Snakemake.
    """
    if find_spec("snakemake") is None:
        raise MissingPackageError(f"the workflow takes Snakemake, not installed here: {pip_install('workflow')}")
    folder = workflow_folder()
    count = cores or (usable_cores() if Path(profile).name == LOCAL else None)
    return [
        sys.executable,
        "-m",
        "snakemake",
        *("--snakefile", str(folder / "Snakefile"), "--directory", str(place)),
        *("--configfile", str(config_file(config, folder))),
        *("--profile", str(profile_folder(profile, folder))),
        *(("--cores", str(count)) if count else ()),
        *more,
    ]


# Failed jobs of the workflow: which of them Snakemake restarts, and what of them is said at its end.
#
# A job fails for good if its command ended with an error of its input or of the user's code (exit code 1 or 2), which its log
# says at its end. What was killed, or ended with exit code 75, may succeed in another attempt. Snakemake's setting `retries`
# knows no exit codes, and on a cluster it sees none; logs are in the shared folder. So the number of restarts of a job, which
# Snakemake asks for after each failure, is 0 if the job failed for good.


ERROR = "error: "  # begins the last line of a log with an error of the input
TRACEBACK = "Traceback (most recent call last)"
TAIL_BYTES = 2**16
CLOCKS_APART_SECONDS = 5.0  # of this machine and those that write logs
MOST_SHOWN = 5  # failed jobs


def end_of_log(file: Path, since: float = 0.0) -> tuple[str, bool]:
    """Return the last line of a job's log, and whether it tells that the job failed for good.

    ("", False) without one that was written since that time: a job that was killed before it began has that of an earlier run.
    """
    try:
        if file.stat().st_mtime < since:
            return "", False
        lines = file.read_bytes()[-TAIL_BYTES:].decode(errors="replace").strip().splitlines()
    except OSError:
        return "", False
    last = lines[-1].strip() if lines else ""
    if last.endswith(LATER):
        return last, False
    return last, last.startswith(ERROR) or any(line.startswith(TRACEBACK) for line in lines)


class FailedJobs:
    """The jobs that failed in a run of the workflow.

    Attributes:
        said: the last line of each failed job's log, by log.
    """

    def __init__(self) -> None:
        self.said: dict[str, str] = {}
        self._began = time.time() - CLOCKS_APART_SECONDS

    def restarts(self, job: Any, allowed: int) -> int:
        """Return the number of restarts that Snakemake may give a failed job, or group of jobs, of the `allowed` ones."""
        logs = [str(log) for one in getattr(job, "jobs", [job]) for log in one.log]
        ends = {log: end_of_log(Path(log), self._began) for log in logs}
        failed = {log: line for log, (line, is_for_good) in ends.items() if is_for_good} or {
            log: line for log, (line, _) in ends.items() if line
        }
        self.said |= failed
        return 0 if any(is_for_good for _, is_for_good in ends.values()) else allowed

    def text(self) -> str:
        """Return the error of each failed job, a line each."""
        lines = [f"{line if line.startswith(ERROR) else f'{ERROR}{line}'} ({log})" for log, line in self.said.items()]
        more = [f"... and {len(lines) - MOST_SHOWN} more failed jobs"] if len(lines) > MOST_SHOWN else []
        return "\n".join([*lines[:MOST_SHOWN], *more])


def tell_failures_apart(workflow: Any) -> FailedJobs:
    """Let Snakemake restart jobs only if that may help, and print no CalledProcessError. Returns the failed jobs of the run.

    Call it once, in the workflow that starts the jobs. In a version of Snakemake without `restart_times`, jobs are restarted as
    often as `retries` says.
    """
    failed = FailedJobs()
    try:
        from snakemake.jobs import GroupJob, Job
    except ImportError:
        return failed
    for kind in (Job, GroupJob):
        known = kind.__dict__.get("restart_times")
        if isinstance(known, property) and known.fget is not None:
            kind.restart_times = property(partial(_restarts, failed, known.fget))
    for name in ("snakemake.logging", "snakemake"):
        logging.getLogger(name).addFilter(is_no_called_process_error)
    return failed


def _restarts(failed: FailedJobs, allowed: Callable[[Any], int], job: Any) -> int:
    return failed.restarts(job, allowed(job))


def is_no_called_process_error(record: logging.LogRecord) -> bool:
    """Return False for Snakemake's message that a command failed, which repeats the command; what it said is above."""
    return not (record.levelno >= logging.ERROR and "CalledProcessError" in str(record.msg))


def say_at_the_end(failed: FailedJobs) -> None:
    """Print the messages of failed jobs at the very end of this process's output."""
    if failed.said:
        atexit.register(lambda: print(failed.text(), file=sys.stderr))


PLUGIN = "snakemake_executor_plugin_slurm"
QUERY = "query_job_status"
LOST = "NODE_FAIL"
MEASURED = TABLE.format(name=MEASUREMENTS, ending="parquet")

# From a command of Slurm and a logger to the state of each job by its id, and the seconds taken; (None, None) if it failed.
Query: TypeAlias = Callable[[str, Any], Awaitable[tuple[dict[str, str] | None, float | None]]]


def use_this_environment() -> None:
    """Let rules run the commands beside the current Python, whatever the PATH says.

    Environments that rules name are activated later and have priority. OMP_WAIT_POLICY keeps waiting threads from using cores.
    """
    here = str(Path(sys.executable).parent)
    places = os.environ.get("PATH", "").split(os.pathsep)
    if here not in places:
        os.environ["PATH"] = os.pathsep.join([here, *places])
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")


def check_place(folder: Path) -> None:
    """Raise SpecError if the folder cannot be created, since a file is in its place or above it."""
    for place in (folder, *folder.parents):
        if place.exists() and not place.is_dir():
            raise SpecError(
                f"the results go to the folder {folder}, but {place} is a file; take it away, or give output: FOLDER"
            )


def before_planning(workflow: Any, action: Callable[[], Collection[Path]]) -> None:
    """Let Snakemake call `action` after it has read its command line, before it plans the jobs of a run or dry run.

    Snakemake has no such hook: `onstart` runs after planning, and the Snakefile is read before targets are known. If this
    version of Snakemake plans in another way, a warning says so, and nothing is called.

    Args:
        workflow: Snakemake's workflow.
        action: the function; its errors end the run. It returns files that are to be made if the target depends on them:
            Snakemake alone does not miss a file from which something newer than its own inputs has been made.
    """
    plan = getattr(workflow, "_prepare_dag", None)
    if plan is None:
        warnings.warn("this version of Snakemake plans in another way: results are not looked over for damage", stacklevel=2)
        return

    def planned(*arguments: Any, **named: Any) -> None:
        missing = action() if workflow.executor_plugin is not None else ()  # else the plan is only printed
        plan(*arguments, **named)
        if missing:  # Snakemake would make those of its setting `forcerun` whether or not the target depends on them
            workflow.dag.forcefiles.update(map(str, missing))

    workflow._prepare_dag = planned


def asked_for(experiments: Mapping[str, AnyExperiment], targets: Collection[str]) -> list[AnyExperiment]:
    """Return the experiments whose results are requested, and those whose operators or results they take.

    Args:
        experiments: all experiments of the workflow, by folder.
        targets: targets of Snakemake. If one is not the name of an experiment, all experiments are returned.
    """
    names = {experiment.name: folder for folder, experiment in experiments.items()}
    if not targets or not set(targets) <= set(names):
        return list(experiments.values())
    found: dict[str, AnyExperiment] = {}
    left = [names[target] for target in targets]
    while left:
        folder = left.pop()
        if folder in experiments and folder not in found:
            found[folder] = experiments[folder]
            left += map(str, (*found[folder].sources, *found[folder].goes_first))
    return [experiment for folder, experiment in experiments.items() if folder in found]


def stages_asked_for(experiments: Mapping[str, AnyExperiment], targets: Collection[str]) -> dict[str, set[str]]:
    """Return the names of the stages that have jobs where experiments are requested, by the name of the experiment.

    Of an experiment that another one takes operators or results from, these are only those of its tables.

    Args:
        experiments: all experiments of the workflow, by folder.
        targets: names of experiments; without one, all experiments are requested.
    """
    left = [(folder, stage) for folder, one in experiments.items() if not targets or one.name in targets for stage in STAGES]
    found: dict[str, set[str]] = {}
    while left:
        folder, stage = left.pop()
        if folder not in experiments or stage in found.setdefault(experiments[folder].name, set()):
            continue
        one = experiments[folder]
        found[one.name].add(stage)
        left += [(folder, before) for before in STAGES[stage].after]
        if stage in ("select", "shortlist"):
            left += [(str(source), before) for source in one.sources for before in ("artifact", "tables")]
        if stage == "data":
            left += [(str(first), "tables") for first in one.goes_first]
        if stage == "join":
            left += [(str(source), before) for source in one.sources for before in ("artifact", "tables", "ablate", "join")]
    return found


def check_source(experiment: AnyExperiment, experiments: Collection[str]) -> None:
    """Raise SpecError if an experiment takes operators, goes on, or joins results from a folder that does not exist.

    Args:
        experiment: the experiment.
        experiments: folders of all experiments of the workflow; what is missing there, the workflow makes.
    """
    for folder in experiment.goes_first:
        if str(folder) not in experiments and not (folder / SCORES_FILE).is_file():
            raise SpecError(
                f'experiment "{experiment.name}": after: {folder} is neither an experiment in the same file nor a folder of '
                f"results: {folder / SCORES_FILE} is not there; give the folder of an experiment that has trained operators"
            )
    takes_operators = isinstance(experiment, Experiment)  # experiments of other kinds take tables
    for source in experiment.sources:
        if str(source) in experiments or (takes_operators and source_of(source) is not None):
            continue
        option, file = ("select: source", SELECTED) if takes_operators else (f"{experiment.option}: of", MEASURED)
        if (source / file).is_file():
            continue
        advice = (
            "; give the folder of an experiment that has selected operators"
            if takes_operators
            else "; `syno tables` or `syno artifact import` makes it"
        )
        raise SpecError(
            f'experiment "{experiment.name}": {option}: {source} is neither an experiment in the same file nor a folder of '
            f"results: {source / file} is not there{advice}"
        )


# ---- Slurm -------------------------------------------------------------------------------------------------------------


def understand_slurm() -> None:
    """Replace the query of Snakemake's plugin for Slurm. Does nothing if there is no plugin, or it has another query.

    Call it in the Snakefile: Snakemake has imported its plugins by then.
    """
    plugin = sys.modules.get(PLUGIN)
    if hasattr(plugin, QUERY):
        setattr(plugin, QUERY, understood(getattr(plugin, QUERY)))


def understood(query: Query) -> Query:
    """Return a query whose states are one word, and that of the queue for a job that waits there again.

    Jobs of unknown state are left out, and asked for again later; if the query fails, these are all jobs.
    """

    async def states(command: str, logger: Any) -> tuple[dict[str, str], float]:
        answer, seconds = await query(command, logger)
        if answer is None:
            logger.warning("Slurm does not say what has become of the jobs; it is asked again.")
        found = {job: state.partition(" ")[0] for job, state in (answer or {}).items()}
        if LOST in found.values():
            queue = await _queue()
            now = {job: queue.get(job, LOST) for job, state in found.items() if state == LOST} if queue is not None else {}
            found = {job: state for job, state in found.items() if state != LOST} | now
        return found, seconds or 0.0

    return states


async def _queue() -> dict[str, str] | None:
    """Return the states of this user's jobs that wait or run, by id; None if Slurm does not answer."""
    command = ("squeue", "--me", "--noheader", "--format=%i %T")
    process = await asyncio.create_subprocess_exec(*command, stdin=DEVNULL, stdout=PIPE, stderr=DEVNULL)
    printed, _ = await process.communicate()
    return None if process.returncode else dict(line.split(" ", 1) for line in printed.decode().splitlines())
