"""Data that was damaged, or made to harm: one clear error before a reader sees it that would crash, hang or use all memory."""

from __future__ import annotations

import os
import zipfile
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow
import pyarrow.parquet
import pytest
from PIL import Image
from small_imagenet import load, write_folder

from syno.base.errors import DataError
from syno.data import DATASETS
from syno.data.cifar100 import CLASSES
from syno.data.hub_rows import rows_of_files
from syno.data.image_folder import find_pictures, read_picture
from syno.data.language import TokenHeader, map_tokens, read_header, write_tokens


class TestPreparedPictures:
    """The file of arrays into which CIFAR-100 is decoded."""

    @pytest.fixture
    def arrays(self) -> dict[str, Any]:
        images = np.zeros((4, 3, 32, 32), np.uint8)
        named = {f"{part}_{kind}": value for part in ("train", "test") for kind, value in
                 (("images", images), ("labels", np.arange(4)))}  # fmt: skip
        return {**named, "mean": np.full(3, 0.5), "deviation": np.ones(3), "hash": np.array("ab"), "format": np.array(1),
                "made_from": np.array("[]")}  # fmt: skip

    def read(self, folder: Path) -> Any:
        return DATASETS["cifar100"](folder=folder / "none", prepared=folder / "cifar100.npz")

    def test_an_undamaged_file_is_read(self, arrays: dict[str, Any], tmp_path: Path) -> None:
        np.savez(tmp_path / "cifar100.npz", allow_pickle=False, **arrays)
        assert self.read(tmp_path).train_count == 4

    @pytest.mark.parametrize(
        "change",
        [
            {"train_labels": np.full(4, CLASSES)},
            {"train_labels": np.arange(3)},
            {"test_labels": np.array([-1, 0, 0, 0])},
            {"train_images": np.zeros((4, 3, 16, 16), np.uint8)},
            {"deviation": np.zeros(3)},
            {"mean": np.full(3, np.nan)},
            {"format": np.array("one")},
        ],
    )
    def test_arrays_of_other_shapes_or_types_are_errors(
        self, arrays: dict[str, Any], change: dict[str, Any], tmp_path: Path
    ) -> None:
        np.savez(tmp_path / "cifar100.npz", allow_pickle=False, **(arrays | change))
        with pytest.raises(DataError, match=r"cifar100\.npz is damaged"):
            self.read(tmp_path)

    def test_a_few_bytes_that_become_very_many(self, arrays: dict[str, Any], tmp_path: Path) -> None:
        np.savez_compressed(tmp_path / "cifar100.npz", allow_pickle=False, **arrays)
        with pytest.raises(DataError, match=r"cifar100\.npz is damaged: it is compressed"):
            self.read(tmp_path)

    def test_a_header_that_asks_for_more_memory_than_there_is(self, arrays: dict[str, Any], tmp_path: Path) -> None:
        stream = BytesIO()
        np.lib.format.write_array_header_1_0(stream, {"descr": "|u1", "fortran_order": False, "shape": (2**50, 3, 32, 32)})
        np.savez(tmp_path / "cifar100.npz", allow_pickle=False, **{**arrays, "train_images": np.array(0)})
        with zipfile.ZipFile(tmp_path / "cifar100.npz") as opened:
            parts = {name: opened.read(name) for name in opened.namelist()}
        with zipfile.ZipFile(tmp_path / "cifar100.npz", "w") as opened:
            for name, content in (parts | {"train_images.npy": stream.getvalue()}).items():
                opened.writestr(name, content)
        with pytest.raises(DataError, match=r"cifar100\.npz is damaged"):
            self.read(tmp_path)


