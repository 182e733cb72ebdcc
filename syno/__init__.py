"""Syno synthesizes operators that replace layers of neural networks.

The names below are the public interface. Each is loaded when it is first used, so `import syno` loads neither torch nor any
other large package.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from syno.base.release import VERSION

if TYPE_CHECKING:
    import syno.plot as plot
    from syno.algebra import Valuations, VariableTable
    from syno.base.errors import SynoError
    from syno.data import DATASETS, DataSet
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
    from syno.model.counting import model_cost
    from syno.model.saved import load
    from syno.model.spec import spec_for
    from syno.model.substitution import substitute
    from syno.notebook.layer_times import layer_latency
    from syno.notebook.study import Study
    from syno.notebook.training import Training
    from syno.search.policies import POLICIES
    from syno.search.reward import REWARDS
    from syno.space import OperatorSpec, Space, preset
    from syno.space.complete import cost
    from syno.space.sample import sample

__version__ = VERSION

_HOME = {
    "Builder": "syno.ir.builder",
    "DATASETS": "syno.data",
    "DataSet": "syno.data",
    "OPERATORS": "syno.ir.library",
    "OperatorSpec": "syno.space",
    "PGraph": "syno.ir.graph",
    "POLICIES": "syno.search.policies",
    "REWARDS": "syno.search.reward",
    "Space": "syno.space",
    "Study": "syno.notebook.study",
    "SynoError": "syno.base.errors",
    "Training": "syno.notebook.training",
    "Valuations": "syno.algebra",
    "VariableTable": "syno.algebra",
    "build": "syno.model",
    "cost": "syno.space.complete",
    "expression": "syno.ir.coordinates",
    "interpret": "syno.lower.interpreter",
    "layer_latency": "syno.notebook.layer_times",
    "load": "syno.model.saved",
    "loop_nest": "syno.ir.coordinates",
    "model_cost": "syno.model.counting",
    "preset": "syno.space",
    "parse": "syno.ir.text",
    "plan": "syno.lower.choose",
    "plot": "syno.plot",
    "prepare_for_inference": "syno.model",
    "sample": "syno.space.sample",
    "spec_for": "syno.model.spec",
    "substitute": "syno.model.substitution",
    "to_c": "syno.lower.loops",
    "to_dot": "syno.ir.drawing",
    "to_source": "syno.lower.pytorch.source",
    "to_svg": "syno.ir.drawing",
    "to_te_source": "syno.lower.tvm",
}

__all__ = [
    "DATASETS",
    "OPERATORS",
    "POLICIES",
    "REWARDS",
    "Builder",
    "DataSet",
    "OperatorSpec",
    "PGraph",
    "Space",
    "Study",
    "SynoError",
    "Training",
    "Valuations",
    "VariableTable",
    "build",
    "cost",
    "expression",
    "interpret",
    "layer_latency",
    "load",
    "loop_nest",
    "model_cost",
    "parse",
    "plan",
    "plot",
    "prepare_for_inference",
    "preset",
    "sample",
    "spec_for",
    "substitute",
    "to_c",
    "to_dot",
    "to_source",
    "to_svg",
    "to_te_source",
]  # fmt: skip


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'syno' has no attribute {name!r}; it has: {', '.join(_HOME)}")
    home = import_module(_HOME[name])
    return home if name == "plot" else getattr(home, name)  # the plots are a module


def __dir__() -> list[str]:
    return list(__all__)
