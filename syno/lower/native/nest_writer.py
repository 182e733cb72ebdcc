"""The C++ function of one loop nest, and the packed order of its factors.

The lanes of a vector are samples or positions (`syno.lower.native.program.Lanes`), so data are loaded as vectors, and a factor
is one number, broadcast to all lanes. A nest keeps a register tile of results: a loaded vector is reused for all results of the
tile that differ only in the factor, and a factor for all results that differ only in the loaded vector.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from itertools import product
from math import prod
from operator import mul

import numpy as np

from syno.ir.coordinates import Array
from syno.lower.native.loop_code import LoopCode
from syno.lower.native.schedules import NestSchedule
from syno.lower.native.source import Writer, constant_table, linear, sum_of


class NestWriter:
    """Writes the function of one nest.

    Args:
        name: the name of the function.
        code: the nest, with its addresses.
        schedule: the schedule of the nest.
        lanes: number of floats in a vector.
        ends: whether the fused epilogue is applied to results, as in the last nest.
        adds: whether the residual is added in this function, so that it is worth prefetching.
    """

    def __init__(self, name: str, code: LoopCode, schedule: NestSchedule, lanes: int, ends: bool, adds: bool) -> None:
        self.name, self.code, self.schedule, self.lanes = name, code, schedule, lanes
        self.ends, self.adds = ends, adds
        self.out = Writer()
        self.tables: dict[bytes, tuple[str, Array]] = {}
        self.tile = dict(schedule.tile)
        self.factor_strides = factor_strides(code, schedule)

    def function(self) -> str:
        """Return the C++ text of the function and of its lookup tables."""
        self._loops(self.schedule.order, {})
        tables = [constant_table(*table) for table in self.tables.values()]
        if self.code.masks is not None:
            tables.append(constant_table(f"{self.name}_masks", self.code.masks[1]))
        pointers = ["const float* __restrict x", "const float* __restrict w", "float* __restrict y"]
        if self.ends:
            pointers += [f"const float* __restrict {name}" for name in ("scale", "shift", "residual")]
        head = f"static void {self.name}({', '.join([*pointers, 'int part', 'int parts'])}) {{"
        return "\n".join([*tables, head, *self.out.lines, "}"])

    def _loops(self, loops: Sequence[int], sizes: dict[int, int]) -> None:
        """Write the output loops `loops`, from the outermost inwards, then the tile.

        A loop whose extent is no multiple of its tile size is written twice: for whole tiles, and for the rest. `sizes` has
        the tile sizes of the loops that are already written.
        """
        if not loops:
            if not sizes:
                self.out.line("if (part) return;")
            self._tile(sizes)
            return
        loop, *inner = loops
        extent, tile = self.code.extents[loop], self.tile.get(loop, 1)
        whole, is_outermost = extent - extent % tile, not sizes
        begin, end = "0", str(whole)
        if is_outermost:  # it is shared by threads
            tiles = -(-extent // tile)
            self.out.line(f"const int begin = {tiles} * part / parts * {tile}, end = {tiles} * (part + 1) / parts * {tile};")
            begin, end = "begin", "end" if whole == extent else f"(end < {whole} ? end : {whole})"
        if whole == tile and not is_outermost:
            self._iteration(loop, 0, inner, {**sizes, loop: tile})
        else:
            with self.out.block(f"for (int i{loop} = {begin}; i{loop} < {end}; i{loop} += {tile})"):
                self._loops(inner, {**sizes, loop: tile})
        if whole < extent:
            head = "if (part == parts - 1)" if is_outermost else ""
            self._iteration(loop, whole, inner, {**sizes, loop: extent - whole}, head)

    def _iteration(self, loop: int, at: int, inner: Sequence[int], sizes: dict[int, int], head: str = "") -> None:
        """Write the iteration of a loop at index `at`, with the inner loops in it."""
        with self.out.block(head):
            self.out.line(f"const int i{loop} = {at};")
            self._loops(inner, sizes)

    def _tile(self, sizes: Mapping[int, int]) -> None:
        """Write the code that computes the results of a register tile, each in a vector register."""
        code, schedule, out = self.code, self.schedule, self.out
        tiled = [loop for loop in sizes if sizes[loop] > 1]
        places = [dict(zip(tiled, place, strict=True)) for place in product(*(range(sizes[loop]) for loop in tiled))]
        results = {f"a{'_'.join(map(str, place.values()))}": place for place in places}
        out.line(f"Vector {', '.join(f'{name} = {{}}' for name in results)};")
        steps = [(code.read.steps.get(loop, 0), f"i{loop}") for loop in schedule.order]
        out.line(f"const float* __restrict xs = x + {linear(steps, code.read.constant)};")
        if code.factor_loops is not None:
            tiles = {loop: f"i{loop}" if loop not in self.tile else f"(i{loop} / {self.tile[loop]})" for loop in schedule.order}
            steps = [(self.factor_strides.get(loop, 0), place) for loop, place in tiles.items()]
            out.line(f"const float* __restrict ws = w + {linear(steps)};")
        if self.adds:  # the residual is in the L1 cache by the time the sums are done
            out.line(*(f"__builtin_prefetch(residual + {self._where(place)});" for place in places))
        split = len(schedule.sums) - schedule.unrolled
        rolled, unrolled = schedule.sums[:split], schedule.sums[split:]
        with ExitStack() as blocks:
            for loop in rolled:
                out.line("#pragma GCC unroll 1")
                blocks.enter_context(out.block(f"for (int i{loop} = 0; i{loop} < {code.extents[loop]}; ++i{loop})"))
            steps = [(code.read.steps.get(loop, 0), f"i{loop}") for loop in rolled]
            out.line(f"const float* __restrict xr = xs + {linear(steps)};")
            if code.factor_loops is not None:
                steps = [(self.factor_strides.get(loop, 0), f"i{loop}") for loop in rolled]
                out.line(f"const float* __restrict wr = ws + {linear(steps)};")
            for step in product(*(range(code.extents[loop]) for loop in unrolled)):
                self._step(dict(zip(unrolled, step, strict=True)), results)
        for name, place in results.items():
            self._finish(name, place)
        store = "store" if code.writes_aligned else "store_unaligned"
        # All residuals are loaded before the first store, since a load waits for a store to the same offset of another page.
        for name, place in results.items():
            out.line(f"{store}(y + {self._where(place)}, {name});")

    def _step(self, fixed: Mapping[int, int], results: Mapping[str, Mapping[int, int]]) -> None:
        """Write the multiply-adds of one iteration of the unrolled sums, for all results of the register tile.

        Args:
            fixed: the index of each unrolled loop.
            results: the place in the tile of each result, by the result's variable.
        """
        code = self.code
        vectors: dict[str, str] = {}  # the variable of each loaded vector, by its address
        factors: dict[int, str] = {}  # the variable of each factor, by its offset
        products: list[tuple[str, str, str]] = []  # variables of a result, a vector and a factor
        for result, place in results.items():
            constant = sum(code.read.steps.get(loop, 0) * at for loop, at in [*fixed.items(), *place.items()])
            address = sum_of(["xr", *self._lookups(fixed, place)], constant)
            vector = vectors.setdefault(address, f"d{len(vectors)}")
            factor = ""
            if code.factor_loops is not None:
                at = sum(self.factor_strides.get(loop, 0) * value for loop, value in fixed.items())
                at += self._place_in_factors(place)
                factor = factors.setdefault(at, f"w{len(factors)}")
            products.append((result, vector, factor))
        load = "load" if code.is_aligned else "load_unaligned"
        reads = {name: f"{load}({address})" for address, name in vectors.items()}
        scalars = {name: f"broadcast(wr[{at}])" for at, name in factors.items()}
        # Vectors or factors, whichever are fewer, stay in registers for the step; the others pass through one register.
        kept, passing = (reads, scalars) if len(reads) <= len(scalars) else (scalars, reads)
        with self.out.block():
            if len(results) > 1:
                self.out.line("READ_AGAIN;")
            for name, value in (kept | passing).items():
                self.out.line(f"Vector {name} = {value};")
                if len(results) > 1 and factors:
                    self.out.line(f"HOLD({name});")
                if name in passing:
                    rows = [row for row in products if name in row]
                    self.out.line(*(self._with_summand(result, " * ".join(filter(None, read))) for result, *read in rows))

    def _with_summand(self, result: str, summand: str) -> str:
        """Return the statement that adds a summand to a result, or takes the larger of the two for a maximum."""
        return f"{result} = larger({result}, {summand});" if self.code.takes_maximum else f"{result} += {summand};"

    def _place_in_factors(self, place: Mapping[int, int]) -> int:
        """Return the index of the factor at `place` among the factors of the tile, which lie side by side."""
        at = 0
        for loop, size in self.tile.items():
            if loop in (self.code.factor_loops or ()):
                at = at * size + place.get(loop, 0)
        return at

    def _lookups(self, fixed: Mapping[int, int], place: Mapping[int, int]) -> Iterator[str]:
        """Yield the C++ expressions of the table lookups in an address; constants if all loops of a table are unrolled."""
        for loops, table in self.code.read.tables:
            if all(loop in fixed for loop in loops):
                if entry := int(table[tuple(fixed[loop] for loop in loops)]):
                    yield str(entry)
                continue
            strides = [prod(table.shape[number + 1 :]) for number in range(len(loops))]
            at = [fixed.get(loop, place.get(loop, 0)) for loop in loops]
            variable = [(stride, f"i{loop}") for stride, loop in zip(strides, loops, strict=True) if loop not in fixed]
            name = self.tables.setdefault(table.tobytes(), (f"{self.name}_table{len(self.tables)}", table))[0]
            yield f"{name}[{linear(variable, sum(map(mul, strides, at)))}]"

    def _finish(self, name: str, place: Mapping[int, int]) -> None:
        """Write the epilogue of one result, and the mask that sets its halo to zero, before it is stored."""
        code = self.code
        if self.ends:
            steps = [(step, f"i{loop}") for loop, step in code.channel.items()]
            channel = linear(steps, sum(code.channel.get(loop, 0) * at for loop, at in place.items()))
            self.out.line(f"{name} = End::finish({name}, {channel}, {self._where(place)}, scale, shift, residual);")
        if code.masks is not None:
            loop = code.masks[0]
            index = linear([(1, f"i{loop}")] if loop in self.schedule.order else [], place.get(loop, 0))
            self.out.line(f"{name} = (Vector)((Mask){name} & *(const Mask*)({self.name}_masks + {self.lanes} * ({index})));")

    def _where(self, place: Mapping[int, int]) -> str:
        """Return the expression of the offset at which the result at `place` in the tile is stored."""
        write = self.code.write
        steps = [(write.steps.get(loop, 0), f"i{loop}") for loop in self.schedule.order]
        return linear(steps, write.constant + sum(write.steps.get(loop, 0) * at for loop, at in place.items()))


def factor_strides(code: LoopCode, schedule: NestSchedule) -> dict[int, int]:
    """Return the stride of each loop in the packed array of factors, in floats; for a tiled loop, the stride between tiles.

    The order of axes, from the innermost, is: the tile, the summed loops from the innermost, the output loops.
    """
    if code.factor_loops is None:
        return {}
    tile = dict(schedule.tile)
    stride = prod(size for loop, size in tile.items() if loop in code.factor_loops)
    strides = {}
    for loop in [*reversed(schedule.sums), *reversed(schedule.order)]:
        if loop in code.factor_loops:
            strides[loop] = stride
            stride *= -(-code.extents[loop] // tile.get(loop, 1))
    return strides


def factor_count(code: LoopCode, schedule: NestSchedule) -> int:
    """Return the length of the packed array of factors of a nest, in floats; incomplete tiles are padded to full size."""
    if code.factor_loops is None:
        return 0
    tile = dict(schedule.tile)
    return prod(-(-code.extents[loop] // tile.get(loop, 1)) * tile.get(loop, 1) for loop in code.factor_loops)


def laid_out(values: Array, code: LoopCode, schedule: NestSchedule) -> Array:
    """Return the packed factors of a nest: flat, in the order in which its code reads them, tiles padded with zeros."""
    if not code.factor_loops:  # one factor for everything
        return values.reshape(-1)
    tile = {loop: size for loop, size in schedule.tile if loop in code.factor_loops}
    tiled = list(tile)
    values = np.pad(values, [(0, -code.extents[loop] % tile.get(loop, 1)) for loop in code.factor_loops])
    shape, names = [], []
    for loop, extent in zip(code.factor_loops, values.shape, strict=True):
        shape += [extent // tile.get(loop, 1), tile.get(loop, 1)]
        names += [("outer", loop), ("inner", loop)]
    order = [loop for loop in (*schedule.order, *schedule.sums) if loop in code.factor_loops]
    wanted = [("outer", loop) for loop in order] + [("inner", loop) for loop in tiled]
    wanted += [name for name in names if name not in wanted]  # axes of length 1
    return np.ascontiguousarray(values.reshape(shape).transpose([names.index(name) for name in wanted])).reshape(-1)
