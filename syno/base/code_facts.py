"""Facts about code objects: the variables that code writes, the modules that it imports, and the package that it belongs to."""

from __future__ import annotations

import ast
import dis
import functools
import importlib
import importlib.util
import sys
import types
from collections.abc import Iterable, Iterator
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from syno.base.user_code import is_installed

SILENT = frozenset({"NOP", "EXTENDED_ARG", "CACHE"})  # instructions that depend on the layout of the text
OF_GLOBALS, WRITES_GLOBAL = ("LOAD_GLOBAL", "LOAD_NAME"), ("STORE_GLOBAL", "DELETE_GLOBAL")
TYPED = ("<stdin>", "<ipython", "<doctest")  # prefixes of file names of code that was typed
FILLING = frozenset(
    {"append", "appendleft", "extend", "insert", "add", "update", "setdefault", "pop", "clear"}
)  # methods that change a container


def closure_names(code: types.CodeType, names: Iterable[str]) -> list[str]:
    """Return the names of a closure in the order of their first use; names that only nested functions use come last."""
    used = [each.argval for each in dis.get_instructions(code) if each.opcode in dis.hasfree]
    return [name for name in dict.fromkeys([*used, *names]) if name in set(names)]


def nested_codes(code: types.CodeType) -> Iterator[types.CodeType]:
    """Yield a code object, and the code objects of all functions and classes nested in it."""
    yield code
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from nested_codes(constant)


def filled_variables(code: types.CodeType) -> Iterator[str]:
    """Yield the names of outer variables that code assigns or whose elements it changes, such as a list that counts calls."""
    instructions = [each for each in dis.get_instructions(code) if each.opname not in SILENT]
    for place, instruction in enumerate(instructions):
        after = instructions[place + 1 : place + 3]
        writes = instruction.opname in WRITES_GLOBAL or (
            instruction.opname == "STORE_DEREF" and instruction.argval in code.co_freevars
        )
        is_read = instruction.opname in (*OF_GLOBALS, "LOAD_DEREF")
        is_filled = len(after) == 2 and (after[1].opname == "STORE_SUBSCR" or after[0].argval in FILLING)
        if writes or (is_read and is_filled):
            yield instruction.argval


def imported_modules(code: types.CodeType, package: str) -> Iterator[types.ModuleType]:
    """Yield the modules that code imports when it runs. A module of the user's own is imported now, if it is not loaded yet."""
    before: list[Any] = []
    module = ""
    for instruction in dis.get_instructions(code):
        if instruction.opname == "IMPORT_NAME":
            level, module = next((value for value in before[-2:] if type(value) is int), 0), instruction.argval
            with suppress(ImportError, ValueError):
                module = importlib.util.resolve_name("." * level + module, package) if level else module
        if instruction.opname in ("IMPORT_NAME", "IMPORT_FROM"):
            name = module if instruction.opname == "IMPORT_NAME" else f"{module}.{instruction.argval}"
            imported = sys.modules.get(name)
            with suppress(Exception):  # the import may be conditional, and the name may be no module
                if imported is None and not is_installed_file(importlib.util.find_spec(name).origin or ""):  # type: ignore[union-attr]
                    imported = importlib.import_module(name)
            if imported is not None:
                yield imported
        before.append(instruction.argval)


def package_of(thing: Any) -> tuple[str, str] | None:
    """Return (package, version) of a function or class; None if it is the user's own code."""
    code, module = getattr(thing, "__code__", None), str(getattr(thing, "__module__", "") or "")
    file = "" if code is None else code.co_filename
    if file and (not file.startswith("<") or file.startswith(TYPED)):
        return package_version(module) if is_installed_file(file) else None
    owner = sys.modules.get(module)
    if module == "__main__" or owner is None:
        return None
    return package_of_module(owner)


def package_of_module(module: types.ModuleType) -> tuple[str, str] | None:
    """Return (package, version) of a module; None if it is the user's own code."""
    file = getattr(module, "__file__", None)
    if file is None:
        paths = list(getattr(module, "__path__", ()))  # a namespace package
        if module.__name__ == "__main__" or (paths and not is_installed_file(paths[0])):
            return None
        if not paths and getattr(module, "__spec__", None) is None and module.__name__ not in sys.builtin_module_names:
            return None  # created in memory, as by `types.ModuleType`
    elif not is_installed_file(file):
        return None
    return package_version(module.__name__)


@functools.cache
def is_installed_file(file: str) -> bool:
    """Return whether a file belongs to an installed package."""
    return is_installed(Path(file))


@functools.cache
def package_version(module: str) -> tuple[str, str]:
    """Return the top-level package of a module, and its version; "" if the version is unknown."""
    top = module.partition(".")[0]
    with suppress(PackageNotFoundError, ValueError):
        return top, version(top)
    return top, str(getattr(sys.modules.get(top), "__version__", ""))


def modification_time(file: str) -> float:
    """Return the modification time of a file in nanoseconds; 0 if the file does not exist."""
    try:
        return Path(file).stat().st_mtime_ns
    except OSError:
        return 0.0


@functools.lru_cache(maxsize=256)
def module_statements(file: str, changed: float) -> tuple[str, tuple[tuple[str, int], ...]]:
    """Return the statements at the top of a file that do more than define names, as text, and its imports as (name, level).

    `changed` is the file's modification time, a key of the cache.
    """
    try:
        tree = ast.parse(Path(file).read_bytes())
    except (OSError, SyntaxError, ValueError):
        return "", ()
    imports: list[tuple[str, int]] = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            imports += [(alias.name, 0) for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            imports.append((node.module or "", node.level))
            imports += [(f"{node.module}.{alias.name}" if node.module else alias.name, node.level) for alias in node.names]
    return "\n".join(ast.dump(node) for node in tree.body if _has_effect(node)), tuple(dict.fromkeys(imports))


def _has_effect(node: ast.stmt) -> bool:
    """Return whether a statement at the top of a module has an effect: it is no definition, import or docstring."""
    match node:
        case ast.Import() | ast.ImportFrom() | ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef() | ast.AnnAssign():
            return False
        case ast.Expr(value=ast.Constant()) | ast.Pass():
            return False
        case ast.Assign(targets=targets):
            return not all(isinstance(node, ast.Name | ast.Tuple | ast.List) for node in targets)
        case ast.If(test=test):
            return not any(isinstance(node, ast.Name) and node.id in ("__name__", "TYPE_CHECKING") for node in ast.walk(test))
        case ast.Try(body=body):
            return not all(isinstance(node, ast.Import | ast.ImportFrom) for node in body)
    return True
