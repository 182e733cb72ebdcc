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
    def test_pickles_with_other_bytes_than_the_published_ones_are_not_read(
        self, load: Load, pickles: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        file, trace = pickles / "cifar-100-python" / "train", tmp_path / "trace"
        whole = file.read_bytes()
        for content in (whole[:-100], whole + b"\0", b"", pickle.dumps({b"data": Attack(trace)}, protocol=2)):
            file.write_bytes(content)
            with pytest.raises(DataError, match=r"cifar-100-python/train is not train of .* is not read; unpack .*parquet"):
                load(pickles)
        assert not trace.exists()
        pickle.loads(content)
        assert trace.exists()  # it would have
        file.write_bytes(whole)
        monkeypatch.undo()  # the MD5s are the published ones again
        with pytest.raises(DataError, match=r"and not 16019d7e3df5f24257cddd939b257f8d"):
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
    load: Load, parquet: Path, monkeypatch: pytest.MonkeyPatch, recwarn: pytest.WarningsRecorder
) -> None:
    counts = SIZES["train"], SIZES["test"]
    with pytest.warns(UserWarning, match=f"has {counts[0]} pictures to train on and {counts[1]} to test"):
        load(parquet)
    monkeypatch.setattr(import_module("syno.data.cifar100"), "COUNTS", counts)
    recwarn.clear()
    load(parquet)
    assert not recwarn
    folder = parquet / "cifar100"
    for name, other in (("train", "kept"), ("test", "train"), ("kept", "test")):
        (folder / f"{name}-00000-of-00001.parquet").rename(folder / f"{other}-00000-of-00001.parquet")
    with pytest.warns(UserWarning, match="its files to train and to test on are exchanged; scores do not compare"):
        load(parquet)
