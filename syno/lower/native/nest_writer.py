"""The C++ function of one nest, and the order in which it reads its factors.

Vectors lie across samples or across positions (`syno.lower.native.program.Lanes`), so every read of data is a vector and every
factor one number for all of a vector. A nest keeps a tile of results in registers: each vector that is read serves the tile's
results that differ in the factor alone, and each factor those that differ in what is read alone.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import product
from math import prod
from typing import Any

import numpy as np

from syno.ir.coordinates import Array
from syno.lower.native.loop_code import LoopCode
from syno.lower.native.schedules import NestSchedule
from syno.lower.native.source import Writer


class NestWriter:
    """Writes the function of one nest.

    Args:
        name: of the function.
        code: the nest.
        schedule: its schedule.
        lanes: floats of a vector.
        epilogue: whether results are scaled, shifted and so on, as the last nest's are.
        adds: whether a residual is added to them at once.
    """

    def __init__(self, name: str, code: LoopCode, schedule: NestSchedule, lanes: int, epilogue: bool, adds: bool) -> None:
        self.name, self.code, self.schedule, self.lanes = name, code, schedule, lanes
        self.epilogue, self.adds = epilogue, adds
        self.tables: dict[bytes, tuple[str, Array]] = {}
        self.tile = dict(schedule.tile)
        self.factor_strides = factor_strides(code, schedule)

    def function(self) -> str:
        """Return the function, and the tables that it reads."""
        out = Writer()
        outer = [loop for loop in self.schedule.order if loop not in self.code.summed]
        self._loops(out, outer, {})
        tables = [
            f"static const int {name}[{table.size}] = {{{', '.join(map(str, table.reshape(-1).tolist()))}}};"
            for name, table in self.tables.values()
        ]
        if self.code.masks is not None:
            values = ", ".join(map(str, self.code.masks[1].reshape(-1).tolist()))
            tables.append(f"alignas(64) static const int {self.name}_masks[] = {{{values}}};")
        parameters = ["const float* __restrict x", "const float* __restrict w", "float* __restrict y"]
        if self.epilogue:
            parameters += [f"const float* __restrict {name}" for name in ("scale", "shift", "residual")]
        head = f"static void {self.name}({', '.join([*parameters, 'int part', 'int parts'])}) {{"
        return "\n".join([*tables, head, *out.lines, "}"])

    # ---- loops -----------------------------------------------------------------------------------------------------

    def _loops(self, out: Writer, outer: Sequence[int], sizes: dict[int, int]) -> None:
        """Write the loops over the results, from the outermost, then a tile. `sizes` are those of the tile."""
        if not outer:
            if not sizes:
                out.line("if (part) return;")
            self._tile(out, sizes)
            return
        loop, rest = outer[0], outer[1:]
        extent, tile = self.code.extents[loop], self.tile.get(loop, 1)
        whole = extent - extent % tile
        begin, end = "0", str(whole)
        if not sizes:  # the outermost loop is shared by threads
            tiles = -(-extent // tile)
            out.line(f"const int begin = {tiles} * part / parts * {tile}, end = {tiles} * (part + 1) / parts * {tile};")
            begin, end = "begin", "end" if whole == extent else f"(end < {whole} ? end : {whole})"
        if whole == tile and sizes:
            out.open("")
            out.line(f"const int i{loop} = 0;")
        else:
            out.open(f"for (int i{loop} = {begin}; i{loop} < {end}; i{loop} += {tile})")
        self._loops(out, rest, {**sizes, loop: tile})
        out.close()
        if whole < extent:
            out.open("if (part == parts - 1)" if not sizes else "")
            out.line(f"const int i{loop} = {whole};")
            self._loops(out, rest, {**sizes, loop: extent - whole})
            out.close()

    def _tile(self, out: Writer, sizes: Mapping[int, int]) -> None:
        code, schedule = self.code, self.schedule
        tiled = [loop for loop in sizes if sizes[loop] > 1]
        places = [dict(zip(tiled, place, strict=True)) for place in product(*(range(sizes[loop]) for loop in tiled))]
        names = {tuple(place.values()): f"a{'_'.join(map(str, place.values()))}" for place in places}
        every = list(names.values()) if tiled else ["a"]
        if not tiled:
            names = {(): "a"}
        out.line(f"Vector {', '.join(f'{name} = {{}}' for name in every)};")
        outer = [loop for loop in schedule.order if loop not in code.summed]
        base = self._sum(
            [f"{code.read.steps[loop]} * i{loop}" for loop in outer if code.read.steps.get(loop)], code.read.constant
        )
        out.line(f"const float* __restrict xs = x + {base};")
        if code.factor_loops is not None:
            terms = [
                f"{self.factor_strides[loop]} * i{loop}"
                if self.tile.get(loop, 1) == 1
                else f"{self.factor_strides[loop]} * (i{loop} / {self.tile[loop]})"
                for loop in outer
                if loop in code.factor_loops
            ]
            out.line(f"const float* __restrict ws = w + {self._sum(terms, 0)};")
        if self.adds:  # what is added is in the first cache when the sums are done
            for place in places:
                out.line(f"__builtin_prefetch(residual + {self._where(place)});")
        rolled = schedule.sums[: len(schedule.sums) - schedule.unrolled]
        unrolled = schedule.sums[len(schedule.sums) - schedule.unrolled :]
        for loop in rolled:
            out.line("#pragma GCC unroll 1")
            out.open(f"for (int i{loop} = 0; i{loop} < {code.extents[loop]}; ++i{loop})")
        terms = [f"{code.read.steps[loop]} * i{loop}" for loop in rolled if code.read.steps.get(loop)]
        out.line(f"const float* __restrict xr = xs + {self._sum(terms, 0)};")
        if code.factor_loops is not None:
            terms = [f"{self.factor_strides[loop]} * i{loop}" for loop in rolled if loop in code.factor_loops]
            out.line(f"const float* __restrict wr = ws + {self._sum(terms, 0)};")
        for step in product(*(range(code.extents[loop]) for loop in unrolled)):
            self._step(out, dict(zip(unrolled, step, strict=True)), places, names)
        for _ in rolled:
            out.close()
        for place in places:
            self._finish(out, place, names[tuple(place.values())])
        for place in places:  # a residual that is read after a store to the same place of a page would wait for it
            name = names[tuple(place.values())]
            out.line(f"{'store' if code.writes_aligned else 'store_unaligned'}(y + {self._where(place)}, {name});")

    def _step(
        self, out: Writer, fixed: Mapping[int, int], places: Sequence[Mapping[int, int]], names: Mapping[Any, str]
    ) -> None:
        """Write the products of one iteration of the unrolled sums."""
        code = self.code
        seen = [loop for loop in places[0] if code.read.depends_on(loop)]
        reads: dict[tuple[int, ...], str] = {}  # the vector that is read for some places of the tile
        loads: dict[str, str] = {}
        factors: dict[int, str] = {}
        products: list[tuple[str, str, str]] = []  # a result, and what is multiplied
        for place in places:
            key = tuple(place[loop] for loop in seen)
            constant = sum(code.read.steps.get(loop, 0) * at for loop, at in [*fixed.items(), *place.items()])
            name = reads.setdefault(key, f"d{len(reads)}")
            if name not in loads:
                loads[name] = self._sum(["xr", *self._lookups(fixed, place)], constant)
            if code.factor_loops is None:
                products.append((names[tuple(place.values())], name, ""))
                continue
            at = sum(self.factor_strides[loop] * value for loop, value in fixed.items() if loop in code.factor_loops)
            at += self._place_in_factors(place)
            products.append((names[tuple(place.values())], name, factors.setdefault(at, f"w{len(factors)}")))
        load = "load" if code.is_aligned else "load_unaligned"
        vectors = {name: f"{load}({address})" for name, address in loads.items()}
        scalars = {name: f"broadcast(wr[{at}])" for at, name in factors.items()}
        out.open("")
        # The fewer ones, vectors or factors, stay in registers for the step; the others pass through one register.
        kept, passing = (vectors, scalars) if len(vectors) <= len(scalars) else (scalars, vectors)
        if len(products) > 1:
            out.line("READ_AGAIN;")
        for name, value in kept.items():
            self._hold(out, name, value, len(products))
        for name, value in passing.items():
            self._hold(out, name, value, len(products))
            for result, read, factor in products:
                if name in (read, factor):
                    out.line(self._with_summand(result, f"{read} * {factor}" if factor else read))
        out.close()

    def _with_summand(self, result: str, summand: str) -> str:
        """Return the statement that makes a summand part of a result."""
        if self.code.takes_maximum:
            return f"{result} = larger({result}, {summand});"
        return f"{result} += {summand};"

    def _hold(self, out: Writer, name: str, value: str, products: int) -> None:
        """Write a vector that stays in a register as long as the step lasts."""
        out.line(f"Vector {name} = {value};")
        if products > 1 and self.code.factor_loops is not None:
            out.line(f"HOLD({name});")

    def _place_in_factors(self, place: Mapping[int, int]) -> int:
        """Return the index, among the tile's factors, of the factor of a place in the tile."""
        at = 0
        for loop in self.tile:
            if self.code.factor_loops is not None and loop in self.code.factor_loops:
                at = at * self.tile[loop] + place.get(loop, 0)
        return at

    def _lookups(self, fixed: Mapping[int, int], place: Mapping[int, int]) -> Iterator[str]:
        """Yield the terms of an address that are looked up in tables: of several loops, or irregular."""
        for loops, table in self.code.read.tables:
            known = {**fixed}
            if all(loop in known for loop in loops):
                yield str(int(table[tuple(known[loop] for loop in loops)]))
                continue
            terms, constant = [], 0
            for number, loop in enumerate(loops):
                stride = prod(table.shape[number + 1 :])
                if loop in fixed:
                    constant += stride * fixed[loop]
                else:
                    terms.append(f"{stride} * i{loop}" if stride != 1 else f"i{loop}")
                    constant += stride * place.get(loop, 0)
            yield f"{self._table(table)}[{self._sum(terms, constant)}]"

    def _table(self, table: Array) -> str:
        key = np.ascontiguousarray(table).tobytes()
        if key not in self.tables:
            self.tables[key] = (f"{self.name}_table{len(self.tables)}", table)
        return self.tables[key][0]

    def _finish(self, out: Writer, place: Mapping[int, int], name: str) -> None:
        """Write the epilogue of a tile: bias, residual and activation, before its results are stored."""
        code = self.code
        if self.epilogue:
            channel = self._sum(
                [f"{step} * i{loop}" for loop, step in code.channel.items() if step],
                sum(code.channel.get(loop, 0) * at for loop, at in place.items()),
            )
            out.line(f"{name} = End::finish({name}, {channel}, {self._where(place)}, scale, shift, residual);")
        if code.masks is not None:
            loop = code.masks[0]
            index = self._sum([f"i{loop}"] if loop in self.schedule.order else [], place.get(loop, 0))
            out.line(f"{name} = (Vector)((Mask){name} & *(const Mask*)({self.name}_masks + {self.lanes} * ({index})));")

    def _where(self, place: Mapping[int, int]) -> str:
        """Return where the result of a place in the tile is written."""
        write = self.code.write
        outer = [loop for loop in self.schedule.order if loop not in self.code.summed]
        terms = [f"{write.steps[loop]} * i{loop}" for loop in outer if write.steps.get(loop)]
        return self._sum(terms, write.constant + sum(write.steps.get(loop, 0) * at for loop, at in place.items()))

    @staticmethod
    def _sum(terms: Sequence[str], constant: int) -> str:
        pieces = [term for term in terms if term != "0"]
        if constant or not pieces:
            pieces.append(str(constant))
        return " + ".join(pieces)


