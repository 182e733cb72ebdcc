"""Syno synthesizes operators that replace layers of neural networks.

The names below are the public interface. Each is loaded when it is first used, so `import syno` loads neither torch nor any
other large package.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from syno.base.compiled import use_compiled
from syno.base.release import VERSION

use_compiled()

if TYPE_CHECKING:
    from syno.algebra import Valuations, VariableTable
    from syno.base.errors import SynoError
    from syno.ir.builder import Builder
    from syno.ir.coordinates import expression, loop_nest
    from syno.ir.drawing import to_dot, to_svg
    from syno.ir.graph import PGraph
    from syno.ir.library import OPERATORS
    from syno.ir.text import parse
    from syno.lower.choose import plan
    from syno.lower.interpreter import interpret
    from syno.lower.loops import to_c
    from syno.lower.pytorch.source import to_source
    from syno.lower.tvm import to_te_source
    from syno.model import build, prepare_for_inference
    from syno.model.saved import load
    from syno.model.substitution import substitute

__version__ = VERSION

_HOME = {
    "Builder": "syno.ir.builder",
    "OPERATORS": "syno.ir.library",
    "PGraph": "syno.ir.graph",
    "SynoError": "syno.base.errors",
    "Valuations": "syno.algebra",
    "VariableTable": "syno.algebra",
    "build": "syno.model",
    "expression": "syno.ir.coordinates",
    "interpret": "syno.lower.interpreter",
    "load": "syno.model.saved",
    "loop_nest": "syno.ir.coordinates",
    "parse": "syno.ir.text",
    "plan": "syno.lower.choose",
    "prepare_for_inference": "syno.model",
    "substitute": "syno.model.substitution",
    "to_c": "syno.lower.loops",
    "to_dot": "syno.ir.drawing",
    "to_source": "syno.lower.pytorch.source",
    "to_svg": "syno.ir.drawing",
    "to_te_source": "syno.lower.tvm",
}

__all__ = [
    "OPERATORS", "Builder", "PGraph", "SynoError", "Valuations", "VariableTable", "build", "expression", "interpret",
    "load", "loop_nest", "parse", "plan", "prepare_for_inference", "substitute", "to_c", "to_dot", "to_source", "to_svg",
    "to_te_source",
]  # fmt: skip


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'syno' has no attribute {name!r}; it has: {', '.join(_HOME)}")
    return getattr(import_module(_HOME[name]), name)
