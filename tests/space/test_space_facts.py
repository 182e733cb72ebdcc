"""Facts about sizes, dims, bounds and distances that are known from the published system or by hand."""

from __future__ import annotations

from collections import Counter

import pytest
import small_specs

from syno import Builder
from syno.algebra import Size, Trait, product
from syno.ir import dim as dims
from syno.ir.dim import Dim
from syno.space import OperatorSpec, Space, preset
from syno.space.distance.feasibility import FlopsBound
from syno.space.facts import DimFacts, FactTable, adjacent
from syno.space.rules.symmetry import ORDERED, Channels, violations
from syno.space.sizes import SizeTable


def table(variables: str, **options: bool) -> SizeTable:
    """Sizes of a spec with one layer, whole or not."""
    name = variables.partition("=")[0]
    sizes = {"exact_division": False, **options}
    return SizeTable(
        OperatorSpec(input=name, output=name, variables=variables, layers=[{}], sizes=sizes, windows={"odd": False})
    )


class TestSizes:
    sizes = table("H=128:2, W=128:2; c=5:2")

    def size(self, text: str) -> Size:
        return self.sizes.spec.table.size(text)

    def test_enumerated_sizes(self) -> None:
        found = set(self.sizes.sizes(self.sizes.none))
        assert {self.size(text) for text in ("H", "W", "c", "c^-1*H*W", "c^-2*H*W")} <= found
        assert not {self.size(text) for text in ("c^3", "c^-3*H*W")} & found

    def test_sizes_between_one_and_a_product_are_seven(self) -> None:
        inside = [size for size in self.sizes.sizes(self.sizes.none) if all(0 <= e <= 1 for e in self.sizes[size].exponents)]
        assert len(inside) == 7

    def test_divisors_include_the_primary_of_a_quotient(self) -> None:
        assert self.size("H") in {block for block, _ in self.sizes.divisors(self.size("c^-1*H*W"))}

    def test_a_coefficient_divides_a_quotient_that_lacks_it(self) -> None:
        """The quotient has size 1, which the published system does not mind."""
        for drop_ones in (False, True):
            sizes = table("W=64:2; s=2:4, g=32:4", drop_ones=drop_ones)
            blocks = {block for block, _ in sizes.divisors(sizes.spec.table.size("s^-1*W"))}
            assert (sizes.spec.table.size("g") in blocks) is not drop_ones

    @pytest.mark.parametrize(("text", "fits"), [("c^-1*H", True), ("H*W*c", True), ("H*W*c^2", False), ("H^2", False)])
    def test_what_fits_beside_a_usage(self, text: str, fits: bool) -> None:
        usage = self.sizes.reduced(self.size("H*W*c"))
        assert self.sizes.fits(usage, self.sizes.reduced(self.size(text))) is fits

    def test_one_over_a_coefficient_is_no_size(self) -> None:
        assert self.size("c^-1").trait is Trait.ILLEGAL_COEFFICIENT

    def test_cutting_takes_what_the_axis_does_not_have(self) -> None:
        merged = self.sizes.merged(self.size("c"), self.size("c^-1*H"))
        assert dict(zip((v.name for v in self.sizes.variables), merged, strict=True)) == {"H": 0, "W": 0, "c": 1}

    def test_a_size_that_is_one_for_every_layer_is_none(self) -> None:
        spec = preset("densenet121")
        one = spec.table.size("g^-1*C_out")
        assert not SizeTable(spec)[one].is_legal
        assert SizeTable(spec.with_(sizes={**spec.sizes.model_dump(), "drop_ones": False}))[one].is_legal


class TestDims:
    space = Space(preset("resnet18").with_(budget={}))

    def of(self, dim: Dim) -> DimFacts:
        return FactTable(self.space.spec, self.space.sizes)[dim]

    def axis(self, place: int) -> Dim:
        return dims.output_axis(place, self.space.spec.output_sizes[place])

    def size(self, text: str) -> Size:
        return self.space.spec.table.size(text)

    def test_heights_in_a_convolution(self) -> None:
        window = dims.share(dims.reduce(self.size("k_1")), 1)
        assert self.of(self.axis(0)).height == 0
        assert self.of(window[1]).height == 2
        assert self.of(dims.unfold(self.axis(2), window[0])).height == 3

    def test_pieces_of_a_merge_are_adjacent_until_a_share_comes_between(self) -> None:
        left, right = dims.merge(self.axis(1), self.size("g"))
        assert adjacent(self.of(left), self.of(right))
        shared = dims.share(right, 1)[0]
        assert not adjacent(self.of(left), self.of(shared))
        both = dims.share(left, 1)[0]
        assert adjacent(self.of(both), self.of(shared))
        assert adjacent(self.of(both), self.of(dims.share(shared, 2)[0]))

    def test_two_reductions_are_adjacent(self) -> None:
        assert adjacent(self.of(dims.reduce(self.size("s"))), self.of(dims.reduce(self.size("g"))))

    def test_a_window_takes_up_what_a_stride_skips(self) -> None:
        strided = dims.stride(dims.reduce(self.size("k_1")), self.size("s"))
        assert self.of(strided).discards
        assert not self.of(dims.unfold(self.axis(2), strided)).discards


