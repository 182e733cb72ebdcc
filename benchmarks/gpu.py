"""Measure everything that takes a GPU, on a machine that has PyTorch for CUDA with Triton, NumPy and pydantic: `make gpu`.

    make gpu                                   10 minutes; docs/measured/gpu-NAME.md and gpu-NAME.json
    make gpu OUT=folder MINUTES=60             everything below one folder; more rows
    make gpu PYTHON=/opt/conda/bin/python      the Python that has PyTorch
    make gpu GPU_OPTIONS=--pretend             the same program in miniature on the CPU, to try it

Nothing is installed, and no network is used. The tests of tests/gpu run first, then rows are measured, the most valuable ones
first. Both files are written again after each row. Rows for which no time was left are listed; the next run measures them.
Exit status: 0; 1 if a test or a row failed; 2 if this machine has no GPU, or lacks a package.

Older versions of Python read this file, too, to say what they lack: it imports the others in its functions.
"""

from __future__ import annotations

import argparse
import sys
from importlib.util import find_spec
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
LEAST_PYTHON = (3, 11)
NEEDED = ("torch", "numpy", "pydantic")


def main(arguments: list[str] | None = None) -> int:
    """Check the machine, measure, write; the exit status."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0], prog="make gpu: benchmarks/gpu.py")
    add = parser.add_argument
    add("--output", type=Path, metavar="DIR", help="where both files are written; default: docs/measured")
    add("--minutes", type=float, default=10.0, help="after which no row begins or goes on; default: %(default)g")
    add("--device", default="cuda", help="cuda, or one of several GPUs such as cuda:1; default: %(default)s")
    add("--tf32", action="store_true", help="measure latencies with TF32, as rows of their own")
    add("--sections", default="tests,training,latency", help="what is measured; default: %(default)s")
    add("--pretend", action="store_true", help="in miniature on the CPU; into results/pretended-gpu")
    add("--list", action="store_true", help="print the rows in their order, and end")
    options = parser.parse_args(arguments)
    problem = lacking()
    if problem is not None:
        print(problem, file=sys.stderr)
        return 2
    sys.path[:0] = [str(ROOT)]  # Syno, which may not be installed
    import gpu_machine
    import gpu_run

    if options.list:
        print("\n".join(row.title for row in gpu_run.rows_of(options)))
        return 0
    print(gpu_machine.software(), file=sys.stderr)
    problem = None if options.pretend else gpu_machine.no_gpu(options.device)
    if problem is not None:
        print(problem, file=sys.stderr)
        return 2
    given = sys.argv[1:] if arguments is None else arguments
    return gpu_run.run(options, " ".join(["benchmarks/gpu.py", *given]))


def lacking() -> str | None:
    """Return which packages this Python lacks, in one line; None if it has all."""
    here = "{} ({}.{})".format(sys.executable, *sys.version_info[:2])
    other = "choose another Python with make gpu PYTHON=/path/to/python"
    if sys.version_info < LEAST_PYTHON:
        return "this needs Python {}.{} or newer, and this is {}: {}".format(*LEAST_PYTHON, here, other)
    missing = [name for name in NEEDED if find_spec(name) is None]
    if missing:
        return f"{here} has no {' and no '.join(missing)}: {other}"
    return None


if __name__ == "__main__":
    sys.exit(main())
