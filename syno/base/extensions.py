"""Extensions: packages that add stages, figures, kinds of experiments, commands or distances to Syno, as `syno.paper` does.

An extension names a module under the entry-point group `syno.extensions` in its `pyproject.toml`:

    [project.entry-points."syno.extensions"]
    mine = "my_package.extension"

Syno imports that module before it looks at one of the tables which extensions add to; the module adds its entries. It should
import quickly, so that entries are functions that import what they need when they are called.
"""

from __future__ import annotations

from functools import cache
from importlib.metadata import EntryPoint, entry_points

GROUP = "syno.extensions"
COMMANDS: list[str] = []  # modules of extensions that add commands to `syno`
EXPERIMENTS: list[str] = []  # classes of kinds of experiments, as `module:name`: `syno.config.kinds.AnyExperiment`
_loaded: set[str] = set()


@cache
def _installed() -> tuple[EntryPoint, ...]:
    """Return the entry points of extensions. To look for them takes a hundredth of a second in each package folder."""
    return tuple(entry_points(group=GROUP))


def load_extensions() -> None:
    """Import the modules of all extensions that are installed, each once.

    Raises ImportError if one of them cannot be imported: it is installed, so an experiment may need it.
    """
    for point in _installed():
        if point.value not in _loaded:
            _loaded.add(point.value)  # first: a module that is being imported may look at a table itself
            point.load()
