"""CIFAR-100, from Parquet files as on the Hub, from the Hub itself, or from the pickles of its authors.

It is decoded once into one file, which every training then loads in a fraction of a second.
"""

from __future__ import annotations

import pickle
import warnings
from collections.abc import Callable, Iterator, Mapping
from io import BytesIO
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from syno.base.errors import DataError, one_line
from syno.data.contract import DATASETS, content_hash, described
from syno.data.files import SPLITS, cifar100_files, no_cifar100, parquet_files, pickles
from syno.data.image_folder import FORMATS, rows_of_files, rows_of_hub
from syno.data.pictures import TENSORS, Augmentation, DataSet, check_fits, colours, read_arrays, write_arrays
from syno.data.settings import Cifar100Settings

# ---- pickles of arrays -----------------------------------------------------------------------------------------------

# A reader of pickles of arrays, as CIFAR-100's authors wrote them, that runs nothing that a pickle names.
#
# A pickle is a program for a small stack machine. This one has only the opcodes that CIFAR-100's pickles consist of, replaces
# the few functions that they name by functions that check their arguments, and makes arrays of plain numbers only. It is
# based on the machine in Python, since a large index into the memo can make the one in C take any amount of memory.

MOST_BYTES = 2**29  # of a file; the larger one of CIFAR-100 has 155 MB
MOST_STEPS = 2_000_000  # opcodes that are run; that file takes some 500,000
MOST_CHARACTERS = 300  # of a message, in which there may be a name of any length
PLAIN = frozenset(f"{kind}{size}" for kind in "iu" for size in (1, 2, 4, 8)) | {"f2", "f4", "f8", "b1"}


def _text(given: Any) -> str:
    """Return text given as text or bytes. Anything else is an error, before it is compared or hashed.

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


def _encode_latin1(text: Any, encoding: Any) -> bytes:
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
    ("_codecs", "encode"): _Named(_encode_latin1),
}
PYTHON: Any = pickle._Unpickler
STEPS = [  # opcodes of pickle, without those that make objects of any class
    "PROTO", "FRAME", "STOP", "MARK", "POP", "POP_MARK", "DUP", "PUT", "BINPUT", "LONG_BINPUT", "MEMOIZE", "GET", "BINGET",
    "LONG_BINGET", "NONE", "NEWTRUE", "NEWFALSE", "INT", "BININT", "BININT1", "BININT2", "LONG", "LONG1", "FLOAT", "BINFLOAT",
    "STRING", "BINSTRING", "SHORT_BINSTRING", "BINBYTES", "SHORT_BINBYTES", "BINBYTES8", "UNICODE", "BINUNICODE",
    "SHORT_BINUNICODE", "BINUNICODE8", "TUPLE", "EMPTY_TUPLE", "TUPLE1", "TUPLE2", "TUPLE3", "LIST", "EMPTY_LIST", "APPEND",
    "APPENDS", "DICT", "EMPTY_DICT", "SETITEM", "SETITEMS", "GLOBAL", "STACK_GLOBAL", "REDUCE", "BUILD",
]  # fmt: skip


class _PickleSteps(dict[int, Callable[..., None]]):
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
        self.dispatch = _PickleSteps(type(self).dispatch)
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
    """Return the content of a pickle: a dictionary of arrays, numbers, text, bytes, lists and tuples.

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


# ---- data set --------------------------------------------------------------------------------------------------------

FORMAT = 1
CLASSES, SIDE = 100, 32
COUNTS = 50_000, 10_000  # pictures to train and to test on
MOST_PICTURES = 200_000
COLUMNS = ("img", "fine_label")

Part = tuple[NDArray[np.uint8], NDArray[np.int64]]  # pictures [n, 3, 32, 32], labels [n]


