"""A PostgreSQL of one's own, in a folder, reached by a socket there: for tests and benchmarks, where one is installed."""

from __future__ import annotations

import importlib.util
import os
import pwd
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

DEBIAN = Path("/usr/lib/postgresql")  # where Debian's package puts the programs, by version
OWNER = "postgres"  # the server refuses to run as root


def programs() -> Path | None:
    """The folder of `initdb` and `pg_ctl`; None if there is none."""
    found = shutil.which("initdb")
    if found is not None:
        return Path(found).resolve().parent
    return max((folder / "bin" for folder in DEBIAN.glob("*") if (folder / "bin" / "initdb").is_file()), default=None)


def missing() -> str:
    """Return why no server can be started here; an empty text if one can."""
    if importlib.util.find_spec("psycopg") is None:
        return 'the driver of PostgreSQL is not installed: pip install "syno-operators[postgresql]"'
    if programs() is None:
        return "PostgreSQL is not installed: apt-get install postgresql"
    if os.geteuid() == 0 and OWNER not in {one.pw_name for one in pwd.getpwall()}:
        return f"PostgreSQL does not run as root, and there is no user {OWNER}"
    return ""


@contextmanager
def server() -> Iterator[str]:
    """The URL of an empty database; its server ends with the context."""
    assert not missing(), missing()
    user = _user()
    name = user or pwd.getpwuid(os.geteuid()).pw_name
    with tempfile.TemporaryDirectory(prefix="syno-postgresql-") as given:
        place = Path(given)
        if user is not None:
            shutil.chown(place, user)
        _run(place, "initdb", "-U", name, "-A", "trust", "--no-sync", "-E", "UTF8")
        _start(place)
        try:
            yield f"postgresql+psycopg://{name}@/postgres?host={place}"
        finally:
            _stop(place)


def restart(url: str, seconds: float) -> None:
    """Stop the server of this URL as a crash does, and start it after so many seconds."""
    place = Path(url.partition("?host=")[2])
    _stop(place)
    time.sleep(seconds)
    _start(place)


def _start(place: Path) -> None:
    # A socket and no port: nobody else comes in, and several servers don't meet.
    _run(place, "pg_ctl", "-w", "-l", str(place / "server.log"), "-o", f"-k {place} -c listen_addresses=", "start")


def _stop(place: Path) -> None:
    _run(place, "pg_ctl", "-m", "immediate", "-w", "stop")


def _run(place: Path, program: str, *arguments: str) -> None:
    folder = programs()
    assert folder is not None
    # Its output goes to a file: a server would keep a pipe open.
    with (place / f"{program}.log").open("a") as log:
        command = [str(folder / program), "-D", str(place / "data"), *arguments]
        subprocess.run(command, user=_user(), cwd="/", stdout=log, stderr=log, check=True)


def _user() -> str | None:
    """Who runs the server; None for who runs the tests."""
    return OWNER if os.geteuid() == 0 else None
