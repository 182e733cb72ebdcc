"""Syno synthesizes operators that replace layers of neural networks.

The public names are listed in `__init__.pyi`. Each is loaded when it is first used, so `import syno` loads neither torch nor
any other large package.
"""

import ast
from importlib import import_module
from pathlib import Path
from typing import Any

from syno.base.release import VERSION

__version__ = VERSION


def _modules_of_names() -> dict[str, str]:
    """Return the module that defines each public name, from the stub. The package lazy_loader reads it in the same way; GPU
    machines on which `make gpu` runs have PyTorch and little else."""
    stub = ast.parse(Path(__file__).with_suffix(".pyi").read_text(encoding="utf-8"))
    imports = [node for node in stub.body if isinstance(node, ast.ImportFrom)]
    return {
        alias.name: f"syno.{node.module}" if node.module else f"syno.{alias.name}" for node in imports for alias in node.names
    }


_MODULES = _modules_of_names()
__all__ = sorted(_MODULES)


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module = import_module(_MODULES[name])
    value = module if _MODULES[name] == f"{__name__}.{name}" else getattr(module, name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return __all__
