"""The fused mode of the PyTorch generator: windows are stored in memory only if nothing else is possible.

- A window that is summed with a weight becomes a convolution (grouped if the operator is grouped).
- A window that is multiplied with a weight but summed in a later stage is delayed: the weight is multiplied with the data
  before the Unfold, so that the weight's axis becomes an axis of the data; then each slice along this axis is shifted into
  place ("shear"). Multiplication and windowing commute, so no tensor of windows exists before the product.
- A window that is summed without a weight is a sum of shifted slices.
- Only a window that is an axis of a result, or that views combine with other axes, is stored.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass
from itertools import groupby

from syno.algebra import ONE, Valuations, product
from syno.ir.dim import Dim, Operation
from syno.ir.primitives import MERGE, SHARE, SHIFT, SPLIT, UNFOLD
from syno.lower.pytorch.costs import StatementWork
from syno.lower.pytorch.layouts import Convolution, Order, convolution_layouts, kernels_in_channels_last
from syno.lower.pytorch.lowering import (
    Lowering,
    Meeting,
    Window,
    carried_out_for,
    share_at,
    split_leaves,
    unfold_above,
    window_of,
)
from syno.lower.pytorch.tensor_code import TensorCode, shape_comment


@dataclass
class Contraction:
    """A contraction of the data with one weight: their axes, sorted by role.

    Attributes:
        data, weight: the code of the two tensors.
        meetings: the weight's axes that are no taps of a window, each with the data's axis at the same coordinate.
        windows: the windows that are summed with the weight.
        taps: the weight's axes that are taps, each with the leaf of the window at which it is read.
        spread: the weight's axes that become output channels, each of which reads a single tap of a window.
        rank: the rank of dims in the order of the output, if known.
        valuations: the sizes for which the plan was made.
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
        """The windows that the convolution slides along their axes."""
        return [*self.windows, *self.spread.values()]

    @property
    def met(self) -> list[Dim]:
        """The data's axes that the weight also has: groups, then channels."""
        return [meeting.data for meeting in (*self.groups, *self.channels) if meeting.data is not None]

    @property
    def summed(self) -> list[Dim]:
        """The reductions that the contraction sums over."""
        results = [meeting.result for meeting in (*self.channels, *self.weight_only)]
        leaves = [leaf for window in self.windows for leaf in window.leaves]
        return results + [bare for leaf in leaves for bare in _reduce_under(leaf)]

    @property
    def is_scaling(self) -> bool:
        """Whether the contraction is elementwise: each element of the data times one element of the weight, without sums."""
        others = self.channels or self.outer or self.moving or self.weight_only
        return not others

    @property
    def can_be_convolution(self) -> bool:
        """Whether a 1x1 convolution is an alternative to einsum: there are axes behind the channels that the weight lacks."""
        if any(self._is_merged_with_passing(meeting.result) for meeting in (*self.groups, *self.outer)):
            return False  # einsum puts the two axes side by side, so that the merge needs no copy
        sizes = [product(dim.size for dim in tensor.axes) for tensor in (self.data, self.weight)]
        moved, kept = (sum(map(int, self.valuations.values(size).values)) for size in sizes)
        if kept >= moved:
            return False  # a convolution reorders its weight at each call, which is not worth it for little data
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
    """Write an elementwise product `x * w`, with the weight's axes aligned to the data's."""
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
    """Write a convolution over 1 to 3 axes. Axes that the weight lacks become batch axes, or axes with a kernel of size 1."""
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
    work = StatementWork("convolution", elements, stays * channels * taps, channels if contraction.groups else None)
    made_of = [
        [meeting.weight for meeting in part] for part in ([*contraction.groups, *contraction.outer], contraction.channels)
    ]
    kernels = [[window.kernel] if window else [] for window in windows]
    sizes = tuple(product(dim.size for dim in part) for part in (*made_of, *kernels))
    data.convolutions[len(data.lines)] = Convolution(
        any(windows), bool(contraction.groups), work, contraction.weight.source, weight, sizes, *layouts
    )
    call = f"functional.conv{len(spatial)}d({', '.join(arguments)})" + _crop(windows)
    data.assign(call, [batch, results, *after])


