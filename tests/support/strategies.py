"""Random operators, over small sizes that are all different, so that no two axes can be mistaken for each other."""

from __future__ import annotations

from hypothesis import reject
from hypothesis import strategies as st

from syno.algebra import Size, product
from syno.base.errors import GraphError
from syno.ir.builder import Builder
from syno.ir.dim import Dim
from syno.ir.graph import PGraph

VARIABLES = "A=5, B=7, C=4; k=3, s=2"
AXES = ["A", "B", "C", "s*A", "k*C", "s*k"]
DOMAINS = ["k", "k", "s", "C", "s*k", "A"]
BLOCKS = ["k", "s", "A", "C"]
LARGEST_SPACE = 30_000


class _Drawn:
    """A builder together with the dims that wait for something above them."""

    def __init__(self, draw: st.DrawFn, weights: int) -> None:
        self.draw = draw
        self.weights = weights
        self.build = Builder(VARIABLES, name="random")
        self.values = self.build.table.valuation()
        axes = draw(st.lists(st.sampled_from(AXES), min_size=1, max_size=3), label="output")
        domains = draw(st.lists(st.sampled_from(DOMAINS), max_size=4), label="reductions")
        self.live = list(self.build.output(", ".join(axes)))
        while domains and self.values.numel([*self.build.table.sizes(", ".join(axes + domains))]) > LARGEST_SPACE:
            domains.pop()
        self.live += self.build.reduce(", ".join(domains)) if domains else ()

    def pick(self, label: str, dims: list[Dim]) -> Dim | None:
        if not dims:
            return None
        dim = dims[self.draw(st.integers(0, len(dims) - 1), label=label)]
        self.live.remove(dim)
        return dim

    def value(self, size: Size) -> int:
        return self.values.integer(size)

    def step(self, action: str) -> None:
        getattr(self, action)()

    def split(self) -> None:
        if len(self.live) >= 2:
            major, minor = self.pick("major", self.live), self.pick("minor", self.live)
            self.live.append(self.build.split(major, minor))

    def merge(self) -> None:
        sizes = {text: self.build.table.size(text) for text in BLOCKS}
        block = self.draw(st.sampled_from(BLOCKS), label="block")
        dim = self.pick("whole", [d for d in self.live if (d.size / sizes[block]).is_polynomial])
        if dim is not None:
            self.live += self.build.merge(dim, block)

    def shift(self) -> None:
        amount = self.draw(st.sampled_from([1, -1, 2, -3]), label="amount")
        dim = self.pick("from", self.live)
        if dim is not None:
            self.live.append(self.build.shift(dim, amount))

    def unfold(self) -> None:
        if len(self.live) >= 2:
            small = [dim for dim in self.live if self.value(dim.size) <= 6 and not dim.is_output]
            window = self.pick("window", small or [dim for dim in self.live if self.value(dim.size) <= 12])
            position = self.pick("position", self.live) if window is not None else None
            if window is not None and position is not None:
                self.live.append(self.build.unfold(position, window))
            elif window is not None:
                self.live.append(window)

    def stride(self) -> None:
        dim = self.pick("step", [dim for dim in self.live if self.value(dim.size) <= 6])
        if dim is not None:
            self.live.append(self.build.stride(dim, "s"))

    def expand(self) -> None:
        dim = self.pick("repeated", self.live)
        if dim is not None:
            self.build.expand(dim)

    def contract(self) -> None:
        if not self.weights or not self.live:
            return
        self.weights -= 1
        parts = [
            self.draw(
                st.sampled_from(["no", "outer", "inner"] if dim.is_output else ["inner", "no", "inner", "outer"]), label="part"
            )
            for dim in self.live
        ]
        if set(parts) == {"no"}:
            parts[0] = "inner"
        chosen = {part: [dim for dim, own in zip(self.live, parts, strict=True) if own == part] for part in parts}
        inner = self.build.contract(outer=chosen.get("outer", []), inner=chosen.get("inner", []))
        self.live = [*chosen.get("no", []), *inner]

    def finish(self) -> PGraph:
        for dim in [dim for dim in self.live if dim.discards]:
            self.live.remove(dim)
            self.build.expand(dim)
        order = self.draw(st.permutations(self.live), label="order of the input's axes") if self.live else []
        return self.build.finish(order)


ACTIONS = [
    "contract",
    "unfold",
    "split",
    "merge",
    "shift",
    "stride",
    "expand",
    "contract",
    "unfold",
    "contract",
    "unfold",
    "unfold",
]


@st.composite
def _steps(draw: st.DrawFn) -> list[str]:
    """Anything, or what operators from a search look like: contractions first, then windows, views between."""
    if draw(st.booleans(), label="any order"):
        return draw(st.lists(st.sampled_from(ACTIONS), max_size=8), label="steps")
    views = st.lists(st.sampled_from(["split", "merge", "shift", "stride"]), max_size=2)
    windows = ["unfold"] * draw(st.integers(0, 3), label="windows")
    return ["contract", *draw(views), *draw(st.sampled_from([[], ["contract"]])), *draw(views), *windows, *draw(views)]


VIEWS_AND_WINDOWS = st.lists(st.sampled_from(["merge", "merge", "shift", "unfold", "unfold", "split"]), min_size=3, max_size=9)


@st.composite
def pgraphs(draw: st.DrawFn, max_weights: int = 2, steps: st.SearchStrategy[list[str]] | None = None) -> PGraph:
    """A random operator; its variables have defaults, so no valuation is needed."""
    drawn = _Drawn(draw, max_weights)
    for action in draw(_steps() if steps is None else steps):
        try:
            drawn.step(action)
        except GraphError:  # a Share above a Stride and the like: the drawn step is not in the language
            break
    try:
        graph = drawn.finish()
    except GraphError:
        reject()
    largest = max((drawn.values.numel(dim.size for dim in graph.input), 1))
    if largest > LARGEST_SPACE or drawn.value(product(dim.size for dim in (*graph.output, *graph.reduces))) > LARGEST_SPACE:
        reject()
    return graph
