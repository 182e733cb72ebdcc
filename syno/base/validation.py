"""Settings files: reading them, and messages about invalid fields.

Every YAML file is read here, also files of other projects; `syno.base.text_tables` has the checks of its text. PyYAML is
imported only when a file is read: settings that are made in Python do not need it, for instance on a machine with PyTorch
alone.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from functools import cache
from pathlib import Path
from typing import Any, cast, get_args

from pydantic import BaseModel, ValidationError, ValidationInfo, field_validator

from syno.base.errors import SpecError, suggestion

MOST_BYTES = 100_000  # config/paper.yaml, with six experiments, has 5,000
MOST_CLAUSES, LONGEST_CLAUSE = 10, 1_000  # limits of a message
ABSENT = object()
LONGEST_VALUE = 60  # characters of a setting's value in a message


class Settings(BaseModel):
    """Base of all settings classes. Booleans are refused as numbers, though Python counts them as 1 and 0.

    YAML reads yes, no, on and off as booleans, too.
    """

    @field_validator("*", mode="before")
    @classmethod
    def _is_no_boolean(cls, value: Any, info: ValidationInfo) -> Any:
        if _has_boolean(value) and not _takes_booleans(cast("Hashable", cls.model_fields[str(info.field_name)].annotation)):
            raise ValueError(f"true and false (in YAML also yes, no, on, off) are no numbers; given: {value!r}")
        return value


def set_fields(settings: BaseModel, values: Mapping[str, Any]) -> None:
    """Set fields of frozen settings that are derived from other fields. Only for the last validator of the settings.

    The fields do not count as set by the user (`model_fields_set`).
    """
    # A frozen model refuses `setattr`, and pydantic ignores the copy that a validator returns when a class is called.
    settings.__dict__.update(values)


def _has_boolean(value: object) -> bool:
    if isinstance(value, Mapping):
        return any(map(_has_boolean, (*value.keys(), *value.values())))
    return any(map(_has_boolean, value)) if isinstance(value, list | tuple) else isinstance(value, bool)


@cache
def _takes_booleans(annotation: Hashable) -> bool:
    """Return whether values of a field with this annotation may contain booleans."""
    if annotation in (bool, Any, object) or (isinstance(annotation, type) and issubclass(annotation, BaseModel)):
        return True
    parts = get_args(annotation)
    return any(map(_takes_booleans, parts)) if parts else annotation in (dict, list, tuple, Mapping)


def read_mapping(file: Path, kind: str, model: type[BaseModel]) -> dict[str, Any]:
    """Return the mapping in a YAML file.

    Args:
        file: the file.
        kind: noun for the file's content in messages, such as "experiment".
        model: the settings class, whose fields messages list.

    Raises SpecError if the file holds no mapping, or if a key is not a string.
    """
    content, fields = read_yaml(file), f"{kind} has the fields {', '.join(model.model_fields)}"
    if not isinstance(content, dict):
        raise SpecError(f"{file}: holds no mapping; {fields}")
    if wrong := [key for key in content if not isinstance(key, str)]:
        raise SpecError(f"{file}: {wrong[0]!r} is not the name of a field; {fields}")
    return content


def explained(error: ValidationError, model: type[BaseModel]) -> str:
    """Return the message of a validation error, with one clause for each invalid field."""
    clauses = []
    for problem in error.errors():
        where = [str(part) for part in problem["loc"]]
        place = f"{'.'.join(where)}: " if where else ""
        match problem["type"]:
            case "extra_forbidden":
                allowed = _fields(model, where[:-1])
                names = f"; there are: {', '.join(allowed)}.{suggestion(where[-1], allowed)}" if allowed else ""
                clauses.append(f"{place}there is no such option{names}")
            case "missing":
                clauses.append(f"{place}is missing")
            case "value_error":
                clauses.append(f"{place}{problem['msg'].removeprefix('Value error, ')}")
            case _:
                clauses.append(f"{place}{problem['msg']}; given: {problem['input']!r}")
    return "; ".join(map(_shortened, clauses[:MOST_CLAUSES])) + ("; and more" if len(clauses) > MOST_CLAUSES else "")


def _shortened(clause: str) -> str:
    return clause if len(clause) <= LONGEST_CLAUSE else f"{clause[:LONGEST_CLAUSE]}..."


def _fields(model: type[BaseModel], path: list[str]) -> list[str]:
    """Return the names of the fields at a path of names and list positions; an empty list if the path leads nowhere."""
    for part in path:
        if part.isdigit():
            continue
        inner = submodel(model.model_fields[part].annotation) if part in model.model_fields else None
        if inner is None:
            return []
        model = inner
    return list(model.model_fields)


def submodel(annotation: Any) -> type[BaseModel] | None:
    """Return the model class in a field's annotation, such as `tuple[Model, ...]` or `Model | None`; None if there is none."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    return next((model for part in get_args(annotation) if (model := submodel(part)) is not None), None)


def read_yaml(file: Path) -> Any:
    """Return the content of a YAML file. Raises SpecError if it cannot be read, or exceeds a limit of this module."""
    from syno.base.yaml_text import in_one_line, parse_yaml

    try:
        with file.open("rb") as opened:
            content = opened.read(MOST_BYTES + 1)
        if len(content) > MOST_BYTES:
            raise SpecError(f"{file}: cannot be read as YAML: it has more than {MOST_BYTES} bytes, which is the most allowed")
        return parse_yaml(content.decode("utf-8-sig"), str(file))
    except (OSError, ValueError) as error:  # ValueError: no UTF-8, or a path with a NUL in it
        if isinstance(error, SpecError):
            raise
        raise SpecError(f"{file}: cannot be read as YAML: {in_one_line(error)}") from None


def named_differences(stored: object, current: object, name: str = "") -> list[str]:
    """Return the differences of two settings: for each, the field's name with both values.

    `name` is the prefix of the names.
    """
    if stored == current:
        return []
    if not isinstance(stored, dict) or not isinstance(current, dict):
        return [f"{name} is {_in_words(stored)} there, {_in_words(current)} here"]
    keys = list(dict.fromkeys([*stored, *current]))
    if stored.get("name") != current.get("name"):
        keys = ["name"]
    parts = (
        named_differences(stored.get(key, ABSENT), current.get(key, ABSENT), f"{name}.{key}" if name else key) for key in keys
    )
    return [difference for some in parts for difference in some]


def _in_words(value: object) -> str:
    text = "absent" if value is ABSENT else repr(value)
    return text if len(text) <= LONGEST_VALUE else f"{text[:LONGEST_VALUE]}..."