def _layout(contraction: Contraction) -> tuple[list[Dim], list[list[Dim]]]:
    """Return the batch axes, and the spatial axes of the convolution, which are merged if there are more than two."""
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
    """Return the expression of the convolution's kernel, and the memory layouts of the weight that suit it.

    The kernel is the weight as [groups * outer, channels, kernel sizes...]. The layouts are the orders of the weight's axes in
    memory in which the kernel is channels-first, and channels-last, without a copy.
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
    """Merge axes of the weight into the axis `dim`, by inverting the views between a window and its leaves."""
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
    """Return the slice that crops the extra last position, which symmetric padding makes for an even window; "" if none."""
    if not any(windows):
        return ""
    slices = [f":{window.position.size.integer_text()}" if window else ":" for window in windows]
    return f"[..., {', '.join(slices)}]"


def _tuple(texts: Sequence[str]) -> str:
    return f"({', '.join(texts)}{',' if len(texts) == 1 else ''})"


AXES_OF_A_CONVOLUTION = 3  # torch has conv1d, conv2d and conv3d


class FusedLowering(Lowering):
    """Writes the statements of the fused mode.

    A window that is summed in a contraction becomes a convolution. A window that is summed later commutes with the contraction,
    which comes first, and shifted slices are added after it. A window is stored, which multiplies the data by its length, only
    if neither is possible, or both cost more.
    """

    lazy = True

    def run(self) -> TensorCode:
        """Write the statements of all stages. Consecutive convolutions work on channels-last data."""
        data = super().run()
        planar = {number for number in data.convolutions if "functional.conv2d(" in data.lines[number][0]}
        moves = any(data.convolutions[number].moves for number in planar)
        # A single convolution keeps the format, since the conversion would cost more than it gains.
        channels_last = moves and len(planar) > 1 and self.decisions.take("channels last")
        last = planar if channels_last else set()
        data.layouts |= convolution_layouts(data.convolutions, last)
        data.prepared = kernels_in_channels_last(data.prepared, data.convolutions, last)
        for number, made in data.convolutions.items():
            data.work.append(made.work.channels_last() if number in last else made.work)
        if channels_last:
            data.work.append(StatementWork("copy", (data.convolutions[min(planar)].work.elements[0],) * 2))
            first = min(planar)
            before = [comment for statement, comment in data.lines[:first] if statement.startswith(f"{data.variable} =")]
            shape = before[-1] if before else shape_comment(dim.size for dim in self.graph.input)
            data.lines[first:first] = self._in_channels_last(planar, shape)
        return data

    def _in_channels_last(self, convolutions: Set[int], shape: str) -> list[tuple[str, str]]:
        """Return the statements that convert the data to channels-last format before these convolutions.

        If a convolution has groups, data and kernels stay channels-first on a GPU: with channels-last data in float32, cuDNN
        launches a kernel for each group. (On an H100, ResNet-18 with Operator 1 took 7.0 ms so, and takes 1.5; docs/measured.)
        """
        data, x = self.data, self.data.variable
        if not any(data.convolutions[number].is_grouped for number in convolutions):
            return [(f"{x} = {x}.contiguous(memory_format=torch.channels_last)", shape)]
        kernels = {}
        for number in sorted(convolutions):
            made, (statement, comment) = data.convolutions[number], data.lines[number]
            name = made.weight.removeprefix("self.")
            kernels[name] = made.kernel_text
            data.lines[number] = statement.replace(f"({x}, {made.kernel_text}", f"({x}, {name}"), comment
        names, given = ", ".join([x, *kernels]), ", ".join([x, *kernels.values()])
        why = "cuDNN would run a kernel for each group"
        return [
            (f"layout = torch.contiguous_format if {x}.is_cuda else torch.channels_last", why),
            (f"{names} = [one.contiguous(memory_format=layout) for one in ({given})]", shape),
        ]

    # ---- views --------------------------------------------------------------------------------------------------

    def carry_out(self, operation: Operation) -> None:
        """Carry out an operation. An Unfold becomes a shear if a weight was multiplied with its window before it."""
        if operation in self.finished:
            return
        share = self._multiplied_before(operation)
        if share is not None:
            self._shear(window_of(operation), share, "shear")
        else:
            super().carry_out(operation)

    def unfold(self, operation: Operation) -> None:
        """Make the window an axis of its own, as a view, which is copied only if its reader needs a copy."""
        position, window = operation.bottoms
        axis = self.data.position(operation.tops[0])
        axes = [position if dim is operation.tops[0] else dim for dim in self.data.axes]
        self.finished.add(operation)
        self.data.call("windows", f"{axis}, {window.size.integer_text()}", [*axes, window])

    def _multiplied_before(self, unfold: Operation) -> Operation | None:
        """Return the Share of the window of `unfold` if its weight has been multiplied already (a delayed window) or None."""
        if unfold.primitive is not UNFOLD:
            return None
        (leaf, *more) = window_of(unfold).leaves
        share = leaf.operation if leaf.primitive is SHARE and leaf.position == 0 else None
        if more or share is None or leaf is not window_of(unfold).kernel or share.tops[1] not in self.data.axes:
            return None
        return share

    def _shear(self, window: Window, share: Operation, function: str) -> None:
        data, axis = self.data, share.tops[1]
        after = {window.axis: window.position, axis: share.bottoms[0]}
        axes = [after.get(dim, dim) for dim in data.axes if function == "shear" or dim is not axis]
        arguments = f"{data.position(window.axis)}, {data.position(axis)}{window.dilation_argument}"
        data.call(function, arguments, axes)
        self.finished.update((window.unfold, share))
        if (stride := window.unfold.bottoms[1].operation) is not None:
            self.finished.add(stride)

    def sum_over(self, dim: Dim) -> None:
        """Sum over a reduction. If that sums a whole window, it becomes a sum of shifted slices."""
        if dim in self.summed:
            return
        share = self.structure.above.get(dim)
        if share is not None and share.primitive is SHARE and share.tops[1] in self.data.axes:
            unfold = unfold_above(self.structure, share.tops[0])
            if unfold is not None and self._multiplied_before(unfold) is share:
                self.need(unfold.tops[0])
                self._shear(window_of(unfold), share, "shear_sum")
                self.summed.add(dim)
                return
        unfold = unfold_above(self.structure, dim)
        if unfold is not None and unfold not in self.finished and all(leaf.is_reduce for leaf in window_of(unfold).leaves):
            self._sum_window(window_of(unfold))
            return
        if unfold is not None and unfold not in self.finished and self._waits_for_weight(window_of(unfold)):
            return  # the convolution with the later weight sums it, with each tap of the weight repeated along it
        super().sum_over(dim)

    def _waits_for_weight(self, window: Window) -> bool:
        """Return whether the window is to be summed in a later convolution: part of it is summed without a weight.

        The later weight then repeats its taps along this part.
        """
        shared = [leaf.operation for leaf in window.leaves if not leaf.is_reduce]
        waits = all(
            share is not None and share.primitive is SHARE and share.parameter not in self.done and share.bottoms[0].is_reduce
            for share in shared
        )
        return waits and self.decisions.take("repeat")

    def _sum_window(self, window: Window) -> None:
        self.need(window.axis)
        arguments = f"{self.data.position(window.axis)}, {window.kernel.size.integer_text()}{window.dilation_argument}"
        self.data.call("window_sum", arguments, [window.position if dim is window.axis else dim for dim in self.data.axes])
        self.finished.add(window.unfold)
        self.summed.update(window.leaves)

    # ---- contractions -------------------------------------------------------------------------------------------

    def contract(self, number: int) -> None:
        """Multiply with a weight: as a convolution if windows are summed with it, else as the cheapest product."""
        ready = self.ready_shares(number)
        summed, put_off = self._windows(number, ready)
        shares = [share for share in ready if share not in put_off]
        in_windows = {leaf for window in summed for leaf in window.leaves}
        for share in shares:
            if share.tops[0] not in in_windows and not self.structure.is_expanded(share.tops[0]):
                self.need(share.tops[0])
        for window in summed:
            self.need(window.axis)
        for dim in [dim for dim in self.data.axes if dim.is_reduce]:  # a view made it an axis, and nothing else reads it
            self.sum_over(dim)
        spread = self._spread(put_off, shares, AXES_OF_A_CONVOLUTION - len(summed))
        shares += spread
        weight = self.weight(number)
        taps = {share.tops[1]: share.tops[0] for share in shares if share.tops[0] in in_windows}
        meetings = [meeting for meeting in self.meetings(number, shares) if meeting.weight not in taps]
        meetings = [part for meeting in meetings for part in self._split_up(meeting, weight)]
        spread_axes = {share.tops[1]: put_off[share] for share in spread}
        contraction = Contraction(self.data, weight, meetings, summed, taps, spread_axes, self.rank, self.plan.valuations)
        if contraction.is_scaling:
            scale(contraction)
        elif contraction.moving or (contraction.can_be_convolution and self.decisions.take("convolve")):
            convolve(contraction)
            self.summed.update(contraction.summed)
            self.finished.update(window.unfold for window in contraction.moving)
        else:
            self.einsum(weight, meetings)

    def _spread(self, put_off: Mapping[Operation, Window], shares: Sequence[Operation], most: int) -> list[Operation]:
        """Return the delayed Shares whose windows can be part of the convolution: each output channel gets a single tap.

        The other taps of the kernel are zeros, so the work grows with the window. If few channels are summed, this can be
        cheaper than shifting slices of the result.
        """
        data = self.data
        met = [share.tops[0] for share in shares if share.tops[0] in data.axes]
        if not met:
            return []
        last = max(map(data.position, met))
        movable = [
            share
            for share, window in put_off.items()
            if window.axis in data.axes and window.axis not in met and data.position(window.axis) > last
            and not share.bottoms[0].is_reduce
        ]  # fmt: skip
        return movable[: max(most, 0)] if movable and most > 0 and self.decisions.take("spread") else []

    def _split_up(self, meeting: Meeting, weight: TensorCode) -> list[Meeting]:
        """Split the axes of data and weight before the product if a Split below the Share has a reduction, to sum it early."""
        parts = split_leaves(meeting.result)
        if meeting.data is None or len(parts) == 1 or not any(dim.is_reduce for dim in parts):
            return [meeting]
        self.data.replace([meeting.data], parts)
        weight.replace([meeting.weight], parts)
        return [Meeting(part, part, part) for part in parts]

    def _windows(self, weight: int, shares: Sequence[Operation]) -> tuple[list[Window], dict[Operation, Window]]:
        """Return the windows that a convolution sums with this weight, and the Shares to delay; other windows are stored."""
        unfolds = [unfold_above(self.structure, share.tops[0]) for share in shares]
        candidates = {unfold: window_of(unfold) for unfold in unfolds if unfold is not None and unfold not in self.finished}
        stored: set[Operation] = set()
        while True:
            summed = [window for window in candidates.values() if self._is_summed(window, weight, shares, stored)]
            del summed[AXES_OF_A_CONVOLUTION:]
            put_off = self._put_off([window for window in candidates.values() if window not in summed], weight, shares)
            if (unfold := self._better_stored(put_off, summed, shares)) is not None:
                stored.add(unfold)
                del candidates[unfold]
                continue
            kept = {window.unfold for window in summed} | {window.unfold for window in put_off.values()}
            handled = {leaf for window in summed for leaf in window.leaves} | {share.tops[0] for share in put_off}
            wanted = [share.tops[0] for share in shares if share.tops[0] not in handled]
            wanted += [window.axis for window in summed]
            available = set(self.data.axes)
            carried_out = {operation for dim in wanted for operation in carried_out_for(self.structure, available, dim)}
            if kept == set(candidates) and not kept & carried_out:
                return summed, put_off
            candidates = {unfold: window for unfold, window in candidates.items() if unfold in kept - carried_out}

    def _better_stored(
        self, put_off: Mapping[Operation, Window], summed: Sequence[Window], shares: Sequence[Operation]
    ) -> Operation | None:
        """Return the Unfold to store if two windows on one axis are summed with this weight; None if delaying is better.

        A convolution can sum only one of the two. Delaying the other stores the result once per tap; storing the window stores
        the data once per tap, which is less if the weight increases the number of channels.
        """
        wide = product(share.bottoms[0].size for share in shares if self.structure.is_expanded(share.tops[0]))
        deep = product(
            share.bottoms[0].size for share in shares if share.tops[0] in self.data.axes and share.bottoms[0].is_reduce
        )
        if self.plan.valuations.values(wide).highest <= self.plan.valuations.values(deep).highest:
            return None
        above = [self.structure.above.get(window.axis) for share, window in put_off.items() if share.bottoms[0].is_reduce]
        return next((window.unfold for window in summed if window.unfold in above), None)

    def _is_summed(self, window: Window, weight: int, shares: Sequence[Operation], stored: Set[Operation]) -> bool:
        """Return whether a convolution with the weight can sum the whole window: its axis must not be another open window's."""
        owners = [share_at(leaf, weight) for leaf in window.leaves]
        if not any(owner in shares for owner in owners):
            return False
        above = self.structure.above.get(window.axis)
        waits = above is not None and above.primitive is UNFOLD and above.bottoms[0] is window.axis
        if waits and above not in self.finished and above not in stored:
            return False
        return all(
            leaf.is_reduce if owner is None else owner in shares and owner.bottoms[0].is_reduce
            for leaf, owner in zip(window.leaves, owners, strict=True)
        )

    def _put_off(self, windows: Sequence[Window], weight: int, shares: Sequence[Operation]) -> dict[Operation, Window]:
        """Return the Shares that can be delayed until after their window, each with the window."""
        found = {share_at(window.kernel, weight): window for window in windows if window.leaves == (window.kernel,)}
        return {share: window for share, window in found.items() if share is not None and share in shares}
