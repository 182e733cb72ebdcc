"""The measuring process: a child process that measures within limits of time and memory, and leaves nothing behind.

with MeasuringProcess() as process:
    findings = process.findings(request)

It is `python -m syno.measure.answering`, with an import path like this one's, and with none of its state or caches.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import tempfile
import time
import warnings
from contextlib import suppress
from pathlib import Path
from typing import Self

from syno.base.core_locks import Wait
from syno.base.errors import DeviceError, MissingPackageError
from syno.base.gpu_leases import lease_descriptors, leased
from syno.measure.job import SHARED_TEMPORARY, Phase
from syno.measure.native.store import StoreWarning
from syno.measure.protocol import Connection, Findings, Request, Tell
from syno.measure.tuning_record import Status

try:
    import psutil
except ImportError:  # without psutil, only the child's process group is known, and there are no memory limits
    psutil = None

COMMAND = (sys.executable, "-m", "syno.measure.answering", "here")
START_SECONDS = 300.0  # time limit for the start of a process for speedups, apart from the operators' time limits
TAIL_CHARACTERS = 20_000
NO_ROOM = re.compile(r"No space left on device|Disk quota exceeded")
MOST_DEATHS = 3  # attempts with a process that dies: the machine may be the cause, such as memory that is short for a moment
OF_THE_MACHINE = ("crashed", "out_of_memory")  # statuses that the machine may cause, not the subject
PAUSE_SECONDS = 2.0  # before a new process replaces one that died
KNOWN_EARLY = ("flops", "parameters", "tuning", "compile_seconds")  # fields that are known before the measurement ends
MIB = 2**20


def kill(process: subprocess.Popen[bytes], family: set[psutil.Process]) -> None:
    """Kill the process group of a process, and descendants that have groups of their own; then wait for the process.

    `family` has descendants that were seen before. Without psutil, descendants with groups of their own are not killed.
    """
    family |= _members(process.pid, family)  # before they lose their parent
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)  # a group outlives the process whose id it has
    for member in _members(process.pid, family):  # there are none without psutil
        with suppress(psutil.Error):
            member.kill()
    process.wait()


def _members(session: int, family: set[psutil.Process]) -> set[psutil.Process]:
    """Return the living processes of a session and of a known family, with all their descendants."""
    found: set[psutil.Process] = set()
    if psutil is None:
        return found
    for process in psutil.process_iter():  # processes are equal if their pids and start times are
        if process not in found and (process in family or _session(process.pid) == session):
            found.add(process)
            with suppress(psutil.Error):
                found.update(process.children(recursive=True))
    return found


def _session(process: int) -> int | None:
    try:
        return os.getsid(process)
    except OSError:  # it has ended meanwhile, or is somebody else's
        return None


def _resident_bytes(process: psutil.Process) -> int:
    with suppress(psutil.Error):
        return int(process.memory_info().rss)
    return 0


def crash_in_words(code: int) -> str:
    """Return a clause about the end of a process, such as its signal, by its exit code."""
    if code >= 0:
        return f"the process ended{f' with exit code {code}' if code else ''}"
    hint = "; the system does that where memory is short" if -code == signal.SIGKILL else ""
    return f"the process was ended by signal {-code} ({signal.strsignal(-code)}){hint}"


class LocalProcess(Connection):
    """A measuring process on this machine, in a session of its own, with a folder for its caches and temporary files.

    Args:
        threads: number of CPU threads.
        descriptors: file descriptors that the process inherits.
    """

    def __init__(self, threads: int, descriptors: tuple[int, ...] = ()) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="syno-measuring-", dir=place_of_caches(), ignore_cleanup_errors=True)
        working = Path(self._folder.name)
        self._log = working / "log"
        self._family: set[psutil.Process] = set()  # all descendants seen so far: orphans cannot be found otherwise
        with self._log.open("wb") as errors:
            process = subprocess.Popen(
                (*COMMAND, self._folder.name),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                bufsize=0,
                env={**os.environ, **_environment(working, threads)},
                start_new_session=True,  # Ctrl-C reaches only this process, which then ends the child
                pass_fds=descriptors,
            )
        super().__init__(process)

    def close(self) -> None:
        """Kill the process and all its descendants."""
        kill(self.process, self._family)
        self._input.close()
        self._output.close()
        self._folder.cleanup()

    @property
    def used_mib(self) -> float:
        """Resident memory of the process and its descendants, in MiB; shared pages count for each of them.

        Address space does not count, because frameworks reserve far more of it than they use.
        """
        self._family |= (living := _members(self.process.pid, self._family))
        return sum(map(_resident_bytes, living)) / MIB

    @property
    def death(self) -> str:
        """A clause about how the process ended, with the last line of its stderr."""
        code = self.process.wait()
        said = self._log.read_text(encoding="utf-8", errors="replace")[-TAIL_CHARACTERS:].strip().splitlines()
        if full := next((line for line in said if NO_ROOM.search(line)), None):
            place = Path(self._folder.name).parent
            return f"there is no room in {place}, where temporary files lie ({full.strip()[:300]}); make room, or set TMPDIR"
        return f"{crash_in_words(code)}{f'; its last words: {said[-1][:300]}' if said else ''}"


def _environment(folder: Path, threads: int) -> dict[str, str]:
    """Return the environment of a measuring process: this process's import path, and a folder for caches and other files."""
    return {
        "PYTHONPATH": os.pathsep.join(path or str(Path.cwd()) for path in sys.path),
        "OMP_NUM_THREADS": str(threads),
        "MKL_NUM_THREADS": str(threads),
        "TVM_NUM_THREADS": str(threads),
        "TORCHINDUCTOR_CACHE_DIR": str(folder / "inductor"),
        "TRITON_CACHE_DIR": str(folder / "triton"),
        "TMPDIR": str(folder),  # compilers that are killed leave files there
        SHARED_TEMPORARY: tempfile.gettempdir(),
        **_cpp_compiler(),
    }


