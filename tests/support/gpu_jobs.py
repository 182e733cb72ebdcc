"""Jobs that compute on pretended GPUs and are killed, as a program; it prints what went wrong, as JSON.

python tests/support/gpu_jobs.py FOLDER GPUS JOBS KILLS SEED [freely]

Every job is a process that takes a lease and starts a child, which computes on the same GPU. While a process computes, there
is a file of its number in the GPU's folder, which knows nothing of leases. The driver says when a job ends. Half the children
of killed jobs go on until the driver has seen that nobody comes to their GPU. After every end and every kill, it waits until
all GPUs are busy again, or no job waits. `freely`, jobs end by themselves after a moment, and the kills come at any time.
"""

from __future__ import annotations

import json
import mmap
import os
import random
import signal
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from syno.base import gpu_leases
from syno.base.devices import VISIBLE

MOMENT, POLL, PATIENCE = 0.001, 0.005, 1200.0  # seconds
WAITING = 4  # jobs that wait at a time: looking for a GPU takes the processor's time


@dataclass
class Job:
    number: int
    pid: int
    orders: int  # to write to: "e" ends it
    killed: bool = False
    done: bool = False


@dataclass
class Driver:
    folder: Path
    gpus: int
    chance: random.Random
    freely: bool
    jobs: list[Job] = field(default_factory=list)
    faults: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.looks = mmap.mmap(-1, 8 * 1024)  # how often each job has looked for a free GPU; children share it

    def start(self, number: int) -> None:
        """Start a job in a process of its own."""
        reading, writing = os.pipe()
        sys.stdout.flush()
        pid = os.fork()
        if pid == 0:
            os.close(writing)
            for job in self.jobs:
                os.close(job.orders)
            code = 1
            os.dup2(os.open(os.devnull, os.O_WRONLY), 2)  # it says that it waits
            try:
                self.compute(number, reading)
                code = 0
            finally:
                os._exit(code)
        os.close(reading)
        self.jobs.append(Job(number, pid, writing))

    # ---- in the process of a job

    def compute(self, number: int, orders: int) -> None:
        def sleep(seconds: float) -> None:
            self.looks[8 * number : 8 * number + 8] = (self.look_count(number) + 1).to_bytes(8, "little")
            time.sleep(POLL)

        with gpu_leases.leased("cuda", sleep=sleep):
            place = self.folder / os.environ[VISIBLE]
            place.mkdir(exist_ok=True)
            self.come(place, number)
            child = os.fork()
            if child == 0:
                self.come(place, number)
                self.stay(orders, number)
                self.go(place, number)
                os._exit(0)
            self.stay(orders, number)
            os.waitpid(child, 0)
            self.go(place, number)
        (self.folder / f"job{number}.done").touch()

    def come(self, place: Path, number: int) -> None:
        os.close(os.open(place / f"{number}.{os.getpid()}", os.O_CREAT | os.O_EXCL))
        self.look_around(place, number)

    def go(self, place: Path, number: int) -> None:
        self.look_around(place, number)
        (place / f"{number}.{os.getpid()}").unlink()

    def stay(self, orders: int, number: int) -> None:
        """Compute until the driver says that it is enough: a byte for each of the two processes."""
        if self.freely:
            time.sleep(MOMENT * (number % 7))
        else:
            os.read(orders, 1)

    def look_around(self, place: Path, number: int) -> None:
        """Note live processes of other jobs on this GPU."""
        for file in place.iterdir():
            other, _, pid = file.name.partition(".")
            if int(other) != number and lives(int(pid)):
                (self.folder / f"fault.{number}.{other}").write_text(f"jobs {number} and {other} compute on {place.name}")

    # ---- in the driver

    def look_count(self, number: int) -> int:
        return int.from_bytes(self.looks[8 * number : 8 * number + 8], "little")

    def on_gpus(self) -> dict[int, set[str]]:
        """The jobs that live processes of theirs compute for, and on which GPUs."""
        found: dict[int, set[str]] = {}
        for file in self.folder.glob("GPU-*/*"):
            number, _, pid = file.name.partition(".")
            if lives(int(pid)):
                found.setdefault(int(number), set()).add(file.parent.name)
        return found

    def await_(self, what: str, is_so: Callable[[], bool]) -> None:
        end = time.monotonic() + PATIENCE
        while not is_so():
            if time.monotonic() > end:
                raise TimeoutError(f"{what}; on GPUs: {self.on_gpus()}")
            time.sleep(MOMENT)

    def reap(self, job: Job) -> None:
        _, status = os.waitpid(job.pid, 0)
        job.done = True
        if not job.killed and status != 0:
            self.faults.append(f"job {job.number} ended with {status}")

    def full(self) -> bool:
        """Whether no GPU is idle while jobs wait: all have two processes of a job, or of the last jobs."""
        waiting = [job.number for job in self.jobs if not job.done]
        busy = self.on_gpus()
        both = [number for number in busy if len(list(self.folder.glob(f"GPU-*/{number}.*"))) >= 2]
        return len(both) >= min(self.gpus, len({*waiting, *busy}))

    def run(self, count: int, kills: int) -> None:
        killed = set(self.chance.sample(range(count), kills))  # the steps at which a job is killed
        for step in range(count):
            while len(self.jobs) < count and sum(not job.done for job in self.jobs) < self.gpus + WAITING:
                self.start(len(self.jobs))
            self.await_("a GPU is idle while jobs wait", self.full)
            busy, left = self.on_gpus(), [job for job in self.jobs if not job.done]
            if step in killed:  # whether it waits or computes
                self.kill(self.chance.choice(left), busy)
            else:
                job = self.chance.choice([one for one in left if one.number in busy])
                os.write(job.orders, b"ee")
                self.reap(job)

    def kill(self, job: Job, busy: dict[int, set[str]]) -> None:
        job.killed = True
        os.kill(job.pid, signal.SIGKILL)
        self.reap(job)
        if job.number not in busy:
            return
        if self.chance.random() < 0.5:  # its child goes on until every waiting job has looked for a free GPU in vain
            waiting = {one.number: self.look_count(one.number) for one in self.jobs if not one.done and one.number not in busy}

            def have_looked() -> bool:
                return all(self.look_count(one) >= seen + 2 for one, seen in waiting.items())

            self.await_("jobs don't look for a GPU", lambda: have_looked() or set(self.on_gpus()) != set(busy))
            if set(self.on_gpus()) != set(busy):
                self.faults.append(f"killed job {job.number} has a child, and others came: {self.on_gpus()}")
        os.write(job.orders, b"e")
        self.await_("a child does not end", lambda: job.number not in self.on_gpus())

    def run_freely(self, count: int, kills: int) -> None:
        for number in range(count):
            self.start(number)
        for job in self.chance.sample(self.jobs, kills):
            time.sleep(self.chance.random() * 5 * MOMENT)
            job.killed = True
            os.kill(job.pid, signal.SIGKILL)
        for job in self.jobs:
            self.reap(job)


def lives(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()[0] not in "ZX"
    except (OSError, IndexError):
        return False


def main(folder: Path, gpus: int, jobs: int, kills: int, seed: int, freely: bool) -> None:
    driver = Driver(folder, gpus, random.Random(seed), freely)
    (driver.run_freely if freely else driver.run)(jobs, kills)
    faults = [*driver.faults, *(file.read_text() for file in folder.glob("fault.*"))]
    lost = [job.number for job in driver.jobs if not job.killed and not (folder / f"job{job.number}.done").exists()]
    print(json.dumps({"faults": faults, "lost": lost, "killed": sum(job.killed for job in driver.jobs)}))


if __name__ == "__main__":
    folder, gpus, jobs, kills, seed, *more = sys.argv[1:]
    main(Path(folder), int(gpus), int(jobs), int(kills), int(seed), more == ["freely"])
