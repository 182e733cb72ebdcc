"""The spec of a search: a preset, a file, or options that differ from one."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from syno.algebra.limits import shortened
from syno.base.errors import SpecError, suggestion
from syno.base.files import is_file
from syno.space.presets import PRESETS, paper
from syno.space.spec import OperatorSpec


def find_spec(given: str) -> OperatorSpec:
    """The spec that a preset's name or the path of a YAML file means. SpecError if it is neither, or wrong."""
    if given in PRESETS:
        return paper(given)
    file = Path(given)
    if not is_file(file):
        raise SpecError(
            f'"{shortened(given)}" is neither a spec file nor a preset; presets are: {", ".join(PRESETS)}.'
            f"{suggestion(given, PRESETS)}"
        )
    return OperatorSpec.load(file)


def make_spec(given: str | Mapping[str, Any]) -> OperatorSpec:
    """The spec that a name, a file, or a mapping of options means; of `preset` and those that differ, or of all of them."""
    if isinstance(given, str):
        return find_spec(given)
    if "preset" not in given:
        return OperatorSpec(**given)
    changes = {key: value for key, value in given.items() if key != "preset"}
    return OperatorSpec(**_merged(find_spec(str(given["preset"])).model_dump(), changes))


def check_names(options: Mapping[str, Any]) -> None:
    """SpecError if a name in `options` is no option of a spec, or follows from the network."""
    allowed = [name for name in OperatorSpec.model_fields if name != "layers"]
    for name in options:
        if name not in allowed:
            raise SpecError(
                f"spec.{name}: there is no such option for the layers of a workload; there are: {', '.join(allowed)}."
                f"{suggestion(name, allowed)}"
            )


def _merged(base: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """`base` with `changes`; groups of options are merged, everything else is replaced."""
    merged = dict(base)
    for key, value in changes.items():
        inner = merged.get(key)
        merged[key] = {**inner, **value} if isinstance(inner, Mapping) and isinstance(value, Mapping) else value
    return merged