def _cpp_compiler() -> dict[str, str]:
    """Return {"CXX": path} in the form that PyTorch needs; {} if CXX is not set or names no compiler."""
    from syno.measure.native.build import compiler

    if "CXX" not in os.environ:
        return {}
    with suppress(MissingPackageError):  # compilers that need it say so
        return {"CXX": compiler()}
    return {}


def place_of_caches() -> str | None:
    """Return the parent folder of caches of compiled code: TORCHINDUCTOR_CACHE_DIR; None (the default of `tempfile`) if not
    set.

    Compiled code is loaded from there, which fails on a file system that is mounted with noexec; PyTorch's message then names
    this variable.
    """
    given = os.environ.get("TORCHINDUCTOR_CACHE_DIR")
    if not given:
        return None
    with suppress(OSError):  # `tempfile` says what is wrong
        Path(given).mkdir(parents=True, exist_ok=True)
    return given


class MeasuringProcess:
    """Client of a measuring process, which is started at the first request and ends with the `with` block.

    So the cost of starting a process and importing PyTorch is shared by many operators of one network.
    """

    def __init__(self) -> None:
        self._local: LocalProcess | None = None
        self._is_used, self._gpu = False, ""
        self._asked: dict[str, Request] = {}  # requests without an answer, the oldest first, by their text
        self._answers: dict[str, Findings] = {}  # answers that have not been fetched yet, by the request's text

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End the measuring process. The next request starts a new process."""
        if self._local is not None:
            self._local.close()
        self._local, self._is_used = None, False
        self._asked.clear()

    def ask(self, request: Request) -> None:
        """Send a request for a speedup without waiting; `findings` waits for the answer. Requests are answered in order.

        Does nothing for a request with a memory limit, which only `findings` watches, or for a GPU, which `findings` leases.
        """
        if request.is_speedup and request.device == "cpu" and request.memory_limit_mib is None:
            self._sent(request)

    def findings(self, request: Request, progress: Tell = lambda _: None) -> Findings:
        """Return the final findings, which have a status.

        If the process dies, or memory runs out without a limit, the machine may be the cause, and the request is retried in a
        new process. The subject counts as the cause only if new processes die again and again; for a speedup, only if the
        original network alone can then be measured. A request that exceeds its memory limit in a process that has answered
        others is retried in a new one, too, since memory of earlier requests may be the cause.

        Args:
            request: the request. For a speedup on a GPU, this process leases the GPU.
            progress: callback with the findings so far, several times a second.

        Raises:
            DeviceError: a device or the original network fails, or processes die for reasons other than the subject.
            MissingPackageError: a memory limit needs psutil, which is not installed.
        """
        if request.memory_limit_mib is not None and psutil is None:
            raise MissingPackageError(
                "a memory limit is watched by psutil, which is not installed: pip install psutil, or set no memory limit"
            )

        def wait(seconds: float) -> None:
            progress(Findings(phase="waiting"))
            time.sleep(seconds)

        device = request.device if request.is_speedup and request.remote is None else "cpu"
        with leased(device, sleep=wait) as gpu:
            if gpu is not None and gpu.name != self._gpu:  # a process cannot change its GPU
                self.close()
                self._gpu = gpu.name
            try:
                return self._again(request, progress)
            except BaseException:  # what it would answer is of no use
                self.close()
                raise

    def _again(self, request: Request, progress: Tell) -> Findings:
        """Return the findings of the first of up to three processes that survives; if all die, the findings of the third."""
        phases: list[Phase] = []  # phases in which processes died
        while len(phases) < MOST_DEATHS:
            if phases:
                time.sleep(PAUSE_SECONDS)
            was_used, found = self._is_used, self._answer(request, progress)
            is_short = found.status == "out_of_memory"
            if found.status == "crashed" or (is_short and request.memory_limit_mib is None):  # the machine had no more
                phases.append(found.phase)
            elif not (is_short and was_used):
                return found
            self.close()
        said = f"{found.reason}; it ended so {MOST_DEATHS} times, each time as a new process"
        if set(phases) == {"starting"}:
            raise DeviceError(
                f"the process that measures cannot start ({said}): see whether memory and the disk of temporary files are free"
            )
        if request.is_speedup:
            self._require_original(request, said, progress)
            said += ", while the original network was measured"
        elif is_short:
            return found
        return found.model_copy(update={"status": "crashed", "reason": said})

    def _require_original(self, request: Request, said: str, progress: Tell) -> None:
        """Raise DeviceError if the original network cannot be measured either: then the operator is not the cause."""
        short = request.settings.model_copy(update={"warm_up_ms": 0.0, "least_ms": 0.0})
        original = request.subject.model_copy(update={"operator": None})
        found = self._answer(request.model_copy(update={"subject": original, "settings": short}), progress)
        self.close()
        if found.status not in ("ok", "partial"):
            raise DeviceError(
                f"the process that measures died ({said}), and with the original network alone it does not work either "
                f"({found.status}: {found.reason}): the machine is to blame, perhaps for want of memory"
            )

    def _answer(self, request: Request, progress: Tell) -> Findings:
        """Send the request, and return the final findings; end the process if it exceeds a limit.

        For speedups, the start of a process and waiting for other measurements do not count against the time limit.
        """
        while (text := self._sent(request)) not in self._answers:
            oldest, asked = next(iter(self._asked.items()))
            found = self._oldest_answer(asked, progress)
            self._asked.pop(oldest, None)
            if oldest == text or found.status not in OF_THE_MACHINE:  # else it is sent again when `findings` waits for it
                self._answers[oldest] = found
        return self._answers.pop(text)

    def _sent(self, request: Request) -> str:
        """Send a request, unless `ask` has sent it before, and return its text."""
        text = request.model_dump_json()
        if text not in self._asked and text not in self._answers:
            if self._local is None:
                # The child inherits the lease, so that the GPU stays leased until it has ended even if this process is killed.
                # A process for speedups does not inherit it, since it lives longer than a lease.
                self._local = LocalProcess(request.settings.threads, () if request.is_speedup else lease_descriptors())
            self._local.send(text)
            self._asked[text] = request
        return text

    def _oldest_answer(self, request: Request, progress: Tell) -> Findings:
        """Wait for the answer to the oldest open request, and return it."""
        assert self._local is not None
        local, found, wait = self._local, Findings(), Wait()
        left, before = START_SECONDS if request.is_speedup else request.time_limit_s, time.monotonic()
        for kind, content in local.messages():
            now = time.monotonic()
            left -= 0.0 if request.is_speedup and found.phase == "waiting" else now - before
            before = now
            if kind == "findings":
                if request.is_speedup and found.phase == "starting":
                    left = request.time_limit_s
                found = Findings.model_validate(content)
                if found.status is not None:
                    self._is_used = True
                    return found
            elif kind == "fault":
                raise DeviceError(content)
            elif kind == "warning":
                warnings.warn(str(content), StoreWarning, stacklevel=2)
            wait.look(found.phase == "waiting")
            progress(found)
            used = 0.0 if kind else local.used_mib
            if left < 0 and request.is_speedup and found.phase == "starting":
                return self._stopped(found, "crashed", f"it did not start within {START_SECONDS:g} s")
            if left < 0:
                return self._stopped(found, "timeout", f"it was stopped at its time limit of {request.time_limit_s:g} s")
            if request.memory_limit_mib is not None and used > request.memory_limit_mib:
                limit = f"more than its limit of {request.memory_limit_mib:g} MiB"
                return self._stopped(found, "out_of_memory", f"it held {used:.0f} MiB, {limit}")
        return self._stopped(found, "crashed", local.death)

    def _stopped(self, findings: Findings, status: Status, reason: str) -> Findings:
        """End the process, and return its findings so far with this status and reason."""
        self.close()
        early = {name: findings.fields[name] for name in KNOWN_EARLY if name in findings.fields}
        return findings.model_copy(update={"fields": early, "status": status, "reason": f"{findings.phase}: {reason}"})