@DATASETS.register("cifar100")
def cifar100(**settings: Any) -> DataSet:
    """Return CIFAR-100. It is decoded into the file `prepared` the first time, and again when its source files have changed.

    Args:
        settings: fields of Cifar100Settings.

    Raises:
        SpecError, UnknownNameError: an unknown setting or recipe.
        DataError: the data is missing or damaged.
    """
    chosen = Cifar100Settings.of(**settings)
    recipe = chosen.augmented
    check_fits(recipe, (SIDE, SIDE))
    content = _load(chosen) or prepare(chosen)
    images, labels, test_images, test_labels = (torch.from_numpy(content[name]) for name in TENSORS)
    _check_counts(chosen.folder, len(labels), len(test_labels))
    mean, deviation = (tuple(map(float, content[name])) for name in ("mean", "deviation"))
    augmentation = Augmentation(recipe, mean, deviation)
    return DataSet("cifar100", images, labels, test_images, test_labels, CLASSES, str(content["hash"]), augmentation)


# ---- the decoded file -------------------------------------------------------------------------------------------------


def prepare(settings: Cifar100Settings) -> dict[str, Any]:
    """Decode the data, write the file `prepared`, and return its content. DataError if the data is missing or damaged."""
    made_from = described(_source_files(settings.folder))
    parts = [array for split in SPLITS for array in _read_split(settings, split)]
    tensors = [torch.from_numpy(array) for array in parts]
    mean, deviation = colours(tensors[0])
    content: dict[str, Any] = dict(zip(TENSORS, parts, strict=True))
    content |= {"mean": np.array(mean), "deviation": np.array(deviation), "hash": np.array(content_hash(*tensors))}
    content |= {"format": np.array(FORMAT), "made_from": np.array(made_from)}
    write_arrays(settings.prepared, content)
    return content


def _check_counts(folder: Path, train: int, test: int) -> None:
    """Warn of other numbers of pictures than CIFAR-100 has, as in a copy that was cut, or whose files were exchanged."""
    if (train, test) == COUNTS:
        return
    exchanged = ": its files to train and to test on are exchanged" if (test, train) == COUNTS else ""
    warnings.warn(
        f"{folder} has {train:,} pictures to train on and {test:,} to test on, and CIFAR-100 has {COUNTS[0]:,} and "
        f"{COUNTS[1]:,}{exchanged}; scores do not compare with others",
        stacklevel=2,
    )


def _load(settings: Cifar100Settings) -> dict[str, Any] | None:
    """Return the content of the file `prepared`; None if there is none, or if its source files have changed since."""
    if not settings.prepared.is_file():
        return None
    try:
        content = read_arrays(settings.prepared)
        current = int(content["format"]) == FORMAT
        if current:
            _check_arrays(content)
    except Exception as error:  # a damaged file raises anything
        raise DataError(f"{settings.prepared} is damaged: {one_line(error)}; delete it, and it is made again") from error
    files = _source_files(settings.folder)
    same = not files or described(files) == str(content["made_from"])
    return content if current and same else None


def _check_arrays(content: Mapping[str, Any]) -> None:
    """Raise ValueError or LookupError if these are not the arrays that `prepare` writes."""
    for name, labels_name in (TENSORS[:2], TENSORS[2:]):
        images, labels = content[name], content[labels_name]
        _as_arrays(images, labels, name)
        if (images.dtype, images.shape[1:], labels.dtype) != (np.uint8, (3, SIDE, SIDE), np.int64):
            raise ValueError("its arrays have other shapes or types than CIFAR-100's")
    statistics = [content[name] for name in ("mean", "deviation")]
    if any(part.shape != (3,) or not np.isfinite(part).all() for part in statistics) or not (statistics[1] > 0).all():
        raise ValueError("its mean and deviation of colours are not three finite numbers each")


# ---- where it is read from --------------------------------------------------------------------------------------------


def _source_files(folder: Path) -> list[Path]:
    """Return the files that the data would be read from; an empty list if there are none."""
    return [file for split in SPLITS for file in cifar100_files(folder, split)]


def _read_split(settings: Cifar100Settings, split: str) -> Part:
    """Return the pictures and labels of a split. DataError if they are missing or damaged."""
    files = parquet_files(settings.folder, split)
    if files:
        return _decode_rows(rows_of_files(files, COLUMNS), f"{settings.folder}, {split}")
    for file in pickles(settings.folder, split):
        return _read_authors_pickle(file)
    absent = no_cifar100(settings.folder, split)
    return _decode_rows(rows_of_hub(settings, split, COLUMNS, absent), settings.repository)


