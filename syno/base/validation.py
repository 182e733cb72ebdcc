"""What is wrong with a settings file, in words: what was given, and what is allowed there."""

from __future__ import annotations

from pathlib import Path
from typing import Any, get_args

from pydantic import BaseModel, ValidationError

from syno.base.errors import SpecError, suggestion
from syno.base.yaml_files import read_yaml

MOST_CLAUSES, LONGEST_CLAUSE = 10, 1_000  # in a message


def read_mapping(file: Path, what: str, model: type[BaseModel]) -> dict[str, Any]:
    """The mapping in a YAML file. SpecError if there is none; it says which fields `what` has."""
    content = read_yaml(file)
    if not isinstance(content, dict):
        raise SpecError(f"{file}: holds no mapping; {what} has the fields {', '.join(model.model_fields)}")
    if wrong := [key for key in content if not isinstance(key, str)]:
        raise SpecError(f"{file}: {wrong[0]!r} is no name of a field; {what} has the fields {', '.join(model.model_fields)}")
    return content


def explained(error: ValidationError, model: type[BaseModel]) -> str:
    """What is wrong with the fields of a model, one clause for each."""
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
    """The fields of the model at a path of names and places in lists; none if it cannot be followed."""
    for part in path:
        if part.isdigit():
            continue
        inner = submodel(model.model_fields[part].annotation) if part in model.model_fields else None
        if inner is None:
            return []
        model = inner
    return list(model.model_fields)


def submodel(annotation: Any) -> type[BaseModel] | None:
    """The model in a field's annotation, such as the rows of a tuple or what may be None."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    return next((found for part in get_args(annotation) if (found := submodel(part)) is not None), None)
