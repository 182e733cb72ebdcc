"""The fork server's process: imports modules, then runs a command in each child. `syno.stages.workflow` starts it.

    python -m syno.cli.forked LISTENER

LISTENER is the descriptor of a listening socket. The owner holds the other end of the standard input.
"""

from __future__ import annotations

import atexit
import os
import socket
import sys
from collections.abc import Iterable, Iterator
from contextlib import suppress
from importlib import import_module

import syno.cli
from syno.base.fork_client import VARIABLE
from syno.base.fork_server import ForkServer

# What trainings import, and then what other jobs do. torch._dynamo is imported by every optimizer of PyTorch.
FIRST = ("torch", "torch._dynamo", "syno.config", "syno.train.training_record", "syno.stages.train", "syno.data.synthetic")
THEN = (
    "pandas", "syno.stages.tables", "scipy.stats", "matplotlib.backends.backend_svg", "matplotlib.backends.backend_pdf",
    "matplotlib.figure", "syno.stages.figures", "syno.report.result_figures", "syno.report.page", "syno.search.study",
)  # fmt: skip
MEASURING = frozenset({"tune", "worker", "search"})


def imported(names: Iterable[str]) -> Iterator[str]:
    """Import one module per step. Modules that are not installed are skipped: a command that needs one reports it."""
    for name in names:
        with suppress(ImportError):
            import_module(name)
        yield name


def use_threads() -> None:
    """Set the thread pools of loaded libraries to the values of environment variables, which libraries only read when
    loaded.
    """
    for variable, kinds in (("OMP_NUM_THREADS", "openmp"), ("OPENBLAS_NUM_THREADS", "blas")):
        threads = os.environ.get(variable, "")
        if threads.isdecimal() and threads != "1":
            from threadpoolctl import threadpool_limits

            threadpool_limits(int(threads), kinds)
    torch, threads = sys.modules.get("torch"), os.environ.get("OMP_NUM_THREADS", "")
    if torch is not None and threads.isdecimal() and int(threads) != torch.get_num_threads():
        torch.set_num_threads(int(threads))


def end_at_once(codes: list[int]) -> None:
    """Exit without freeing imported modules, which takes half a second, if the exit code is known.

    Must be the last function that `atexit` calls, after threads have ended and all others have cleaned up.
    """
    if codes:
        for stream in (sys.stdout, sys.stderr):
            with suppress(OSError, ValueError):  # as where nobody reads any more
                stream.flush()
        os._exit(codes[0] & 0xFF)


def main() -> None:
    """Serve requests; in a child, run the requested command as if this process had been started for it."""
    codes: list[int] = []
    atexit.register(end_at_once, codes)  # before all others, so that it is called behind them
    with socket.socket(fileno=int(sys.argv[1])) as listener:
        server = ForkServer(listener, 0, imported(THEN), MEASURING)  # before imports, some of which set variables
        list(imported(FIRST))  # no job can do without these, and two would import them at once
        request = server.serve()
    if request is not None:
        os.environ.pop(VARIABLE, None)  # commands that this one starts are its children
        use_threads()
        try:
            syno.cli.app()
        except SystemExit as end:
            if isinstance(end.code, int | None):
                codes.append(end.code or 0)
            raise


if __name__ == "__main__":
    main()
