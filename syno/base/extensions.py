"""Extensions: packages that add stages, figures, kinds of experiments, commands or distances to Syno, as `syno.paper` does.

An extension names a module under the entry-point group `syno.extensions` in its `pyproject.toml`:

    [project.entry-points."syno.extensions"]
    mine = "my_package.extension"

Syno imports that module before it looks at one of the tables which extensions add to; the module adds its entries. It should
import quickly, so that entries are functions that import what they need when they are called.
"""

from __future__ import annotations

from functools import cache
from importlib import import_module
from importlib.metadata import entry_points
from importlib.util import find_spec

GROUP = "syno.extensions"
BUNDLED = ("syno.paper.extension",)  # part of Syno: without installation, Syno has no entry points
COMMANDS: list[str] = []  # modules of extensions that add commands to `syno`
READING_COMMANDS: list[str] = []  # of these commands, those that run no code which an experiment names: docs/trust.md
EXPERIMENTS: list[str] = []  # classes of kinds of experiments, as `module:name`: `syno.config.kinds.AnyExperiment`
_loaded: set[str] = set()


@cache
def _installed() -> tuple[str, ...]:
    """Return the module names of all extensions, bundled ones first. Cached: reading entry points takes 10 ms per folder."""
    bundled = [module for module in BUNDLED if find_spec(module.rpartition(".")[0]) is not None]
    return tuple(dict.fromkeys([*bundled, *(point.value for point in entry_points(group=GROUP))]))


def load_extensions() -> None:
    """Import the modules of all installed extensions, each once.

    Raises ImportError if an extension cannot be imported: it is installed, so an experiment may need it.
    """
    for module in _installed():
        if module not in _loaded:
            _loaded.add(module)  # before the import, since the module may itself read a table
            import_module(module)
