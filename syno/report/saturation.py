"""A warning if many trials have the lowest or the highest reward, so that the search cannot tell them apart."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pandas

MANY = 0.25  # share of the complete trials
FEWEST = 8  # complete trials from which on a share says something


def saturation(trials: pandas.DataFrame) -> str | None:
    """Return in words that a quarter or more of the complete trials have the reward 0 or 1, and what to change; else None."""
    rewards = trials.loc[trials["outcome"] == "complete", "reward"].dropna()
    if len(rewards) < FEWEST:
        return None
    parts = []
    for end, meant in (
        (0, "operators that are nearly as bad as the worst differ no more; lower the score that has the reward 0 (`low`)"),
        (1, "better operators are not told from good ones; raise the score that has the reward 1 (`high`)"),
    ):
        count = int((rewards <= 0).sum() if end == 0 else (rewards >= 1).sum())
        if count >= MANY * len(rewards):
            parts.append(f"{count} of {len(rewards)} complete trials have the reward {end}: {meant}")
    if not parts:
        return None
    return f"{'; '.join(parts)}. `reward: {{name: relative}}` follows the original network's score, whatever the data"
