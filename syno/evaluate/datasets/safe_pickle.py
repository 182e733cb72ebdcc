"""Pickles of arrays, bytes, lists and dictionaries. A pickle can call whatever it names; these may name nothing else."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from syno.errors import DataError


def _encoded(text: str, encoding: str) -> bytes:
    """What `_codecs.encode` does in pickles of bytes by Python 2's protocol, and nothing else that it can do."""
    if encoding != "latin1":
        raise pickle.UnpicklingError(f'it asks for the encoding "{encoding}"')
    return text.encode("latin1")


_ARRAY: Callable[..., Any] = np.empty(0).__reduce__()[0]  # type: ignore[assignment]  # makes an array, empty at first
ALLOWED: dict[tuple[str, str], Any] = {
    ("numpy", "ndarray"): np.ndarray,
    ("numpy", "dtype"): np.dtype,
    ("numpy.core.multiarray", "_reconstruct"): _ARRAY,
    ("numpy._core.multiarray", "_reconstruct"): _ARRAY,
    ("_codecs", "encode"): _encoded,
}


class _Unpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        try:
            return ALLOWED[module, name]
        except KeyError:
            raise pickle.UnpicklingError(
                f"it asks for {module}.{name}, which data does not need; it may be an attack, and nothing of it was run"
            ) from None


def read_pickle(file: Path) -> Any:
    """What is in a pickle, with the strings of Python 2 as bytes. DataError, with the file's name, if it is something else."""
    try:
        with file.open("rb") as opened:
            return _Unpickler(opened, encoding="bytes").load()
    except Exception as error:  # a damaged pickle raises anything
        reason = " ".join(str(error).split()) or type(error).__name__
        raise DataError(f"{file} cannot be read as a pickle of arrays: {reason}") from error
