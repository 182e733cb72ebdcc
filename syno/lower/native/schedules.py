"""Schedules of loop nests, and the cost model that ranks them.

A schedule consists of a register tile, an order of the loops, and the number of innermost sums that are unrolled. The model
estimates, for a whole nest, the cycles of arithmetic and the cycles of traffic between the L1 cache and the memory beyond it.
These overlap: the result is the larger number plus a share of the smaller one.

Its constants are fitted to the times of 700 schedules of 49 nests of random operators on a processor with AVX2: the model's
first choice took 1.06 times as long as the best of 14 schedules of a nest, in the geometric mean, and the best of its first
three 1.03 times.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from math import ceil, prod

from syno.lower.native.loop_code import Address, LoopCode
from syno.lower.native.target import Target

# Largest number of unrolled multiply-adds: more of them compile slowly, and exceed the instruction cache.
MOST_WRITTEN_OUT = 160
LATENCY = 4  # cycles of a fused multiply-add, after which the next can add to the same result
PRODUCTS_A_CYCLE, READS_A_CYCLE = 2, 2
LINE = 64  # bytes of a cache line
READ_BYTES = 48, 16  # bytes a cycle from the L2 cache, and from beyond it
WRITE_CYCLES = 4, 14  # cycles to write a line, for consecutive lines and for scattered ones
FAR = 3  # factor on write cycles if results go to the caller's memory
SHARE_OF_CACHE = 0.8  # data stay in a cache until they are reused if the working set is at most this share of it
SEEN = 0.2  # share of the smaller one, of arithmetic and traffic, that does not overlap with the larger


@dataclass(frozen=True)
class NestSchedule:
    """The schedule of one nest. Loops are given by their numbers.

    Attributes:
        tile: the output loops of the register tile, each with its tile size.
        order: the output loops from the outermost.
        sums: the summed loops from the outermost.
        unrolled: how many of the innermost summed loops are unrolled.
    """

    tile: tuple[tuple[int, int], ...]
    order: tuple[int, ...]
    sums: tuple[int, ...]
    unrolled: int


def schedules(code: LoopCode, target: Target, count: int) -> list[NestSchedule]:
    """Return the `count` schedules with the least cost by the model, the best first; fewer if there are not as many."""
    results = [loop for loop in range(len(code.extents)) if loop not in code.summed and code.extents[loop] > 1]
    factors = code.factor_loops or ()
    shared = [loop for loop in results if not code.read.depends_on(loop)]  # the loaded vector is reused along these
    positions = [loop for loop in results if loop not in shared and loop not in factors]  # the factor is reused along these
    both = [loop for loop in results if loop not in shared and loop not in positions]
    irregular = [loop for loop in code.summed if any(loop in loops for loops, _ in code.read.tables)]
    sums = (*irregular, *(loop for loop in code.summed if loop not in irregular))
    orders = dict.fromkeys(
        [
            (*both, *shared, *positions),  # factors stay in the L1 cache
            (*positions[:-1], *both, *shared, *positions[-1:]),  # a row of the source does
            (*positions, *both, *shared),
        ]
    )
    found: list[tuple[float, int, NestSchedule]] = []
    for tile in _tiles(code, shared, positions, both, target):
        unrolled = _unrolled(code, sums, prod(tile.values()))
        steps = prod(code.extents[loop] for loop in sums[len(sums) - unrolled :])
        if steps == 2 and code.factor_loops is not None and _registers(code, tile) == target.registers:
            continue  # GCC spills results to memory between exactly two unrolled steps, but not between more
        ways = [NestSchedule(tuple(tile.items()), order, sums, unrolled) for order in orders]
        computing = _computing(code, ways[0], target)
        found += [(_together(computing, _moving(code, way, target)), len(found) + at, way) for at, way in enumerate(ways)]
    return [way for _, _, way in sorted(found, key=lambda row: row[:2])[:count]]


def _tiles(
    code: LoopCode, shared: Sequence[int], positions: Sequence[int], both: Sequence[int], target: Target
) -> Iterator[dict[int, int]]:
    """Yield tiles, as sizes by loop, whose results and operands fit into the vector registers."""
    first = [(loop, _sizes(code.extents[loop])) for loop in shared[-2:]]
    second = [(loop, _sizes(code.extents[loop])) for loop in positions[-2:]]
    third = [(loop, _sizes(code.extents[loop])) for loop in both[-1:]]
    names = [loop for loop, _ in (*first, *second, *third)]
    for sizes in product(*(sizes for _, sizes in (*first, *second, *third))):
        tile = {loop: size for loop, size in zip(names, sizes, strict=True) if size > 1}
        if _registers(code, tile) <= target.registers:
            yield tile


def _registers(code: LoopCode, tile: dict[int, int]) -> int:
    """Return the number of vector registers that a tile needs for its results and operands."""
    factors = prod(size for loop, size in tile.items() if loop in (code.factor_loops or ()))
    return prod(tile.values()) + min(_reads(code.read, tile), factors) + 1


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
    """Return the cycles that the model estimates for a nest with this schedule."""
    return _together(_computing(code, schedule, target), _moving(code, schedule, target))


def _together(computing: float, moving: float) -> float:
    return max(computing, moving) + SEEN * min(computing, moving)


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
        loads = reads * (1 if code.is_aligned else 1.3) + factors
        lookups = reads * len(code.read.tables)
        step = max(results / PRODUCTS_A_CYCLE, (loads + lookups) / READS_A_CYCLE, (results + loads + 2 * lookups) / 4)
        step = max(step, LATENCY if code.factor_loops is not None else LATENCY / 2)  # each result is a chain of dependent adds
        cycles += prod(count for _, count in choice) * (summands * step + rolled * 2 + results * 2 + 6)
    return cycles


def _parts(extent: int, tile: int) -> list[tuple[int, int]]:
    """Return pairs (size, count) of the tiles along a loop: the whole tiles, and the remainder."""
    whole = [(tile, extent // tile)] if extent // tile else []
    return [*whole, *([(extent % tile, 1)] if extent % tile else [])]


def _moving(code: LoopCode, schedule: NestSchedule, target: Target) -> float:
    """Return the cycles of traffic between the L1 cache and the memory beyond it, in both directions."""
    return _reading(code, schedule, target) + _writing(code, schedule, target)


def _reading(code: LoopCode, schedule: NestSchedule, target: Target) -> float:
    """Return the cycles of loading data and factors into the L1 cache.

    A loop on which a tensor does not depend reads it again in each iteration: from the L1 cache if the data and factors that
    one iteration reads fit there together.
    """
    tile, steps, factor_loops = dict(schedule.tile), code.read.steps, code.factor_loops or ()
    vector = 4 * target.lanes
    along = next((loop for loop in schedule.order if steps.get(loop) == target.lanes), None)  # reads consecutive vectors
    regular = [loop for loop in code.summed if not any(loop in loops for loops, _ in code.read.tables)]
    taps = [loop for loop in regular if 0 < abs(steps.get(loop, 0)) <= 2 * target.lanes]  # of a window: their vectors overlap
    run = vector * (1 if along is None else tile.get(along, 1)) + sum(
        4 * (code.extents[tap] - 1) * abs(steps[tap]) for tap in taps
    )
    if not schedule.order or schedule.order[-1] != along:  # whole lines are loaded, and the next run shares none with this run
        run = ceil(run / LINE) * LINE + (0 if code.is_aligned and run % LINE == 0 else LINE // 2)
    data = run * prod(code.extents[loop] for loop in code.summed if code.read.depends_on(loop) and loop not in taps)
    data *= prod(tile.get(loop, 1) for loop in schedule.order if code.read.depends_on(loop) and loop != along)
    factors = 0
    if code.factor_loops is not None:
        factors = 4 * prod(code.extents[loop] for loop in code.summed if loop in factor_loops)
        factors *= prod(tile.get(loop, 1) for loop in schedule.order if loop in factor_loops)
    inside, read = [data, factors], [data, factors]  # bytes of data and of factors: distinct ones, and those that are loaded
    for loop in reversed(schedule.order):
        count = ceil(code.extents[loop] / tile.get(loop, 1))
        stays = sum(inside) <= SHARE_OF_CACHE * target.first_cache
        for tensor, depends in enumerate((code.read.depends_on(loop), loop in factor_loops)):
            inside[tensor] *= count if depends else 1
            read[tensor] *= count if depends or not stays else 1
    fits = [size <= SHARE_OF_CACHE * target.second_cache for size in inside]
    return sum(size / READ_BYTES[0 if near else 1] for size, near in zip(read, fits, strict=True))


def _writing(code: LoopCode, schedule: NestSchedule, target: Target) -> float:
    """Return the cycles of writing results from the L1 cache to memory; 0 if the cache holds all of them."""
    tile, order = dict(schedule.tile), schedule.order
    vector = 4 * target.lanes
    size = vector * prod(code.extents[loop] for loop in order)
    if size <= target.first_cache / 2 and not code.writes_far:
        return 0
    streaming, scattered = (cycles * (FAR if code.writes_far else 1) for cycles in WRITE_CYCLES)
    along = next((loop for loop in order if code.write.steps.get(loop) == target.lanes), None)
    if along is not None and order[-1] == along:
        return size / LINE * streaming
    run = vector * (1 if along is None else tile.get(along, 1))
    between = 0 if along is None else prod(code.extents[loop] for loop in order[order.index(along) + 1 :]) * (LINE + run)
    if between <= target.first_cache / 2:  # a line is complete before it leaves the cache
        return size / LINE * (streaming + scattered) / 2
    return size / run * (run / LINE + (1 if run % LINE else 0)) * scattered
