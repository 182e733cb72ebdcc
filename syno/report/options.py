"""The options of specs, searches, rewards and policies as Markdown tables, read off their models.

What an option means is what its model's source says: the comment beside the field, or the entry under `Attributes:`.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from typing import Any

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from syno.report.tables import markdown
from syno.report.validation import submodel


def options_table(model: type[BaseModel], prefix: str = "", *, leave_out: tuple[str, ...] = ()) -> str:
    """A row for each option: its name (`group: option`), what it may be, its default, its meaning."""
    return markdown(list(_rows(model, prefix, leave_out)), left=4)


def _rows(model: type[BaseModel], prefix: str, leave_out: tuple[str, ...]) -> Iterator[dict[str, object]]:
    meanings = _meanings(model)
    for name, field in model.model_fields.items():
        if name in leave_out:
            continue
        inner = submodel(field.annotation)
        if inner is not None and isinstance(field.default, inner):
            yield from _rows(inner, f"{prefix}{name}: ", ())
            continue
        yield {
            "option": f"`{prefix}{name}`",
            "is": _kind(field),
            "default": "required" if field.is_required() else f"`{_plain(field.default)}`",
            "meaning": meanings.get(name, "").replace("|", "\\|"),
        }


def _kind(field: FieldInfo) -> str:
    text = field.annotation.__name__ if isinstance(field.annotation, type) else str(field.annotation)
    text = re.sub(r"(typing|collections\.abc|syno\.[a-z_.]+|pathlib)\.", "", text).replace("NoneType", "None")
    text = re.sub(r"Annotated\[(\w+), [^]]*\)?\]", r"\1", text)
    bounds = [
        f"{sign} {getattr(bound, attribute):g}"
        for bound in field.metadata
        for attribute, sign in (("ge", ">="), ("gt", ">"), ("le", "<="), ("lt", "<"))
        if getattr(bound, attribute, None) is not None
    ]
    return " ".join([text.replace("|", "or"), *bounds])


def _plain(default: Any) -> object:
    return list(default) if isinstance(default, tuple) else default


def _meanings(model: type[BaseModel]) -> dict[str, str]:
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
