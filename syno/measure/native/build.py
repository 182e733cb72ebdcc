"""Calls of this machine's C++ compiler: code is compiled into shared libraries, which are loaded into this process."""

from __future__ import annotations

import ctypes
import functools
import os
import re
import shlex
import shutil
import subprocess
import threading
from pathlib import Path

from syno.base.errors import MachineError, MissingPackageError, SynoError
from syno.base.files import checksum, replaced, write_whole
from syno.lower.native.target import Target
from syno.measure.native.store import is_sealed, make_store, seal

# Sums may be taken with fused multiply-adds. Nothing else that changes results is allowed: no reordering, and NaN stays NaN.
FLAGS = ("-O2", "-std=c++17", "-ffp-contract=fast", "-fno-math-errno", "-Wno-psabi", "-shared", "-fPIC")
SIGNALS = 128
MOST_CHARACTERS = 300
NO_COMPILER = "there is no C++ compiler: install g++ or clang, or give one in the environment variable CXX"
# Messages of compilers and the system if the system has killed a process, as when memory is short, or if a disk is full.
# Failures of a compiler on bad code, such as a segmentation fault, are not among them.
OF_MACHINE = re.compile(
    r"(Killed|Terminated|Hangup|Bus error|CPU time limit exceeded|File size limit exceeded) signal|terminated with signal|"
    r"unable to execute command: (Killed|Terminated|Bus error)|SIG(KILL|TERM|HUP|BUS|XCPU|XFSZ)\b|"
    r"exit status (-9|-15|137|143)\b|BrokenProcessPool|terminated abruptly|No space left on device|"
    r"Disk quota exceeded|Input/output error|File too large|"
    r"Cannot allocate memory|out of memory allocating|virtual memory exhausted|LLVM ERROR: out of memory|"
    r"Resource temporarily unavailable"
)


CACHES = frozenset({"ccache", "sccache", "distcc", "icecc"})
CORES = threading.BoundedSemaphore(os.cpu_count() or 1)  # each compilation and each timing holds one


class BuildError(SynoError):
    """An error for generated code that the C++ compiler refused."""


def compiler() -> str:
    """Return the path of the C++ compiler: the environment variable CXX, else g++, else clang++.

    A compiler cache, as in `CXX="ccache g++"`, is not used: PyTorch does not support it, and kernels are stored anyway.

    Raises MissingPackageError if there is no compiler, or CXX names none.
    """
    given = os.environ.get("CXX", "").strip()
    words = shlex.split(given)
    while words[1:] and Path(words[0]).name in CACHES:
        del words[0]
    names = [shlex.join(words)] if words else ["g++", "clang++"]
    found = next(filter(None, map(shutil.which, names)), None)
    if found is not None:
        return found
    if given:
        why = "has arguments" if words[1:] else "is no program of this machine"
        raise MissingPackageError(
            f'the environment variable CXX is "{given}", which {why}; give it the path of a C++ compiler alone, or unset it'
        )
    raise MissingPackageError(NO_COMPILER)


@functools.cache
def compiler_version(path: str) -> str:
    """Return the first line that the compiler at `path` prints for `--version`."""
    said = subprocess.run([path, "--version"], capture_output=True, text=True, check=False)
    return said.stdout.partition("\n")[0]


def library(source: str, target: Target, folder: Path, name: str, extra: tuple[str, ...] = ()) -> Path:
    """Compile C++ into a shared library, unless the folder has it already, intact and owned by this user. Return its path.

    Args:
        source: the code.
        target: the processor.
        folder: the folder of the library and its source.
        name: the prefix of their file names, before a checksum of the source and the compiler's options.
        extra: further command-line options of the compiler.

    Raises:
        MissingPackageError: there is no compiler.
        BuildError: the code does not compile.
        MachineError: the system killed the compiler, or a disk is full.
        SpecError: the folder is another user's, or cannot be written.
    """
    path = compiler()
    options = [*FLAGS, *target.flags, "-fopenmp", *extra]
    key = checksum("\0".join([source, *options, path, compiler_version(path)]).encode())[:16]
    made = folder / f"{name}_{key}.so"
    if not is_sealed(made):
        written = make_store(folder) / f"{name}_{key}.cpp"
        write_whole(written, source, durable=False, mode=0o600)
        with replaced(made) as file:
            command = [path, *options, "-o", str(file), str(written)]
            with CORES:
                said = subprocess.run(command, capture_output=True, text=True, check=False, env={**os.environ, "LC_ALL": "C"})
            if said.returncode:
                require_sound_machine(path, said)
                raise BuildError(f"{path} does not compile {written}: {said.stderr.strip()[:2000]}")
            seal(file, made.name)
    return made


def require_sound_machine(compiler: str, said: subprocess.CompletedProcess[str]) -> None:
    """Raise MachineError if a compiler failed because the system ended it, or because memory or a disk is full."""
    why = sentence_of_machine(said.stderr)
    if not why and (said.returncode < 0 or said.returncode > SIGNALS):  # a shell adds to the number of the signal
        why = f"it was ended by signal {abs(said.returncode) % SIGNALS}"
    if why:
        raise MachineError(
            f"the machine did not let {compiler} compile ({why}): see whether memory and the disk of temporary files are free, "
            "and do it again"
        )


def sentence_of_machine(text: str) -> str:
    """Return the first line of a text that shows that the machine is at fault (`OF_MACHINE`); "" if none does."""
    lines = (line.strip() for line in text.splitlines())
    return next((line[:MOST_CHARACTERS] for line in lines if OF_MACHINE.search(line)), "")


@functools.cache
def loaded(path: Path) -> ctypes.CDLL:
    """Load a library into this process, and return it."""
    return ctypes.CDLL(str(path))
