"""Figure 10: GPT-2's loss, as it is and with the operator."""

from __future__ import annotations

from typing import NamedTuple

import pandas

from syno.artifact.paper import LANGUAGE_MODEL
from syno.base.names import ORIGINAL

MINUTES = 30.0  # of a training in the search


class Scores(NamedTuple):
    """Losses after the search's 30 minutes, in nats per token; None if unknown.

    Attributes:
        logged: of the network as it is, from the log of its training.
        told: the same, as the paper tells it.
        operator: of the network with the operator.
    """

    logged: float | None
    told: float | None
    operator: float | None


def scores(rows: pandas.DataFrame) -> Scores:
    """The losses in a table of measurements."""
    found = rows[(rows["metric"] == "loss") & (rows["model"] == LANGUAGE_MODEL)]
    is_original, is_told = found["operator"] == ORIGINAL, found["origin"] == "paper"
    return Scores(_first(found[is_original & ~is_told]), _first(found[is_original & is_told]), _first(found[~is_original]))


def _first(found: pandas.DataFrame) -> float | None:
    return None if found.empty else float(found["value"].iloc[0])
