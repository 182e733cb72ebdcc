"""Schedules of nests, and the cost model that ranks them.

A schedule says which results are kept in registers together (the tile), in which order the loops go, and how many of the
innermost sums are written out. The model counts, for one vector of products, the instructions that a processor's ports have to
take: products, reads of data and of factors, and the bytes that come from beyond the first cache.
"""

from __future__ import annotations

from dataclasses import dataclass

@dataclass(frozen=True)
class NestSchedule:
    """How one nest is carried out.

    Attributes:
        tile: the output loops whose iterations are computed together, with how many of each.
        order: the output loops from the outermost.
        sums: the summed loops from the outermost.
        unrolled: how many of the innermost sums are written out.
    """

    tile: tuple[tuple[int, int], ...]
    order: tuple[int, ...]
    sums: tuple[int, ...]
    unrolled: int
