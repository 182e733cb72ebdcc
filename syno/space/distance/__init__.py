"""The shape distance: a lower bound on the primitives that a partial operator still needs.

A search builds an operator from the output up, one primitive after the other, until the live dims are the axes of the input.
Most partial operators can no longer become one within the depth that is left. The shape distance detects many of them without
search: a state whose distance exceeds the remaining depth is not entered.

What is bounded
    The number of primitives from a state to the nearest complete operator. One Contraction counts as one primitive, however
    many axes its weight is indexed by or ends. FLOPs are bounded as well, from both sides: see "FLOPs" below.

The relaxed problem
    The distance looks at sizes only. `feasibility.Relaxation` turns each live dim of a state into an `Axis`: its size,
    where a Merge may cut it, and how it may end. `Limits` holds the remaining allowances: primitives of each kind,
    occurrences of variables, and pairs of axes that rules keep apart. States with the same axes and limits share one cached
    distance. The `DistanceGoal` is the same for all states of a space: the sizes of the input's axes. See "An example" below.

Cases of an axis
    An assignment gives each axis one of five cases:

    ==========  ================================================================  ===============================
    case        what becomes of the axis                                          cost
    ==========  ================================================================  ===============================
    INPUT       it becomes part of axes of the input, together with the other     a Split for each member but the
                members of its group                                              first, a Merge for each further
                                                                                  axis of the block
    WEIGHT      a weight ends it: only the weight is indexed by it above          none beside the Contraction
    WINDOW      an Unfold takes it in as its window                               one Unfold
    REPEAT      an Expand ends it                                                 one Expand
    PIECES      Merges cut it, and each piece ends as a window, as a repeat, or   the Merges, and one primitive for
                by a weight                                                       each piece but those of weights
    ==========  ================================================================  ===============================

    The input's axes are partitioned into blocks. A *group* is a block with the axes that form it. If the product of these axes
    is larger than the block, the quotient is the group's *surplus*: one more Merge cuts it off, and it then ends like an axis
    of its own. The number of Contractions is chosen last, between the minimum that the cases need and the maximum that the
    limits allow, and is added to the cost. The distance is the least cost over all partitions, assignments and numbers of
    contractions: `search` finds it by branch and bound, `least_primitives` adds up the cost of one assignment.

An example
    The input is [N, C_in, H], the output [N, C_out, H], and N is bound, so the goal is {C_in, H}. After two reductions, of
    C_in and of a window k, the live axes are C_out, H, C_in and k. Nothing joins or cuts them in the cheapest assignment:

        axis    case                        cost
        C_in    INPUT, group {C_in}         -
        H       INPUT, group {H}            -
        k       WINDOW                      1 Unfold
        C_out   WEIGHT                      needs a contraction
                contractions: 1             1 Contraction        distance 2: a convolution

    With a reduction of C_in/g in place of C_in (a grouped convolution) no axis has the size C_in. C_in/g needs a factor g, and
    only C_out may give it. The group {C_in} is made of both, and has the surplus C_in/g * C_out / C_in = C_out/g:

        C_in/g  INPUT, group {C_in}         -
        C_out   INPUT, group {C_in}         1 Split joins the two members
                surplus C_out/g             1 Merge cuts it off C_out; it ends by a weight
        H       INPUT, group {H}            -
        k       WINDOW                      1 Unfold
                contractions: 1             1 Contraction        distance 4

    The same in code; `search` writes an assignment as sizes:

    >>> from syno import OperatorSpec, Space
    >>> from syno.ir.primitives import REDUCE
    >>> spec = OperatorSpec(
    ...     name="example", input="N, C_in, H", output="N, C_out, H", bound_axes=[(0, 0)], depth=6,
    ...     variables="N:0, C_in:3, C_out:3, H:0; k=3:2, g=4:2", layers=[{"N": 1, "C_in": 16, "C_out": 32, "H": 16}],
    ...     contractions={"least_elements": 1},
    ... )
    >>> space = Space(spec)
    >>> def after(*sums):
    ...     state = space.root
    ...     for size in sums:
    ...         state = space.candidates.step(state, REDUCE, (), spec.table.size(size)).taken()
    ...     return state
    >>> space.distance_of(after("C_in", "k")), space.distance_of(after("g^-1*C_in", "k"))
    (2, 4)
    >>> cheapest = space.feasibility.cheapest(after("g^-1*C_in", "k"))
    >>> print(cheapest.groups[0].axes, cheapest.groups[0].rest, cheapest.windows, cheapest.contractions)
    (Size(g^-1*C_in), Size(C_out)) g^-1*C_out (Size(k),) 1

Why it is never above the truth
    Every way to complete a state gives an assignment: follow each axis upwards until it ends or becomes part of the
    input. Each primitive on the way is counted at most once. So the least cost over all assignments cannot be larger than
    the number of primitives on the shortest way. The distance is admissible: it may count an assignment that no operator
    has, and never omits one that some operator has.

Why it is close to the truth
    Assignments that no operator has are excluded if a cheap condition shows it (`conditions`): a Merge can cut only few axes,
    and only into certain pieces; windows need an axis to slide over; rules forbid joining some axes; weights need enough
    elements, an axis in common with the data, and occurrences of variables. Each condition is necessary for the axes *as they
    are*. One Merge and one Split may exchange parts of axes and so avoid a condition: where this is possible, the assignment
    costs two more primitives instead of being excluded. A condition that follows from a canonicalization rule is used only
    while that rule is on: the distance reads `syno.space.rules.guarantees.Guarantees` and knows no rule ids.

FLOPs
    `conditions.within_flops` excludes numbers of contractions with which the operator has too few or too many FLOPs.
    `feasibility.FlopsBound` is a second lower bound: the cheapest order of the sums that a state already has. `feasibility`
    combines both with the distance. Reductions come first in an operator, so their sets are examined before any state is
    built.

Speed
    Nine of ten searches prove that no operator is left, so fast rejection pays. `feasibility.Joins` refuses most Splits before
    their state is built. Equal problems are searched once: axes are numbered, so that the cache key of a problem is a few
    integers. The search adds codes of sizes instead of multiplying sizes, and looks up facts about surpluses in tables
    (`Surpluses`). Of a complete assignment, it first checks the ways to end surpluses, which rejects the most. In the space of
    guided walks it prunes partial assignments that the narrow reading bound excludes (`reading`).

Tests compare the distance with the true number of primitives on small specs, whose whole space is enumerated: it is never
larger, and equal in more than 95 % of the states.

Paper: section 5.4 (shape distance). The published system charges a step for each axis that a contraction ends, and does
not know which axes a Merge may cut: near its depth limit it loses operators. `syno.paper.distances` has its distance and
the paper's formula, which a spec can choose for comparison.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol, TypeAlias

from syno.base.registry import Registry

if TYPE_CHECKING:
    from syno.algebra import Size
    from syno.space.candidates import Candidates
    from syno.space.state import State


class OtherDistance(Protocol):
    """The protocol of other distances than this package's, which the option `distance` of a spec names."""

    def __call__(self, state: State, most: int) -> int:
        """Return the distance of a state; UNREACHABLE if it is above `most`, the number of primitives left."""

    def of_sums(self, root: State, sums: tuple[Size, ...], depth: int) -> int:
        """Return the distance of the state after these reductions on `root`, with `depth` primitives left."""


OtherDistances: TypeAlias = Callable[["Candidates", "tuple[Size, ...]"], OtherDistance]
DISTANCES: Registry[OtherDistances] = Registry("shape distance")  # beside "exact" and "none"; extensions add to it
