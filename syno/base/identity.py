"""What own code and data *are*: a checksum, by which the result of a changed network, loss or data set is told from a new one.

The same name says little: a file is edited, a closure gets another constant, labels are repaired. `identity_of` follows what a
result depends on, and returns one checksum for keys, and a digest for each named part, so that a message can say what changed:

>>> def loss(model, batch, scale=2.0): return scale * model(batch).mean()
>>> before = identity_of({"the loss": loss})
>>> loss.__defaults__ = (3.0,)
>>> after = identity_of({"the loss": loss})
>>> before.checksum == after.checksum, changes(before.stored, after.stored)
(False, ['the function loss'])

- **Code counts by its meaning**: the bytecode that is loaded, without lines, comments, docstrings, annotations and the names of
  local variables. (The text on the disk may be newer than what runs, and functions of a notebook have none.) Followed are
  defaults, closures, decorators, partial functions, bound methods, callable objects, base classes, attributes of classes, and
  the functions, classes, constants and modules that the code reads, also in modules that these import; and the statements that
  run as these modules are imported, which may set what other code reads. Names and places of the user's files do not count.
- **Installed packages** count by name and version.
- **Values count by content**: tensors and arrays by shape, type and numbers, those of more than `WHOLE_BYTES` by a sample. Sets
  have no order; dicts have one, since layers or columns may be made in it, but attributes and keyword arguments have none.
- **What changes by itself does not count**: the state of generators of random numbers, caches, variables outside of a function
  that it writes or appends to, iterators, gradients, the mode and the device of a network, and how many processes load data.
- **What cannot be described**, such as an open connection, counts by its type, and a warning names it.

What code reads from files while it runs is not seen here: whoever asks for an identity adds what is made of them, such as the
network with its weights, or rows of the data. Bytecode differs between versions of Python, so one study needs one version.
Nothing depends on addresses, the order of sets or Python's `hash`, so all processes and machines find the same.
"""

from __future__ import annotations

import ast
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
import warnings
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from hashlib import blake2b, sha256  # the second is the faster one on processors of today
from importlib.metadata import PackageNotFoundError, version
from inspect import CO_ASYNC_GENERATOR, CO_COROUTINE, CO_GENERATOR, CO_VARARGS, CO_VARKEYWORDS
from itertools import chain, islice
from pathlib import Path, PurePath
from typing import Any

from syno.base.files import checksum
from syno.base.registry import OWN_PACKAGE, imported, own_paths
from syno.base.user_code import is_installed, unchanged_process

DIGITS = 16  # of a digest
WHOLE_BYTES = 64 << 20  # of a tensor or array that counts as a whole
BLOCKS, BLOCK_BYTES = 1024, 16 << 10  # of the sample of a larger one
MANY = 1000  # values of a list that are written at once, where they are plain
DEEPEST = 50_000  # calls of Python functions in each other
MOST_NAMED = 4  # changed parts in a message
MEANING = CO_VARARGS | CO_VARKEYWORDS | CO_GENERATOR | CO_COROUTINE | CO_ASYNC_GENERATOR  # flags of code
PLAIN = frozenset({type(None), bool, int, float, complex, str, bytes})
LOCAL = frozenset({*dis.haslocal, *dis.hasfree})
JUMPS = frozenset({*dis.hasjrel, *dis.hasjabs})
SILENT = frozenset({"NOP", "EXTENDED_ARG", "CACHE"})  # instructions that depend on the layout of the text
OF_GLOBALS, WRITES_GLOBAL = ("LOAD_GLOBAL", "LOAD_NAME"), ("STORE_GLOBAL", "DELETE_GLOBAL")
NOT_OF_CLASSES = frozenset({
    "__module__", "__qualname__", "__doc__", "__dict__", "__weakref__", "__annotations__", "__annotate__",
    "__annotations_cache__", "__firstlineno__", "__static_attributes__", "__abstractmethods__", "_abc_impl", "__orig_bases__",
    "__parameters__", "__signature__", "__dataclass_params__",
})  # fmt: skip
# Attributes that say how something is done, or what it did last, and not what comes out.
OF_MODULES = frozenset({"training", "_compiled_call_impl", "_is_full_backward_hook"})
OF_LOADERS = frozenset({
    "num_workers", "prefetch_factor", "pin_memory", "pin_memory_device", "timeout", "persistent_workers", "_iterator",
    "multiprocessing_context", "generator", "_DataLoader__initialized", "_DataLoader__multiprocessing_context",
    "_IterableDataset_len_called",
})  # fmt: skip
TYPED = ("<stdin>", "<ipython", "<doctest")  # beginnings of files of code that has none
FILLING = frozenset({"append", "appendleft", "extend", "insert", "add", "update", "setdefault", "pop", "clear"})  # methods
STATISTICS = frozenset({"running_mean", "running_var", "num_batches_tracked"})  # of normalizations: learnt, as weights are
RANDOM = frozenset({
    "random.Random", "torch._C.Generator", "numpy.random.mtrand.RandomState", "numpy.random._generator.Generator",
})  # fmt: skip
WRITTEN = ("torch.", "numpy.", "typing.", "types.GenericAlias")  # what counts as it is written, if it has no attributes
CACHE = re.compile(r"_*\w*caches?", re.IGNORECASE)
WITHOUT_CONTENT = (logging.Logger, types.GeneratorType, types.FrameType)
LOCKS = frozenset({"lock", "RLock", "Condition", "Event", "Semaphore", "BoundedSemaphore", "_local", "local"})


