"""A contraction written as a torch convolution or as an elementwise product."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby

from syno.algebra import ONE, Valuations, product
from syno.ir.dim import Dim
from syno.ir.primitives import MERGE, SHIFT, SPLIT
from syno.lower.pytorch.costs import Work
from syno.lower.pytorch.layouts import Convolution, Order
from syno.lower.pytorch.lowering import Meeting
from syno.lower.pytorch.tensor_code import TensorCode
from syno.lower.pytorch.windows import Window


@dataclass
class Contraction:
    """The axes of the data and of one weight, sorted by their roles in the contraction.

    Attributes:
        meetings: the weight's axes, but those that are taps of a window.
        windows: the windows that are summed with the weight.
        taps: the weight's axes that are taps, each with the leaf of a window it is read at.
        spread: the weight's axes that stay, while each output channel along them reads one tap of a window.
        rank: the order in which dims make up the output, where it is known.
        valuations: the sizes that the plan is for.
    """

    data: TensorCode
    weight: TensorCode
    meetings: Sequence[Meeting]
    windows: Sequence[Window]
    taps: Mapping[Dim, Dim]
    spread: Mapping[Dim, Window]
    rank: Mapping[Dim, int]
    valuations: Valuations

    def __post_init__(self) -> None:
        order = {dim: number for number, dim in enumerate(self.data.axes)}
        met = [(order[meeting.data], meeting) for meeting in self.meetings if meeting.data is not None]
        met.sort(key=lambda entry: entry[0])
        self.groups = [meeting for _, meeting in met if not meeting.result.is_reduce]  # both have it, and it stays
        self.channels = [meeting for _, meeting in met if meeting.result.is_reduce]  # both have it, and it is summed
        alone = [meeting for meeting in self.meetings if meeting.data is None]
        self.outer = [meeting for meeting in alone if not meeting.result.is_reduce]
        self.outer.sort(key=lambda meeting: self.rank.get(meeting.result, -1))
        self.weight_only = [meeting for meeting in alone if meeting.result.is_reduce]
        touched = {meeting.data for _, meeting in met} | {window.axis for window in self.moving}
        self.passing = [dim for dim in self.data.axes if dim not in touched]

    @property
    def moving(self) -> list[Window]:
        """The windows that the convolution moves along their axes."""
        return [*self.windows, *self.spread.values()]

    @property
    def met(self) -> list[Dim]:
        """The data's axes that the weight has too: groups, then channels."""
        return [meeting.data for meeting in (*self.groups, *self.channels) if meeting.data is not None]

    @property
    def summed(self) -> list[Dim]:
        """The reductions that the contraction takes."""
        results = [meeting.result for meeting in (*self.channels, *self.weight_only)]
        leaves = [leaf for window in self.windows for leaf in window.leaves]
        return results + [bare for leaf in leaves for bare in _reduce_under(leaf)]

    @property
    def is_scaling(self) -> bool:
        """Whether each element of the data is multiplied with one element of the weight, and nothing is summed."""
        others = self.channels or self.outer or self.moving or self.weight_only
        return not others

    @property
    def can_be_convolution(self) -> bool:
        """Whether a convolution with a kernel of size 1 is an alternative: channels lie before axes that the weight lacks."""
        if any(self._is_merged_with_passing(meeting.result) for meeting in (*self.groups, *self.outer)):
            return False  # as a product, the two axes come out side by side
        sizes = [product(dim.size for dim in tensor.axes) for tensor in (self.data, self.weight)]
        moved, kept = (sum(map(int, self.valuations.values(size).values)) for size in sizes)
        if kept >= moved:
            return False  # a convolution prepares its weight at each call: not worth it for little data
        last_passing = max((self.data.position(dim) for dim in self.passing), default=-1)
        return bool(self.channels) and max(map(self.data.position, self.met)) < last_passing

    def _is_merged_with_passing(self, dim: Dim) -> bool:
        below = dim.operation
        return below is not None and below.primitive is MERGE and any(top in self.passing for top in below.tops)


def _reduce_under(leaf: Dim) -> list[Dim]:
    if leaf.is_reduce:
        return [leaf]
    return [dim for dim in leaf.operation.bottoms if dim.is_reduce] if leaf.operation else []


def scale(contraction: Contraction) -> None:
    """Write `x * w`, with the weight's axes aligned to the data's."""
    data, weight = contraction.data, contraction.weight
    axis_of = {meeting.data: meeting.weight for meeting in contraction.groups}
    result_of = {meeting.data: meeting.result for meeting in contraction.groups}
    weight.order([axis_of[dim] for dim in data.axes if dim in axis_of])
    first = min(data.position(dim) for dim in contraction.met)
    factors = f"{data.read()} * {weight.read([[axis_of[dim]] if dim in axis_of else [] for dim in data.axes[first:]])}"
    data.prepared += weight.lines
    data.work += weight.work
    data.assign(factors, [result_of.get(dim, dim) for dim in data.axes], "copy")


