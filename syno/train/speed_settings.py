"""The settings of measuring how fast networks train, which are read without loading torch."""

from __future__ import annotations

from typing import Annotated

from pydantic import ConfigDict, Field

from syno.base.validation import Settings
from syno.measure.timing import FEWEST_FOR_INTERVAL


class SpeedSettings(Settings):
    """The measuring of the speed of training. The original and the network with an operator train in turns, in one process."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)
    steps: Annotated[int, Field(ge=1)] = 20
    """steps of each network in a turn"""
    turns: Annotated[int, Field(ge=FEWEST_FOR_INTERVAL)] = 11
    """turns; each gives one ratio of the two speeds, so that a drift of the machine's speed cancels"""
    batch: Annotated[int, Field(ge=1)] | None = None
    """pictures or sequences of a batch; null: as in the training"""
