"""A reader of pickles of arrays, as CIFAR-100's authors wrote them, that runs nothing that a pickle names.

A pickle is a program for a small stack machine. This one has only the opcodes that CIFAR-100's pickles consist of, replaces the
few functions that they name by functions that check their arguments, and makes arrays of plain numbers only. It is based on the
machine in Python, since a large index into the memo can make the one in C take any amount of memory.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable
from io import BytesIO
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from syno.base.errors import DataError

MOST_BYTES = 2**29  # of a file; the larger one of CIFAR-100 has 155 MB
MOST_STEPS = 2_000_000  # opcodes that are run; that file takes some 500,000
MOST_CHARACTERS = 300  # of a message, in which there may be a name of any length
PLAIN = frozenset(f"{kind}{size}" for kind in "iu" for size in (1, 2, 4, 8)) | {"f2", "f4", "f8", "b1"}


def _text(given: Any) -> str:
    """Return text that is given as text or bytes. Other things are refused before they are compared or hashed.

    Comparing or hashing deeply nested tuples would end the process.
    """
    if isinstance(given, bytes):
        return given.decode("latin1")
    if not isinstance(given, str):
        raise pickle.UnpicklingError(f"it has {type(given).__name__} where a text must be")
    return given


class _Type:
    """The type of an array, checked, as it stands in the pickle; no object of NumPy's."""

    def __init__(self, name: Any, align: Any = 0, copy: Any = 0) -> None:
        self.name = _text(name)
        if self.name not in PLAIN:
            raise pickle.UnpicklingError(
                f'it has an array of the type "{self.name[:20]}"; allowed are plain numbers: {", ".join(sorted(PLAIN))}'
            )
        self.order = "="

    def set_state(self, state: Any) -> None:
        """Set the byte order from (3, order, None, None, None, -1, -1, 0). Refuse any more, which would be a structure."""
        if not isinstance(state, tuple) or len(state) < 8 or any(part is not None for part in state[2:5]):
            raise pickle.UnpicklingError("it has an array of structures; allowed are plain numbers")
        self.order = _text(state[1])
        if self.order not in ("<", ">", "|", "="):
            raise pickle.UnpicklingError(f'it has an array with the order of bytes "{self.order[:20]}"')


class _Array:
    """An array as it stands in the pickle. `value` is the array, once its content has been checked."""

    def __init__(self, kind: Any, shape: Any, type_: Any) -> None:
        if kind is not _ARRAY_TYPE or shape != (0,):
            raise pickle.UnpicklingError("it makes an array in another way than NumPy's pickles do")
        self.value: NDArray[Any] = np.empty(0)

    def set_state(self, state: Any) -> None:
        """Set the content from (1, shape, type, whether it is stored column by column, bytes)."""
        if not isinstance(state, tuple) or len(state) != 5:
            raise pickle.UnpicklingError("it has an array without shape, type and content")
        _, shape, type_, by_column, content = state
        if not isinstance(shape, tuple) or not all(type(length) is int and length >= 0 for length in shape):
            raise pickle.UnpicklingError("it has an array whose shape is no tuple of whole numbers")
        if not isinstance(type_, _Type) or not isinstance(content, bytes):
            raise pickle.UnpicklingError("it has an array of something else than numbers")
        plain = np.dtype(type_.order + type_.name)
        if prod(shape) * plain.itemsize != len(content):
            raise pickle.UnpicklingError(
                f"it has an array of shape {list(shape)[:8]}, of {plain.itemsize} bytes, with {len(content)} bytes of content"
            )
        self.value = np.frombuffer(content, plain).reshape(shape, order="F" if by_column else "C").copy()  # may be changed


class _Named:
    """A function that a pickle may name, and call."""

    def __init__(self, function: Callable[..., Any] | None) -> None:
        self.function = function


def _encoded(text: Any, encoding: Any) -> bytes:
    """Return text encoded as Latin-1: the only use of `_codecs.encode` in pickles of bytes by protocol 2."""
    if _text(encoding) != "latin1":
        raise pickle.UnpicklingError(f'it asks for the encoding "{_text(encoding)[:20]}"')
    return _text(text).encode("latin1")


_ARRAY_TYPE = _Named(None)
ALLOWED = {
    ("numpy", "ndarray"): _ARRAY_TYPE,
    ("numpy", "dtype"): _Named(_Type),
    ("numpy.core.multiarray", "_reconstruct"): _Named(_Array),
    ("numpy._core.multiarray", "_reconstruct"): _Named(_Array),
    ("_codecs", "encode"): _Named(_encoded),
}
PYTHON: Any = pickle._Unpickler
STEPS = [  # opcodes of pickle, without those that make objects of any class
    "PROTO", "FRAME", "STOP", "MARK", "POP", "POP_MARK", "DUP", "PUT", "BINPUT", "LONG_BINPUT", "MEMOIZE", "GET", "BINGET",
    "LONG_BINGET", "NONE", "NEWTRUE", "NEWFALSE", "INT", "BININT", "BININT1", "BININT2", "LONG", "LONG1", "FLOAT", "BINFLOAT",
    "STRING", "BINSTRING", "SHORT_BINSTRING", "BINBYTES", "SHORT_BINBYTES", "BINBYTES8", "UNICODE", "BINUNICODE",
    "SHORT_BINUNICODE", "BINUNICODE8", "TUPLE", "EMPTY_TUPLE", "TUPLE1", "TUPLE2", "TUPLE3", "LIST", "EMPTY_LIST", "APPEND",
    "APPENDS", "DICT", "EMPTY_DICT", "SETITEM", "SETITEMS", "GLOBAL", "STACK_GLOBAL", "REDUCE", "BUILD",
]  # fmt: skip


