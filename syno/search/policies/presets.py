"""Policies with constants of their own names. A preset has a value for every constant, so that no default changes it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from syno.base.errors import SpecError
from syno.search.policies import mcts

PRESETS: Mapping[str, Mapping[str, Any]] = {"published": {"name": "mcts", **mcts.PRESETS["published"].model_dump()}}


def named_policy(settings: Any) -> Any:
    """Return a policy as an experiment gives it, a name or a mapping, as a mapping in which no name is that of a preset.

    Raises SpecError for a preset with settings.
    """
    found = {"name": settings} if isinstance(settings, str) else settings
    preset = PRESETS.get(str(found.get("name"))) if isinstance(found, Mapping) else None
    if preset is None:
        return found
    if len(found) > 1:
        policy = preset["name"]
        raise SpecError(
            f'policy "{found["name"]}" is a preset and takes no settings; with settings, give {{name: {policy}, ...}}'
        )
    return dict(preset)
