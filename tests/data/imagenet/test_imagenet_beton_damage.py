"""Damaged beton files and their records. FFCV is not needed: it must not see them."""

from __future__ import annotations

from pathlib import Path

import pytest
from small_beton import SIZES, write_beton

from syno.base.errors import DataError
from syno.data import beton
from syno.data.beton import BetonRecord, read_record, record_file


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

    def test_a_file_of_another_number_of_pictures_than_its_record(self, file: Path) -> None:
        record = BetonRecord.read(record_file(file))
        record_file(file).unlink()
        record.model_copy(update={"count": 3}).write(record_file(file))
        with pytest.raises(DataError, match=r"train\.beton holds another number of pictures than .*train\.beton\.json says"):
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
