"""Import of a PyTorch network into TVM's Relax, where each stage of a synthesized operator is one PrimFunc.

A copy of the network is prepared for TVM's importer: normalizations become products and sums, and each operator an opaque call
of `syno::synthesized`. For this call, the importer emits the operator's stages.

>>> import torch, syno
>>> module = syno.build(syno.OPERATORS["conv2d"](), {"C_in": 4, "C_out": 4, "H": 6})
>>> sorted(name.name_hint for name in import_network(module, torch.zeros(2, 4, 6, 6)).get_global_vars())
['conv2d_stage_1', 'main']
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import torch
from torch import fx, nn

from syno.base.errors import LoweringError, first_line
from syno.lower.choose import plan
from syno.lower.plan import Plan
from syno.lower.tvm import stage_functions
from syno.lower.tvm.installed import tvm
from syno.measure.operator_calls import CALL, valuation_for, with_calls
from syno.model.module import OperatorModule, build

ATTENTION = torch.ops.aten.scaled_dot_product_attention.default
LINEAR = torch.ops.aten.linear.default


def import_network(module: nn.Module, *examples: torch.Tensor) -> Any:
    """Return the module, in evaluation mode, as a `tvm.IRModule` whose function "main" takes tensors of the examples' shapes.

    Weights are constants, so that normalizations are products and sums, and two weights of an operator are composed if that
    leaves the fewest FLOPs. Operators become one PrimFunc for each stage of their plan.

    Args:
        module: a network, or an operator alone; it is not changed.
        examples: inputs of the module; the result takes inputs of these shapes only.

    Raises:
        LoweringError: PyTorch cannot export the module, or TVM has no counterpart of one of its operations.
        MissingPackageError: TVM is not installed.
    """
    name = f"the operator {module.graph.name}" if isinstance(module, OperatorModule) else f"the model {type(module).__name__}"
    network, operators = prepared(module)
    return from_pytorch(network, examples, name, {f"{CALL}.default": partial(_operator, operators)})


def from_pytorch(network: nn.Module, examples: Sequence[torch.Tensor], name: str, own: Mapping[str, Any]) -> Any:
    """Return a network as a `tvm.IRModule`; raises as `import_network`. `own` has converters of further operations."""
    tvm()
    from tvm.relax.frontend.torch import from_exported_program

    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # they are about PyTorch's own internals
        try:  # both raise very many kinds of exceptions
            program = torch.export.export(network, tuple(example.cpu() for example in examples))
        except Exception as error:
            raise LoweringError(f"{name} cannot be exported by PyTorch: {first_line(error)}") from error
        try:
            return from_exported_program(
                decomposed(program),
                run_ep_decomposition=False,
                unwrap_unit_return_tuple=True,
                custom_convert_map={"embedding.default": _embedding, **own},
            )
        except LoweringError:
            raise
        except Exception as error:
            instead = "replace them in the model, or take another compiler"
            raise LoweringError(f"{name} cannot be imported into TVM: {_operations(error)}; {instead}") from error


class Affine(nn.Module):  # type: ignore[misc]  # mypy does not look into torch
    """A normalization with fixed statistics: x * scale + offset."""

    def __init__(self, norm: nn.modules.batchnorm._BatchNorm) -> None:
        super().__init__()
        scale = torch.rsqrt(norm.running_var + norm.eps)
        scale = scale if norm.weight is None else scale * norm.weight
        offset = -norm.running_mean * scale
        offset = offset if norm.bias is None else offset + norm.bias
        self.register_buffer("scale", scale.detach())
        self.register_buffer("offset", offset.detach())

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return x * scale + offset, [N, C, ...]."""
        shape = (-1, *(1,) * (x.dim() - 2))
        return x * self.scale.view(shape) + self.offset.view(shape)


def prepared(module: nn.Module) -> tuple[nn.Module, list[OperatorModule]]:
    """Return a copy of `module` for export, on the CPU, and the operators that its calls replace."""
    return with_calls(module, _affine)


def _affine(part: nn.Module) -> nn.Module | None:
    is_fixed = isinstance(part, nn.modules.batchnorm._BatchNorm) and part.running_mean is not None
    return Affine(part) if is_fixed else None


def decomposed(program: torch.export.ExportedProgram) -> torch.export.ExportedProgram:
    """Decompose a program into PyTorch's core operations, but keep linear layers, and use `attention` if it is equivalent.

    TVM makes few kernels of linear layers and of `attention`, each with one matrix product. PyTorch's own decomposition of
    attention scales queries and keys separately, and searches all scores for fully masked rows. TVM's operator for attention is
    a single kernel that is too large to be tuned well. If linear layers were decomposed, the reshapes around them would prevent
    fusion.
    """
    table = torch.export.default_decompositions()
    pytorchs_own = table[ATTENTION]

    def chosen(
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        attn_mask: torch.Tensor | None = None,
        dropout_p: float = 0.0,
        is_causal: bool = False,
        *,
        scale: float | None = None,
        enable_gqa: bool = False,
    ) -> torch.Tensor:
        same_heads = query.shape[:-2] == key.shape[:-2] == value.shape[:-2]
        if attn_mask is None and not dropout_p and same_heads:  # no row of scores is masked as a whole
            return attention(query, key, value, is_causal=is_causal, scale=scale)
        return pytorchs_own(query, key, value, attn_mask, dropout_p, is_causal, scale=scale, enable_gqa=enable_gqa)

    table[ATTENTION] = chosen
    del table[LINEAR]
    return program.run_decompositions(table)


def attention(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, *, is_causal: bool = False, scale: float | None = None
) -> torch.Tensor:
    """Compute `scaled_dot_product_attention` of query [..., L, E], key [..., S, E] and value [..., S, V]: [..., L, V]."""
    *heads, length, features = query.shape
    queries, keys, values = (part.reshape(-1, *part.shape[-2:]) for part in (query, key, value))
    scores = torch.bmm(queries, keys.transpose(1, 2)) * (features**-0.5 if scale is None else scale)  # [heads, L, S]
    if is_causal:
        own, others = (torch.arange(count, device=scores.device) for count in scores.shape[1:])
        scores = scores.masked_fill(others > own.unsqueeze(1), float("-inf"))
    return torch.bmm(scores.softmax(2), values).reshape(*heads, length, -1)


def _operator(operators: Sequence[OperatorModule], node: fx.Node, importer: Any) -> Any:
    """Converter of TVM's importer: emit the stages of the operator that a node calls."""
    argument, number, _ = node.args
    operator, x = operators[number], importer.env[argument]
    values = valuation_for(operator, [int(length) for length in x.ty.shape.values])
    return emit_operator(importer.block_builder, operator, plan(operator.graph, values, inference=True), dict(values), x)


def _embedding(node: fx.Node, importer: Any) -> Any:
    """Converter of TVM's importer for embeddings. Indices are clipped, since schedules are timed on random bits."""
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
    """Return the weights of a plan's stages in order; a composed weight is computed here."""
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
    return [*(weights[number - 1] for number in composition.uncomposed(len(weights))), composed]


def _operations(error: Exception) -> str:
    """Return the error message of TVM's importer, with PyTorch's names of the unsupported operations."""
    listed = re.search(r"Unsupported function types \[(.*)\]", str(error))
    if listed:
        names = ", ".join(f"aten.{name}" for name in re.findall(r"'([^']+)'", listed.group(1)))
        return f"it has no counterpart of the operations {names}"
    return f"{type(error).__name__}: {first_line(error)}"
