"""ImageNet out of small folders of JPEG files: read by torch, converted to beton and read by FFCV, and what is damaged."""

from __future__ import annotations

import importlib.util
import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from typer.testing import CliRunner

from syno.cli import app
from syno.config import Experiment
from syno.errors import DataError, MissingPackageError, ShapeError
from syno.evaluate.datasets import DATASETS, beton
from syno.evaluate.datasets.contract import Pair
from syno.evaluate.datasets.folder_batches import DEVIATION, MEAN
from syno.evaluate.datasets.image_folder import central_box, cut_out, find_pictures, random_box, read_picture
from syno.stages.data import prepare

COLOURS = {"n01": (200, 30, 30), "n02": (30, 200, 30), "n03": (30, 30, 200)}
COUNTS = {"train": 5, "val": 3}  # of each class
needs_ffcv = pytest.mark.skipif(importlib.util.find_spec("ffcv") is None, reason="ffcv is not installed (docs/data.md)")


def write_folder(folder: Path, count: int) -> Path:
    """JPEG files of several sizes; a class is a colour."""
    random = np.random.default_rng(0)
    for label, (name, colour) in enumerate(COLOURS.items()):
        (folder / name).mkdir(parents=True)
        for number in range(count):
            height, width = 40 + 7 * number + label, 60 - 5 * number
            pixels = np.clip(np.array(colour) + random.integers(-20, 20, (height, width, 3)), 0, 255).astype(np.uint8)
            Image.fromarray(pixels).save(folder / name / f"{name}_{number}.JPEG", quality=95)
    return folder


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for split, count in COUNTS.items():
        write_folder(tmp_path / "imagenet" / split, count)
    return tmp_path / "imagenet"


def load(folder: Path, **settings: Any) -> Any:
    return DATASETS["imagenet"](**{"folder": folder, "reader": "torch", "size": 24, "workers": 0, **settings})


def colours(images: torch.Tensor) -> list[int]:
    """Which class each picture shows."""
    pixels = images.mean((2, 3)) * torch.tensor(DEVIATION) + torch.tensor(MEAN)
    found: list[int] = pixels.argmax(1).tolist()
    return found


def equal(one: list[Pair], other: list[Pair]) -> bool:
    pairs = zip(one, other, strict=True)
    return all(torch.equal(a, b) and torch.equal(labels, answers) for (a, labels), (b, answers) in pairs)


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
    def test_it_goes_on_anywhere_with_any_number_of_workers(self, folder: Path, epoch: int, place: int, workers: int) -> None:
        whole = load(folder).train_batches(4, seed=7)
        passed = [list(whole.epoch(number)) for number in (1, 2)][epoch - 1][place:]
        resumed = list(load(folder, workers=workers).train_batches(4, seed=7).epoch(epoch, place))
        assert len(resumed) == 3 - place and equal(passed, resumed)

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
        made = Experiment(name="small", workload=workload, spec={"depth": 4}, output=tmp_path / "results")
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
    def test_a_picture(self, folder: Path, content: bytes | None, workers: int) -> None:
        file = folder / "train" / "n02" / "n02_3.JPEG"
        file.write_bytes(file.read_bytes()[:-400] if content is None else content)
        with pytest.raises(DataError) as error:
            list(load(folder, workers=workers).train_batches(5, seed=0).epoch(1))
        assert str(error.value).startswith(f"{file}: the picture is damaged: ") and "\n" not in str(error.value)

    def test_folders(self, folder: Path, tmp_path: Path) -> None:
        with pytest.raises(DataError, match=r"there is no folder .*nothing/train; it must hold a folder of JPEG files"):
            load(tmp_path / "nothing")
        (tmp_path / "empty").mkdir()
        with pytest.raises(DataError, match="empty holds no folders"):
            find_pictures(tmp_path / "empty")
        (folder / "val" / "n04").mkdir()
        (folder / "val" / "n04" / "readme.txt").write_text("no picture", encoding="utf-8")
        with pytest.raises(DataError, match=r"val/n04 holds no pictures"):
            load(folder)
        Image.new("RGB", (8, 8)).save(folder / "val" / "n04" / "a.png")
        with pytest.raises(DataError, match='different classes: 1 are in one of them only, such as "n04"'):
            load(folder)

    def test_a_batch_larger_than_all(self, folder: Path) -> None:
        with pytest.raises(ShapeError, match="batch is 16, but imagenet, folders has 15 pictures"):
            load(folder).train_batches(16, seed=0)


