"""A real Slurm for the tests in this folder; where there can be none, they are skipped and say why."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

HERE = Path(__file__).parent
sys.path += [str(HERE), str(HERE.parent / "workflow")]


@pytest.fixture(scope="session")
def cluster() -> Iterator[None]:
    """A cluster of three nodes while the tests run."""
    from cluster import down, up, why_not

    if importlib.util.find_spec("snakemake_executor_plugin_slurm") is None:
        pytest.skip('no plugin of Snakemake for Slurm: pip install "syno-operators[slurm]"')
    if reason := why_not():
        pytest.skip(f"no Slurm can be started here: {reason}")
    try:
        up()
        yield
    finally:
        down()
