"""A command runs in a child of the fork server as it would run by itself, and without a server it does."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from command_lines import HANGS_AFTER

from syno.base.fork_client import OFF, THREADS, VARIABLE
from syno.stages.workflow.fork_server import start_fork_server

# Both take Python code in place of a command of syno, so that nothing large is imported.
SERVER = """
import pathlib, socket, sys
from syno.base import fork_server
fork_server.CODE = pathlib.Path(sys.argv[2])
with socket.socket(fileno=int(sys.argv[1])) as listener:
    request = fork_server.ForkServer(listener, 0, iter(())).serve()
if request is not None:
    exec(sys.argv[1])
"""
CLIENT = """
import sys
from syno.base.fork_client import run_forked
code = run_forked(sys.argv)
if code is not None:
    sys.exit(code)
exec(sys.argv[1])
"""


def heed_interrupts() -> None:
    """Let SIGINT interrupt this process: where tests run in the background of a shell, the signal is ignored."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


class Server:
    """A server, and clients of it."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir()
        self.address, self.code = folder / "server", folder.with_name("code.py")
        self.code.touch()
        self.environment = {**os.environ, **dict.fromkeys(THREADS, "1"), VARIABLE: str(self.address)}
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind(str(self.address))
            listener.listen()
            command = [sys.executable, "-c", SERVER, str(listener.fileno()), str(self.code.parent)]
            environment = {**self.environment, "SERVER_ONLY": "1"}
            given: Any = {"env": environment, "pass_fds": [listener.fileno()], "start_new_session": True}
            self.process = subprocess.Popen(command, stdin=subprocess.PIPE, **given)

    def client(self, code: str, *arguments: str, **given: Any) -> subprocess.Popen[str]:
        environment = {**self.environment, **given.pop("variables", {})}
        streams = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
        command = [sys.executable, "-c", CLIENT, code, *arguments]
        return subprocess.Popen(command, env=environment, text=True, preexec_fn=heed_interrupts, **streams, **given)

    def run(self, code: str, *arguments: str, entered: str = "", **given: Any) -> tuple[int, str, str]:
        """The exit code, and what the command prints."""
        process = self.client(code, *arguments, **given)
        printed, errors = process.communicate(entered, timeout=HANGS_AFTER)
        return process.returncode, printed, errors


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    found = Server(tmp_path / "socket")
    yield found
    found.process.kill()
    found.process.communicate()


def until(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + HANGS_AFTER
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.01)


def has_ended(process: int) -> bool:
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except FileNotFoundError:
        return True


@pytest.mark.slow
@pytest.mark.parametrize("ending", ["sys.exit(3)", "os.kill(os.getpid(), signal.SIGTERM)", "1 / 0", "pass"])
def test_it_is_as_without_a_server(server: Server, tmp_path: Path, ending: str) -> None:
    code = f"""
import atexit, os, signal, sys
atexit.register(print, "at the end")
print(sys.argv[2:], os.getcwd(), oct(os.umask(0)), os.environ["OWN"], os.environ.get("SERVER_ONLY"), sys.path, flush=True)
print(sys.stdin.read(), file=sys.stderr)
print("unflushed") if {ending!r} == "pass" else None
{ending}
"""
    given = {"cwd": tmp_path, "umask": 0o027, "entered": "a line\nand one more"}
    found = server.run(code, "-x", "ä", variables={"OWN": "ö"}, **given)
    alone = server.run(code, "-x", "ä", variables={"OWN": "ö", VARIABLE: OFF}, **given)
    assert found[:2] == alone[:2] and found[2].splitlines()[-1] == alone[2].splitlines()[-1]
    assert str(tmp_path) in found[1] and "0o27" in found[1] and "and one more" in found[2]


PARENT = "import os; print(os.getppid())"


def test_it_is_a_child_of_the_server(server: Server) -> None:
    assert server.run(PARENT) == (0, f"{server.process.pid}\n", "")


def test_several_run_at_once(server: Server) -> None:
    code = "import os, sys; print(os.getpid(), flush=True); print(sys.stdin.read())"
    clients = [server.client(code) for _ in range(3)]
    pids = {client.stdout.readline() for client in clients if client.stdout is not None}
    assert len(pids) == 3
    for client in reversed(clients):
        assert client.communicate("done", timeout=HANGS_AFTER)[0] == "done\n"


@pytest.mark.parametrize(
    "variables", [{"OMP_WAIT_POLICY": "ACTIVE"}, {"PYTHONHASHSEED": "1"}, {"OMP_NUM_THREADS": ""}, {VARIABLE: "/nowhere"}]
)
def test_what_a_child_cannot_be_given_is_refused(server: Server, variables: dict[str, str]) -> None:
    assert server.run(PARENT, variables=variables) == (0, f"{os.getpid()}\n", "")


def test_after_a_change_of_the_code_all_are_refused(server: Server) -> None:
    assert server.run(PARENT)[1] == f"{server.process.pid}\n"
    os.utime(server.code, ns=(1, 1))
    assert server.run(PARENT)[1] == f"{os.getpid()}\n"


def test_signals_reach_the_command_while_the_server_is_busy(server: Server) -> None:
    code = """
