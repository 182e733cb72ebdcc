"""The constants of the Monte Carlo tree search."""

from __future__ import annotations

import math
from collections.abc import Mapping
from types import MappingProxyType
from typing import Annotated

from pydantic import Field

from syno.search.policies.contract import PolicySettings

Fraction = Annotated[float, Field(ge=0, le=1)]
NotNegative = Annotated[float, Field(ge=0)]


class MctsSettings(PolicySettings):
    """Constants of the Monte Carlo tree search; the defaults are those of the published system.

    Attributes:
        exploration: weight c of the exploration term of UCB1-tuned. It assumes rewards in [0, 1].
        virtual_loss: what each outstanding trial takes off the score of the steps that lead to it.
        widening: exponent b; a node visited T times considers floor(T ** b) of its children, at least one.
        local_rave: c_l; a local RAVE statistic of N visits has weight N / (c_l + N) beside the global one.
        reveal_noise: share of chance in the order in which children come to be considered.
        suppress_visits, suppress_deviation: a child visited more often than this, whose rewards vary no more than this,
            is left alone while it has a sibling that is not so.
        failure_reward: what a failed evaluation counts as. The published system counts it as nothing, and so returns for
            ever to families whose operators all fail; None does the same here.
        share_values: judge a child by all visits to its node, whichever way they came, not only by those through the
            parent at hand. The published system doesn't.

    Source: the published system's search, class constants.
    """

    exploration: NotNegative = 4 * math.sqrt(2)
    virtual_loss: NotNegative = 0.3
    widening: Fraction = 0.8
    local_rave: NotNegative = 3.0
    reveal_noise: Fraction = 0.3
    suppress_visits: Annotated[int, Field(ge=0)] = 30
    suppress_deviation: NotNegative = 0.001
    failure_reward: Fraction | None = 0.0
    share_values: bool = True


PRESETS: Mapping[str, MctsSettings] = MappingProxyType(
    {
        "published": MctsSettings(),
        # The published exploration term is several times the range of the rewards; with this one the search settles sooner.
        "focused": MctsSettings(exploration=0.5),
    }
)
