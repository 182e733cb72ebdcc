"""Settings files: reading YAML safely, and explaining in words which fields are wrong.

Every YAML file is read here, also files of other projects. Before anything is built from a file, it is checked that it is not
too large, not nested too deeply, and stays small when its aliases are expanded. A key that is given twice is an error.
"""

from __future__ import annotations

from collections.abc import Hashable
from pathlib import Path
from typing import Any, get_args

import yaml
from pydantic import BaseModel, ValidationError

from syno.base.errors import SpecError, suggestion

MOST_BYTES = 100_000  # config/paper.yaml, with six experiments, has 5,000
MOST_NODES = 10_000  # mappings, lists and values, aliases written out
DEEPEST = 30  # mappings and lists inside each other
LONGEST_NUMBER = 40  # characters of a whole number
MOST_CLAUSES, LONGEST_CLAUSE = 10, 1_000  # in a message


def read_mapping(file: Path, what: str, model: type[BaseModel]) -> dict[str, Any]:
    """Return the mapping in a YAML file.

    Args:
        file: the file.
        what: what the file describes, for messages.
        model: the fields that it can have, for messages.

    Raises SpecError if the file holds no mapping, or one with keys that are not text.
    """
    content = read_yaml(file)
    if not isinstance(content, dict):
        raise SpecError(f"{file}: holds no mapping; {what} has the fields {', '.join(model.model_fields)}")
    if wrong := [key for key in content if not isinstance(key, str)]:
        raise SpecError(
            f"{file}: {wrong[0]!r} is not the name of a field; {what} has the fields {', '.join(model.model_fields)}"
        )
    return content


def explained(error: ValidationError, model: type[BaseModel]) -> str:
    """Return what is wrong with the fields of a model, one clause for each."""
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
    """Return the model inside a field's annotation, such as `tuple[Model, ...]` or `Model | None`; None without one."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    return next((found for part in get_args(annotation) if (found := submodel(part)) is not None), None)


def read_yaml(file: Path) -> Any:
    """Return the content of a YAML file. Raises SpecError if it cannot be read, or exceeds a limit of this module."""
    try:
        with file.open("rb") as opened:
            content = opened.read(MOST_BYTES + 1)
        if len(content) > MOST_BYTES:
            raise SpecError(f"{file}: cannot be read as YAML: it has more than {MOST_BYTES} bytes, which is the most allowed")
        return parse_yaml(content.decode("utf-8-sig"), str(file))
    except (OSError, ValueError) as error:  # ValueError: no UTF-8, or a path with a NUL in it
        if isinstance(error, SpecError):
            raise
        raise SpecError(f"{file}: cannot be read as YAML: {_in_one_line(error)}") from None


def parse_yaml(text: str, source: str) -> Any:
    """Return the content of a YAML text. Raises SpecError, which names `source`, as `read_yaml` does."""
    try:
        _check_size(text)
        loader = _PlainLoader(text)
        try:
            return loader.get_single_data()
        finally:
            loader.dispose()
    except (yaml.YAMLError, ValueError, LookupError, AttributeError, TypeError, ArithmeticError) as error:
        # All but the first are raised for values that do not fit their tag, such as "!!int x" or the date 2026-99-99.
        raise SpecError(f"{source}: cannot be read as YAML: {_in_one_line(error)}") from None


def _check_size(text: str) -> None:
    """Raise YAMLError if building the content would take very long or overflow the stack. Reads events, builds nothing."""
    sizes: dict[str, int] = {}  # number of values under each anchor, with aliases expanded
    open_: list[tuple[str | None, int]] = []  # open mappings and lists: their anchor, and the count before them
    count = 0
    for event in yaml.parse(text, Loader=yaml.SafeLoader):
        if isinstance(event, yaml.AliasEvent):
            if event.anchor in (anchor for anchor, _ in open_):
                raise yaml.YAMLError(f'"*{event.anchor}" stands inside its own value{_place(event)}')
            count += sizes.get(str(event.anchor), 1)  # an unknown anchor is an error when the content is built
        elif isinstance(event, yaml.ScalarEvent):
            count += 1
            if event.anchor:
                sizes[event.anchor] = 1
        elif isinstance(event, yaml.CollectionStartEvent):
            count += 1
            open_.append((event.anchor, count - 1))
            if len(open_) > DEEPEST:
                raise yaml.YAMLError(f"more than {DEEPEST} mappings and lists inside each other{_place(event)}")
        elif isinstance(event, yaml.CollectionEndEvent):
            anchor, before = open_.pop()
            if anchor:
                sizes[anchor] = count - before
        if count > MOST_NODES:
            raise yaml.YAMLError(f"more than {MOST_NODES} values, with aliases written out{_place(event)}")


def _place(event: yaml.Event) -> str:
    return f" in line {event.start_mark.line + 1}" if event.start_mark else ""


class _PlainLoader(yaml.SafeLoader):
    """A SafeLoader that refuses a key that is given twice and a number that is very long."""

    def flatten_mapping(self, node: yaml.MappingNode) -> None:
        """Check the keys as written, before "<<" merges other mappings into them."""
        seen: set[Hashable] = set()
        for key, _ in node.value:
            if isinstance(key, yaml.ScalarNode):
                name = (key.tag, key.value)
                if name in seen:
                    raise yaml.constructor.ConstructorError(
                        "while reading a mapping", node.start_mark, f'"{key.value}" is given twice', key.start_mark
                    )
                seen.add(name)
        super().flatten_mapping(node)


def _whole_number(loader: _PlainLoader, node: yaml.ScalarNode) -> int:
    if len(node.value) > LONGEST_NUMBER:
        message = f"a number of {len(node.value)} characters; at most {LONGEST_NUMBER} are allowed"
        raise yaml.constructor.ConstructorError(None, None, message, node.start_mark)
    return int(loader.construct_yaml_int(node))


_PlainLoader.add_constructor("tag:yaml.org,2002:int", _whole_number)


def _in_one_line(error: Exception) -> str:
    said = " ".join(str(error).replace('"<unicode string>", ', "").split()) or type(error).__name__
    return said if len(said) <= 500 else f"{said[:500]}..."
