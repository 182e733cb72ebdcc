"""Damaged files of CIFAR-100: the file, the row and what is wrong with it are named."""

from __future__ import annotations

import pickle
import subprocess
import sys
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow
import pyarrow.parquet
import pytest
from small_cifar100 import SIZES, Load, Part, encoded, table, write_parquet

from syno.base.errors import DataError


class Attack:
    """A pickle that would run a command."""

    def __init__(self, file: Path) -> None:
        self.file = file

    def __reduce__(self) -> Any:
        return subprocess.check_call, ([sys.executable, "-c", f"open({str(self.file)!r}, 'w')"],)


class TestDamage:
    def test_a_truncated_pickle_is_an_error(self, load: Load, pickles: Path) -> None:
        file = pickles / "cifar-100-python" / "test"
        file.write_bytes(file.read_bytes()[:-100])
        with pytest.raises(DataError, match=r"cifar-100-python/test .*pickle"):
            load(pickles)

    def test_a_pickle_cannot_run_anything(self, load: Load, pickles: Path, tmp_path: Path) -> None:
        file, trace = pickles / "cifar-100-python" / "train", tmp_path / "trace"
        file.write_bytes(pickle.dumps({b"data": Attack(trace)}, protocol=2))
        with pytest.raises(DataError, match=r"train cannot be .*: it asks for \w+\.check_call"):
            load(pickles)
        assert not trace.exists()
        pickle.loads(file.read_bytes())
        assert trace.exists()  # it would have

    @pytest.mark.parametrize("name", ["os.system", "builtins.eval", "numpy.load", "numpy.ndarray.tofile", "codecs.encode"])
    def test_a_pickle_can_call_no_function_of_any_module(self, load: Load, pickles: Path, name: str) -> None:
        module, _, function = name.rpartition(".")
        (pickles / "cifar-100-python" / "train").write_bytes(f"c{module}\n{function}\n.".encode())
        with pytest.raises(DataError, match="which data does not need"):
            load(pickles)

    @pytest.mark.parametrize(
        ("change", "message"),
        [
            ({b"data": None}, "data is NoneType"),
            ({b"data": np.zeros((23, 100), np.uint8)}, r"data is uint8 \[23, 100\]; it must be uint8 \[n, 3072\]"),
            ({b"data": np.zeros((23, 3072))}, "data is float64"),
            ({b"fine_labels": [1, 2]}, "23 pictures and labels of shape"),
            ({b"fine_labels": [100] * 23}, "labels go from 100 to 100"),
            ({b"fine_labels": ["cat"] * 23}, "labels are no whole numbers"),
        ],
    )
    def test_pickles_of_other_values_are_errors(
        self, load: Load, pickles: Path, change: dict[bytes, Any], message: str
    ) -> None:
        file = pickles / "cifar-100-python" / "train"
        content = pickle.loads(file.read_bytes())
        file.write_bytes(pickle.dumps(content | change, protocol=2))
        with pytest.raises(DataError, match=rf"cifar-100-python/train.*{message}"):
            load(pickles)

    def test_a_pickle_without_a_key_is_an_error(self, load: Load, pickles: Path) -> None:
        (pickles / "cifar-100-python" / "train").write_bytes(pickle.dumps({b"data": 1, b"labels": 2}, protocol=2))
        with pytest.raises(DataError, match="train has no fine_labels; it has: data, labels"):
            load(pickles)

    def test_parquet_without_a_column_is_an_error(self, load: Load, parquet: Path) -> None:
        file = parquet / "cifar100" / "train-00000-of-00001.parquet"
        pyarrow.parquet.write_table(pyarrow.parquet.read_table(file).drop_columns("fine_label"), file)
        with pytest.raises(DataError, match=r'train-00000-of-00001\.parquet .*"fine_label"'):
            load(parquet)

    def test_truncated_parquet_is_an_error(self, load: Load, parquet: Path) -> None:
        file = parquet / "cifar100" / "test-00000-of-00001.parquet"
        file.write_bytes(file.read_bytes()[:-200])
        with pytest.raises(DataError, match=r"test-00000-of-00001\.parquet cannot be read as Parquet"):
            load(parquet)

    @pytest.mark.parametrize(
        ("damage", "message"),
        [
            (lambda png: png[:-300], "the picture is damaged"),
            (lambda png: png[:200] + bytes([png[200] ^ 255]) + png[201:], "the picture is damaged"),
            (lambda png: b"", "the picture is damaged"),
            (lambda png: encoded(np.zeros((16, 32, 3), np.uint8)), "the picture is 32 x 16; it must be 32 x 32"),
        ],
    )
    def test_damaged_pictures_are_named(
        self, load: Load, tmp_path: Path, parts: dict[str, Part], damage: Callable[[bytes], bytes], message: str
    ) -> None:
        folder = write_parquet(tmp_path / "damaged", parts)
        pngs = [encoded(picture) for picture in parts["train"][0]]
        pngs[7] = damage(pngs[7])
        file = folder / "cifar100" / "train-00000-of-00001.parquet"
        pyarrow.parquet.write_table(table(pngs, parts["train"][1]), file)
        with pytest.raises(DataError, match=rf"train-00000-of-00001\.parquet, row 7: {message}"):
            load(folder)

    def test_columns_without_pictures_are_errors(self, load: Load, parquet: Path) -> None:
        file = parquet / "cifar100" / "train-00000-of-00001.parquet"
        pyarrow.parquet.write_table(pyarrow.table({"img": [1, 2], "fine_label": [1, 2]}), file)
        with pytest.raises(DataError, match='the column "img" is int64'):
            load(parquet)

    def test_nothing_is_written_of_what_is_damaged(self, load: Load, pickles: Path, tmp_path: Path) -> None:
        (pickles / "cifar-100-python" / "test").write_bytes(b"")
        with pytest.raises(DataError):
            load(pickles)
        assert not (tmp_path / "prepared").exists() or not list((tmp_path / "prepared").iterdir())


def test_copies_that_were_cut_or_exchanged_are_warned_of(
    load: Load, pickles: Path, monkeypatch: pytest.MonkeyPatch, recwarn: pytest.WarningsRecorder
) -> None:
    counts = SIZES["train"], SIZES["test"]
    with pytest.warns(UserWarning, match=f"has {counts[0]} pictures to train on and {counts[1]} to test"):
        load(pickles)
    monkeypatch.setattr(import_module("syno.data.cifar100"), "COUNTS", counts)
    recwarn.clear()
    load(pickles)
    assert not recwarn
    folder = pickles / "cifar-100-python"
    for name, other in (("train", "kept"), ("test", "train"), ("kept", "test")):
        (folder / name).rename(folder / other)
    with pytest.warns(UserWarning, match="its files to train and to test on are exchanged; scores do not compare"):
        load(pickles)
