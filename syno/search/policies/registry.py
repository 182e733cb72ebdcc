"""The table of policies."""

from __future__ import annotations

from syno.base.registry import Registry
from syno.search.policies.contract import Policy

POLICIES: Registry[type[Policy]] = Registry("search policy")
