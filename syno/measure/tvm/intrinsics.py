"""Loading what MetaSchedule needs before it makes its first schedule, without what the target has no use for.

`tvm.s_tir.tensor_intrin` parses the instructions of all kinds of processors, each time it is imported; of the 25 seconds
that this takes, 20 go to those of NVIDIA's GPUs.
"""

from __future__ import annotations

import importlib
import sys
from types import ModuleType

PACKAGE = "tvm.s_tir.tensor_intrin"
ELSEWHERE = ("cuda", "rocm", "hexagon")  # kinds of targets that have a module of instructions


def load_intrinsics(kind: str) -> None:
    """Load the instructions for processors, and those for targets of this kind."""
    if PACKAGE not in sys.modules:
        absent = [f"{PACKAGE}.{name}" for name in ELSEWHERE if f"{PACKAGE}.{name}" not in sys.modules]
        sys.modules.update((name, ModuleType(name)) for name in absent)  # an import that finds them looks no further
        try:
            package = importlib.import_module(PACKAGE)
        finally:
            for name in absent:
                del sys.modules[name]
        for name in absent:
            package.__dict__.pop(name.rpartition(".")[2], None)
    if kind in ELSEWHERE:
        importlib.import_module(f"{PACKAGE}.{kind}")
