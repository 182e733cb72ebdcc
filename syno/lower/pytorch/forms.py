"""The forms of generated code: some decisions leave the result as it is, and change only how long it takes.

- "spread": windows that a later weight shares become part of a convolution whose kernel has zeros, instead of moved slices.
- "repeat": a convolution repeats its taps for the part of a window that has no weight, instead of storing the windows.
- "convolve": a product along channels is a convolution with a kernel of size 1, instead of einsum.
- "channels last": data is brought into channels-last format before the first of several two-dimensional convolutions.
"""

from __future__ import annotations

from typing import Protocol

from syno.algebra import Valuations
from syno.lower.pytorch.costs import estimated_microseconds
from syno.lower.pytorch.tensor_code import TensorCode

MOST_FORMS = 16
MARGIN = 0.8  # of the usual form's estimated time: another form must take less than this share, since estimates are rough


class Decisions:
    """Decisions between equivalent forms: the usual ones, except for those that are reversed."""

    def __init__(self, reversed_ones: frozenset[str] = frozenset()) -> None:
        self.reversed = reversed_ones
        self.met: dict[str, None] = {}  # in the order in which they were met

    def take(self, name: str) -> bool:
        """Return the decision: True, unless it is reversed."""
        self.met[name] = None
        return name not in self.reversed


class Writer(Protocol):
    """Writes an operator's statements, by some decisions."""

    def __call__(self, decisions: Decisions) -> TensorCode:
        """Return the statements."""


def cheapest(write: Writer, valuations: Valuations) -> TensorCode:
    """Return the statements of the form with the least estimated time; the usual form unless another one is clearly faster."""
    forms: dict[frozenset[str], tuple[float, TensorCode]] = {}
    waiting = [frozenset[str]()]
    for reversed_ones in waiting:  # grows: a decision may be met only after another one is reversed
        if reversed_ones not in forms and len(forms) < MOST_FORMS:
            decisions = Decisions(reversed_ones)
            code = write(decisions)
            share = 1 if reversed_ones else MARGIN
            forms[reversed_ones] = share * estimated_microseconds(code.work, valuations), code
            waiting += [reversed_ones | {name} for name in decisions.met if name not in reversed_ones]
    return min(forms.values(), key=lambda form: form[0])[1]