import os, signal, sys, time
signal.signal(signal.SIGUSR1, lambda *_: print("heard", flush=True))
try:
    print("begun", flush=True)
    time.sleep(600)
except KeyboardInterrupt:
    os.kill(os.getppid(), signal.SIGCONT)  # the server
    sys.exit(7)
"""
    client = server.client(code)
    assert client.stdout is not None and client.stdout.readline() == "begun\n"
    client.send_signal(signal.SIGUSR1)
    assert client.stdout.readline() == "heard\n"
    server.process.send_signal(signal.SIGSTOP)
    client.send_signal(signal.SIGINT)
    assert client.wait(HANGS_AFTER) == 7
    client.communicate()


def test_a_signal_before_the_command_begins_ends_the_client(server: Server) -> None:
    server.run(PARENT)  # it has begun
    server.process.send_signal(signal.SIGSTOP)
    client = server.client("print('run')")
    time.sleep(0.3)
    client.send_signal(signal.SIGINT)
    assert client.communicate(timeout=HANGS_AFTER)[0] == "" and client.returncode == -signal.SIGINT
    server.process.send_signal(signal.SIGCONT)
    assert server.run(PARENT)[1] == f"{server.process.pid}\n"


SLEEPS = """
import os, subprocess, sys, time
other = subprocess.Popen(["sleep", "600"])
print(os.getpid(), other.pid, os.getppid(), flush=True)
time.sleep(600)
"""


def test_a_killed_client_takes_the_command_with_it(server: Server) -> None:
    client = server.client(SLEEPS)
    assert client.stdout is not None
    *group, parent = map(int, client.stdout.readline().split())
    assert parent == server.process.pid
    client.kill()
    until(lambda: all(map(has_ended, group)))
    client.communicate()
    assert server.run(PARENT)[1] == f"{parent}\n"  # the server goes on


def test_a_dead_server_leaves_commands_as_they_are(server: Server) -> None:
    code = "import os, time; print(os.getppid(), flush=True); time.sleep(0 if os.getppid() == int(sys.argv[2]) else 600)"
    client = server.client(code, str(os.getpid()))
    assert client.stdout is not None and client.stdout.readline() == f"{server.process.pid}\n"
    server.process.kill()
    assert client.communicate(timeout=HANGS_AFTER)[0] == f"{os.getpid()}\n" and client.returncode == 0  # once more, by itself
    assert server.run(PARENT)[1] == f"{os.getpid()}\n"


def test_the_server_ends_with_its_owner_after_the_last_command(server: Server) -> None:
    client = server.client("print('begun', flush=True); print(input())")
    assert client.stdout is not None and client.stdout.readline() == "begun\n"
    assert server.process.stdin is not None
    server.process.stdin.close()
    server.process.stdin = None
    until(lambda: not server.address.exists())
    assert client.communicate("done", timeout=HANGS_AFTER)[0] == "done\n"
    assert server.process.wait(HANGS_AFTER) == 0 and not server.address.parent.exists()


# ---- in a workflow -------------------------------------------------------------------------------------------------------


def workflow(**changes: Any) -> SimpleNamespace:
    deployed = SimpleNamespace(deployment_method=changes.pop("deployed", set()))
    return SimpleNamespace(
        **{"is_main_process": True, "local_exec": True, "touch": False, "deployment_settings": deployed, **changes}
    )


@pytest.mark.parametrize(
    "changes", [{"is_main_process": False}, {"local_exec": False}, {"touch": True}, {"deployed": {"conda"}}, {"off": True}]
)
def test_there_is_none_where_jobs_run_elsewhere(changes: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(subprocess, "Popen", lambda *_, **__: pytest.fail("a server was started"))
    if changes.pop("off", False):
        monkeypatch.setenv(VARIABLE, OFF)
    else:
        monkeypatch.delenv(VARIABLE, raising=False)
    start_fork_server(workflow(**changes))
    assert os.environ.get(VARIABLE) in (None, OFF)
