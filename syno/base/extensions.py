"""Extensions: packages that add stages, figures, kinds of experiments, commands or distances to Syno, as `syno.paper` does.

An extension names a module under the entry-point group `syno.extensions` in its `pyproject.toml`:

    [project.entry-points."syno.extensions"]
    mine = "my_package.extension"

Syno imports that module before it looks at one of the tables which extensions add to; the module adds its entries. It should
import quickly, so that entries are functions that import what they need when they are called.
"""

from __future__ import annotations

from importlib.metadata import entry_points

GROUP = "syno.extensions"
COMMANDS: list[str] = []  # modules of extensions that add commands to `syno`
_loaded: set[str] = set()


def load_extensions() -> None:
    """Import the modules of all extensions that are installed, each once.

    Raises ImportError if one of them cannot be imported: it is installed, so an experiment may need it.
    """
    for point in entry_points(group=GROUP):
        if point.value not in _loaded:
            _loaded.add(point.value)  # first: a module that is being imported may look at a table itself
            point.load()
