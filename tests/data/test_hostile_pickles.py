"""Pickles that were made to harm: each is one clear error, in a process that would show a crash or much memory."""

from __future__ import annotations

import json
import pickle
import subprocess
import sys
from collections import OrderedDict
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from command_lines import HANGS_AFTER

import syno
from syno.base.errors import DataError
from syno.data.cifar100 import read_pickle

READS_ALL = """
import json, resource, sys
from pathlib import Path
from syno.base.errors import DataError
from syno.data.cifar100 import _PickleSteps, _read_authors_pickle
_PickleSteps.left = 250_000  # else the test would take longer
pages = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (pages + 2**30, pages + 2**30))
for file in sorted(Path(sys.argv[1]).iterdir()):
    try:
        _read_authors_pickle(file)
        print(json.dumps([file.name, "was read"]), flush=True)
    except DataError as error:
        print(json.dumps([file.name, str(error)]), flush=True)
"""
ARRAY = b"cnumpy.core.multiarray\n_reconstruct\n(cnumpy\nndarray\n(I0\ntVb\ntR"
BYTE = b"cnumpy\ndtype\n(Vu1\ntR"
PICTURE = ARRAY + b"(I1\n(I1\nI3072\nt" + BYTE + b"I00\nB\x00\x0c\x00\x00" + bytes(3072) + b"tb"


def with_labels(labels: bytes) -> bytes:
    return b"\x80\x03}(C\x04data" + PICTURE + b"C\x0bfine_labels" + labels + b"u."


HOSTILE = {
    "an array of objects over bytes": b"\x80\x03}(C\x04data"
    b"cnumpy\nndarray\n((I1\nI3072\ntVu1\ntRC\x0bfine_labels](cnumpy\nndarray\n((I1\ntcnumpy\ndtype\n(VO\ntRC\x08AAAAAAAAtReu.",
    "an array made by calling its class": b"cnumpy\nndarray\n((I1\nI3072\ntVu1\ntR.",
    "a type of objects": b"cnumpy\ndtype\n(VO\ntR.",
    "a type of fields": b"cnumpy\ndtype\n((VO\nVO\nttR.",
    "a type that is a structure": BYTE + b"(I3\nV|\nN(VO\nt}I8\nI1\nI0\ntb.",
    "a huge shape at first": b"cnumpy.core.multiarray\n_reconstruct\n(cnumpy\nndarray\n(L1099511627776L\ntVb\ntR.",
    "a huge shape later": ARRAY + b"(I1\n(L1099511627776L\nt" + BYTE + b"I00\nC\x00tb.",
    "a huge shape of nothing": ARRAY + b"(I1\n(I0\n" + b"L1099511627776L\n" * 40 + b"t" + BYTE + b"I00\nC\x00tb.",
    "a negative shape": ARRAY + b"(I1\n(I-1\nI-3072\nt" + BYTE + b"I00\nB\x00\x0c\x00\x00" + bytes(3072) + b"tb.",
    "a length that the file does not have": b"\x80\x04\x8e" + (2**40).to_bytes(8, "little") + b"x.",
    "a large number of a note": b"\x80\x02]r\xff\xff\xff\x7f.",
    "many marks": b"(" * 300_000 + b".",
    "deep tuples as a name": b"\x80\x02})" + b"\x85" * 200_000 + b"K\x01s.",
    "deep tuples as a name among several": b"\x80\x02}()" + b"\x85" * 200_000 + b"K\x01u.",
    "deep tuples as a type": b"\x80\x02cnumpy\ndtype\n)" + b"\x85" * 200_000 + b"\x85R.",
    "pairs of the pair before, as labels": with_labels(b"](K\x01" + b"2\x86" * 40 + b"e"),
    "an object of a class": b"cnumpy\nndarray\n)\x81.",
    "an object of a class, the old way": b"(I1\nicollections\nOrderedDict\n.",
    "a function that is changed": b"c_codecs\nencode\n}(V__name__\nVx\nsb.",
    "a number of many digits": b"L" + b"9" * 100_000 + b"L\n.",
    "an extension": b"\x82\x01.",
}


