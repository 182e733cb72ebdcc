"""Reading YAML: settings that people write, and files of others that only look like it.

Every YAML file is read here. A file that is too large, too deep, or that grows beyond all bounds where its aliases are
written out is refused before anything is built from it, and a key that is given twice is an error.
"""

from __future__ import annotations

from collections.abc import Hashable
from pathlib import Path
from typing import Any

import yaml

from syno.base.errors import SpecError

MOST_BYTES = 100_000  # config/paper.yaml, with six experiments, has 5,000
MOST_NODES = 10_000  # mappings, lists and values, aliases written out
DEEPEST = 30  # mappings and lists inside each other
LONGEST_NUMBER = 40  # characters of a whole number


def read_yaml(file: Path) -> Any:
    """Return the content of a YAML file. SpecError if it cannot be read, or is beyond a limit of this module."""
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
    """Return the content of a YAML text; errors name `source`. See `read_yaml`."""
    try:
        _check_size(text)
        loader = _PlainLoader(text)
        try:
            return loader.get_single_data()
        finally:
            loader.dispose()
    except (yaml.YAMLError, ValueError, LookupError, AttributeError, TypeError, ArithmeticError) as error:
        # All but the first come from values with a tag that they do not fit, such as "!!int x" or a date 2026-99-99.
        raise SpecError(f"{source}: cannot be read as YAML: {_in_one_line(error)}") from None


def _check_size(text: str) -> None:
    """Raise YAMLError for what would take very long to build, or more stack than there is. Nothing is built for it."""
    sizes: dict[str, int] = {}  # of everything with an anchor, aliases in it written out
    open_: list[tuple[str | None, int]] = []  # mappings and lists: their anchor, and the count before them
    count = 0
    for event in yaml.parse(text, Loader=yaml.SafeLoader):
        if isinstance(event, yaml.AliasEvent):
            if event.anchor in (anchor for anchor, _ in open_):
                raise yaml.YAMLError(f'"*{event.anchor}" stands inside of what it means{_place(event)}')
            count += sizes.get(str(event.anchor), 1)  # an unknown one is an error when it is built
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
    """Loads plain data, as SafeLoader does. A key that is given twice is an error, and so is a number that is very long."""

    def flatten_mapping(self, node: yaml.MappingNode) -> None:
        """Check the keys as they are written, before those that "<<" merges are put among them."""
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
