"""Builds the package: copies the workflow into it. Everything else about the package is in pyproject.toml.

`syno run` finds the workflow in `syno/_workflow` of an installed package.
"""

from __future__ import annotations

import shutil
from pathlib import Path

from setuptools import setup
from setuptools.command.build_py import build_py

ROOT = Path(__file__).resolve().parent
WORKFLOW = ("Snakefile", "workflow", "envs", "config")  # as in syno/stages/workflow/command.py


class BuildWithWorkflow(build_py):
    """Copies the Snakefile, and the folders that it reads, into the package, unless that is a checkout's own."""

    def run(self) -> None:
        """Build."""
        super().run()
        if self.editable_mode:
            return
        folder = Path(self.build_lib, "syno", "_workflow")
        shutil.rmtree(folder, ignore_errors=True)
        for name in WORKFLOW:
            source = ROOT / name
            if source.is_dir():
                shutil.copytree(source, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
            else:
                folder.mkdir(parents=True)
                shutil.copy2(source, folder / name)


setup(cmdclass={"build_py": BuildWithWorkflow})