@dataclass(frozen=True)
class Identity:
    """What something is.

    Attributes:
        checksum: of all that it consists of; it does not depend on the names of parts.
        parts: a digest of each part by its name, as a message says it: "the function loss in my_task.py".
        unknown: the types of things that cannot be described, whose changes are not noticed.
    """

    checksum: str
    parts: Mapping[str, str]
    unknown: tuple[str, ...] = ()

    @property
    def stored(self) -> dict[str, Any]:
        """The identity as JSON, for `changes`."""
        return {"checksum": self.checksum, "parts": dict(self.parts)}


def changes(stored: Mapping[str, Any], current: Mapping[str, Any]) -> list[str]:
    """Return the names of the parts that differ between two stored identities; [] if they are the same.

    Parts of equal content are the same, whatever their names: a function may have moved to another file.
    """
    if stored.get("checksum") == current.get("checksum"):
        return []
    there, here = (dict(one.get("parts", {})) for one in (stored, current))
    known, new = set(there.values()), set(here.values())
    names = [name for name, digest in here.items() if there.get(name) != digest and (name in there or digest not in known)]
    names += [name for name, digest in there.items() if name not in here and digest not in new]
    return names or ["its own code"]


def in_words(names: Iterable[str]) -> str:
    """Return a clause of a message that names the changed parts: "the function loss in my_task.py changed since then"."""
    found = list(names)
    more = f" and {len(found) - MOST_NAMED} more" if len(found) > MOST_NAMED else ""
    return f"{', '.join(found[:MOST_NAMED])}{more} changed since then"


def identity_of(things: Mapping[str, Any], *, weights: bool = True) -> Identity:
    """Return the identity of values: a checksum over all of them, and a digest of each part.

    Args:
        things: by their names in messages, such as "the loss".
        weights: whether the numbers in the parameters of networks count, or only their shapes, as for a latency.

    Warns of what cannot be described.
    """
    before = sys.getrecursionlimit()
    sys.setrecursionlimit(max(before, DEEPEST))  # a function that calls one that calls one: many calls here for each
    try:
        found = _Walk(weights).identity(things)
    finally:
        sys.setrecursionlimit(before)
    if found.unknown:
        warnings.warn(
            f"{', '.join(things)}: what is in {', '.join(found.unknown)} cannot be described, so that results are used again "
            "where only that has changed; give another name then",
            stacklevel=2,
        )
    return found


