"""The stages of a plan as TVM objects, made by running the generated text.

Paper: section 6.1 (lowering to TVM's tensor expressions).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from syno.algebra import Valuation
from syno.algebra.code_names import code_name
from syno.ir.graph import PGraph
from syno.lower.plan import Plan
from syno.lower.tvm.installed import tvm
from syno.lower.tvm.source import TeStage, te_stages, to_te_source


@dataclass(frozen=True)
class StageFunction:
    """A stage that can be called with tensors, in the order of its operands, and sizes; it returns a `te.Tensor`.

    Attributes:
        stage: its text.
        graph: the operator that the plan's stages carry out.
    """

    stage: TeStage
    graph: PGraph
    _function: Callable[..., Any]

    def __call__(self, *tensors: Any, **sizes: int) -> Any:
        """Return the stage's result for `te.Tensor`s of the operands' shapes.

        Sizes with a default may be left out, and those the operator does not have may be there.
        """
        return self._function(*tensors, **named_sizes(sizes_of(self.graph, sizes)))


def sizes_of(graph: PGraph, values: Mapping[str, int]) -> Valuation:
    """Return the values of the operator's variables, with its defaults. ValuationError if one is missing."""
    return graph.valuation({name: value for name, value in values.items() if name in graph.variables})


def named_sizes(sizes: Mapping[str, int]) -> dict[str, int]:
    """Return the sizes as arguments of generated functions, in which a variable may have another name."""
    return {code_name(name): value for name, value in sizes.items()}


def stage_functions(plan: Plan) -> tuple[StageFunction, ...]:
    """Return the stages of a plan, to be called in `te.create_prim_func` or in `relax.BlockBuilder.emit_te`.

    Raises:
        MissingPackageError: TVM is not installed.
        LoweringError: as `to_te_source`.
    """
    scope = _defined(plan)
    return tuple(StageFunction(stage, plan.staged, scope[stage.name]) for stage in te_stages(plan))


def prim_functions(plan: Plan, valuation: Mapping[str, int], dtype: str = "float32") -> list[Any]:
    """Return one `tvm.tirx.PrimFunc` per stage, for these sizes; its parameters are the stage's operands, then its result.

    Each has the name of its stage as `global_symbol`. Raises what `stage_functions` does, and ValuationError.
    """
    module, scope = tvm(), _defined(plan)
    sizes = sizes_of(plan.staged, valuation)
    named = named_sizes(sizes)
    inputs = scope["placeholders"](**named, dtype=dtype)
    shapes = {tensor.op.name: tensor.shape for tensor in inputs}
    made = []
    for stage in te_stages(plan):
        operands = [module.te.placeholder(shapes[name], dtype, name) for name in stage.operands]
        result = scope[stage.name](*operands, **named)
        shapes[stage.result] = result.shape
        made.append(module.te.create_prim_func([*operands, result]).with_attr("global_symbol", stage.name))
    return made


def _defined(plan: Plan) -> dict[str, Any]:
    """Return the functions that the text of a plan defines, by name."""
    tvm()
    scope: dict[str, Any] = {"__name__": f"syno_te_{plan.graph.id}"}
    exec(compile(to_te_source(plan.graph, plan=plan), f"<tensor expressions of {plan.graph.name}>", "exec"), scope)
    return scope
