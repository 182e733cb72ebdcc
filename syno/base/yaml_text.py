"""Safe parsing of YAML text.

Before any object is built, the nesting depth and the size with all aliases expanded are checked. Duplicate keys are errors.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

from syno.base.errors import MissingPackageError, SpecError

try:
    import yaml
except ImportError:
    raise MissingPackageError("YAML files are read by PyYAML, which is not installed: pip install pyyaml") from None

MOST_NODES = 10_000  # mappings, lists and values, aliases written out
DEEPEST = 30  # mappings and lists inside each other
LONGEST_NUMBER = 40  # characters of a whole number


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
        raise SpecError(f"{source}: cannot be read as YAML: {in_one_line(error)}") from None


def _check_size(text: str) -> None:
    """Raise YAMLError if the content would be too large or nested too deeply. Reads only parser events; builds no objects."""
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
    """A SafeLoader that refuses duplicate keys and very long numbers."""

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


def to_yaml(content: object) -> str:
    """Return YAML text from which `parse_yaml` reads an equal value."""
    return str(yaml.safe_dump(content, sort_keys=False, width=120))


def in_one_line(error: Exception) -> str:
    """Return the message of an error in one line of at most 500 characters."""
    said = " ".join(str(error).replace('"<unicode string>", ', "").split()) or type(error).__name__
    return said if len(said) <= 500 else f"{said[:500]}..."
