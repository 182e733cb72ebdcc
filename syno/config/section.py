"""What all groups of settings have in common."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict


class Section(BaseModel):
    """A group of settings. Frozen; unknown names are errors, and so are infinite numbers and NaN."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)