def test_each_hostile_pickle_is_one_clear_error(tmp_path: Path) -> None:
    for name, content in HOSTILE.items():
        (tmp_path / name).write_bytes(content)
    command = [sys.executable, "-c", READS_ALL, str(tmp_path)]
    done = subprocess.run(
        command, cwd=Path(syno.__file__).parents[1], capture_output=True, text=True, timeout=HANGS_AFTER, check=False
    )
    found = dict(map(json.loads, done.stdout.splitlines()))
    assert done.returncode == 0, (done.returncode, list(found)[-1:], done.stderr[-500:])
    assert found.keys() == HOSTILE.keys()
    for name, message in found.items():
        assert message.startswith(f"{tmp_path / name}") and "\n" not in message and len(message) < 600, (name, message)


CIFAR = {
    b"filenames": [b"a.png", b"b.png"],
    b"data": np.arange(2 * 3072, dtype=np.uint8).reshape(2, 3072),
    b"fine_labels": [3, 99],
    b"batch_label": b"training batch 1 of 1",
}


@pytest.mark.parametrize("protocol", range(5))  # as CIFAR-100 is found; the fifth is for arrays outside of the file
def test_harmless_pickles_of_every_protocol_are_read(protocol: int, tmp_path: Path) -> None:
    file = tmp_path / "train"
    file.write_bytes(pickle.dumps(CIFAR, protocol=protocol))
    found: dict[bytes, Any] = read_pickle(file)
    assert found.keys() == CIFAR.keys() and found[b"fine_labels"] == [3, 99] and found[b"filenames"] == CIFAR[b"filenames"]
    assert (
        found[b"data"].dtype == np.uint8 and np.array_equal(found[b"data"], CIFAR[b"data"]) and found[b"data"].flags.writeable
    )


def test_a_file_of_python_2_is_read(tmp_path: Path) -> None:
    """Step by step as CIFAR-100's own: protocol 2, strings of bytes, types and shapes as NumPy 1 wrote them."""
    file, pixels = tmp_path / "train", bytes(range(256)) * 24
    file.write_bytes(
        b"\x80\x02}q\x01(U\x04dataq\x02cnumpy.core.multiarray\n_reconstruct\nq\x03cnumpy\nndarray\nq\x04K\x00\x85U\x01b\x87Rq\x05"
        b"(K\x01K\x02M\x00\x0c\x86cnumpy\ndtype\nq\x06U\x02u1K\x00K\x01\x87Rq\x07(K\x03U\x01|NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xff"
        b"K\x00tb\x89T\x00\x18\x00\x00" + pixels + b"tbU\x0bfine_labels]q\x08(K\x13K\x1deu."
    )
    expected, found = pickle.loads(file.read_bytes(), encoding="bytes"), read_pickle(file)
    assert found.keys() == expected.keys() and found[b"fine_labels"] == [19, 29]
    assert found[b"data"].dtype == np.uint8 and found[b"data"].shape == (2, 3072)
    assert np.array_equal(found[b"data"], expected[b"data"])


@pytest.mark.parametrize("array", [np.arange(6, dtype=">i4").reshape(2, 3), np.asfortranarray(np.ones((2, 3)))])
def test_arrays_of_plain_numbers_come_back(array: np.ndarray[Any, Any], tmp_path: Path) -> None:
    file = tmp_path / "train"
    file.write_bytes(pickle.dumps({b"data": array}, protocol=2))
    found = read_pickle(file)[b"data"]
    assert found.dtype == array.dtype and found.shape == array.shape and np.array_equal(found, array)


@pytest.mark.parametrize("value", [np.array([{}]), np.array(["text"]), np.zeros(2, [("a", "u1")]), OrderedDict(a=1), 1 + 2j])
def test_other_values_are_refused(value: Any, tmp_path: Path) -> None:
    file = tmp_path / "train"
    file.write_bytes(pickle.dumps({b"data": value}, protocol=2))
    with pytest.raises(DataError, match="train cannot be read as a pickle of arrays: it "):
        read_pickle(file)
