"""The machine with a GPU: what is installed, whether there is a GPU, and what a report says of it."""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import torch

from syno.base.release import VERSION
from syno.measure.machine import device_name, processor

QUERIED = ("driver_version", "clocks.sm", "clocks.max.sm", "power.limit", "temperature.gpu", "utilization.gpu")
ROOT = Path(__file__).resolve().parents[1]


def software() -> str:
    """One line: versions, and what is missing that some rows need."""
    compiler = shutil.which(os.environ.get("CC", "cc")) or shutil.which("gcc") or shutil.which("clang")
    triton = _version("triton") or _version("pytorch-triton")
    parts = [
        f"python {platform.python_version()}, torch {torch.__version__}, numpy {_version('numpy')}, "
        f"pydantic {_version('pydantic')}",
        f"triton {triton}" if triton else "triton is not installed: rows compiled by TorchInductor for a GPU will fail",
        f"C compiler {compiler}" if compiler else "there is no C compiler, which Triton needs: set CC",
    ]
    return "; ".join(parts)


def no_gpu(device: str) -> str | None:
    """Why nothing can be measured on the device, and what to do, in one line; None if it is there."""
    number = torch.device(device).index or 0
    if torch.device(device).type == "cuda" and torch.cuda.is_available() and number < torch.cuda.device_count():
        return None
    if torch.version.cuda is None:
        why = f"PyTorch {torch.__version__} has been built without CUDA"
    elif shutil.which("nvidia-smi") is None:
        why = "PyTorch finds none, and there is no nvidia-smi, so no driver either"
    else:
        why = f"PyTorch finds {torch.cuda.device_count()}, and the device is {device}"
    return (
        f"there is no GPU: {why}; run this on a machine with an NVIDIA GPU and a PyTorch for CUDA (make gpu "
        "PYTHON=/path/to/python), or try the program on this CPU: make gpu GPU_OPTIONS=--pretend"
    )


def about(device: str) -> dict[str, str]:
    """The description of the machine in a report. Rows of one file have the same `gpu`, `torch`, `triton` and `syno`."""
    found = {
        "gpu": device_name(device),
        "machine": f"{processor()}, {os.cpu_count()} logical cores",
        "python": platform.python_version(),
        "syno": VERSION,
        "commit": _commit(),
        "torch": torch.__version__,
        "triton": _version("triton") or _version("pytorch-triton") or "none",
    }
    if torch.device(device).type == "cuda":
        properties = torch.cuda.get_device_properties(device)
        found |= {
            "memory": f"{properties.total_memory / 2**30:.0f} GiB",
            "capability": f"{properties.major}.{properties.minor}",
            "cuda": str(torch.version.cuda),
            "cudnn": str(torch.backends.cudnn.version()),
            **state(torch.device(device).index or 0),
        }
    return found


def state(number: int) -> dict[str, str]:
    """The driver, clocks, power limit, temperature and load of a GPU, as nvidia-smi tells; empty without it."""
    visible = os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",")
    place = visible[number].strip() if number < len(visible) and visible[number].strip() else str(number)
    command = ["nvidia-smi", f"--id={place}", f"--query-gpu={','.join(QUERIED)}", "--format=csv,noheader"]
    try:
        said = subprocess.run(command, capture_output=True, text=True, timeout=30, check=True).stdout
    except (OSError, subprocess.SubprocessError):
        return {}
    return dict(zip(QUERIED, (part.strip() for part in said.strip().splitlines()[0].split(",")), strict=False))


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def _commit() -> str:
    """The commit of the working tree; "unknown" where there is no repository, or no git."""
    try:
        command = ["git", "-C", str(ROOT), "rev-parse", "--short", "HEAD"]
        return subprocess.run(command, capture_output=True, text=True, timeout=30, check=True).stdout.strip()
    except (OSError, subprocess.SubprocessError):
        return "unknown"
