"""Presets: policies with fixed constants and their own names. A preset sets every constant, independent of defaults."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from syno.base.errors import SpecError
from syno.search.policies import mcts

PRESETS: Mapping[str, Mapping[str, Any]] = {"published": {"name": "mcts", **mcts.PRESETS["published"].model_dump()}}


def named_policy(settings: Any) -> Any:
    """Return a policy setting (a name or a mapping) as a mapping, with presets replaced by their settings.

    Raises SpecError for a preset with settings.
    """
    policy_settings = {"name": settings} if isinstance(settings, str) else settings
    preset = PRESETS.get(str(policy_settings.get("name"))) if isinstance(policy_settings, Mapping) else None
    if preset is None:
        return policy_settings
    if len(policy_settings) > 1:
        policy = preset["name"]
        raise SpecError(
            f'policy "{policy_settings["name"]}" is a preset and takes no settings; with settings, give {{name: {policy}, ...}}'
        )
    return dict(preset)
