"""The options of specs, searches, rewards and policies as Markdown tables, read off their models.

What an option means is what its model's source says: the comment beside the field, or the entry under `Attributes:`.
"""

from __future__ import annotations

import inspect
import json
import math
import re
from collections.abc import Iterator
from pathlib import Path
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from syno.base.text_tables import markdown
from syno.base.validation import submodel

PLAIN = {str: "text", int: "whole number", float: "number", bool: "true or false", Path: "path", NoneType: "null", Any: "value"}


def options_table(model: type[BaseModel], *, leave_out: tuple[str, ...] = ()) -> str:
    """A row for each option: its name (`group: option`), what it may be, its default, its meaning."""
    return markdown(list(_rows(model, "", leave_out)), left=4)


def _rows(model: type[BaseModel], prefix: str, leave_out: tuple[str, ...]) -> Iterator[dict[str, object]]:
    explained = meanings(model)
    for name, field in model.model_fields.items():
        if name in leave_out:
            continue
        inner = submodel(field.annotation)
        if inner is not None and isinstance(field.default, inner):
            purpose = " ".join((inspect.getdoc(inner) or "").split())
            yield {"option": f"`{prefix}{name}`", "is": "group", "default": "", "meaning": purpose}
            yield from _rows(inner, f"{prefix}{name}: ", ())
            continue
        yield {
            "option": f"`{prefix}{name}`",
            "is": " ".join([_kind(field.annotation), *_bounds(field)]),
            "default": "required" if field.is_required() else f"`{_yaml(field.default)}`",
            "meaning": (explained.get(name) or field.description or "").replace("|", "\\|"),
        }


def _kind(annotation: Any) -> str:
    """A type in words."""
    origin, inner = get_origin(annotation), get_args(annotation)
    if annotation in PLAIN:
        return PLAIN[annotation]
    if origin is Annotated:
        return _kind(inner[0])
    if origin in (Union, UnionType):
        return " or ".join(map(_kind, inner))
    if origin is Literal:
        return " or ".join(map(str, inner))
    if origin is tuple and inner[-1] is not ...:
        return "pair" if len(inner) == 2 else f"{len(inner)} values"
    if origin in (tuple, list):
        return f"list of {_kind(inner[0])}"
    return "mapping"


def _bounds(field: FieldInfo) -> list[str]:
    signs = (("ge", ">="), ("gt", ">"), ("le", "<="), ("lt", "<"))
    pairs = ((sign, getattr(bound, attribute, None)) for bound in field.metadata for attribute, sign in signs)
    return [f"{sign} {bound:g}" for sign, bound in pairs if bound is not None]


def _yaml(default: Any) -> str:
    """A default as a spec file has it."""
    if isinstance(default, float):
        return f"{default:g}" if math.isfinite(default) else f".{default:g}"
    if isinstance(default, Path):
        default = str(default)
    return json.dumps(default)


def meanings(model: type[BaseModel]) -> dict[str, str]:
    """What the comments and docstrings of a model and its bases say about its fields."""
    found: dict[str, str] = {}
    for part in reversed([base for base in model.__mro__ if issubclass(base, BaseModel) and base is not BaseModel]):
        found |= _listed(inspect.getdoc(part) or "")
        found |= dict(re.findall(r"^    (\w+): [^#\n]*#(?! noqa| type) *(.+)$", inspect.getsource(part), re.MULTILINE))
    return found


def _listed(docstring: str) -> dict[str, str]:
    """The entries under `Attributes:`; one may be of several names."""
    _, _, entries = docstring.partition("Attributes:\n")
    found = {}
    for names, text in re.findall(r"^    (\w[\w, ]*): ((?:.|\n        )*)", entries, re.MULTILINE):
        for name in names.split(","):
            found[name.strip()] = " ".join(text.split())
    return found
