"""The loops whose speed is the peak of a processor do all the work that is counted."""

from __future__ import annotations

import numpy as np
import pytest

from syno.lower.native.target import own_target
from syno.measure.native import peaks


def test_there_are_as_many_chains_of_products_as_are_counted() -> None:
    """Compilers merge chains that begin with the same number, and the loop seems to be as many times as fast."""
    target = own_target()
    starts = np.random.default_rng(0).standard_normal(target.registers, dtype=np.float32)
    loops = peaks._library()
    assert loops is not None, "no compiler"
    counted = peaks._chains(target)
    expected = float(np.sum(starts[:counted] * 0.5**3 + (1 + 0.5 + 0.25)))
    assert loops.products(starts.ctypes.data, 3, 0.5, 1.0) == pytest.approx(expected, rel=1e-5)
    starts[counted - 1] += 8
    assert loops.products(starts.ctypes.data, 3, 0.5, 1.0) == pytest.approx(expected + 1, rel=1e-5)
