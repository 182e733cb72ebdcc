"""The process in which Snakemake runs the workflow: its environment, its signals, and where its jobs will run."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from syno.base.errors import SynoError


def use_this_environment() -> None:
    """Let rules run the commands beside the current Python, whatever the PATH says.

    Environments that rules name are activated later and have priority. OMP_WAIT_POLICY keeps waiting threads from using cores.
    """
    here = str(Path(sys.executable).parent)
    places = os.environ.get("PATH", "").split(os.pathsep)
    if here not in places:
        os.environ["PATH"] = os.pathsep.join([here, *places])
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")


def end_with_program() -> None:
    """Make SIGHUP interrupt this process and its jobs, as Ctrl-C does, if this process leads a session.

    A program that starts the workflow lets the system send this signal when the program ends. If only Snakemake were
    interrupted, it would wait for its jobs, which run on.
    """
    if os.getsid(0) == os.getpid():
        with suppress(ValueError):  # in another thread than the first, signals have no handlers
            signal.signal(signal.SIGHUP, lambda *_: os.killpg(0, signal.SIGINT))


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


@contextmanager
def input_errors() -> Iterator[None]:
    """Turn a SynoError in the body into Snakemake's WorkflowError, with the message that a command would print."""
    from snakemake.exceptions import WorkflowError

    try:
        yield
    except SynoError as error:
        raise WorkflowError(f"error: {error}") from None
