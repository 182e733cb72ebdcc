"""Garbage collection in a worker: what a search keeps until its end is not visited again and again."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def unfrozen_afterwards() -> Iterator[None]:
    """Exclude long-lived search state from garbage collection only while the context lasts.

    A full collection visits every object. With 10,000 trials that takes most of a second and finds nothing. So `Dispatch`
    freezes all objects from time to time (`gc.freeze`); after the context, collections visit them again.
    """
    try:
        yield
    finally:
        gc.unfreeze()