class TestTokens:
    @pytest.fixture
    def file(self, tmp_path: Path) -> Path:
        header = TokenHeader(vocabulary=100, tokenizer="bytes", tokenizer_hash="ab", made_from="cd")
        write_tokens(tmp_path / "train.tokens", header, [np.arange(50, dtype=np.uint16)])
        return tmp_path / "train.tokens"

    def test_other_tokens_are_an_error(self, file: Path) -> None:
        assert map_tokens(file)[1].tolist() == list(range(50))
        content = file.read_bytes()
        for place in range(4096, len(content), 9):
            file.write_bytes(content[:place] + b"\xff" + content[place + 1 :])
            with pytest.raises(DataError, match=r"train\.tokens is damaged"):
                map_tokens(file)

    @pytest.mark.parametrize(
        "change", [(b'"vocabulary": 100', b'"vocabulary": 101'), (b'"bytes"', b'"gpt-2"'), (b'"ab"', b'"ac"')]
    )
    def test_a_changed_header_is_an_error(self, file: Path, change: tuple[bytes, bytes]) -> None:
        content = file.read_bytes()
        assert change[0] in content and len(change[0]) == len(change[1])
        file.write_bytes(content.replace(*change))
        with pytest.raises(DataError, match=r"tokens is no file of tokens: .*checksum"):
            map_tokens(file)

    def test_a_file_of_an_earlier_version_is_read(self, file: Path) -> None:
        header, content = read_header(file), file.read_bytes()
        file.write_bytes(header.model_dump_json().encode().ljust(4096) + content[4096:])
        assert map_tokens(file)[0] == header

    @pytest.mark.parametrize("change", [('"count":50', '"count":-9'), ('"vocabulary":100', '"vocabulary":0')])
    def test_impossible_headers_are_errors(self, file: Path, change: tuple[str, str]) -> None:
        header, content = read_header(file).model_dump_json().replace(*change), file.read_bytes()
        assert change[1] in header  # without a checksum
        file.write_bytes(header.encode().ljust(4096) + content[4096:])
        with pytest.raises(DataError, match=r"train\.tokens is no file of tokens: .*greater than or equal to"):
            map_tokens(file)


class TestFolders:
    @pytest.fixture
    def folder(self, tmp_path: Path) -> Path:
        for split in ("train", "val"):
            write_folder(tmp_path / split, 2)
        return tmp_path

    @pytest.mark.parametrize("target", ["nowhere.JPEG", "itself.JPEG", "/dev/zero", "pipe"])
    def test_pipes_and_links_in_circles_are_errors(self, folder: Path, target: str) -> None:
        file = folder / "train" / "n02" / "itself.JPEG"
        if target == "pipe":
            os.mkfifo(file)
        else:
            file.symlink_to(target)
        with pytest.raises(DataError, match=r"itself\.JPEG (is no file|cannot be read)"):
            find_pictures(folder / "train")

    def test_a_link_to_a_picture_is_read_as_a_picture(self, folder: Path) -> None:
        (folder / "train" / "n02" / "more.JPEG").symlink_to(folder / "val" / "n02" / "n02_0.JPEG")
        assert len(find_pictures(folder / "train").entries) == 7

    @pytest.mark.parametrize("name", ["a\nb 5\nc.JPEG", "a\x1b[2Jb.JPEG"])
    def test_names_with_line_breaks_are_errors(self, folder: Path, name: str) -> None:
        (folder / "train" / "n01" / name).write_bytes(b"")
        with pytest.raises(DataError, match="has characters that cannot be printed") as error:
            find_pictures(folder / "train")
        assert str(error.value).isprintable()

    def test_a_picture_that_becomes_very_large(self, tmp_path: Path) -> None:
        file = tmp_path / "bomb.png"
        Image.new("1", (11_000, 11_000)).save(file)
        assert file.stat().st_size < 100_000
        with pytest.raises(DataError, match=r"bomb\.png: .*11000 x 11000 pixels.*100,000,000"):
            read_picture(str(file))

    def test_a_picture_in_a_format_that_starts_programs(self, tmp_path: Path) -> None:
        file = tmp_path / "page.JPEG"
        Image.new("RGB", (8, 8)).save(file, "EPS")
        with pytest.raises(DataError, match=r"page\.JPEG: the picture is damaged: cannot identify"):
            read_picture(str(file))

    def test_an_undamaged_folder_is_read(self, folder: Path) -> None:
        assert load(folder).train_count == 6


class TestParquet:
    def test_a_few_bytes_that_become_very_many(self, tmp_path: Path) -> None:
        file = tmp_path / "train-00000-of-00001.parquet"
        texts = pyarrow.array(["a" * 2**20] * 65)
        pyarrow.parquet.write_table(pyarrow.table({"text": texts}), file, compression="zstd", use_dictionary=False)
        assert file.stat().st_size < 200_000
        with pytest.raises(DataError, match=r"00001\.parquet .*text has .* bytes"):
            list(rows_of_files([file], ["text"]))

    def test_any_damage_is_one_clear_error(self, tmp_path: Path) -> None:
        file = tmp_path / "train-00000-of-00001.parquet"
        pyarrow.parquet.write_table(pyarrow.table({"text": [f"line {number}" for number in range(50)]}), file)
        content = file.read_bytes()
        for place in range(len(content) - 400, len(content), 3):  # the metadata; of the text nothing is known
            file.write_bytes(content[:place] + bytes([content[place] ^ 4]) + content[place + 1 :])
            try:
                list(rows_of_files([file], ["text"]))
            except DataError as error:
                assert str(error).startswith(str(file)) and "\n" not in str(error)
