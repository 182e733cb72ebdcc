"""The traversal of objects and code by which an identity is computed."""

from __future__ import annotations

import copyreg
import dis
import enum
import functools
import importlib
import importlib.util
import io
import logging
import os
import re
import sys
import types
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from hashlib import blake2b, sha256  # sha256 has instructions of its own on current processors
from inspect import CO_ASYNC_GENERATOR, CO_COROUTINE, CO_GENERATOR, CO_VARARGS, CO_VARKEYWORDS
from itertools import chain
from pathlib import Path, PurePath
from typing import Any

from syno.base.code_facts import (
    OF_GLOBALS,
    SILENT,
    TYPED,
    closure_names,
    filled_variables,
    imported_modules,
    modification_time,
    module_statements,
    nested_codes,
    package_of,
    package_of_module,
)
from syno.base.registry import OWN_PACKAGE

DIGITS = 16  # of a digest
WHOLE_BYTES = 64 << 20  # largest tensor or array that is hashed as a whole
BLOCKS, BLOCK_BYTES = 1024, 16 << 10  # sample of a larger tensor or array
MANY = 1000  # longer lists of plain values are hashed by their repr
MEANING = CO_VARARGS | CO_VARKEYWORDS | CO_GENERATOR | CO_COROUTINE | CO_ASYNC_GENERATOR  # flags of code
PLAIN = frozenset({type(None), bool, int, float, complex, str, bytes})
LOCAL = frozenset({*dis.haslocal, *dis.hasfree})
JUMPS = frozenset({*dis.hasjrel, *dis.hasjabs})
NOT_OF_CLASSES = frozenset({
    "__module__", "__qualname__", "__doc__", "__dict__", "__weakref__", "__annotations__", "__annotate__",
    "__annotations_cache__", "__firstlineno__", "__static_attributes__", "__abstractmethods__", "_abc_impl", "__orig_bases__",
    "__parameters__", "__signature__", "__dataclass_params__",
})  # fmt: skip
# Attributes that do not change results: the way of computing, and the state of the last call.
OF_MODULES = frozenset({"training", "_compiled_call_impl", "_is_full_backward_hook"})
OF_LOADERS = frozenset({
    "num_workers", "prefetch_factor", "pin_memory", "pin_memory_device", "timeout", "persistent_workers", "_iterator",
    "multiprocessing_context", "generator", "_DataLoader__initialized", "_DataLoader__multiprocessing_context",
    "_IterableDataset_len_called",
})  # fmt: skip
STATISTICS = frozenset(
    {"running_mean", "running_var", "num_batches_tracked"}
)  # buffers of normalization layers, which training changes as it does weights
RANDOM = frozenset({
    "random.Random", "torch._C.Generator", "numpy.random.mtrand.RandomState", "numpy.random._generator.Generator",
})  # fmt: skip
WRITTEN = (
    "torch.",
    "numpy.",
    "typing.",
    "types.GenericAlias",
)  # objects of these packages are hashed by their repr if they have no attributes
CACHE = re.compile(r"_*\w*caches?", re.IGNORECASE)
WITHOUT_CONTENT = (logging.Logger, types.GeneratorType, types.FrameType)
LOCKS = frozenset({"lock", "RLock", "Condition", "Event", "Semaphore", "BoundedSemaphore", "_local", "local"})


