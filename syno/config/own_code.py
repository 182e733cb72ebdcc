"""The folder of a user's own modules: the one of the experiment's file, if that has the modules that the file names."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from syno.base.registry import search_code_in

OWN_PATH = re.compile(r"([A-Za-z_]\w*)(?:\.\w+)*:[A-Za-z_]\w*")  # package.module:name


def with_code(content: Mapping[str, Any], file: Path) -> dict[str, Any]:
    """Return the content of a user's file, with the file's folder as `code` if a module that it names lies there.

    In a file of several experiments, these have `code` in common.
    """
    folder, several = file.parent, "experiments" in content
    given = content.get("common", {}) if several else content
    if not isinstance(given, Mapping) or "code" in given or not any(_is_beside(folder, name) for name in _modules(content)):
        return dict(content)
    return {**content, "common": {"code": str(folder), **given}} if several else {**content, "code": str(folder)}


def use_code(content: Mapping[str, Any]) -> None:
    """Import modules from the folders that the content of a file gives, from now on."""
    several, common = content.get("experiments"), content.get("common")
    groups = [content, common, *(several.values() if isinstance(several, Mapping) else ())]
    for given in groups:
        if isinstance(given, Mapping) and given.get("code") is not None:
            search_code_in(Path(str(given["code"])))


def _modules(value: object) -> Iterator[str]:
    """Yield the outermost packages or modules of all paths `package.module:name` in a value."""
    if isinstance(value, str):
        for part in value.split(","):
            if found := OWN_PATH.fullmatch(part.strip()):
                yield found[1]
    elif isinstance(value, Mapping):
        for one in value.values():
            yield from _modules(one)
    elif isinstance(value, list | tuple):
        for one in value:
            yield from _modules(one)


def _is_beside(folder: Path, module: str) -> bool:
    return (folder / f"{module}.py").is_file() or (folder / module).is_dir()
