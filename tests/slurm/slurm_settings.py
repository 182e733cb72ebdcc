"""The settings of the Slurm that tests run on: several nodes on this host, a database of accounts, no limits of memory."""

from __future__ import annotations

import os
import socket
from pathlib import Path

FOLDER = Path("/tmp/syno-slurm")  # of all that is not settings
ETC = Path("/etc/slurm")
MARK = "# Syno's tests wrote this: tests/slurm/cluster.py\n"
NODES, CPUS, MEMORY_MIB, GPUS = 3, 4, 32_000, 1
REQUEUE_SECONDS = 10  # until a job starts again whose node was lost
CONTROLLER_PORT, FIRST_NODE_PORT, DATABASE_PORT = 16_817, 17_001, 13_306


def write_settings() -> None:
    """Write all files of settings."""
    ETC.mkdir(exist_ok=True)
    for number in range(GPUS):
        device = FOLDER / "devices" / f"gpu{number}"
        if not device.exists():  # a GPU is a file: any device will do
            os.mknod(device, 0o020666, os.makedev(1, 3))
    (ETC / "slurm.conf").write_text(MARK + _slurm_conf(), encoding="utf-8")
    gpus = f"NodeName=n[1-{NODES}] Name=gpu File={FOLDER}/devices/gpu[0-{GPUS - 1}]\n"
    (ETC / "gres.conf").write_text(gpus, encoding="utf-8")
    (ETC / "cgroup.conf").write_text("CgroupAutomount=no\nConstrainCores=no\nConstrainRAMSpace=no\n", encoding="utf-8")
    accounts = ETC / "slurmdbd.conf"
    accounts.touch(mode=0o600)
    accounts.chmod(0o600)
    lines = ("AuthType=auth/munge", "DbdHost=localhost", "SlurmUser=root", f"LogFile={FOLDER}/log/slurmdbd.log")
    store = ("StorageType=accounting_storage/mysql", "StorageHost=127.0.0.1", f"StoragePort={DATABASE_PORT}")
    access = ("StorageUser=slurm", "StoragePass=slurm", "StorageLoc=syno_slurm", f"PidFile={FOLDER}/run/slurmdbd.pid")
    accounts.write_text("\n".join([*lines, *store, *access, ""]), encoding="utf-8")


def remove_settings() -> None:
    """Remove what `write_settings` wrote. While it is there, each start of Snakemake waits for the controller."""
    file = ETC / "slurm.conf"
    if file.exists() and file.read_text(encoding="utf-8").startswith(MARK):
        for name in ("slurm.conf", "gres.conf", "cgroup.conf", "slurmdbd.conf"):
            (ETC / name).unlink(missing_ok=True)


def _slurm_conf() -> str:
    here = socket.gethostname().partition(".")[0]
    nodes = f"n[1-{NODES}]"
    ports = f"[{FIRST_NODE_PORT}-{FIRST_NODE_PORT + NODES - 1}]"
    return f"""\
ClusterName=syno
SlurmctldHost={here}(127.0.0.1)
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=cred_expire={REQUEUE_SECONDS}
MpiDefault=none
ReturnToService=2
SlurmctldPort={CONTROLLER_PORT}
SlurmctldPidFile={FOLDER}/run/slurmctld.pid
SlurmdPidFile={FOLDER}/run/slurmd.%n.pid
SlurmdSpoolDir={FOLDER}/spool/%n
StateSaveLocation={FOLDER}/state
SlurmctldLogFile={FOLDER}/log/slurmctld.log
SlurmdLogFile={FOLDER}/log/slurmd.%n.log
SlurmdParameters=config_overrides
SwitchType=switch/none
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SchedulerType=sched/backfill
SchedulerParameters=sched_interval=5,bf_interval=5,batch_sched_delay=0,sched_min_interval=0
SelectType=select/cons_tres
SelectTypeParameters=CR_Core_Memory
GresTypes=gpu
DefMemPerCPU=500
MinJobAge=3600
KillWait=20
SlurmctldTimeout=30
SlurmdTimeout=30
AccountingStorageType=accounting_storage/slurmdbd
AccountingStorageHost=localhost
JobAcctGatherType=jobacct_gather/linux
JobAcctGatherFrequency=5
NodeName={nodes} NodeHostname={here} NodeAddr=127.0.0.1 Port={ports} CPUs={CPUS} RealMemory={MEMORY_MIB} Gres=gpu:{GPUS}
PartitionName=main Nodes={nodes} Default=YES LLN=YES MaxTime=INFINITE State=UP
PartitionName=gpu Nodes={nodes} LLN=YES MaxTime=INFINITE State=UP
"""
