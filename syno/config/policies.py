"""The policy of an experiment: a name, or a mapping with its settings."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import BeforeValidator, ValidationError

from syno.base.errors import SpecError, SynoError
from syno.base.validation import explained
from syno.search.policies import POLICIES, PolicySettings
from syno.search.policies.presets import named_policy


def _with_name(given: Any) -> Any:
    try:
        return named_policy(given)
    except SynoError as error:
        raise ValueError(str(error)) from None


PolicyChoice = Annotated[Mapping[str, Any], BeforeValidator(_with_name)]


def policy_of(given: Mapping[str, Any]) -> str:
    """Return the name of a policy, or the path of a user's own, in an experiment's settings."""
    return str(given.get("name", "mcts"))


def policy_settings(given: Mapping[str, Any]) -> PolicySettings:
    """Return the settings of a policy with this name and these settings. Imports a user's own.

    Raises SpecError for unknown names and settings.
    """
    rest = dict(given)
    rest.pop("name", None)
    kind = POLICIES.find(policy_of(given)).Settings
    try:
        return kind(**rest)
    except ValidationError as error:
        raise SpecError(f"policy: {explained(error, kind)}") from None
