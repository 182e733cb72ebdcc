"""A real Slurm on this host: a controller, a database of accounts, and several nodes, each a daemon with a port of its own.

    python tests/slurm/cluster.py up        and: down

It takes root and Debian's packages (PACKAGES). It writes to FOLDER, and to /etc/slurm if there is no other Slurm.
`down` stops what `up` started, by the process ids that it wrote down, and nothing else. There are no limits of memory:
processes are followed without control groups.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from daemons import NoSlurmError, found, note, owned, path, processes, run, said, stop, stop_all, wait, works, write_down
from slurm_settings import DATABASE_PORT, ETC, FOLDER, MARK, NODES, remove_settings, write_settings

PACKAGES = ("slurmctld", "slurmd", "slurm-client", "slurmdbd", "slurm-wlm-mysql-plugin", "mariadb-server", "munge")
PROGRAMS = ("slurmctld", "slurmd", "slurmdbd", "mariadbd", "munged", "sacct", "sbatch")


def why_not() -> str:
    """Why there can be no Slurm here; "" if there can."""
    if os.geteuid() != 0:
        return "it takes root"
    if absent := [name for name in PROGRAMS if shutil.which(name, path=path()) is None]:
        return f"{', '.join(absent)}: not installed; apt-get install {' '.join(PACKAGES)}"
    if (ETC / "slurm.conf").exists() and not (ETC / "slurm.conf").read_text(encoding="utf-8").startswith(MARK):
        return f"{ETC}/slurm.conf is of another Slurm"
    return ""


def up() -> None:
    """Start everything. NoSlurmError says what does not come up."""
    if reason := why_not():
        raise NoSlurmError(reason)
    down()
    for name in ("state", "spool", "log", "run", "devices"):
        (FOLDER / name).mkdir(parents=True, exist_ok=True)
    write_settings()
    _start_munge()
    _start_database()
    start_accounts()
    for what in (["cluster", "syno"], ["account", "tests", "Cluster=syno"], ["user", "root", "Account=tests", "Cluster=syno"]):
        said("sacctmgr", "--immediate", "--quiet", "add", *what)
    start_controller()
    for number in range(1, NODES + 1):
        start_node(number)
    _wait_for_nodes()


def down() -> None:
    """Stop what was started, and remove its settings."""
    if (FOLDER / "processes").exists():
        said("scancel", "--user", "root", "--quiet")
    stop_all()
    remove_settings()


def start_accounts() -> None:
    """Start the daemon of the accounts: without it, the plugin of Snakemake does not learn how jobs ended."""
    run("slurmdbd")
    wait("the database of accounts answers", lambda: works("sacctmgr", "-n", "show", "cluster"))
    note("slurmdbd", FOLDER / "run" / "slurmdbd.pid")


def start_controller() -> None:
    """Start the controller, which goes on where it was."""
    run("slurmctld")
    wait("the controller answers", lambda: "is UP" in said("scontrol", "ping"))
    note("slurmctld", FOLDER / "run" / "slurmctld.pid")


def start_node(number: int) -> None:
    """Start the daemon of a node."""
    (FOLDER / "spool" / f"n{number}").mkdir(exist_ok=True)
    file = FOLDER / "run" / f"slurmd.n{number}.pid"
    file.unlink(missing_ok=True)  # of one that was killed
    run("slurmd", "-N", f"n{number}")
    wait(f"node n{number} runs", lambda: file.exists() and file.read_text(encoding="ascii").strip() != "")
    note("slurmd", file)


@contextmanager
def node_lost(number: int) -> Iterator[None]:
    """A node that nobody reaches: what runs there stands still, its daemon is gone, and the controller is told that it is down.

    Afterwards it is back, without what ran there.
    """
    jobs = [pid for pid, variables in processes().items() if variables.get("SLURMD_NODENAME") == f"n{number}"]
    for pid in jobs:
        _signal(pid, signal.SIGSTOP)
    _signal(_pid_of(f"slurmd.n{number}"), signal.SIGKILL)
    run("scontrol", "update", f"nodename=n{number}", "state=down", "reason=test")
    try:
        yield
    finally:
        for pid in jobs:
            _signal(pid, signal.SIGKILL)
        start_node(number)
        said("scontrol", "update", f"nodename=n{number}", "state=resume")
        _wait_for_nodes()


@contextmanager
def slurm_away() -> Iterator[None]:
    """The controller and the accounts are stopped; afterwards they go on where they were. Jobs go on all the while."""
    for name in ("slurmctld", "slurmdbd"):
        stop(name, _pid_of(name))
    try:
        yield
    finally:
        start_accounts()
        start_controller()


def _signal(pid: int, number: signal.Signals) -> None:
    with suppress(ProcessLookupError):  # it has ended
        os.kill(pid, number)


def _pid_of(daemon: str) -> int:
    return int((FOLDER / "run" / f"{daemon}.pid").read_text(encoding="ascii"))


def _wait_for_nodes() -> None:
    wait(
        "the nodes are there",
        lambda: said("sinfo", "-h", "-N", "-p", "main", "-t", "idle,mix,alloc", "-o", "%N").count("\n") == NODES,
    )


# ---- daemons -----------------------------------------------------------------------------------------------------------


def _start_munge() -> None:
    """What lets daemons trust each other."""
    if subprocess.run(["munge", "-n"], capture_output=True, check=False).returncode == 0:
        return
    for folder, mode in (("/run/munge", 0o755), ("/var/log/munge", 0o700), ("/var/lib/munge", 0o700), ("/etc/munge", 0o700)):
        owned(Path(folder), "munge", mode)
    as_munge = ["runuser", "-u", "munge", "--"]
    if not Path("/etc/munge/munge.key").exists():
        run(*as_munge, "mungekey", "--create", "--keyfile", "/etc/munge/munge.key")
    run(*as_munge, "munged")
    wait("munge answers", lambda: subprocess.run(["munge", "-n"], capture_output=True, check=False).returncode == 0)
    note("munged", Path("/run/munge/munged.pid"))


def _start_database() -> None:
    """Of the accounts."""
    socket_file, data = Path("/run/mysqld/syno.sock"), FOLDER / "mysql"
    owned(socket_file.parent, "mysql", 0o755)
    FOLDER.chmod(0o755)
    if not data.exists():
        owned(data, "mysql", 0o700)
        run("mariadb-install-db", "--user=mysql", f"--datadir={data}", "--skip-test-db")
    places = [f"--datadir={data}", f"--socket={socket_file}", f"--pid-file={socket_file.with_suffix('.pid')}"]
    options = ["--bind-address=127.0.0.1", f"--port={DATABASE_PORT}", "--innodb-lock-wait-timeout=900"]
    with (FOLDER / "log" / "mariadb.log").open("ab") as log:
        command = [found("mariadbd"), "--no-defaults", "--user=mysql", *places, *options]
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True)
    write_down("mariadbd", process.pid)
    client = ["mariadb", f"--socket={socket_file}"]
    wait("MariaDB answers", lambda: subprocess.run([*client, "-e", ""], capture_output=True, check=False).returncode == 0)
    grant = "grant all on syno_slurm.* to 'slurm'@'{}' identified by 'slurm'"
    users = "; ".join(map(grant.format, ("localhost", "127.0.0.1")))
    run(*client, "-e", f"create database if not exists syno_slurm; {users}")


if __name__ == "__main__":
    try:
        {"up": up, "down": down}[sys.argv[1] if len(sys.argv) == 2 else ""]()
    except (KeyError, NoSlurmError) as error:
        sys.exit(f"up or down; {error}")
