"""More workers on the same machine, as processes beside this one."""

from __future__ import annotations

import multiprocessing
import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from multiprocessing.context import SpawnProcess
from typing import Any

from syno.base.errors import SynoError

PATIENCE_SECONDS = 20.0  # for a worker that was told to stop
WRONG = 2  # exit code of a process that ended with an error for people
INTERRUPTED = 130  # exit code of a process that was told to stop, as shells have it


@contextmanager
def beside(work: Callable[..., None], arguments: tuple[Any, ...], count: int) -> Iterator[None]:
    """While the body runs, and until they have ended by themselves, `count` processes run `work(*arguments)`.

    If the body raises, they are told to stop. A warning says which of them broke; a SynoError is one line on standard error.
    `work` and its arguments are pickled.
    """
    context = multiprocessing.get_context("spawn")  # threads and libraries of this process are not copied
    processes = [context.Process(target=_quietly, args=(work, arguments), name=f"worker {i}") for i in range(2, count + 2)]
    for process in processes:
        process.start()
    try:
        yield
        for process in processes:
            process.join()
    except BaseException:
        for process in processes:
            _stop(process)
        raise
    broken = [process for process in processes if process.exitcode not in (0, INTERRUPTED)]
    for process in broken:
        warnings.warn(f"{process.name} ended with exit code {process.exitcode}; what it says is above", stacklevel=3)


def _quietly(work: Callable[..., None], arguments: tuple[Any, ...]) -> None:
    try:
        work(*arguments)
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED)
    except SynoError as error:
        print(f"error: {multiprocessing.current_process().name}: {' '.join(str(error).split())}", file=sys.stderr, flush=True)
        sys.exit(WRONG)


def _stop(process: SpawnProcess) -> None:
    """Let it give its trial back (`Interruption`), or end at once if it has not begun; kill it if that does not help."""
    if process.is_alive():
        process.terminate()
        process.join(PATIENCE_SECONDS)
    if process.is_alive():
        process.kill()
        process.join()
