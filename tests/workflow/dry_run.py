"""What a dry run says that each job is given."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from small_run import ROOT, run_snakemake

JOB = re.compile(r"^( *)(?:local)?(?:rule|checkpoint) (\w+):\n((?:\1 {4}.*\n)*)", re.MULTILINE)  # those of a group are indented


@dataclass(frozen=True)
class Job:
    """A job of a dry run.

    Attributes:
        rule: its name.
        inputs, outputs: its files, as printed.
        threads: how many cores it has.
        resources: what else, as text.
    """

    rule: str
    inputs: str
    outputs: str
    threads: int
    resources: dict[str, str]

    @classmethod
    def read(cls, rule: str, block: str) -> Job:
        """A block of what Snakemake printed."""
        found = dict(re.findall(r"^ {4,}(\w+): (.*)$", block, re.MULTILINE))
        pairs = (pair.partition("=") for pair in found.get("resources", "").split(", "))
        return cls(
            rule,
            found.get("input", ""),
            found.get("output", ""),
            int(found.get("threads", "1")),
            {name: value for name, _, value in pairs},
        )


def dry_run(folder: Path, config: Path, profile: str, *more: str) -> list[Job]:
    """All jobs that a profile, named as users name it, would run in a folder."""
    done = run_snakemake(
        ROOT, ["--dry-run", "--profile", profile, "--directory", str(folder), "--configfile", str(config), *more]
    )
    assert done.returncode == 0, done.stdout
    return [Job.read(rule, block) for _, rule, block in JOB.findall(done.stdout)]
