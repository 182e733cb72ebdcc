"""Where numbers come from: what is written above every table and below every picture."""

from __future__ import annotations

import os
import platform
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version

from syno.measure.machine import processor
from syno.space.spec import OperatorSpec

PACKAGES = ("syno", "numpy")


def provenance(command: str, spec: OperatorSpec, seed: int | None = None) -> list[str]:
    """Lines that say what was run, where and when."""
    versions = ", ".join(f"{package} {_version(package)}" for package in PACKAGES)
    return [
        f"command: {command}",
        f"spec: {spec.name}, depth {spec.depth}, id {spec.id}" + ("" if seed is None else f"; seed {seed}"),
        f"measured on {datetime.now(UTC):%Y-%m-%d %H:%M} UTC, one process, on {processor()}, {os.cpu_count()} logical cores",
        f"versions: Python {platform.python_version()}, {versions}",
    ]


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "unknown"
