"""A PyTorch network as a module of TVM's Relax, in which every stage of a synthesized operator is one PrimFunc.

>>> import torch, syno
>>> module = syno.build(syno.OPERATORS["conv2d"](), {"C_in": 4, "C_out": 4, "H": 6})
>>> sorted(name.name_hint for name in import_network(module, torch.zeros(2, 4, 6, 6)).get_global_vars())
['conv2d_stage_1', 'main']
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Sequence
from typing import Any

import torch
from torch import fx, nn

from syno.base.errors import LoweringError
from syno.lower.choose import plan
from syno.lower.plan import Plan
from syno.lower.tvm import stage_functions
from syno.lower.tvm.installed import tvm
from syno.measure.tvm.preparation import CALL, decomposed, prepared, valuation_for
from syno.model.module import OperatorModule, build


def import_network(module: nn.Module, *examples: torch.Tensor) -> Any:
    """Return the module, in evaluation mode, as a `tvm.IRModule` whose function "main" takes tensors of the examples' shapes.

    Its weights are constants, so normalizations are products and sums, and weights of an operator are multiplied with each
    other beforehand where that leaves the fewest FLOPs. Operators of Syno become one PrimFunc for each stage of their plan;
    everything else is up to TVM's importer.

    Args:
        module: a network, or an operator by itself; it is not changed.
        examples: its inputs. Shapes are fixed to theirs, that of the batch too.

    Raises:
        LoweringError: PyTorch cannot export the module, or TVM has no counterpart of one of its operations.
        MissingPackageError: TVM is not installed.
    """
    tvm()
    from tvm.relax.frontend.torch import from_exported_program

    network, operators = prepared(module)
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # they are about PyTorch's own internals
        try:
            program = torch.export.export(network, tuple(example.cpu() for example in examples))
        except Exception as error:  # there are very many kinds
            raise LoweringError(f"{_name(module)} cannot be exported by PyTorch: {_first_line(error)}") from error
        try:
            return from_exported_program(
                decomposed(program),
                run_ep_decomposition=False,
                unwrap_unit_return_tuple=True,
                custom_convert_map={f"{CALL}.default": _Converter(operators), "embedding.default": _embedding},
            )
        except LoweringError:
            raise
        except Exception as error:
            raise LoweringError(
                f"{_name(module)} cannot be imported into TVM: {_operations(error)}; replace them in the model, or take "
                "another compiler"
            ) from error


class _Converter:
    """Emits the stages of an operator where TVM's importer meets a call of it."""

    def __init__(self, operators: Sequence[OperatorModule]) -> None:
        self.operators = operators

    def __call__(self, node: fx.Node, importer: Any) -> Any:
        argument, number, _ = node.args
        operator, x = self.operators[number], importer.env[argument]
        values = valuation_for(operator, [int(length) for length in x.ty.shape.values])
        return emit_operator(importer.block_builder, operator, plan(operator.graph, values, inference=True), dict(values), x)


def _embedding(node: fx.Node, importer: Any) -> Any:
    """Emit rows of a table. Numbers beyond the table get its first or last row: schedules are tried on random bits."""
    from tvm import relax

    table, rows = (importer.env[argument] for argument in node.args[:2])
    return importer.block_builder.emit(relax.op.take(table, rows, axis=0, mode="clip"))


def emit_operator(builder: Any, operator: OperatorModule, chosen: Plan, values: dict[str, int], x: Any) -> Any:
    """Emit one PrimFunc per stage of the plan into a `relax.BlockBuilder`, and return the variable that holds the output."""
    from tvm import relax

    tensors = {"x": x}
    for number, weight in enumerate(constant_weights(operator, chosen, values), 1):
        tensors[f"w{number}"] = relax.const(weight.numpy())
    for function in stage_functions(chosen):
        stage = function.stage
        operands = (tensors[name] for name in stage.operands)
        hint = f"{re.sub(r'[^0-9A-Za-z]+', '_', operator.graph.name)}_{stage.name}"
        tensors[stage.result] = builder.emit_te(function, *operands, primfunc_name_hint=hint, **values)
    return tensors["y"]


def constant_weights(operator: OperatorModule, chosen: Plan, values: dict[str, int]) -> list[torch.Tensor]:
    """Return the weights that the stages of a plan take, in their order; a composed weight is computed here."""
    weights = [weight.detach().cpu().contiguous() for weight in operator.parameters()]
    composition = chosen.composition
    if composition is None:
        return weights
    recipe = composition.recipe
    composing = build(recipe, {name: value for name, value in values.items() if name in recipe.variables})
    above, below = weights[composition.above - 1], weights[composition.below - 1]
    with torch.no_grad():
        for parameter in composing.parameters():
            parameter.copy_(below)
        composed = composing(above).contiguous()
    return [*(weights[number - 1] for number in composition.kept(len(weights))), composed]


def _operations(error: Exception) -> str:
    """Return the message of TVM's importer, with the names of operations as PyTorch has them."""
    listed = re.search(r"Unsupported function types \[(.*)\]", str(error))
    if listed:
        names = ", ".join(f"aten.{name}" for name in re.findall(r"'([^']+)'", listed.group(1)))
        return f"it has no counterpart of the operations {names}"
    return f"{type(error).__name__}: {_first_line(error)}"


def _first_line(error: Exception) -> str:
    return next((line.strip() for line in str(error).splitlines() if line.strip()), type(error).__name__)[:300]


def _name(module: nn.Module) -> str:
    return f"the operator {module.graph.name}" if isinstance(module, OperatorModule) else f"the model {type(module).__name__}"