def convolve(contraction: Contraction) -> None:
    """Write a convolution over 1 to 3 axes. Axes that the weight lacks are batch axes, or have a kernel of size 1."""
    data = contraction.data
    batch, spatial = _layout(contraction)
    data.order([*batch, *contraction.met, *(dim for part in spatial for dim in part)])
    moving = {window.axis: window for window in contraction.moving}
    windows = [moving.get(part[0]) for part in spatial]
    weight, layouts = kernel(contraction, windows)
    arguments = [data.read([batch, contraction.met, *spatial]), weight]
    data.prepared += contraction.weight.lines
    if not any(layouts):  # else the weight is stored as it is read
        data.work += contraction.weight.work

    padding = [_padding(window) for window in windows]
    if any(text != "0" for text in padding):
        arguments.append(f"padding={_tuple(padding)}")
    dilation = [window.dilation.integer_text() if window else "1" for window in windows]
    if any(text != "1" for text in dilation):
        arguments.append(f"dilation={_tuple(dilation)}")
    groups = product(meeting.result.size for meeting in contraction.groups)
    if groups is not ONE:
        arguments.append(f"groups={groups.integer_text()}")
    after = [[window.position] if window else part for part, window in zip(spatial, windows, strict=True)]
    results = [meeting.result for meeting in (*contraction.groups, *contraction.outer)]
    stays = product(dim.size for dim in (*batch, *results, *(dim for part in after for dim in part)))
    taps = product(window.kernel.size for window in windows if window)
    channels = product(meeting.weight.size for meeting in contraction.channels)
    elements = (
        product(dim.size for dim in data.axes),
        stays,
        product(meeting.weight.size for meeting in contraction.meetings) * taps,
    )
    work = Work("convolution", elements, stays * channels * taps, channels if contraction.groups else None)
    made_of = [
        [meeting.weight for meeting in part] for part in ([*contraction.groups, *contraction.outer], contraction.channels)
    ]
    kernels = [[window.kernel] if window else [] for window in windows]
    sizes = tuple(product(dim.size for dim in part) for part in (*made_of, *kernels))
    data.convolutions[len(data.lines)] = Convolution(any(windows), work, contraction.weight.source, sizes, *layouts)
    call = f"functional.conv{len(spatial)}d({', '.join(arguments)})" + _crop(windows)
    data.assign(call, [batch, results, *after])


def _layout(contraction: Contraction) -> tuple[list[Dim], list[list[Dim]]]:
    """Return the batch axes and the axes that the convolution moves along. Runs of passing axes are merged if they are many."""
    data = contraction.data
    moving = {window.axis for window in contraction.moving}
    met = set(contraction.met)
    first = min((data.position(dim) for dim in met | moving), default=0)
    trailing = [dim for dim in data.axes[first:] if dim not in met]
    parts = [[dim] for dim in trailing]
    if len(parts) > 2:
        parts = []
        for moves, run in groupby(trailing, key=lambda dim: dim in moving):
            dims = list(run)
            parts += [[dim] for dim in dims] if moves else [dims]
    batch = data.axes[:first]
    limit = max(2, len(moving))
    while len(parts) > limit:
        passing = next(part for part in parts if part[0] not in moving)
        parts.remove(passing)
        batch = [*batch, *passing]
    return [dim for dim in batch if dim not in met], parts


def kernel(contraction: Contraction, windows: Sequence[Window | None]) -> tuple[str, list[Order | None]]:
    """Return the expression for the weight as a kernel: [groups * outer, channels, a kernel size per axis].

    With it the orders of the weight's axes in memory in which the kernel is channels-first, and in which it is channels-last.
    """
    weight = contraction.weight
    if contraction.weight_only:
        weight.sum([meeting.weight for meeting in contraction.weight_only])
    for axis, leaf in contraction.taps.items():
        weight.relabel(axis, leaf)
    for window in contraction.windows:
        _gather(weight, window.kernel)
    for axis, window in contraction.spread.items():
        weight.spread(axis, window.kernel)
    taps = [[window.kernel] if window else [] for window in windows]
    results = [meeting.weight for meeting in (*contraction.groups, *contraction.outer)]
    channels = [meeting.weight for meeting in contraction.channels]
    kept = [dim for part in taps for dim in part]
    layouts = [weight.order_in_memory(order) for order in ([*results, *channels, *kept], [*results, *kept, *channels])]
    weight.order([*results, *channels, *kept])
    return weight.read([results, channels, *taps]), layouts


def _gather(weight: TensorCode, dim: Dim) -> None:
    """Make `dim` one axis of the weight by undoing, on the weight, the views between a window and its leaves."""
    operation = dim.operation
    if dim in weight.axes or operation is None:
        return
    if dim.is_reduce:  # summed without the weight: every tap along it is the same
        weight.insert(dim, len(weight.axes))
        return
    for below in operation.bottoms:
        _gather(weight, below)
    if operation.primitive is SPLIT:
        weight.adjacent(operation.bottoms)
        weight.replace(operation.bottoms, [dim])
    else:
        assert operation.primitive is SHIFT and isinstance(operation.parameter, int)
        weight.roll(operation.bottoms[0], dim, operation.parameter)


def _padding(window: Window | None) -> str:
    if window is None:
        return "0"
    reach = window.kernel.size * window.dilation
    text = reach.integer_text()
    return f"{text} // 2" if " " not in text else f"({text}) // 2"


def _crop(windows: Sequence[Window | None]) -> str:
    """Return the slice that drops the extra positions at the end, which equal padding gives with an even window."""
    if not any(windows):
        return ""
    slices = [f":{window.position.size.integer_text()}" if window else ":" for window in windows]
    return f"[..., {', '.join(slices)}]"


def _tuple(texts: Sequence[str]) -> str:
    return f"({', '.join(texts)}{',' if len(texts) == 1 else ''})"
