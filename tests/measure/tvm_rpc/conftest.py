"""Servers, and what is run on them."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from tvm_servers import SIDE, TARGET, Here, wait_for


def is_gone(group: int) -> bool:
    """Return whether no process of a group is left. On a busy machine that takes a moment after they were killed."""
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return True
    return False


@pytest.fixture(scope="module")
def processes() -> Iterator[Here]:
    import psutil

    before = set(psutil.Process().children(recursive=True))
    with ExitStack() as stack:
        yield (here := Here(stack))
    for one in here.servers:
        wait_for(lambda: is_gone(one.process.pid))  # noqa: B023 - called at once
    assert set(psutil.Process().children(recursive=True)) <= before


@pytest.fixture
def here(processes: Here) -> Here:
    return processes.ready()


@pytest.fixture(scope="module")
def product() -> Any:
    import tvm
    from tvm import te

    left, right = te.placeholder((SIDE, SIDE), name="left"), te.placeholder((SIDE, SIDE), name="right")
    k = te.reduce_axis((0, SIDE), name="k")
    made = te.compute((SIDE, SIDE), lambda i, j: te.sum(left[i, k] * right[k, j], axis=k), name="made")
    return tvm.IRModule({"main": te.create_prim_func([left, right, made]).with_attr("global_symbol", "main")})


@pytest.fixture(scope="module")
def kernel(product: Any, tmp_path_factory: pytest.TempPathFactory) -> str:
    import tvm

    file = tmp_path_factory.mktemp("kernel") / "kernel.tar"
    tvm.tirx.build(product, target=tvm.target.Target(TARGET)).export_library(str(file))
    return str(file)


@pytest.fixture(scope="module")
def network(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A product of two matrices."""
    import tvm
    from tvm import relax

    builder = relax.BlockBuilder()
    sides = [relax.Var(name, relax.TensorType((SIDE, SIDE), "float32")) for name in ("left", "right")]
    with builder.function("main", sides):
        with builder.dataflow():
            output = builder.emit_output(builder.emit(relax.op.matmul(*sides)))
        builder.emit_func_output(output)
    file = tmp_path_factory.mktemp("network") / "network.tar"
    relax.build(builder.get(), tvm.target.Target(TARGET)).export_library(str(file))
    return file
