"""Less frequent garbage collection of reference cycles, while a search keeps most objects that it makes."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager

SELDOM = (50_000, 20, 50)  # Python's own are (700, 10, 10)


@contextmanager
def seldom_collected() -> Iterator[None]:
    """Collect garbage less often within the context.

    A search makes millions of small objects and keeps many of them. Every collection visits these again, which takes a tenth of
    the search's time. Where the thresholds are higher already, or collection is off, nothing changes.
    """
    before = gc.get_threshold()
    if 0 < before[0] < SELDOM[0]:
        gc.set_threshold(*SELDOM)
    try:
        yield
    finally:
        gc.set_threshold(*before)