class Walk:
    """Traverses objects and their dependencies in a deterministic order, and hashes each."""

    def __init__(self, weights: bool) -> None:
        self.weights = weights
        self.whole = blake2b(digest_size=DIGITS // 2)
        self.parts: dict[str, Any] = {}  # hash objects by names of parts
        self.part: Any = None  # hash object of the current part; None within a part that was met before
        self.met: dict[int, int] = {}  # numbers of objects in the order in which they are met, by their addresses
        self.names: dict[int, str] = {}  # of parts that are objects, by their addresses
        self.kept: list[object] = []  # keeps objects alive, so that no address is reused
        self.constants: set[tuple[int, str]] = set()  # global names that were met, with the address of their module's names
        self.folders: list[str] = []  # of the user's code; removed from texts by `placed`
        self.modules: set[str] = set()  # modules whose statements were hashed
        self.unknown: list[str] = []
        self.root = ""  # name of the object that is followed, for parts

    def follow(self, things: Mapping[str, Any]) -> None:
        """Hash objects, each as a part under its name in `things`."""
        for name, thing in things.items():
            self.root = name
            with self.named(name):
                self.token("thing", name)
                self.value(thing)

    def token(self, *words: object) -> None:
        """Add words to the checksum of the whole walk and to the digest of the current part."""
        text = f"{words!r}\n".encode("utf-8", "surrogatepass")
        self.whole.update(text)
        if self.part is not None:
            self.part.update(text)

    @contextmanager
    def named(self, name: str, *, is_new: bool = True) -> Iterator[None]:
        """Hash the objects that are first met in the block as the part `name`; objects met before belong to no new part."""
        before = self.part
        if before is not None:
            before.update(f"part {name}\n".encode())
        self.part = self.parts.setdefault(name, blake2b(digest_size=DIGITS // 2)) if is_new else None
        try:
            yield
        finally:
            self.part = before

    def is_met(self, thing: object, name: str = "") -> bool:
        """Return whether the walk has met an object before; if so, hash a reference to it."""
        number = self.met.get(id(thing))
        if number is not None:
            self.whole.update(f"met {number}\n".encode())
            if self.part is not None:  # not the number, which depends on other parts
                self.part.update(f"met {self.names.get(id(thing), '')}\n".encode())
            return True
        self.met[id(thing)] = len(self.met)
        self.kept.append(thing)
        if name:
            self.names[id(thing)] = name
        return False

    def value(self, thing: Any) -> None:
        """Hash a value according to its type."""
        kind = type(thing)
        if kind is str:
            self.token("str", self.placed(thing))
        elif kind in PLAIN or thing is Ellipsis or thing is NotImplemented:
            self.token(kind.__name__, thing)
        elif isinstance(thing, enum.Enum):
            self.token("enum", thing.name)
            self.value(kind)
        elif kind in (tuple, list):
            self.sequence(thing)
        elif kind in (set, frozenset):
            self.token("set", *sorted(map(self.alone, thing)))
        elif kind in (dict, types.MappingProxyType):
            self.items(thing)
        elif isinstance(thing, type):
            self.type(thing)
        elif isinstance(thing, types.FunctionType):
            self.function(thing)
        elif isinstance(thing, types.ModuleType):
            self.module(thing, frozenset(vars(thing)))
        elif isinstance(thing, types.CodeType):
            self.code(thing, {})
        else:
            self.object(thing)

    def sequence(self, thing: Any) -> None:
        """Hash a list or tuple."""
        if type(thing) is list and self.is_met(thing):
            return
        self.token(type(thing).__name__, len(thing))
        if len(thing) > MANY and _is_plain(thing):
            self.token(self.placed(repr(thing)))
            return
        for element in thing:
            self.value(element)

    def items(self, thing: Mapping[Any, Any]) -> None:
        """Hash the keys and values of a mapping, in its order."""
        if self.is_met(thing):
            return
        self.token("dict", len(thing))
        for key, value in thing.items():
            self.value(key)
            self.value(value)

    def attributes(self, values: Mapping[str, Any]) -> None:
        """Hash named values, independent of their order."""
        for name in sorted(values):
            self.token("attribute", name)
            self.value(values[name])

    def alone(self, thing: Any) -> str:
        """Return the digest of an object, computed by a walk of its own."""
        other = Walk(self.weights)
        other.folders = self.folders
        other.follow({"": thing})
        self.unknown += other.unknown
        return str(other.whole.hexdigest())

    def placed(self, text: str) -> str:
        """Return a text without the paths of the folders of user code, so that moving the code changes nothing."""
        for folder in self.folders:
            text = text.replace(folder, "")
        return text

    def object(self, thing: Any) -> None:
        """Hash an object that is no plain value, container, class or function."""
        kind = type(thing)
        name = f"{kind.__module__}.{kind.__qualname__}"
        if isinstance(thing, PurePath):
            self.token("path", self.placed(str(thing)))
        elif isinstance(thing, types.MethodType):
            self.token("method", thing.__name__)
            self.value(thing.__self__)
            self.value(thing.__func__)
        elif isinstance(thing, types.BuiltinFunctionType | types.WrapperDescriptorType | types.MethodDescriptorType):
            self.token("built in", thing.__qualname__)
            owner = getattr(thing, "__self__", None)
            if owner is not None and not isinstance(owner, types.ModuleType):
                self.value(owner)
        elif isinstance(thing, property):
            self.token("property")
            for function in (thing.fget, thing.fset, thing.fdel):
                self.value(function)
        elif isinstance(thing, staticmethod | classmethod):
            self.token(kind.__name__)
            self.value(thing.__func__)
        elif isinstance(thing, functools.cached_property):
            self.token("cached property")
            self.value(thing.func)
        elif isinstance(thing, types.MemberDescriptorType | types.GetSetDescriptorType):
            self.token("slot", thing.__name__)
        elif name in RANDOM or isinstance(thing, WITHOUT_CONTENT) or kind.__name__ in LOCKS:
            self.token("without content", name)
        elif not self.is_met(thing):
            self.instance(thing, kind, name)

    def instance(self, thing: Any, kind: type, name: str) -> None:
        """Hash an object of a class: the class and the object's content."""
        self.value(kind)
        if isinstance(thing, functools.partial):
            self.value(thing.func)
            self.value(thing.args)
            self.attributes(thing.keywords)
        elif _derives_from(kind, "torch", "Tensor"):
            self.tensor(thing)
        elif _derives_from(kind, "numpy", "ndarray"):
            self.array(thing)
        elif _derives_from(kind, "numpy", "generic") or (name.startswith(WRITTEN) and not getattr(thing, "__dict__", None)):
            self.written(repr(thing), name)
        elif _derives_from(kind, "torch", "Module"):
            self.network(thing)
        elif name.startswith("pandas.") and hasattr(thing, "memory_usage"):
            from pandas.util import hash_pandas_object

            self.value([str(one) for one in getattr(thing, "columns", ())])
            self.value(hash_pandas_object(thing).to_numpy())
        elif name == "dataclasses.Field":
            self.attributes({one: getattr(thing, one) for one in ("name", "default", "default_factory", "init", "kw_only")})
        elif kind.__module__.startswith(OWN_PACKAGE) and isinstance(
            getattr(kind, "id", None), property | functools.cached_property
        ):
            self.token("id", thing.id)  # a space or an operator: its attributes include caches
        elif wrapped := getattr(thing, "__wrapped__", None) if not hasattr(thing, "__dict__") or "cache" in name else None:
            self.value(wrapped)  # functools.lru_cache
        else:
            self.state(thing, kind, name)

    def state(self, thing: Any, kind: type, name: str) -> None:
        """Hash the attributes and elements of an object; its pickled form if C code defines how it is pickled."""
        has_state = False
        elements: Any = next((kind for kind in (dict, list, tuple, set, frozenset) if isinstance(thing, kind)), None)
        if elements is not None:
            has_state = True
            self.value(elements(thing))
        left_out = OF_LOADERS if _derives_from(kind, "torch", "DataLoader") else frozenset[str]()
        attributes = {} if not hasattr(thing, "__dict__") else vars(thing)
        slots = {slot for base in kind.__mro__ for slot in _slots(base)}
        if attributes or slots or hasattr(thing, "__dict__"):
            has_state = True
            own = {slot: getattr(thing, slot) for slot in slots if hasattr(thing, slot)} | dict(attributes)
            self.attributes({key: value for key, value in own.items() if key not in left_out and not _is_cache(kind, str(key))})
        if not has_state or isinstance(thing, io.IOBase) or kind in copyreg.dispatch_table or _is_reduced_in_c(kind):
            self.pickled(thing, name)

    def written(self, text: str, name: str) -> None:
        """Hash an object by its text, the result of `repr`."""
        stable = re.sub(r" at 0x[0-9a-f]+", "", text)
        self.token("written", stable)
        if stable != text:
            self.unknown.append(name)

    def pickled(self, thing: Any, name: str) -> None:
        """Hash an object by its pickled form: objects written in C have no attributes."""
        try:
            reduce = copyreg.dispatch_table.get(type(thing))
            reduced = thing.__reduce_ex__(4) if reduce is None else reduce(thing)
        except Exception:
            self.token("unknown", name)
            self.unknown.append(name)
            return
        if isinstance(reduced, str):
            self.token("pickled", reduced)
            return
        for part in reduced[1:3]:
            self.value(part)
        for elements in reduced[3:5]:
            if elements is not None:
                self.value(list(elements))

    def network(self, network: Any) -> None:
        """Hash a network: its weights, constants, layers in their order, and hooks."""
        for name in sorted(vars(network)):
            value = vars(network)[name]
            if name in OF_MODULES or _is_cache(type(network), name):
                continue
            self.token("attribute", name)
            if "hooks" in name and isinstance(value, dict):
                self.value(list(value.values()))  # without the keys, which number all hooks of the process
            elif name in ("_parameters", "_buffers"):
                for key, tensor in value.items():
                    self.token(key)
                    if tensor is None or not (name == "_parameters" or key in STATISTICS):
                        self.value(tensor)
                    elif self.weights:
                        with self.named(f"the weights of {self.root}"):
                            self.value(tensor)
                    else:
                        self.token("weight", tuple(tensor.shape), str(tensor.dtype))
            else:
                self.value(value)

    def tensor(self, tensor: Any) -> None:
        """Hash the shape, the number format and the numbers of a tensor."""
        import torch

        if type(tensor).__name__.startswith("Uninitialized"):  # of a lazy layer
            self.token("uninitialized")
            return
        self.token(tuple(tensor.shape), str(tensor.dtype), tensor.requires_grad, str(tensor.layout))
        if tensor.device.type == "meta":
            return
        try:
            plain = tensor.detach()
            if plain.layout is not torch.strided:
                plain = plain.to_dense()
            if plain.is_quantized:
                self.token(str(plain.qscheme()), repr(plain.dequantize().double().sum().item()))
                plain = plain.int_repr()
            flat = plain.resolve_conj().resolve_neg().cpu().contiguous().reshape(-1)
            if type(flat) is not torch.Tensor:
                flat = flat.as_subclass(torch.Tensor)
            self.bytes(memoryview(flat.view(torch.uint8).numpy()) if flat.numel() else memoryview(b""))
        except (RuntimeError, NotImplementedError, TypeError):
            self.token("unknown")
            self.unknown.append(f"{type(tensor).__name__} of {tensor.layout}")
        if vars(tensor):
            self.attributes({key: one for key, one in vars(tensor).items() if not key.startswith("_")})

    def array(self, array: Any) -> None:
        """Hash the shape, the number format and the numbers of a NumPy array."""
        import numpy

        self.token(array.shape, str(array.dtype))
        if array.dtype.hasobject:
            self.value(array.tolist())
        elif array.size:
            self.bytes(memoryview(numpy.ascontiguousarray(array).view(numpy.uint8).reshape(-1).data))

    def bytes(self, content: memoryview) -> None:
        """Hash bytes as a whole, or a sample of blocks, the first and the last among them, if there are very many."""
        if len(content) > WHOLE_BYTES:
            last = len(content) - BLOCK_BYTES
            sample = sha256()
            for number in range(BLOCKS):
                start = last * number // (BLOCKS - 1)
                sample.update(content[start : start + BLOCK_BYTES])
            self.token("sample", len(content), sample.hexdigest())
        else:
            self.token("bytes", sha256(content).hexdigest())

    def type(self, kind: type) -> None:
        """Hash a class: a package's by name and version, a user's by its content."""
        if (package := package_of(kind)) is not None:
            self.token("class", *package, kind.__module__, kind.__qualname__)
            return
        name = f"the class {kind.__qualname__}{self.place_of(kind.__module__)}"
        if self.is_met(kind, name):
            return
        with self.named(name):
            self.statements(kind.__module__)
            self.token("class")
            for base in kind.__bases__:
                self.value(base)
            if type(kind) is not type:
                self.value(type(kind))
            for key in sorted(vars(kind)):
                if key in NOT_OF_CLASSES or _is_cache(None, key):
                    continue
                if key == "__pydantic_fields__":
                    self.token(key, *(f"{field}: {value!r}" for field, value in vars(kind)[key].items()))
                elif not key.startswith(("__pydantic_", "__class_vars__", "__private_attributes__")):
                    self.token("attribute", key)
                    self.value(vars(kind)[key])

    def function(self, function: types.FunctionType) -> None:
        """Hash a function: a package's by name and version, a user's by its code and the values that the code reads."""
        package = package_of(function)
        if package is not None:
            self.token("function", *package, function.__module__, function.__qualname__)
            if function.__closure__ is None and not vars(function):
                return  # else it may be a decorator's wrapper, whose closure has the user's function
        name = f"the function {function.__qualname__}{self.place_of(function.__module__, function.__code__.co_filename)}"
        if self.is_met(function, "" if package is not None else name):
            return
        if package is not None:
            self.holds(function)
            return
        with self.named(name):
            self.statements(function.__module__)
            self.holds(function)
            names: dict[str, None] = {}
            self.code(function.__code__, names)
            self.globals(function, names)

    def holds(self, function: types.FunctionType) -> None:
        """Hash the values that a function holds: defaults, closure and attributes."""
        self.value(function.__defaults__)
        self.attributes(function.__kwdefaults__ or {})
        cells = zip(function.__code__.co_freevars, function.__closure__ or (), strict=True)
        filled = frozenset(chain.from_iterable(map(filled_variables, nested_codes(function.__code__))))
        cells_by_name = {name: cell for name, cell in cells if name not in filled and not _is_cache(None, name)}
        for name in closure_names(function.__code__, cells_by_name):
            try:
                self.value(cells_by_name[name].cell_contents)
            except ValueError:  # an empty cell: the variable is assigned later
                self.token("empty")
        self.attributes(
            {name: value for name, value in vars(function).items() if not name.startswith("__") or name == "__wrapped__"}
        )

    def code(self, code: types.CodeType, names: dict[str, None]) -> None:
        """Hash the meaning of code, and add to `names` the global names that it reads, in the order of their first use.

        Local and global names count by their order, so that renaming them changes nothing. `globals` hashes the values of
        global names.
        """
        parameters = code.co_argcount + code.co_kwonlyargcount + bool(code.co_flags & CO_VARARGS)
        parameters += bool(code.co_flags & CO_VARKEYWORDS)
        taken = code.co_varnames[:parameters]
        self.token("code", code.co_argcount, code.co_posonlyargcount, code.co_kwonlyargcount, code.co_flags & MEANING, taken)
        bytecode = dis.Bytecode(code)
        whole = list(bytecode)
        places, count = dict[int, int](), 0  # of instructions that count, by offset
        for instruction in whole:
            places[instruction.offset] = count
            count += instruction.opname not in SILENT
        local = {name: place for place, name in enumerate(taken)}
        for instruction in whole:
            operation, argument = instruction.opname, instruction.argval
            if operation in SILENT:
                continue
            if instruction.opcode in dis.hasconst:
                self.token(operation)
                self.constant(argument, names)
            elif operation in OF_GLOBALS:
                names.setdefault(argument)
                self.token(operation, list(names).index(argument))
            elif instruction.opcode in LOCAL:
                self.token(operation, local.setdefault(argument, len(local)))
            elif instruction.opcode in JUMPS:
                self.token(operation, places.get(argument, count))
            elif instruction.opcode in dis.hasname:
                self.token(operation, argument)
            else:
                self.token(operation, instruction.arg)
        for entry in getattr(bytecode, "exception_entries", ()):
            self.token("except", *(places.get(offset, count) for offset in (entry.start, entry.end, entry.target)), entry.depth)

    def constant(self, value: Any, names: dict[str, None]) -> None:
        """Hash a constant of code; the names of global variables that nested code reads are added to `names`."""
        if isinstance(value, types.CodeType):
            self.code(value, names)
        elif isinstance(value, tuple):
            self.token("tuple", len(value))
            for element in value:
                self.constant(element, names)
        else:
            self.value(value)

    def globals(self, function: types.FunctionType, names: Iterable[str]) -> None:
        """Hash the values of the global names that a function reads, and the modules that it imports."""
        known, inside = function.__globals__, list(nested_codes(function.__code__))
        words = frozenset(
            chain.from_iterable((*code.co_names, *(c for c in code.co_consts if type(c) is str)) for code in inside)
        )
        written = frozenset(chain.from_iterable(map(filled_variables, inside)))
        for name in names:
            if name not in known or name.startswith("__"):
                self.token("built in", name)
            elif name in written or _is_cache(None, name):
                self.token("written by the code", name)
            else:
                self.of_module(known, name, words, function.__module__, function.__code__.co_filename)
        for code in inside:
            for module in imported_modules(code, str(known.get("__package__") or known.get("__name__", "").rpartition(".")[0])):
                self.module(module, words)

    def of_module(self, known: Mapping[str, Any], name: str, words: frozenset[str], module: str, file: str = "") -> None:
        """Hash the value of a module's global name, as a part of its own when it is met for the first time."""
        value = known[name]
        if isinstance(value, types.ModuleType):
            self.module(value, words)
        elif isinstance(value, type | types.FunctionType):
            self.value(value)
        else:
            key = (id(known), name)
            with self.named(f"{name}{self.place_of(module, file)}", is_new=key not in self.constants):
                self.constants.add(key)
                self.value(value)

    def module(self, module: types.ModuleType, words: frozenset[str]) -> None:
        """Hash a module: a package's by name and version, of a user's module the names in `words`, which the reading code
        mentions.
        """
        if (package := package_of_module(module)) is not None:
            self.token("module", *package, module.__name__)
            return
        self.token("module")
        self.statements(module.__name__)
        self.place_of(module.__name__)
        for name in sorted(words & vars(module).keys()):
            if name.startswith("__") or (id(vars(module)), name) in self.constants or _is_cache(None, name):
                continue
            self.token("attribute", name)
            if isinstance(vars(module)[name], types.ModuleType):
                self.constants.add((id(vars(module)), name))
            self.of_module(vars(module), name, words, module.__name__)

    def statements(self, name: str) -> None:
        """Hash the statements with an effect at the top of a module, and those of the user's modules that it imports."""
        module = sys.modules.get(name)
        file = getattr(module, "__file__", None)
        if (
            name in self.modules
            or name == "__main__"
            or module is None
            or file is None
            or package_of_module(module) is not None
        ):
            return
        self.modules.add(name)
        text, imports = module_statements(file, modification_time(file))
        if text:
            with self.named(f"the statements of {Path(file).name}"):
                self.token("statements", self.placed(text))
        for other, level in imports:
            with suppress(ImportError, ValueError):
                package = str(vars(module).get("__package__") or name.rpartition(".")[0])
                self.statements(importlib.util.resolve_name("." * level + other, package) if level else other)

    def place_of(self, module: str, file: str = "") -> str:
        """Return " in FILE", the suffix of a part's name, and record the folder of the user's code for `placed`."""
        loaded_from = getattr(sys.modules.get(module), "__file__", None) if module != "__main__" or not file else None
        place = str(file if file.startswith(TYPED) else loaded_from or file)
        if place.startswith("<") or not place or "ipykernel" in place:
            return ""
        above = Path(place).absolute().parents
        depth = module.count(".") + (Path(place).stem == "__init__") if loaded_from else 0
        folder = above[min(depth, len(above) - 1)]
        if len(folder.parts) > 1 and str(folder) not in self.folders:
            self.folders += [f"{folder}{os.sep}", str(folder)]
            self.folders.sort(key=len, reverse=True)
        return f" in {Path(place).name}"


def _is_plain(values: Any) -> bool:
    """Return whether a list or tuple holds plain values only, or lists and tuples of those."""
    kinds = set(map(type, values))
    if kinds <= {tuple, list}:
        kinds = set(map(type, chain.from_iterable(values)))
    return kinds <= PLAIN


def _derives_from(kind: type, package: str, name: str) -> bool:
    """Return whether a class is, or derives from, the class `name` of a package, without importing the package."""
    return any(base.__name__ == name and base.__module__.partition(".")[0] == package for base in kind.__mro__)


def _is_cache(kind: type | None, name: str) -> bool:
    """Return whether an attribute holds cached values, by its name or as a `cached_property`."""
    return CACHE.fullmatch(name) is not None or isinstance(getattr(kind, name, None), functools.cached_property)


def _is_reduced_in_c(kind: type) -> bool:
    """Return whether C code defines how a class is pickled, as for `collections.deque`."""
    own = (kind.__reduce_ex__, kind.__reduce__)
    plain = (object.__reduce_ex__, object.__reduce__)
    return any(
        method is not other and not isinstance(method, types.FunctionType) for method, other in zip(own, plain, strict=True)
    )


def _slots(kind: type) -> Iterable[str]:
    found = vars(kind).get("__slots__", ())
    names = (found,) if isinstance(found, str) else tuple(found)
    return [name for name in names if name not in ("__dict__", "__weakref__") and not name.startswith("__pydantic_")]
