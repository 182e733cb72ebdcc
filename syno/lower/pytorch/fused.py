"""The fused mode: windows are stored only if they must be.

- A window that a weight is summed over becomes a convolution (grouped where the operator is grouped).
- A window that a weight is multiplied with, but that is summed later, is put off: the weight's axis stays an axis of
  the data, which is not windowed yet; when the Unfold's turn comes, each slice along that axis is moved into place
  ("shear"). Multiplying and windowing commute, so nothing of window size exists before the result of the product.
- A window that is summed without a weight is a sum of moved slices.
- Only a window that is itself an axis of the result, or that some view takes apart, is stored.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set

from syno.algebra import product
from syno.ir.dim import Dim, Operation
from syno.ir.primitives import SHARE, UNFOLD
from syno.lower.pytorch.convolution import Contraction, convolve, scale
from syno.lower.pytorch.costs import Work
from syno.lower.pytorch.layouts import convolution_layouts, kernels_in_channels_last
from syno.lower.pytorch.lowering import Lowering, Meeting
from syno.lower.pytorch.tensor_code import TensorCode, shape_comment
from syno.lower.pytorch.windows import Window, carried_out_for, share_at, split_leaves, unfold_above, window_of

AXES_OF_A_CONVOLUTION = 3  # torch has conv1d, conv2d and conv3d


class FusedLowering(Lowering):
    """Writes the statements of the fused mode."""

    lazy = True

    def run(self) -> TensorCode:
        """Write all stages. Consecutive convolutions work on channels-last data."""
        data = super().run()
        planar = {number for number in data.convolutions if "functional.conv2d(" in data.lines[number][0]}
        moves = any(data.convolutions[number].moves for number in planar)
        # One convolution alone keeps the format: the next reader would have to bring its data or its weight into the other one.
        channels_last = moves and len(planar) > 1 and self.decisions.take("channels last")
        last = planar if channels_last else set()
        data.layouts |= convolution_layouts(data.convolutions, last)
        data.prepared = kernels_in_channels_last(data.prepared, data.convolutions, last)
        for number, made in data.convolutions.items():
            data.work.append(made.work.channels_last() if number in last else made.work)
        if channels_last:
            data.work.append(Work("copy", (data.convolutions[min(planar)].work.elements[0],) * 2))
            first = min(planar)
            before = [comment for statement, comment in data.lines[:first] if statement.startswith(f"{data.variable} =")]
            shape = before[-1] if before else shape_comment(dim.size for dim in self.graph.input)
            statement = f"{data.variable} = {data.variable}.contiguous(memory_format=torch.channels_last)"
            data.lines.insert(first, (statement, shape))
        return data

    # ---- views --------------------------------------------------------------------------------------------------

    def carry_out(self, operation: Operation) -> None:
        """Carry out an operation. An Unfold whose window is multiplied with a weight already becomes a shear."""
        if operation in self.finished:
            return
        share = self._multiplied_before(operation)
        if share is not None:
            self._shear(window_of(operation), share, "shear")
        else:
            super().carry_out(operation)

    def unfold(self, operation: Operation) -> None:
        """Make the window an axis of its own, as a view; it is copied only if its reader needs a copy."""
        position, window = operation.bottoms
        axis = self.data.position(operation.tops[0])
        axes = [position if dim is operation.tops[0] else dim for dim in self.data.axes]
        self.finished.add(operation)
        self.data.call("windows", f"{axis}, {window.size.integer_text()}", [*axes, window])

    def _multiplied_before(self, unfold: Operation) -> Operation | None:
        """Return the Share of the window of `unfold` if its weight's axis is an axis of the data, else None."""
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
        """Sum over a reduction. A window that is summed as a whole becomes a sum of moved slices."""
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
            return  # the convolution with that weight sums it: every tap of the weight is repeated along it
        super().sum_over(dim)

    def _waits_for_weight(self, window: Window) -> bool:
        """Return whether all of the window is summed, part of it with a weight still to come, whose taps are to be repeated."""
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
        """Multiply with a weight: as a convolution where windows are summed with it, else as the cheapest product."""
        ready = self.ready_shares(number)
        summed, put_off = self._windows(number, ready)
        shares = [share for share in ready if share not in put_off]
        in_windows = {leaf for window in summed for leaf in window.leaves}
        for share in shares:
            if share.tops[0] not in in_windows and not self.structure.is_expanded(share.tops[0]):
                self.need(share.tops[0])
        for window in summed:
            self.need(window.axis)
        for dim in [dim for dim in self.data.axes if dim.is_reduce]:  # uncovered on the way; nothing reads it any more
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
        """Return the delayed Shares whose windows the convolution can take at once, each output channel with a single tap.

        The other taps are zeros, so the work grows with the window; where few channels are summed, that can be cheaper than
        moving slices of the result.
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
        """Split data and weight first where a Split with a reduction lies below the Share, so that sums come earlier."""
        parts = split_leaves(meeting.result)
        if meeting.data is None or len(parts) == 1 or not any(dim.is_reduce for dim in parts):
            return [meeting]
        self.data.replace([meeting.data], parts)
        weight.replace([meeting.weight], parts)
        return [Meeting(part, part, part) for part in parts]

    def _windows(self, weight: int, shares: Sequence[Operation]) -> tuple[list[Window], dict[Operation, Window]]:
        """Return the windows to sum with this weight by convolution, and the Shares to delay; other windows are stored."""
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
        """Return which of two windows on one axis, both summed with this weight, to store; None if delaying is better.

        A convolution can sum one of them. Putting the other off stores the result once per tap, storing the window
        stores the data once per tap: that is less where the weight widens the data.
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
        """Return whether a convolution with the weight sums all of the window, on an axis that no other window uses."""
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
        """Return the Shares that can wait for their window, with the windows."""
        found = {share_at(window.kernel, weight): window for window in windows if window.leaves == (window.kernel,)}
        return {share: window for share, window in found.items() if share is not None and share in shares}
