"""An operator as Python source of TVM's tensor expressions, which needs nothing of Syno."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from syno.algebra import Valuation
from syno.base.files import write_whole
from syno.ir.graph import PGraph
from syno.lower.interpreter import shapes
from syno.lower.tvm import to_te_source
from syno.lower.tvm.installed import tvm
from syno.lower.tvm.stages import named_sizes
from syno.measure.tvm.targets import target
from syno.report.take_home.meaning import Array, check_comparable, equal_to_meaning, with_nominal_lengths


def write_tensor_expressions(operator: PGraph, file: Path, values: Mapping[str, int] | None = None) -> str:
    """Write the source to a file; returns how it was checked.

    Args:
        operator: the operator.
        file: where the source goes.
        values: sizes to choose the order of work for; the text holds for all others too. Those that may have any value, such
            as a batch size, may be left out.

    Raises:
        WrongOutputError: what it defines, built for this machine, does not compute what the interpreter does; nothing is
            written.
        LoweringError: the operator cannot be lowered.
        MissingPackageError: TVM is not installed.
        ValuationError, SizeError: a value is missing or does not divide; or the operator is too large to be compared.
    """
    check_comparable(operator)
    tvm()
    source = to_te_source(operator, None if values is None else with_nominal_lengths(operator, values))
    how = equal_to_meaning(operator, "the tensor expressions", lambda row, tensors: _computed(operator, source, row, tensors))
    write_whole(file, source)
    return how


def _computed(operator: PGraph, source: str, values: Valuation, tensors: list[Array]) -> Array:
    """What the text defines, for input and weights in double precision."""
    module = tvm()
    scope: dict[str, Any] = {"__name__": f"tensor_expressions_{operator.id}"}
    exec(compile(source, f"<tensor expressions of {operator.name}>", "exec"), scope)
    defined = scope["build"](**named_sizes(values), dtype="float64")
    operands, result = defined[: len(tensors)], defined[-1]
    function = module.te.create_prim_func([*operands, result]).with_attr("global_symbol", "main")
    executable = module.compile(module.IRModule({"main": function}), target=target("host"))
    output = _in_tvm(np.full(shapes(operator, values)[2], np.nan))  # what is not written shows
    executable["main"](*map(_in_tvm, tensors), output)
    computed: Array = output.numpy()
    return computed


def _in_tvm(array: Array) -> Any:
    module = tvm()
    return module.runtime.empty(array.shape, "float64", module.cpu()).copyfrom(np.ascontiguousarray(array))