class TestWithoutFfcv:
    """As on most machines."""

    @pytest.fixture(autouse=True)
    def _absent(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setitem(sys.modules, "ffcv", None)

    def test_it_says_what_to_install(self, folder: Path, tmp_path: Path) -> None:
        for call in (lambda: load(folder, reader="ffcv"), lambda: beton.convert(folder / "train", tmp_path / "x.beton")):
            with pytest.raises(MissingPackageError) as error:
                call()
            for part in ("libopencv-dev", "libturbojpeg0-dev", 'pip install "syno[imagenet]"', "{reader: torch}"):
                assert part in str(error.value)

    def test_the_command_fails_in_one_line(self, folder: Path, tmp_path: Path) -> None:
        done = CliRunner().invoke(app, ["convert", "imagenet", str(folder / "train"), "--output", str(tmp_path / "x.beton")])
        assert done.exit_code == 2 and done.stderr.startswith("error: FFCV cannot be imported") and done.stderr.count("\n") == 1


IN_A_PROCESS = """
import json, sys, torch
from pathlib import Path
from syno.errors import SynoError
from syno.evaluate.datasets import DATASETS
from syno.evaluate.datasets.beton import convert
{code}
"""


def run(code: str, seconds: float = 240) -> Any:
    """What some code prints as JSON, in a process that is killed if it hangs, as FFCV does when it is used wrongly."""
    done = subprocess.run(
        [sys.executable, "-c", IN_A_PROCESS.format(code=code)],
        capture_output=True,
        text=True,
        timeout=seconds,
        cwd=Path(__file__).parents[2],
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


@pytest.fixture(scope="module")
def once_converted(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("imagenet")
    for split, count in COUNTS.items():
        write_folder(folder / split, count)
    code = f"""
for split in ("train", "val"):
    folder = Path({str(folder)!r}) / split
    print(convert(folder, folder.with_suffix(".beton")).count)
"""
    assert run(code) == 9
    return folder


@pytest.fixture
def converted(once_converted: Path, tmp_path: Path) -> Path:
    """Folders and beton files, to be damaged."""
    return Path(shutil.copytree(once_converted, tmp_path / "converted"))


@needs_ffcv
@pytest.mark.slow  # every process compiles for ten seconds
class TestBeton:
    def test_pictures_come_back_with_their_labels(self, converted: Path) -> None:
        code = f"""
data = DATASETS["imagenet"](folder={str(converted)!r}, size=24, workers=1)
batches = data.train_batches(5, seed=0)
rows = [[(images.shape, labels.tolist(), images.mean((2, 3)).tolist()) for images, labels in made]
        for made in (batches.epoch(1), batches.epoch(2), batches.epoch(1, first=1), data.test_batches(4))]
print(json.dumps([data.train_count, data.test_count, data.classes, data.hash, rows]))
"""
        train, test, classes, digest, (first, second, resumed, tested) = run(code)
        assert (train, test, classes, len(digest)) == (15, 9, 3, 32)
        for shape, labels, means in [*first, *second, *resumed, *tested]:
            pixels = np.array(means) * DEVIATION + MEAN
            assert shape[1:] == [3, 24, 24] and pixels.argmax(1).tolist() == labels
        orders = [[label for _, labels, _ in rows for label in labels] for rows in (first, second, resumed, tested)]
        assert sorted(orders[0]) == sorted(orders[1]) == [0] * 5 + [1] * 5 + [2] * 5 and orders[0] != orders[1]
        assert orders[2] == orders[0][5:] and orders[3] == [0, 0, 0, 1, 1, 1, 2, 2, 2]
        assert [len(labels) for _, labels, _ in tested] == [4, 4, 1]

    def test_testing_shows_what_the_folders_show(self, converted: Path) -> None:
        code = f"""
made = [next(iter(DATASETS["imagenet"](folder={str(converted)!r}, size=24, workers=1, reader=reader).test_batches(9)))
        for reader in ("ffcv", "torch")]
print(json.dumps([(made[0][0] - made[1][0]).abs().mean().item(), made[0][1].tolist() == made[1][1].tolist()]))
"""
        difference, same = run(code)
        assert difference < 0.25 and same  # in standard deviations; the noise of 20 in 255 is filtered in different ways

    def test_the_command_says_what_it_wrote(self, folder: Path) -> None:
        command = ["-m", "syno", "convert", "imagenet", str(folder / "val"), "--output", str(folder / "val.beton")]
        done = subprocess.run([sys.executable, *command], capture_output=True, text=True, timeout=240, cwd=folder)
        assert done.returncode == 0, done.stderr
        assert "9 pictures in 3 classes" in done.stdout
        record = beton.read_record(folder / "val.beton")
        assert (record.max_resolution, record.compress_probability, record.quality) == (400, 0.10, 90)

    def test_a_damaged_picture_ends_the_conversion(self, folder: Path) -> None:
        file = folder / "train" / "n02" / "n02_3.JPEG"
        file.write_bytes(file.read_bytes()[:-400])
        code = f"""
try:
    convert(Path({str(folder / "train")!r}), Path({str(folder / "train.beton")!r}), workers=2)
except SynoError as error:
    print(json.dumps([type(error).__name__, str(error)]))
"""
        kind, message = run(code)
        assert kind == "DataError" and message.startswith(f"{file}: the picture is damaged")
        assert sorted(path.name for path in folder.iterdir()) == ["train", "val"]

    def test_a_file_that_was_cut_off(self, converted: Path) -> None:
        file = converted / "train.beton"
        whole = file.read_bytes()
        for length in (0, 10, 1000, len(whole) - 1):
            file.write_bytes(whole[:length])
            with pytest.raises(DataError, match=rf"train\.beton has {length} bytes, but {len(whole)} were written"):
                beton.read_record(file)
            with pytest.raises(DataError, match=r"train\.beton"):
                beton.check_whole(file)
        file.write_bytes(whole)
        assert beton.check_whole(file) == beton.read_record(file).count == 15

    def test_files_that_are_missing(self, converted: Path) -> None:
        beton.record_file(converted / "train.beton").unlink()
        with pytest.raises(DataError, match=r"there is no .*train\.beton\.json"):
            beton.read_record(converted / "train.beton")
        (converted / "train.beton").unlink()
        with pytest.raises(DataError, match=r"syno convert imagenet .*/train --output .*/train\.beton"):
            beton.read_record(converted / "train.beton")
