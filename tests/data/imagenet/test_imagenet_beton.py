"""ImageNet converted to beton and read by FFCV, where that is installed."""

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
from command_lines import HANGS_AFTER
from small_imagenet import COUNTS, write_folder

from syno.base.errors import DataError
from syno.data import beton
from syno.data.image_folder import DEVIATION, MEAN

needs_ffcv = pytest.mark.skipif(importlib.util.find_spec("ffcv") is None, reason="ffcv is not installed (docs/data.md)")


IN_A_PROCESS = """
import json, sys, torch
from pathlib import Path
from syno.base.errors import SynoError
from syno.data import DATASETS
from syno.data.beton import convert
{code}
"""


def run(code: str, seconds: float = HANGS_AFTER) -> Any:
    """What some code prints as JSON, in a process that is killed if it hangs, as FFCV does when it is used wrongly."""
    done = subprocess.run(
        [sys.executable, "-c", IN_A_PROCESS.format(code=code)],
        capture_output=True,
        text=True,
        timeout=seconds,
        cwd=Path(__file__).parents[3],
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
        done = subprocess.run([sys.executable, *command], capture_output=True, text=True, timeout=HANGS_AFTER, cwd=folder)
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

    def test_a_truncated_file_is_an_error(self, converted: Path) -> None:
        file = converted / "train.beton"
        whole = file.read_bytes()
        for length in (0, 10, 1000, len(whole) - 1):
            file.write_bytes(whole[:length])
            with pytest.raises(DataError, match=rf"train\.beton .*{length} bytes, .*{len(whole)}"):
                beton.read_record(file)
            with pytest.raises(DataError, match=r"train\.beton"):
                beton.check_whole(file)
        file.write_bytes(whole)
        assert beton.check_whole(file) == beton.read_record(file).count == 15

    def test_missing_files_are_errors(self, converted: Path) -> None:
        beton.record_file(converted / "train.beton").unlink()
        with pytest.raises(DataError, match=r"there is no .*train\.beton\.json"):
            beton.read_record(converted / "train.beton")
        (converted / "train.beton").unlink()
        with pytest.raises(DataError, match=r"syno convert imagenet .*/train --output .*/train\.beton"):
            beton.read_record(converted / "train.beton")