def _read_authors_pickle(file: Path) -> Part:
    """Return the pictures and labels in a pickle of the authors."""
    content = read_pickle(file)
    if not isinstance(content, dict):
        raise DataError(f"{file} holds a {type(content).__name__}; a pickle of CIFAR-100 holds a dictionary")
    try:
        pictures, labels = (content[name] if name in content else content[name.decode()] for name in (b"data", b"fine_labels"))
    except KeyError as error:
        known = ", ".join(str(name.decode() if isinstance(name, bytes) else name) for name in content)
        raise DataError(f"{file} has no {error.args[0]}; it has: {known}") from None
    if not isinstance(pictures, np.ndarray) or pictures.dtype != np.uint8 or pictures.shape[1:] != (3 * SIDE**2,):
        given = f"{pictures.dtype} {list(pictures.shape)}" if isinstance(pictures, np.ndarray) else type(pictures).__name__
        raise DataError(f"{file}: data is {given}; it must be uint8 [n, {3 * SIDE**2}]")
    if not isinstance(labels, np.ndarray) and not (isinstance(labels, list) and all(type(label) is int for label in labels)):
        raise DataError(f"{file}: labels are no whole numbers")  # nested lists, a few bytes in a pickle, can be endless
    return _as_arrays(pictures.reshape(-1, 3, SIDE, SIDE), labels, str(file))


def _decode_rows(tables: Iterator[tuple[str, Any]], place: str) -> Part:
    """Return the pictures and labels in tables, each of which comes with the name of its file."""
    pictures: list[NDArray[np.uint8]] = []
    labels: list[Any] = []
    row, before = 0, ""
    for file, table in tables:
        row, before = (row if file == before else 0), file
        encoded = table.column("img").combine_chunks()
        if not hasattr(encoded, "field") or encoded.type.get_field_index("bytes") < 0:
            raise DataError(f'{file}: the column "img" is {encoded.type}; it must be a struct with the bytes of pictures')
        for png in encoded.field("bytes").to_pylist():
            pictures.append(_picture(png, f"{file}, row {row}"))
            row += 1
        if len(pictures) > MOST_PICTURES:
            raise DataError(f"{file}: there are more than {MOST_PICTURES:,} pictures; CIFAR-100 has 60,000")
        labels += table.column("fine_label").to_pylist()
    stacked = np.stack(pictures) if pictures else np.empty((0, 3, SIDE, SIDE), np.uint8)
    return _as_arrays(stacked, labels, place)


def _picture(png: bytes | None, place: str) -> NDArray[np.uint8]:
    """Return a decoded picture [3, 32, 32]. DataError, which begins with `place`, if it is damaged or of another size."""
    from PIL import Image

    try:
        opened = Image.open(BytesIO(png or b""), formats=FORMATS)
        size = opened.size
        pixels = np.asarray(opened.convert("RGB")) if size == (SIDE, SIDE) else None  # else not decoded: it may be huge
    except Exception as error:  # a damaged file raises anything
        raise DataError(f"{place}: the picture is damaged: {one_line(error)}; copy the file again") from error
    if pixels is None:
        raise DataError(f"{place}: the picture is {size[0]} x {size[1]}; it must be {SIDE} x {SIDE}")
    return pixels.transpose(2, 0, 1)


def _as_arrays(pictures: NDArray[np.uint8], labels: Any, place: str) -> Part:
    """Return pictures and labels as arrays. DataError, which begins with `place`, if they can't be CIFAR-100's."""
    if not len(pictures):
        raise DataError(f"{place}: there are no pictures")
    try:
        numbers = np.asarray(labels)
    except ValueError as error:  # lists of several lengths
        raise DataError(f"{place}: labels are no whole numbers: {one_line(error)}") from None
    if numbers.dtype.kind not in "iu":
        raise DataError(f"{place}: labels are no whole numbers, but {numbers.dtype}")
    if numbers.shape != (len(pictures),):
        raise DataError(
            f"{place}: there are {len(pictures)} pictures and labels of shape {list(numbers.shape)}; each needs one"
        )
    if numbers.min() < 0 or numbers.max() >= CLASSES:
        raise DataError(
            f"{place}: labels go from {numbers.min()} to {numbers.max()}; those of CIFAR-100 go from 0 to {CLASSES - 1}"
        )
    return np.ascontiguousarray(pictures), numbers.astype(np.int64)
