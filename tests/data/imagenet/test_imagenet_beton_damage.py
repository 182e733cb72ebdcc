"""Beton files that were damaged, or made to harm, and their records. FFCV is not needed: it must not see them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from small_beton import SIZES, write_beton, write_record

from syno.base.errors import DataError
from syno.data import beton
from syno.data.beton import ENTRY, PLACE, read_record

FIRST = 24 + 2 * 1041  # where the entries of a beton file begin


class TestBeton:
    @pytest.fixture
    def file(self, tmp_path: Path) -> Path:
        return write_beton(tmp_path / "train.beton")

    def test_an_undamaged_file_is_read(self, file: Path) -> None:
        assert read_record(file).count == len(SIZES)

    def test_any_other_byte_is_an_error(self, file: Path) -> None:
        content = file.read_bytes()
        read_record(file)  # it was good before
        for place in range(0, len(content), 97):
            file.write_bytes(content[:place] + bytes([content[place] ^ 1]) + content[place + 1 :])
            with pytest.raises(DataError, match=r"train\.beton .*convert it again"):
                read_record(file)

    @pytest.mark.parametrize(
        ("field", "value", "message"),
        [
            ("place", 2**63, "points to a place where there is no picture"),
            ("place", 0, "points to a place where there is no picture"),
            ("width", 0, "has no such size"),
            ("width", 60000, "has another number of pixels"),
            ("height", 4, "has another number of pixels"),
            ("mode", 7, "is in no known form"),
        ],
    )
    def test_entries_of_a_file_whose_record_agrees(self, file: Path, field: str, value: int, message: str) -> None:
        def change(entries: Any) -> None:
            entries["image"][field][1] = value

        self.changed(file, change)
        with pytest.raises(DataError, match=rf"train\.beton is damaged: picture 1 {message}"):
            read_record(file)

    @pytest.mark.parametrize("label", [-1, 3, 2**40])
    def test_labels_beyond_the_classes_are_errors(self, file: Path, label: int) -> None:
        def change(entries: Any) -> None:
            entries["label"][2] = label

        self.changed(file, change)
        with pytest.raises(DataError, match="picture 2 has a label that is not below 3"):
            read_record(file)

    def test_a_jpeg_that_is_larger_than_its_entry_says(self, file: Path) -> None:
        def change(entries: Any) -> None:
            entries["image"]["width"][2] = 2

        self.changed(file, change)
        with pytest.raises(DataError, match="picture 2 is 16 x 8, but its entry says 2 x 8"):
            read_record(file)

    def test_a_picture_that_ends_beyond_the_file_is_an_error(self, file: Path) -> None:
        content = bytearray(file.read_bytes())
        places = np.frombuffer(content, PLACE, offset=len(content) - PLACE.itemsize * len(SIZES))
        places["size"][1] = 2**62
        file.write_bytes(content)
        write_record(file)
        with pytest.raises(DataError, match="picture 1 points to a place where there is no picture"):
            read_record(file)

    def test_bytes_are_compared_once_until_the_file_changes(self, file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        read: list[Path] = []
        digest_of = beton.digest_of
        monkeypatch.setattr(beton, "digest_of", lambda path: read.append(path) or digest_of(path))
        for _ in range(3):
            read_record(file)
        assert read == [file]
        file.write_bytes(file.read_bytes())
        read_record(file)
        assert read == [file, file]

    @staticmethod
    def changed(file: Path, change: Callable[[Any], None]) -> None:
        content = bytearray(file.read_bytes())
        change(np.frombuffer(content, ENTRY, len(SIZES), FIRST))
        file.write_bytes(content)
        write_record(file)
