"""ImageNet out of small folders of JPEG files: read by torch, and what is damaged."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from small_imagenet import colours, equal, load
from typer.testing import CliRunner

from syno.base.errors import DataError, MissingPackageError, ShapeError
from syno.cli import app
from syno.config import Experiment
from syno.data.beton import convert
from syno.data.contract import Share, majority_of
from syno.data.image_folder import DEVIATION, MEAN, central_box, cut_out, find_pictures, random_box, read_picture
from syno.stages.data import prepare


class TestFolders:
    def test_labels_are_those_of_the_pictures(self, folder: Path) -> None:
        data = load(folder)
        assert (data.train_count, data.test_count, data.classes, data.image_shape) == (15, 9, 3, (3, 24, 24))
        for batches in (data.train_batches(4, seed=0).epoch(1), data.test_batches(4)):
            for images, labels in batches:
                assert images.dtype == torch.float32 and labels.dtype == torch.int64
                assert colours(images) == labels.tolist()

    def test_an_epoch_has_every_picture_at_most_once(self, folder: Path) -> None:
        labels = torch.cat([labels for _, labels in load(folder).train_batches(5, seed=0).epoch(1)])
        assert torch.bincount(labels).tolist() == [5, 5, 5]
        assert len(load(folder).train_batches(4, seed=0)) == 3
        assert [len(labels) for _, labels in load(folder).test_batches(4)] == [4, 4, 1]

    def test_testing_cuts_the_middle_out(self, folder: Path) -> None:
        data = load(folder, test_ratio=0.5)
        images, labels = next(iter(data.test_batches(9)))
        assert labels.tolist() == [0, 0, 0, 1, 1, 1, 2, 2, 2]
        with Image.open(folder / "val" / "n02" / "n02_1.JPEG") as picture:
            width, height = picture.size
            side = round(min(width, height) / 2)
            left, top = (width - side) // 2, (height - side) // 2
            cut = picture.resize((24, 24), Image.Resampling.BILINEAR, box=(left, top, left + side, top + side))
        expected = (np.asarray(cut).transpose(2, 0, 1) - np.array(MEAN)[:, None, None]) / np.array(DEVIATION)[:, None, None]
        np.testing.assert_allclose(images[4].numpy(), expected, atol=1e-5)

    @pytest.mark.parametrize(("epoch", "place", "workers"), [(1, 0, 2), (2, 1, 0), (1, 2, 0)])
    def test_an_epoch_can_be_resumed_at_any_batch_by_any_number_of_workers(
        self, folder: Path, epoch: int, place: int, workers: int
    ) -> None:
        whole = load(folder).train_batches(4, seed=7)
        passed = [list(whole.epoch(number)) for number in (1, 2)][epoch - 1][place:]
        resumed = list(load(folder, workers=workers).train_batches(4, seed=7).epoch(epoch, place))
        assert len(resumed) == 3 - place and equal(passed, resumed)

    def test_a_share_has_its_part_of_each_batch(self, folder: Path) -> None:
        whole = load(folder, workers=0).train_batches(4, seed=7)
        first, second = (whole.of_share(Share(number, 2)).epoch(1) for number in range(2))
        assert equal(
            whole.epoch(1), [tuple(map(torch.cat, zip(*halves, strict=True))) for halves in zip(first, second, strict=True)]
        )

    def test_epochs_and_seeds_differ(self, folder: Path) -> None:
        data = load(folder)
        batches = data.train_batches(15, seed=0)
        one, other = (next(batches.epoch(number)) for number in (1, 2))
        assert not torch.equal(one[1], other[1])
        assert not torch.equal(one[1], next(data.train_batches(15, seed=1).epoch(1))[1])

    def test_global_random_numbers_are_neither_read_nor_changed(self, folder: Path) -> None:
        torch.manual_seed(1)
        expected = torch.rand(1)
        torch.manual_seed(1)
        list(load(folder).train_batches(4, seed=0).epoch(1))
        assert torch.equal(torch.rand(1), expected)

    def test_the_hash_is_of_names_and_sizes(self, folder: Path) -> None:
        first = load(folder)
        assert load(folder).hash == first.hash
        (folder / "train" / "n01" / "n01_0.JPEG").rename(folder / "train" / "n01" / "other.JPEG")
        assert load(folder).hash != first.hash

    def test_the_data_stage_records_it_and_networks_train_on_it(self, folder: Path, tmp_path: Path) -> None:
        workload = {
            "data": "imagenet",
            "data_settings": {"folder": str(folder), "reader": "torch", "size": 32, "workers": 0},
            "width": 0.25,
            "training": {"epochs": 2, "batch": 5},
        }
        made = Experiment(name="small", workload=workload, spec={"depth": 4, "reads": "none"}, output=tmp_path / "results")
        record = prepare(made)
        assert (record.train_images, record.test_images, record.classes, record.image_shape) == (15, 9, 3, (3, 32, 32))
        assert made.network.train() == made.network.train()


class TestCuts:
    def test_random_parts_lie_inside_and_have_their_area(self) -> None:
        random, shares = np.random.default_rng(0), []
        for _ in range(2000):
            left, top, right, bottom = random_box(50, 80, 0.08, random)
            assert 0 <= left < right <= 50 and 0 <= top < bottom <= 80
            shares.append((right - left) * (bottom - top) / 4000)
            assert 0.65 < (right - left) / (bottom - top) < 1.5  # 3:4 to 4:3, rounded
        assert 0.06 < min(shares) < 0.1 and max(shares) > 0.8

    def test_a_strip_has_its_middle_taken(self) -> None:
        assert random_box(1000, 3, 0.9, np.random.default_rng(0)) == central_box(1000, 3, 1.0) == (498, 0, 501, 3)

    def test_grey_and_transparent_pictures_are_made_rgb(self, tmp_path: Path) -> None:
        for mode, name in (("L", "grey.jpg"), ("CMYK", "print.jpg"), ("RGBA", "clear.png"), ("P", "table.png")):
            Image.new(mode, (20, 10)).save(tmp_path / name)
            assert cut_out(read_picture(str(tmp_path / name)), (0, 0, 20, 10), 8).shape == (3, 8, 8)


class TestDamage:
    @pytest.mark.parametrize("workers", [0, 1])
    @pytest.mark.parametrize("content", [b"", b"no picture", None])
    def test_a_damaged_picture_is_named(self, folder: Path, content: bytes | None, workers: int) -> None:
        file = folder / "train" / "n02" / "n02_3.JPEG"
        file.write_bytes(file.read_bytes()[:-400] if content is None else content)
        with pytest.raises(DataError) as error:
            list(load(folder, workers=workers).train_batches(5, seed=0).epoch(1))
        assert str(error.value).startswith(f"{file}: the picture is damaged: ") and "\n" not in str(error.value)

    def test_missing_and_empty_folders_are_errors(self, folder: Path, tmp_path: Path) -> None:
        with pytest.raises(DataError, match=r"no folder .*nothing/train"):
            load(tmp_path / "nothing")
        (tmp_path / "empty").mkdir()
        with pytest.raises(DataError, match="empty holds no folders"):
            find_pictures(tmp_path / "empty")
        (folder / "val" / "n04").mkdir()
        (folder / "val" / "n04" / "readme.txt").write_text("no picture", encoding="utf-8")
        with pytest.raises(DataError, match=r"val/n04 holds no pictures"):
            load(folder)
        Image.new("RGB", (8, 8)).save(folder / "val" / "n04" / "a.png")
        with pytest.raises(DataError, match='classes: 1 .*"n04"'):
            load(folder)

    def test_hidden_folders_and_files_are_left_out_and_said(self, folder: Path) -> None:
        whole = load(folder)
        for name in (".ipynb_checkpoints", ".git", "__MACOSX"):
            (folder / "train" / name).mkdir()
            Image.new("RGB", (8, 8)).save(folder / "train" / name / "a.png")
        (folder / "train" / "n01" / "._n01_0.JPEG").write_bytes(b"of a Mac")
        (folder / "train" / "n01" / "scan.tif").write_bytes(b"II*")
        expected = (
            "train: left out: .git (no class), .ipynb_checkpoints (no class), __MACOSX (no class), n01/scan.tif (no picture)"
        )
        with pytest.warns(UserWarning, match=re.escape(expected)):
            found = load(folder)
        assert (found.classes, found.train_count, found.hash) == (3, 15, whole.hash)

    @pytest.mark.parametrize("ending", ["webp", "bmp", "PNG", "JPG"])
    def test_pictures_of_every_format_are_read(self, folder: Path, ending: str) -> None:
        file = folder / "train" / "n01" / f"another.{ending}"
        Image.new("RGB", (32, 32), (200, 10, 10)).save(file)
        assert load(folder).train_count == 16 and read_picture(str(file)).size == (32, 32)

    def test_labels_to_test_on_are_known_without_reading(self, folder: Path) -> None:
        (folder / "val" / "n01" / "n01_0.JPEG").write_bytes(b"")
        assert majority_of(load(folder)) == (0, pytest.approx(1 / 3))

    def test_a_batch_larger_than_the_data_is_an_error(self, folder: Path) -> None:
        with pytest.raises(ShapeError, match="batch is 16, but imagenet, folders has 15 pictures"):
            load(folder).train_batches(16, seed=0)


class TestWithoutFfcv:
    """As on most machines."""

    @pytest.fixture(autouse=True)
    def _absent(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setitem(sys.modules, "ffcv", None)

    def test_a_missing_ffcv_is_an_error_that_says_what_to_install(self, folder: Path, tmp_path: Path) -> None:
        for call in (
            lambda: load(folder, reader="ffcv"),
            lambda: convert(folder / "train", tmp_path / "x.beton"),
        ):
            with pytest.raises(MissingPackageError) as error:
                call()
            for part in ("libopencv-dev", "libturbojpeg0-dev", 'pip install "syno-operators[imagenet]"', "{reader: torch}"):
                assert part in str(error.value)

    def test_the_command_fails_in_one_line(self, folder: Path, tmp_path: Path) -> None:
        done = CliRunner().invoke(app, ["convert", "imagenet", str(folder / "train"), "--output", str(tmp_path / "x.beton")])
        assert done.exit_code == 2 and done.stderr.startswith("error: FFCV cannot be imported") and done.stderr.count("\n") == 1