class TestUnorderedChannels:
    size = staticmethod(preset("resnet18").table.size)

    def test_a_shift_of_channels(self) -> None:
        shifted = dims.shift(dims.reduce(self.size("C_in")), 1)
        assert violations({shifted: Channels(True, shifted)}) == {"U4"}
        assert violations({shifted: ORDERED}) == set()

    def test_one_of_two_orders_of_a_split(self) -> None:
        small, large = dims.reduce(self.size("g")), dims.reduce(self.size("g^-1*C_in"))
        found = [dims.split(small, large), dims.split(large, small)]
        assert Counter("U5" in violations({dim: Channels(True, dim)}) for dim in found) == {True: 1, False: 1}

    def test_two_sums_over_one_axis(self) -> None:
        joined = dims.split(dims.reduce(self.size("g")), dims.reduce(self.size("g^-1*C_in")))
        assert "U7" in violations({joined: Channels(True, joined)})

    def test_two_sums_that_weights_tell_apart(self) -> None:
        one, other = dims.share(dims.reduce(self.size("g")), 1)[0], dims.share(dims.reduce(self.size("g^-1*C_in")), 2)[0]
        joined = dims.split(one, other)
        assert "U7" not in violations({joined: Channels(True, joined)})


class TestFlopsBound:
    spec = OperatorSpec(input="H", output="H", variables="H; s=2, k1=3, k2=5", layers=[{"H": 4}])

    def cheapest(self, start: str, sums: list[str], increases: list[str], waits: list[int]) -> int:
        size = self.spec.table.size
        return FlopsBound(self.spec, SizeTable(self.spec)).cheapest(
            [size(text) for text in sums], [size(text) for text in increases], waits, size(start)
        )

    def test_sums_that_wait_for_different_increases(self) -> None:
        assert self.cheapest("s*k2", ["k2", "s", "s*k1"], ["s", "k1"], [0b00, 0b01, 0b10]) == 18

    def test_sums_that_wait_for_the_same(self) -> None:
        assert self.cheapest("k1", ["k1", "k2"], ["k2"], [1, 1]) == 15

    def test_a_sum_that_waits_for_nothing(self) -> None:
        assert self.cheapest("H", ["H"], [], [0]) == 4

    @pytest.mark.slow
    def test_the_bound_is_below_what_operators_need(self) -> None:
        space = Space(preset("resnet18").with_(depth=5))
        frontier = [space.root]
        for _ in range(6):
            for state in frontier:
                for operator in space.operators(state)[:1]:
                    flops = space.completion.cost(operator).flops - space.spec.budget.rest_flops
                    assert space.feasibility.flops.lower_bound(state) <= flops
            frontier = [child for state in frontier for _, child in space.children(state)]


def test_the_loops_bound_the_flops_from_above_and_below_with_one_weight() -> None:
    build = Builder("N, C_in, C_out, H; k_1=3", name="conv2d")
    n, o, y, x = build.output("N, C_out, H, H")
    c, i, j = build.contract(outer=[o], inner=build.reduce("C_in, k_1, k_1"))
    graph = build.finish([n, c, build.unfold(y, i), build.unfold(x, j)])
    space = Space(preset("resnet18"))
    loops = space.sizes[product((*space.spec.output_sizes, *(dim.size for dim in graph.reduces)))].total
    assert space.completion.cost(graph).flops == pytest.approx(space.spec.budget.rest_flops + loops)


class TestEnumeration:
    def counts(self, spec: OperatorSpec) -> dict[int, int]:
        return dict(Counter(size for size, _ in Space(spec).enumerate()))

    @pytest.mark.slow
    def test_resnet18_up_to_five_primitives(self) -> None:
        assert self.counts(preset("resnet18").with_(depth=5)) == {2: 2, 3: 4, 4: 30, 5: 96}

    @pytest.mark.slow
    def test_resnet18_up_to_seven_primitives(self) -> None:
        """The published implementation finds these up to six; of those of seven it loses most at this limit."""
        found = self.counts(preset("resnet18").with_(depth=7))
        assert found == {2: 2, 3: 4, 4: 30, 5: 96, 6: 228, 7: 388}

    def test_two_axes_have_none_below_four_and_sixteen_of_four(self) -> None:
        assert self.counts(small_specs.two_axes(depth=4)) == {4: 16}

    @pytest.mark.slow
    def test_a_larger_limit_finds_the_same_and_more(self) -> None:
        small, large = ({o.id for _, o in Space(preset("resnet18").with_(depth=d)).enumerate()} for d in (3, 4))
        assert small < large
