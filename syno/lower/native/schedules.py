"""Schedules of nests, and the cost model that ranks them.

A schedule says which results are kept in registers together (the tile), in which order the loops go, and how many of the
innermost sums are written out. The model counts, for all of a nest, the cycles in which the processor multiplies, reads data
and factors, and waits for what lies beyond its first cache.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from math import ceil, prod

from syno.lower.native.loop_code import Address, LoopCode
from syno.lower.native.target import Target

MOST_WRITTEN_OUT = (
    160  # products of one iteration of the rolled sums; more makes compiling slow and the code too long for its cache
)
LATENCY = 4  # cycles from a product to the next one that adds to it
PRODUCTS_A_CYCLE, READS_A_CYCLE = 2, 2
SECOND_CACHE_BYTES, MEMORY_BYTES = 24, 8  # a cycle


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


def schedules(code: LoopCode, target: Target, tiles: int, orders: int = 2) -> list[NestSchedule]:
    """Return the schedules with the least cost by the model, the best one first.

    The model is sure of the tile, and less so of the order of the loops, which decides what stays in caches.

    Args:
        code: the nest.
        target: the processor.
        tiles: how many tiles.
        orders: of the loops for each of them.
    """
    results = [loop for loop in range(len(code.extents)) if loop not in code.summed and code.extents[loop] > 1]
    factors = code.factor_loops or ()
    shared = [loop for loop in results if not code.read.depends_on(loop)]  # what is read is the same along these
    positions = [loop for loop in results if loop not in shared and loop not in factors]  # and along these, the factor
    both = [loop for loop in results if loop not in shared and loop not in positions]
    irregular = [loop for loop in code.summed if any(loop in loops for loops, _ in code.read.tables)]
    sums = (*irregular, *(loop for loop in code.summed if loop not in irregular))
    possible_orders = dict.fromkeys(
        [
            (*both, *shared, *positions),  # factors stay in the first cache
            (*positions[:-1], *both, *shared, *positions[-1:]),  # a row of what is read does
            (*positions, *both, *shared),
        ]
    )
    found: list[tuple[float, int, list[NestSchedule]]] = []
    for number, tile in enumerate(_tiles(code, shared, positions, both, target)):
        unrolled = _unrolled(code, sums, prod(tile.values()))
        ways = [NestSchedule(tuple(tile.items()), order, sums, unrolled) for order in possible_orders]
        computing = _computing(code, ways[0], target)
        ways.sort(key=lambda way: _waiting(code, way, target))
        found.append((computing + _waiting(code, ways[0], target), number, ways[:orders]))
    found.sort(key=lambda row: row[:2])
    best = found[:tiles]
    return [ways[rank] for rank in range(orders) for _, _, ways in best if rank < len(ways)]


def _tiles(
    code: LoopCode, shared: Sequence[int], positions: Sequence[int], both: Sequence[int], target: Target
) -> Iterator[dict[int, int]]:
    """Yield tiles of results that fit into the registers, with what they are computed from."""
    first = [(loop, _sizes(code.extents[loop])) for loop in shared[-2:]]
    second = [(loop, _sizes(code.extents[loop])) for loop in positions[-2:]]
    third = [(loop, _sizes(code.extents[loop])) for loop in both[-1:]]
    names = [loop for loop, _ in (*first, *second, *third)]
    for sizes in product(*(sizes for _, sizes in (*first, *second, *third))):
        tile = {loop: size for loop, size in zip(names, sizes, strict=True) if size > 1}
        results = prod(tile.values())
        if results + _reads(code.read, tile) + (0 if target.reads_factors_in_products else 1) <= target.registers:
            yield tile


def _sizes(extent: int) -> list[int]:
    return [size for size in (1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 14, 16) if size <= extent]


def _reads(read: Address, tile: dict[int, int]) -> int:
    return prod(size for loop, size in tile.items() if read.depends_on(loop))


def _unrolled(code: LoopCode, sums: Sequence[int], results: int) -> int:
    count, written = 0, results
    for loop in reversed(sums):
        written *= code.extents[loop]
        if written > MOST_WRITTEN_OUT:
            break
        count += 1
    return count


def cost(code: LoopCode, schedule: NestSchedule, target: Target) -> float:
    """Return the cycles that the model expects of a nest."""
    return _computing(code, schedule, target) + _waiting(code, schedule, target)


def _computing(code: LoopCode, schedule: NestSchedule, target: Target) -> float:
    tile = dict(schedule.tile)
    summands = prod(code.extents[loop] for loop in code.summed)
    rolled = prod(code.extents[loop] for loop in schedule.sums[: len(schedule.sums) - schedule.unrolled])
    cycles = 0.0
    parts = [_parts(code.extents[loop], tile.get(loop, 1)) for loop in schedule.order]
    for choice in product(*parts):
        sizes = {loop: size for loop, (size, _) in zip(schedule.order, choice, strict=True) if size > 1}
        results = prod(sizes.values())
        reads = _reads(code.read, sizes)
        factors = 0
        if code.factor_loops is not None:
            factors = prod(size for loop, size in sizes.items() if loop in code.factor_loops)
        loads = reads * (1 if code.is_aligned else 1.3) + factors * (0.5 if target.reads_factors_in_products else 1)
        lookups = reads * len(code.read.tables)
        step = max(results / PRODUCTS_A_CYCLE, (loads + lookups) / READS_A_CYCLE, (results + loads + 2 * lookups) / 4)
        step = max(step, LATENCY if code.factor_loops is not None else LATENCY / 2)  # each result is a chain of sums
        cycles += prod(count for _, count in choice) * (summands * step + rolled * 2 + results * 2 + 6)
    return cycles


def _parts(extent: int, tile: int) -> list[tuple[int, int]]:
    """Return the sizes of tiles along a loop, each with how many there are."""
    found = [(tile, extent // tile)] if extent // tile else []
    return [*found, *([(extent % tile, 1)] if extent % tile else [])]


def _waiting(code: LoopCode, schedule: NestSchedule, target: Target) -> float:
    """Return the cycles in which what is read comes from beyond the first cache.

    Of each tensor, the loops inside of the innermost loop on which it depends read the same again. What lies inside of a loop
    along which a tensor stays the same is read again at each of its iterations, from the first cache if it fits there.
    """
    tile = dict(schedule.tile)
    vector = 4 * target.lanes
    total = 0.0
    for elements, depends in (
        (vector, code.read.depends_on),
        (4, lambda loop: code.factor_loops is not None and loop in code.factor_loops),
    ):
        if elements == 4 and code.factor_loops is None:
            continue
        inside = elements * prod(code.extents[loop] for loop in code.summed if depends(loop))
        inside *= prod(tile.get(loop, 1) for loop in schedule.order if depends(loop))
        read = inside
        for loop in reversed(schedule.order):
            count = ceil(code.extents[loop] / tile.get(loop, 1))
            if depends(loop):
                inside *= count
                read *= count
            elif inside > target.first_cache * 0.6:
                read *= count
        total += read / (SECOND_CACHE_BYTES if inside <= target.second_cache * 0.8 else MEMORY_BYTES)
    return total