def factor_strides(code: LoopCode, schedule: NestSchedule) -> dict[int, int]:
    """Return the stride of each loop in the array of factors, in floats; of a loop with a tile, that from tile to tile.

    The factors of one tile lie side by side, then those of the sums in their order, then those of the outer loops.
    """
    if code.factor_loops is None:
        return {}
    tile = dict(schedule.tile)
    stride = prod(size for loop, size in tile.items() if loop in code.factor_loops)
    strides = {}
    outer = [loop for loop in schedule.order if loop not in code.summed]
    for loop in [*reversed(schedule.sums), *reversed(outer)]:
        if loop in code.factor_loops:
            strides[loop] = stride
            stride *= -(-code.extents[loop] // tile.get(loop, 1))
    return strides


def factor_count(code: LoopCode, schedule: NestSchedule) -> int:
    """Return the length of the array of factors of a nest, in which every tile is padded to its full size."""
    if code.factor_loops is None:
        return 0
    tile = dict(schedule.tile)
    return prod(-(-code.extents[loop] // tile.get(loop, 1)) * tile.get(loop, 1) for loop in code.factor_loops)


def laid_out(values: Array, code: LoopCode, schedule: NestSchedule) -> Array:
    """Return the factors of a nest in the order in which its code reads them, with zeros where a tile is not full."""
    if not code.factor_loops:  # one factor for everything
        return values.reshape(-1)
    tile = {loop: size for loop, size in schedule.tile if loop in code.factor_loops}
    tiled = list(tile)
    values = np.pad(values, [(0, -code.extents[loop] % tile.get(loop, 1)) for loop in code.factor_loops])
    shape, names = [], []
    for loop, extent in zip(code.factor_loops, values.shape, strict=True):
        shape += [extent // tile.get(loop, 1), tile.get(loop, 1)]
        names += [("outer", loop), ("inner", loop)]
    order = [loop for loop in schedule.order if loop not in code.summed and loop in code.factor_loops]
    order += [loop for loop in schedule.sums if loop in code.factor_loops]
    wanted = [("outer", loop) for loop in order] + [("inner", loop) for loop in tiled]
    wanted += [name for name in names if name not in wanted]  # of one element each
    return np.ascontiguousarray(values.reshape(shape).transpose([names.index(name) for name in wanted])).reshape(-1)
