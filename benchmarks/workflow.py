"""The quickstart again and again, each time from nothing: does it end, how long does it take, and is what it finds the same?

    python benchmarks/workflow.py --runs 10 --output quickstart.md

Each run is what `make demo` does once everything is installed, in a folder of its own.
"""

from __future__ import annotations

import argparse
import hashlib
import shlex
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import reports

from syno.base.files import write_whole
from syno.base.text_tables import markdown
from syno.run.table import score_table
from syno.stages.results import StoredRun
from syno.stages.top import find_experiment, summary

ROOT = Path(__file__).parents[1]
CONFIG = ROOT / "config" / "quickstart.yaml"


class Run(NamedTuple):
    """One run: its exit code, its seconds, what tells its scores from others, and the table it ends with."""

    code: int
    seconds: float
    scores: str
    table: str


def run(config: Path, cores: int) -> Run:
    """Run the workflow in a new folder."""
    with tempfile.TemporaryDirectory(prefix="syno-workflow-") as name:
        command = [sys.executable, "-m", "snakemake", "--snakefile", str(ROOT / "Snakefile"), "--directory", name]
        command += ["--configfile", str(config), "--profile", str(ROOT / "workflow/profiles/local"), "--cores", str(cores)]
        began = time.monotonic()
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        seconds = time.monotonic() - began
        print(f"exit code {done.returncode} after {seconds:.0f} s", file=sys.stderr, flush=True)
        folders = list(Path(name).glob("results/*/tables"))
        if done.returncode or not folders:
            return Run(done.returncode or 1, seconds, "", done.stdout + done.stderr)
        results = StoredRun(find_experiment(str(folders[0].parent)))
        scores = score_table(results.scores)[["operator_id", "score", "score_std"]].to_csv(index=False)
        return Run(0, seconds, hashlib.sha256(scores.encode()).hexdigest()[:8], markdown(summary(results)))


def report(runs: Sequence[Run], command: str) -> list[str]:
    """The page."""
    rows = [[str(number), str(one.code), f"{one.seconds:.0f}", one.scores] for number, one in enumerate(runs, 1)]
    good = [one for one in runs if one.code == 0]
    lines = [*reports.heading("The quickstart, run again and again", command), ""]
    lines += reports.table(["run", "exit code", "seconds", "operators and scores"], rows)
    different = len({one.scores for one in good})
    lines += ["", f"{len(good)} of {len(runs)} ended well; they found {different} set(s) of operators and"]
    lines += ["scores (the last column is a hash of them). The table of the last:", ""]
    return [*lines, (good[-1].table if good else runs[-1].table).rstrip()]


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--cores", type=int, default=2)
    parser.add_argument("--config", type=Path, default=CONFIG)
    options = reports.parse(parser, arguments)
    heading = shlex.join(["benchmarks/workflow.py", *(sys.argv[1:] if arguments is None else arguments)])
    runs: list[Run] = []
    for number in range(1, options.runs + 1):
        runs.append(run(options.config.resolve(), options.cores))
        if number < options.runs and options.output:  # a benchmark that is stopped leaves what it has
            write_whole(options.output, "\n".join(report(runs, heading)) + "\n")
    reports.deliver(report(runs, heading), options.output)
    if any(one.code for one in runs):
        sys.exit(1)


if __name__ == "__main__":
    main()
