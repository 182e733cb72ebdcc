"""A machine with GPUs that are not there: an `nvidia-smi` that lists them, and a folder of leases of its own."""

from __future__ import annotations

import os
from pathlib import Path


def uuid(number: int) -> str:
    return f"GPU-{number:08d}-0000-0000-0000-000000000000"


def pretend(folder: Path, count: int = 8, printed: str | None = None) -> dict[str, str]:
    """The variables of the environment in which a process finds `count` GPUs, or those of what `nvidia-smi -L` prints."""
    lines = "".join(f"GPU {number}: Pretended (UUID: {uuid(number)})\n" for number in range(count))
    program = folder / "bin" / "nvidia-smi"
    program.parent.mkdir(parents=True, exist_ok=True)
    program.write_text(f"#!/bin/sh\ncat <<'END'\n{lines if printed is None else printed}END\n", encoding="utf-8")
    program.chmod(0o755)
    path = f"{program.parent}{os.pathsep}{os.environ['PATH']}"
    return {"PATH": path, "SYNO_GPU_LEASES": str(folder / "leases")}