class _Steps(dict[int, Callable[..., None]]):
    """The functions of the opcodes. At most `left` opcodes are run."""

    left = MOST_STEPS

    def __getitem__(self, code: int) -> Callable[..., None]:
        self.left -= 1
        if self.left < 0:
            raise pickle.UnpicklingError(f"it has more than {MOST_STEPS:,} steps")
        if (step := self.get(code)) is None:
            raise pickle.UnpicklingError(f"it has the step {bytes([code])!r}, which data does not need; it may be an attack")
        return step


class _Unpickler(PYTHON):  # type: ignore[misc]  # mypy does not know the class
    dispatch = {code: PYTHON.dispatch[code] for code in (getattr(pickle, step)[0] for step in STEPS)}  # noqa: RUF012

    def find_class(self, module: str, name: str) -> Any:
        try:
            return ALLOWED[module, name]
        except KeyError:
            raise pickle.UnpicklingError(
                f"it asks for {module}.{name}, which data does not need; it may be an attack, and nothing of it was run"
            ) from None

    def load(self) -> Any:
        """Return the object in the pickle, as `pickle.Unpickler` does."""
        self.dispatch = _Steps(type(self).dispatch)
        return super().load()

    def load_reduce(self) -> None:
        """Call the function that was named, if it may be called."""
        arguments, named = self.stack.pop(), self.stack.pop()
        if not isinstance(named, _Named) or named.function is None or not isinstance(arguments, tuple):
            raise pickle.UnpicklingError("it calls something that data does not need; it may be an attack")
        self.stack.append(named.function(*arguments))

    def load_build(self) -> None:
        """Set the content of an array or a type."""
        state = self.stack.pop()
        if not isinstance(self.stack[-1], _Array | _Type):
            raise pickle.UnpicklingError("it changes something that is no array; it may be an attack")
        self.stack[-1].set_state(state)

    def set_items(self, items: list[Any]) -> None:
        """Put keys and values into a dictionary. Keys are text: hashing deeply nested tuples could end the process."""
        found = self.stack[-1]
        if not isinstance(found, dict) or len(items) % 2 or not all(isinstance(name, str | bytes) for name in items[::2]):
            raise pickle.UnpicklingError("it has a dictionary whose names are no text")
        found.update(zip(items[::2], items[1::2], strict=True))

    def load_setitem(self) -> None:
        """Put the two things on the stack into the dictionary below them."""
        value, name = self.stack.pop(), self.stack.pop()
        self.set_items([name, value])

    def load_setitems(self) -> None:
        """Put everything above the mark into the dictionary below it."""
        items = self.pop_mark()
        self.set_items(items)

    def load_dict(self) -> None:
        """Make a dictionary of everything above the mark."""
        items = self.pop_mark()
        self.stack.append({})
        self.set_items(items)

    for _code, _step in (
        (pickle.REDUCE, load_reduce), (pickle.BUILD, load_build), (pickle.DICT, load_dict),
        (pickle.SETITEM, load_setitem), (pickle.SETITEMS, load_setitems),
    ):  # fmt: skip
        dispatch[_code[0]] = _step


def read_pickle(file: Path) -> Any:
    """Return what is in a pickle: arrays in a dictionary, with numbers, text, bytes, lists and tuples beside them.

    Strings of Python 2 are bytes. DataError, with the file's name, if it is something else, or larger than 512 MiB.
    """
    try:
        if (size := file.stat().st_size) > MOST_BYTES:
            raise ValueError(f"it has {size:,} bytes; no pickle of CIFAR-100 has more than {MOST_BYTES:,}")
        # read from memory, where a length beyond the end is cut off; from a file, so much memory would be allocated first
        found = _Unpickler(BytesIO(file.read_bytes()), encoding="bytes").load()
        if isinstance(found, dict):
            return {name: part.value if isinstance(part, _Array) else part for name, part in found.items()}
    except Exception as error:  # a damaged pickle raises anything
        reason = " ".join(str(error)[:MOST_CHARACTERS].split()) or type(error).__name__
        raise DataError(f"{file} cannot be read as a pickle of arrays: {reason}") from error
    return found.value if isinstance(found, _Array) else found