class _Walk:
    """Goes through things and all that they depend on, in an order that depends on nothing else, and hashes what it meets."""

    def __init__(self, weights: bool) -> None:
        self.weights = weights
        self.whole = blake2b(digest_size=DIGITS // 2)
        self.parts: dict[str, Any] = {}  # hashes by names of parts
        self.part: Any = None  # the hash of the current part; None where a part is met again
        self.met: dict[int, int] = {}  # numbers of objects in the order in which they are met, by their addresses
        self.names: dict[int, str] = {}  # of parts that are objects, by their addresses
        self.kept: list[object] = []  # an address is that of another object once its object is gone
        self.constants: set[tuple[int, str]] = set()  # global names that were met, with the address of their module's names
        self.folders: list[str] = []  # of the user's code, which may lie anywhere
        self.modules: set[str] = set()  # whose statements were met
        self.unknown: list[str] = []
        self.root = ""  # the name of the thing

    def identity(self, things: Mapping[str, Any]) -> Identity:
        for name, thing in things.items():
            self.root = name
            with self.named(name):
                self.token("thing", name)
                self.value(thing)
        parts = {name: found.hexdigest() for name, found in self.parts.items()}
        return Identity(self.whole.hexdigest(), parts, tuple(dict.fromkeys(self.unknown)))

    def token(self, *words: object) -> None:
        text = f"{words!r}\n".encode("utf-8", "surrogatepass")
        self.whole.update(text)
        if self.part is not None:
            self.part.update(text)

    @contextmanager
    def named(self, name: str, *, is_new: bool = True) -> Iterator[None]:
        """Hash what the block meets as the part of this name; not as any part if it was met before."""
        before = self.part
        if before is not None:
            before.update(f"part {name}\n".encode())
        self.part = self.parts.setdefault(name, blake2b(digest_size=DIGITS // 2)) if is_new else None
        try:
            yield
        finally:
            self.part = before

    def is_met(self, thing: object, name: str = "") -> bool:
        """Return whether an object was met before, which is then hashed as a reference to it."""
        number = self.met.get(id(thing))
        if number is not None:
            self.whole.update(f"met {number}\n".encode())
            if self.part is not None:  # other parts shall not differ because the numbers do
                self.part.update(f"met {self.names.get(id(thing), '')}\n".encode())
            return True
        self.met[id(thing)] = len(self.met)
        self.kept.append(thing)
        if name:
            self.names[id(thing)] = name
        return False

    def value(self, thing: Any) -> None:
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
        if type(thing) is list and self.is_met(thing):
            return
        self.token(type(thing).__name__, len(thing))
        if len(thing) > MANY and _is_plain(thing):
            self.token(self.placed(repr(thing)))
            return
        for one in thing:
            self.value(one)

    def items(self, thing: Mapping[Any, Any]) -> None:
        if self.is_met(thing):
            return
        self.token("dict", len(thing))
        for key, one in thing.items():
            self.value(key)
            self.value(one)

    def attributes(self, values: Mapping[str, Any]) -> None:
        """Hash named values that have no order."""
        for name in sorted(values):
            self.token("attribute", name)
            self.value(values[name])

    def alone(self, thing: Any) -> str:
        """Return the digest of a thing by itself."""
        other = _Walk(self.weights)
        other.folders = self.folders
        found = other.identity({"": thing})
        self.unknown += found.unknown
        return found.checksum

    def placed(self, text: str) -> str:
        """Return a text without the folders of the user's code, which may lie anywhere."""
        for folder in self.folders:
            text = text.replace(folder, "")
        return text

    def object(self, thing: Any) -> None:
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
            for one in (thing.fget, thing.fset, thing.fdel):
                self.value(one)
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
        self.value(kind)
        if isinstance(thing, functools.partial):
            self.value(thing.func)
            self.value(thing.args)
            self.attributes(thing.keywords)
        elif _is_a(kind, "torch", "Tensor"):
            self.tensor(thing)
        elif _is_a(kind, "numpy", "ndarray"):
            self.array(thing)
        elif _is_a(kind, "numpy", "generic") or (name.startswith(WRITTEN) and not getattr(thing, "__dict__", None)):
            self.written(repr(thing), name)
        elif _is_a(kind, "torch", "Module"):
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
            self.token("id", thing.id)  # of a space or an operator, which remember what they computed
        elif wrapped := getattr(thing, "__wrapped__", None) if not hasattr(thing, "__dict__") or "cache" in name else None:
            self.value(wrapped)  # functools.lru_cache
        else:
            self.state(thing, kind, name)

    def state(self, thing: Any, kind: type, name: str) -> None:
        """Hash the attributes and the elements of an object, or what it would be pickled as."""
        has_state = False
        elements: Any = next((kind for kind in (dict, list, tuple, set, frozenset) if isinstance(thing, kind)), None)
        if elements is not None:
            has_state = True
            self.value(elements(thing))
        left_out = OF_LOADERS if _is_a(kind, "torch", "DataLoader") else frozenset[str]()
        found = {} if not hasattr(thing, "__dict__") else vars(thing)
        slots = {slot for one in kind.__mro__ for slot in _slots(one)}
        if found or slots or hasattr(thing, "__dict__"):
            has_state = True
            own = {slot: getattr(thing, slot) for slot in slots if hasattr(thing, slot)} | dict(found)
            self.attributes({key: one for key, one in own.items() if key not in left_out and not _is_passing(kind, str(key))})
        if not has_state or isinstance(thing, io.IOBase) or kind in copyreg.dispatch_table or _is_reduced_in_c(kind):
            self.pickled(thing, name)

    def written(self, text: str, name: str) -> None:
        """Hash an object as it is written."""
        found = re.sub(r" at 0x[0-9a-f]+", "", text)
        self.token("written", found)
        if found != text:
            self.unknown.append(name)

    def pickled(self, thing: Any, name: str) -> None:
        """Hash an object as what pickling makes of it: those that are written in C have no attributes."""
        try:
            reduce = copyreg.dispatch_table.get(type(thing))
            found = thing.__reduce_ex__(4) if reduce is None else reduce(thing)
        except Exception:
            self.token("unknown", name)
            self.unknown.append(name)
            return
        if isinstance(found, str):
            self.token("pickled", found)
            return
        for one in found[1:3]:
            self.value(one)
        for elements in found[3:5]:
            if elements is not None:
                self.value(list(elements))

    def network(self, network: Any) -> None:
        """Hash a network: its weights, constants, layers in their order, and hooks."""
        for name in sorted(vars(network)):
            found = vars(network)[name]
            if name in OF_MODULES or _is_passing(type(network), name):
                continue
            self.token("attribute", name)
            if "hooks" in name and isinstance(found, dict):
                self.value(list(found.values()))  # their keys count all hooks of a process
            elif name in ("_parameters", "_buffers"):
                for key, one in found.items():
                    self.token(key)
                    if one is None or not (name == "_parameters" or key in STATISTICS):
                        self.value(one)
                    elif self.weights:
                        with self.named(f"the weights of {self.root}"):
                            self.value(one)
                    else:
                        self.token("weight", tuple(one.shape), str(one.dtype))
            else:
                self.value(found)

    def tensor(self, tensor: Any) -> None:
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
            found = sha256()
            for number in range(BLOCKS):
                start = last * number // (BLOCKS - 1)
                found.update(content[start : start + BLOCK_BYTES])
            self.token("sample", len(content), found.hexdigest())
        else:
            self.token("bytes", sha256(content).hexdigest())

    def type(self, kind: type) -> None:
        if (package := _package_of(kind)) is not None:
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
                if key in NOT_OF_CLASSES or _is_passing(None, key):
                    continue
                if key == "__pydantic_fields__":
                    self.token(key, *(f"{field}: {found!r}" for field, found in vars(kind)[key].items()))
                elif not key.startswith(("__pydantic_", "__class_vars__", "__private_attributes__")):
                    self.token("attribute", key)
                    self.value(vars(kind)[key])

    def function(self, function: types.FunctionType) -> None:
        package = _package_of(function)
        if package is not None:
            self.token("function", *package, function.__module__, function.__qualname__)
            if function.__closure__ is None and not vars(function):
                return  # else it may be a decorator's, which holds the user's function
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
        """Hash the values that a function holds."""
        self.value(function.__defaults__)
        self.attributes(function.__kwdefaults__ or {})
        cells = zip(function.__code__.co_freevars, function.__closure__ or (), strict=True)
        filled = frozenset(chain.from_iterable(map(_filled, _codes(function.__code__))))
        found = {name: cell for name, cell in cells if name not in filled and not _is_passing(None, name)}
        for name in _in_order(function.__code__, found):
            try:
                self.value(found[name].cell_contents)
            except ValueError:  # empty, as that of a variable that is set later
                self.token("empty")
        self.attributes(
            {name: one for name, one in vars(function).items() if not name.startswith("__") or name == "__wrapped__"}
        )

    def code(self, code: types.CodeType, names: dict[str, None]) -> None:
        """Hash the meaning of code, and add to `names` the global names that it reads, in the order of their first use.

        Local and global names count by their order, so that renaming them changes nothing; the values of global names are
        hashed where the function is.
        """
        parameters = code.co_argcount + code.co_kwonlyargcount + bool(code.co_flags & CO_VARARGS)
        parameters += bool(code.co_flags & CO_VARKEYWORDS)
        taken = code.co_varnames[:parameters]
        self.token("code", code.co_argcount, code.co_posonlyargcount, code.co_kwonlyargcount, code.co_flags & MEANING, taken)
        found = dis.Bytecode(code)
        whole = list(found)
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
        for entry in getattr(found, "exception_entries", ()):
            self.token("except", *(places.get(one, count) for one in (entry.start, entry.end, entry.target)), entry.depth)

    def constant(self, value: Any, names: dict[str, None]) -> None:
        if isinstance(value, types.CodeType):
            self.code(value, names)
        elif isinstance(value, tuple):
            self.token("tuple", len(value))
            for one in value:
                self.constant(one, names)
        else:
            self.value(value)

    def globals(self, function: types.FunctionType, names: Iterable[str]) -> None:
        """Hash the values of the global names that a function reads, and what it imports."""
        known, inside = function.__globals__, list(_codes(function.__code__))
        words = frozenset(chain.from_iterable((*one.co_names, *(c for c in one.co_consts if type(c) is str)) for one in inside))
        written = frozenset(chain.from_iterable(map(_filled, inside)))
        for name in names:
            if name not in known or name.startswith("__"):
                self.token("built in", name)
            elif name in written or _is_passing(None, name):
                self.token("written by the code", name)
            else:
                self.of_module(known, name, words, function.__module__, function.__code__.co_filename)
        for one in inside:
            for module in _imports(one, str(known.get("__package__") or known.get("__name__", "").rpartition(".")[0])):
                self.module(module, words)

    def of_module(self, known: Mapping[str, Any], name: str, words: frozenset[str], module: str, file: str = "") -> None:
        """Hash the value of a name of a module: as a part of its own, unless it is one already."""
        found = known[name]
        if isinstance(found, types.ModuleType):
            self.module(found, words)
        elif isinstance(found, type | types.FunctionType):
            self.value(found)
        else:
            key = (id(known), name)
            with self.named(f"{name}{self.place_of(module, file)}", is_new=key not in self.constants):
                self.constants.add(key)
                self.value(found)

    def module(self, module: types.ModuleType, words: frozenset[str]) -> None:
        """Hash a module: of the user's own, the names in `words`, which are those in the code that reads it."""
        if (package := _package_of_module(module)) is not None:
            self.token("module", *package, module.__name__)
            return
        self.token("module")
        self.statements(module.__name__)
        self.place_of(module.__name__)
        for name in sorted(words & vars(module).keys()):
            if name.startswith("__") or (id(vars(module)), name) in self.constants or _is_passing(None, name):
                continue
            self.token("attribute", name)
            if isinstance(vars(module)[name], types.ModuleType):
                self.constants.add((id(vars(module)), name))
            self.of_module(vars(module), name, words, module.__name__)

    def statements(self, name: str) -> None:
        """Hash the statements that run as a module is imported, but definitions, in it and in the user's modules it imports."""
        module = sys.modules.get(name)
        file = getattr(module, "__file__", None)
        if (
            name in self.modules
            or name == "__main__"
            or module is None
            or file is None
            or _package_of_module(module) is not None
        ):
            return
        self.modules.add(name)
        found, imports = _statements(file, _changed(file))
        if found:
            with self.named(f"the statements of {Path(file).name}"):
                self.token("statements", self.placed(found))
        for other, level in imports:
            with suppress(ImportError, ValueError):
                package = str(vars(module).get("__package__") or name.rpartition(".")[0])
                self.statements(importlib.util.resolve_name("." * level + other, package) if level else other)

    def place_of(self, module: str, file: str = "") -> str:
        """Return " in FILE" for the name of a part, and note the folder of the user's code."""
        found = getattr(sys.modules.get(module), "__file__", None) if module != "__main__" or not file else None
        place = str(file if file.startswith(TYPED) else found or file)
        if place.startswith("<") or not place or "ipykernel" in place:
            return ""
        above = Path(place).absolute().parents
        depth = module.count(".") + (Path(place).stem == "__init__") if found else 0
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


def _is_a(kind: type, package: str, name: str) -> bool:
    """Return whether a class is, or is derived from, a class of a package, which is not imported for that."""
    return any(one.__name__ == name and one.__module__.partition(".")[0] == package for one in kind.__mro__)


def _is_passing(kind: type | None, name: str) -> bool:
    """Return whether an attribute is a cache."""
    return CACHE.fullmatch(name) is not None or isinstance(getattr(kind, name, None), functools.cached_property)


def _is_reduced_in_c(kind: type) -> bool:
    """Return whether a class that is written in C says by itself what it consists of, as `collections.deque` does."""
    found = (kind.__reduce_ex__, kind.__reduce__)
    plain = (object.__reduce_ex__, object.__reduce__)
    return any(one is not other and not isinstance(one, types.FunctionType) for one, other in zip(found, plain, strict=True))


def _slots(kind: type) -> Iterable[str]:
    found = vars(kind).get("__slots__", ())
    names = (found,) if isinstance(found, str) else tuple(found)
    return [name for name in names if name not in ("__dict__", "__weakref__") and not name.startswith("__pydantic_")]


def _in_order(code: types.CodeType, names: Iterable[str]) -> list[str]:
    """Return the names of a closure in the order of their first use, and then those of nested functions alone."""
    used = [each.argval for each in dis.get_instructions(code) if each.opcode in dis.hasfree]
    return [name for name in dict.fromkeys([*used, *names]) if name in set(names)]


def _codes(code: types.CodeType) -> Iterator[types.CodeType]:
    yield code
    for one in code.co_consts:
        if isinstance(one, types.CodeType):
            yield from _codes(one)


def _filled(code: types.CodeType) -> Iterator[str]:
    """Yield the names of variables outside of code that it writes, or whose elements it adds or changes, as a list of calls."""
    found = [each for each in dis.get_instructions(code) if each.opname not in SILENT]
    for place, one in enumerate(found):
        after = found[place + 1 : place + 3]
        writes = one.opname in WRITES_GLOBAL or (one.opname == "STORE_DEREF" and one.argval in code.co_freevars)
        is_read = one.opname in (*OF_GLOBALS, "LOAD_DEREF")
        is_filled = len(after) == 2 and (after[1].opname == "STORE_SUBSCR" or after[0].argval in FILLING)
        if writes or (is_read and is_filled):
            yield one.argval


def _imports(code: types.CodeType, package: str) -> Iterator[types.ModuleType]:
    """Yield the modules that code imports as it runs. Those of the user's own are imported now, as they will be then."""
    before: list[Any] = []
    module = ""
    for instruction in dis.get_instructions(code):
        if instruction.opname == "IMPORT_NAME":
            level, module = next((one for one in before[-2:] if type(one) is int), 0), instruction.argval
            with suppress(ImportError, ValueError):
                module = importlib.util.resolve_name("." * level + module, package) if level else module
        if instruction.opname in ("IMPORT_NAME", "IMPORT_FROM"):
            name = module if instruction.opname == "IMPORT_NAME" else f"{module}.{instruction.argval}"
            found = sys.modules.get(name)
            with suppress(Exception):  # it may never run, or only where the module is there; and it may be no module
                if found is None and not _is_installed(importlib.util.find_spec(name).origin or ""):  # type: ignore[union-attr]
                    found = importlib.import_module(name)
            if found is not None:
                yield found
        before.append(instruction.argval)


def _package_of(thing: Any) -> tuple[str, str] | None:
    """Return the package of a function or class with its version; None if it is the user's own."""
    code, module = getattr(thing, "__code__", None), str(getattr(thing, "__module__", "") or "")
    file = "" if code is None else code.co_filename
    if file and (not file.startswith("<") or file.startswith(TYPED)):
        return _package(module) if _is_installed(file) else None
    found = sys.modules.get(module)
    if module == "__main__" or found is None:
        return None
    return _package_of_module(found)


def _package_of_module(module: types.ModuleType) -> tuple[str, str] | None:
    file = getattr(module, "__file__", None)
    if file is None:
        paths = list(getattr(module, "__path__", ()))  # a namespace package
        if module.__name__ == "__main__" or (paths and not _is_installed(paths[0])):
            return None
        if not paths and getattr(module, "__spec__", None) is None and module.__name__ not in sys.builtin_module_names:
            return None  # made by hand
    elif not _is_installed(file):
        return None
    return _package(module.__name__)


@functools.cache
def _is_installed(file: str) -> bool:
    return is_installed(Path(file))


@functools.cache
def _package(module: str) -> tuple[str, str]:
    top = module.partition(".")[0]
    with suppress(PackageNotFoundError, ValueError):
        return top, version(top)
    return top, str(getattr(sys.modules.get(top), "__version__", ""))


def _changed(file: str) -> float:
    try:
        return Path(file).stat().st_mtime_ns
    except OSError:
        return 0.0


@functools.lru_cache(maxsize=256)
def _statements(file: str, changed: float) -> tuple[str, tuple[tuple[str, int], ...]]:
    """Return the statements of a file that do more than define names, and the modules that it imports, each with its level."""
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
    """Return whether a statement of a module does more than to define names."""
    match node:
        case ast.Import() | ast.ImportFrom() | ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef() | ast.AnnAssign():
            return False
        case ast.Expr(value=ast.Constant()) | ast.Pass():
            return False
        case ast.Assign(targets=targets):
            return not all(isinstance(one, ast.Name | ast.Tuple | ast.List) for one in targets)
        case ast.If(test=test):
            return not any(isinstance(one, ast.Name) and one.id in ("__name__", "TYPE_CHECKING") for one in ast.walk(test))
        case ast.Try(body=body):
            return not all(isinstance(one, ast.Import | ast.ImportFrom) for one in body)
    return True


_KNOWN: dict[tuple[str, tuple[int, ...]], tuple[Any, Identity]] = {}  # by paths, and the addresses of what is there


def identity_of_paths(value: object) -> Identity | None:
    """Return what the code is that the paths `package.module:name` in a value lead to; None if it names none but Syno's own.

    It is found once in a process, before the code runs: what it then keeps for itself is no change. Imports the code: raises
    as `syno.base.registry.imported`.
    """
    paths = sorted({path for path in own_paths(value) if not path.startswith(OWN_PACKAGE)})
    if not paths:
        return None
    found = {path: imported(path, "code") for path in paths}
    key = (" ".join(paths), tuple(map(id, found.values())))
    if key not in _KNOWN:
        _KNOWN[key] = found, identity_of(found)
    return _KNOWN[key][1]


OWN_CODE = "own code"  # among the versions in records


def version_of_code(value: object, *made: Identity) -> dict[str, str]:
    """Return the checksum of the code that paths in a value lead to, and of what it made, as a version; {} if there is none.

    It stands beside the versions of packages in records and keys: those without a user's own code are as they were.
    """
    found = identity_of_paths(value)
    parts = [*([] if found is None else [found.checksum]), *(one.checksum for one in made)]
    return {OWN_CODE: checksum(" ".join(parts).encode())[:DIGITS]} if parts else {}


ROWS = 8  # of a data set that are looked at
SEED = 0  # of the random numbers of their augmentation


def rows_of(batches: Any) -> list[Any]:
    """Return some rows of data, for an identity: what the data's code makes of files cannot be told from the code.

    Of a loader, they are rows of its data set, evenly spaced; else the first batch, unless all batches are in a list, which an
    identity goes through itself. Random numbers are those of one seed. Of values that differ when a row is made again, as by a
    generator of the data set's own, only the shapes are returned. Rows that cannot be made are left out: trainings say why.
    """
    dataset = getattr(batches, "dataset", batches)
    if isinstance(dataset, list | tuple):
        return []
    count: int | None
    try:
        count = len(dataset)
    except TypeError:  # a stream
        count = None

    def draw() -> list[Any]:
        with unchanged_process(SEED):
            if count is None or not hasattr(dataset, "__getitem__"):
                return list(islice(iter(dataset), 1 if dataset is batches else ROWS))
            places = dict.fromkeys((count - 1) * place // (ROWS - 1) for place in range(ROWS)) if count else ()
            return [dataset[place] for place in places]

    try:
        return [count, *_stable(draw(), draw())]
    except Exception:
        return [count]


def _stable(first: Any, second: Any) -> Any:
    if isinstance(first, dict) and isinstance(second, dict) and first.keys() == second.keys():
        return {key: _stable(first[key], second[key]) for key in first}
    if isinstance(first, list | tuple) and isinstance(second, list | tuple) and len(first) == len(second):
        return [_stable(*pair) for pair in zip(first, second, strict=True)]
    if identity_of({"": first}).checksum == identity_of({"": second}).checksum:
        return first
    return [type(first).__name__, *map(str, getattr(first, "shape", ()))]
