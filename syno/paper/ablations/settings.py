"""The settings of ablations: the option `ablations` of an experiment."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import Field, GetJsonSchemaHandler, model_validator
from pydantic_core import CoreSchema

from syno.config.groups import Section
from syno.space.options import DistanceKind


class CanonicalAblation(Section):
    """The share of random graphs that the canonicalization rules accept."""

    samples: Annotated[int, Field(ge=1)] = 1000
    """random graphs of each size"""
    complete: Annotated[int, Field(ge=0)] = 3
    """all complete operators of up to so many primitives are counted, too, with the rules and without"""
    rules: tuple[str, ...] = ()
    """rules that are added to the spec's: ids, or your own as `package.module:name`, which are also left out for comparison"""
    seed: int = 0
    """seed of the random graphs"""


class DistanceAblation(Section):
    """Random walks with each shape distance and with none, and the operators that each loses."""

    distances: tuple[DistanceKind, ...] = ("exact", "paper", "published", "none")
    """the distances to compare"""
    seconds: Annotated[float, Field(gt=0)] = 60
    """CPU-seconds of walks with each distance"""
    trials: Annotated[int, Field(ge=1)] | None = None
    """most walks with each distance"""
    complete: Annotated[int, Field(ge=0)] = 5
    """losses are looked for among all operators of up to so many primitives, if that is the depth limit"""
    seed: int = 0
    """seed of the walks"""


class PatternsAblation(Section):
    """The shares of patterns of primitives among the operators found, the best of them, and random ones."""

    best: Annotated[float, Field(gt=0, le=1)] = 0.1
    """share of the operators that count as the best, by reward"""
    random: Annotated[int, Field(ge=0)] = 100
    """random operators of the space to compare with"""
    space: str | None = None
    """space of the random operators: a preset or a spec file; by default the experiment's, for published data resnet18"""
    seed: int = 0
    """seed of the random operators and of the intervals"""


class RequirementsAblation(Section):
    """Random walks with the spec's requirement on what operators read (`reads`), and without it."""

    seconds: Annotated[float, Field(gt=0)] = 60
    """CPU-seconds of walks on each side"""
    seed: int = 0
    """seed of the walks"""


class Ablations(Section):
    """Ablations that the workflow makes. A list of names takes the defaults: `[canonical, distance, patterns]`."""

    canonical: CanonicalAblation | None = None
    """share of random graphs that are canonical; null: not measured"""
    distance: DistanceAblation | None = None
    """walks with each shape distance; null: not measured"""
    patterns: PatternsAblation | None = None
    """common patterns of the operators found; null: not measured"""
    requirements: RequirementsAblation | None = None
    """walks with the requirement on what is read and without; null: not measured"""

    @model_validator(mode="before")
    @classmethod
    def _from_names(cls, ablations: Any) -> Any:
        if isinstance(ablations, list | tuple):
            return {str(name): {} for name in ablations}
        return ablations

    @classmethod
    def __get_pydantic_json_schema__(cls, core: CoreSchema, handler: GetJsonSchemaHandler) -> dict[str, Any]:
        schema = handler(core)
        own = handler.resolve_ref_schema(schema)
        names = {"type": "array", "items": {"enum": list(cls.model_fields)}}
        either = {"anyOf": [dict(own), names]}
        own.clear()
        own.update(either)
        return schema

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the ablations that the experiment makes."""
        return tuple(name for name in type(self).model_fields if getattr(self, name) is not None)

    def settings(self, name: str) -> Mapping[str, Any]:
        """Return the settings of the ablation `name`; its defaults if the experiment does not name it."""
        given = getattr(self, name) or DEFAULTS[name]()
        return dict(given)


DEFAULTS = {
    "canonical": CanonicalAblation,
    "distance": DistanceAblation,
    "patterns": PatternsAblation,
    "requirements": RequirementsAblation,
}
