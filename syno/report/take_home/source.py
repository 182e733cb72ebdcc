"""An operator as source code that does not import Syno: a PyTorch module or TVM's tensor expressions, both for all sizes.

Before it is written, the source is compared with the interpreter at small sizes, in double precision.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from syno.algebra import Valuation
from syno.base.errors import SizeError, WrongOutputError
from syno.base.files import write_whole
from syno.ir.graph import PGraph
from syno.lower.interpreter import interpret, shapes
from syno.lower.plan import nominal_values
from syno.lower.pytorch.source import constructor_sizes, load_class, to_source
from syno.lower.tvm import to_te_source
from syno.lower.tvm.installed import tvm
from syno.lower.tvm.stages import named_sizes
from syno.measure.tvm.targets import target
from syno.space.identity.valuations import MOST_SUMMANDS, own_valuations

Array: TypeAlias = NDArray[Any]
Compute: TypeAlias = Callable[[Valuation, list[Array]], Array]  # the output, for sizes, input and weights

MOST_ELEMENTS = 100_000_000  # of one tensor
TOLERANCE = 1e-9  # in double precision, as a share of the largest value


def take_home(operator: PGraph, file: Path, values: Mapping[str, int] | None = None) -> str:
    """Write the source of the operator's module, which imports torch and nothing of Syno; return how it was checked.

    Args:
        operator: the operator.
        file: the file to write.
        values: sizes to choose the order of work for; the module works with all others too. Those that may have any value, such
            as a batch size, may be left out.

    Raises:
        WrongOutputError: the module does not compute what the interpreter does; nothing is written.
        LoweringError: the operator cannot be lowered.
        ValuationError, SizeError: a value is missing or does not divide; or the operator is too large to be compared.
    """
    check_comparable(operator)
    source = to_source(operator, None if values is None else with_nominal_lengths(operator, values))
    how = equal_to_meaning(operator, "the module", lambda row, tensors: computed_by_module(operator, source, row, tensors))
    write_whole(file, source)
    return how


def write_tensor_expressions(operator: PGraph, file: Path, values: Mapping[str, int] | None = None) -> str:
    """Write Python source of TVM's tensor expressions; return how it was checked, built for this machine.

    Args and errors are those of `take_home`; MissingPackageError if TVM is not installed.
    """
    check_comparable(operator)
    tvm()
    text = to_te_source(operator, None if values is None else with_nominal_lengths(operator, values))
    how = equal_to_meaning(operator, "the tensor expressions", lambda row, given: _computed_by_tvm(operator, text, row, given))
    write_whole(file, text)
    return how


def with_nominal_lengths(operator: PGraph, values: Mapping[str, int]) -> Valuation:
    """Return the sizes, with nominal ones for missing variables that no computation needs, such as a batch size.

    Raises ValuationError, SizeError: another value is missing, or one is unknown or does not divide.
    """
    nominal = nominal_values(operator)
    return operator.valuation({**{name: nominal[name] for name in operator.unchanged_variables}, **values})


# ---- comparison with the interpreter -------------------------------------------------------------------------------------


def equal_to_meaning(operator: PGraph, what: str, compute: Compute) -> str:
    """Return how it was checked that `compute` is the operator.

    Args:
        operator: the operator.
        what: the name of what computes, for messages.
        compute: computes the output.

    Raises WrongOutputError if it computes something else.
    """
    rows = own_valuations(operator)
    error = max(_error(operator, compute, row, seed) for seed, row in enumerate(rows))
    if not error <= TOLERANCE:
        raise WrongOutputError(
            f"{what} of {operator.name} differs from its meaning by {error:.2g} of the largest value, where {TOLERANCE:g} "
            "is allowed; this is a mistake in Syno: please report the operator's text"
        )
    return f"equal to the interpreter at {len(rows)} sets of sizes in double precision: largest relative difference {error:.1g}"


def check_comparable(operator: PGraph) -> None:
    """Raise SizeError if the operator is too large to be compared with its meaning, even at small sizes."""
    for row in own_valuations(operator):
        tensors = (operator.input, operator.output, *operator.weights)
        elements = max(row.numel(dim.size for dim in dims) for dims in tensors)
        summands = row.numel(dim.size for dim in (*operator.output, *operator.reduces))
        if elements > MOST_ELEMENTS or summands > MOST_SUMMANDS:
            raise SizeError(
                f"{operator.name} is too large to be compared with its meaning: for {row} it has tensors of {elements:.3g} "
                f"elements, of at most {MOST_ELEMENTS:.3g}, and {summands:.3g} summands, of at most {MOST_SUMMANDS:.3g}"
            )


def _error(operator: PGraph, compute: Compute, values: Valuation, seed: int) -> float:
    """Return the largest difference from the interpreter, as a share of the largest value; infinite for another shape."""
    random = np.random.default_rng(seed)
    input_shape, weight_shapes, _ = shapes(operator, values)
    tensors = [random.normal(size=shape) for shape in (input_shape, *weight_shapes)]
    wanted, found = interpret(operator, values, *tensors), compute(values, tensors)
    if found.shape != wanted.shape or not np.isfinite(found).all():
        return float("inf")
    return float(np.abs(found - wanted).max() / max(np.abs(wanted).max(), np.finfo(np.float64).tiny))


def computed_by_module(operator: PGraph, source: str, values: Valuation, tensors: list[Array]) -> Array:
    """Return the output of the module that the source defines, for input and weights in double precision."""
    import torch

    data, *weights = tensors
    module = load_class(source, operator)(**constructor_sizes(operator, values)).double()
    with torch.no_grad():
        for parameter, weight in zip(module.parameters(), weights, strict=True):
            parameter.copy_(torch.from_numpy(weight))
        output: Array = module(torch.from_numpy(data)).numpy()
    return output


def _computed_by_tvm(operator: PGraph, source: str, values: Valuation, tensors: list[Array]) -> Array:
    module = tvm()
    scope: dict[str, Any] = {"__name__": f"tensor_expressions_{operator.id}"}
    exec(compile(source, f"<tensor expressions of {operator.name}>", "exec"), scope)
    defined = scope["build"](**named_sizes(values), dtype="float64")
    operands, result = defined[: len(tensors)], defined[-1]
    function = module.te.create_prim_func([*operands, result]).with_attr("global_symbol", "main")
    executable = module.compile(module.IRModule({"main": function}), target=target("host"))
    output = _in_tvm(np.full(shapes(operator, values)[2], np.nan))  # an element that is not written stays NaN
    executable["main"](*map(_in_tvm, tensors), output)
    computed: Array = output.numpy()
    return computed


def _in_tvm(array: Array) -> Any:
    module = tvm()
    return module.runtime.empty(array.shape, "float64", module.cpu()).copyfrom(np.ascontiguousarray(array))
