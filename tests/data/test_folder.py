"""A user's own pictures and sounds in folders: what is read, what is left out and named, and what is an error."""

from __future__ import annotations

import os
import re
import shutil
import wave
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from scipy.io import wavfile
from small_imagenet import COLOURS, write_folder

from syno.base.errors import DataError, SpecError
from syno.config import Experiment
from syno.data import DATASETS
from syno.data.files import look_for
from syno.stages.data import data_text, look, prepare

RATE = 800
FOLDER = import_module("syno.data.folder")


@pytest.fixture(autouse=True)
def _inside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def pictures() -> Path:
    return write_folder(Path("colours"), 5)


@pytest.fixture
def sounds() -> Path:
    """Low and high tones of half a second and more."""
    for label, name in enumerate(("high", "low")):
        Path("tones", name).mkdir(parents=True)
        for number in range(4):
            time = np.arange(RATE // 2 + 100 * number) / RATE
            tone = np.sin(2 * np.pi * time * (200 - 100 * label)) / 2
            wavfile.write(f"tones/{name}/{number}.wav", RATE, (tone * 2**15).astype(np.int16))
    return Path("tones")


def load(place: Path, **settings: Any) -> Any:
    return DATASETS["folder"](folder=place, **settings)


def shown(images: torch.Tensor) -> list[int]:
    """The class that each picture shows by its colour."""
    found: list[int] = images.float().mean((2, 3)).argmax(1).tolist()
    return found


class TestPictures:
    def test_a_share_of_each_class_is_drawn_to_test_on(self, pictures: Path) -> None:
        data = load(pictures, size=24)
        assert (data.train_count, data.test_count, data.classes, data.image_shape) == (12, 3, 3, (3, 24, 24))
        assert data.test_labels.tolist() == [0, 1, 2] == shown(data.test_images)
        assert data.train_labels.tolist() == shown(data.train_images)
        assert [load(pictures, size=24, seed=seed).hash == data.hash for seed in (0, 1)] == [True, False]
        assert load(pictures, size=24, test=0.4).test_count == 6
        images, labels = next(iter(data.train_batches(12, seed=0).epoch(1)))
        assert (
            images.mean((0, 2, 3)).tolist() == pytest.approx([0] * 3, abs=1e-5)
            and sorted(labels.tolist()) == [0] * 4 + [1] * 4 + [2] * 4
        )

    @pytest.mark.parametrize("test", ["val", "test"])
    def test_train_and_val_are_taken_as_they_are(self, pictures: Path, test: str) -> None:
        Path("own").mkdir()
        pictures.rename("own/train")
        write_folder(Path("own", test), 2)
        data = load(Path("own"), size=8)
        assert (data.train_count, data.test_count, shown(data.test_images)) == (15, 6, [0, 0, 1, 1, 2, 2])
        Path("own/zoo").mkdir()
        with pytest.warns(UserWarning, match=rf"own: left out: zoo \(neither train nor {test}\)"):
            load(Path("own"), size=8)

    def test_a_class_may_be_called_train(self, pictures: Path) -> None:
        (pictures / "n01").rename(pictures / "train")
        (pictures / "n02").rename(pictures / "val")
        (pictures / "train" / ".cache").mkdir()
        assert load(pictures, size=8).classes == 3

    def test_what_cannot_be_read_is_left_out_and_named(self, pictures: Path) -> None:
        whole = load(pictures, size=24)
        (pictures / ".ipynb_checkpoints").mkdir()
        (pictures / "n01" / "notes.txt").write_text("none", encoding="utf-8")
        (pictures / "n01" / "broken.png").write_bytes((pictures / "n01" / "n01_0.JPEG").read_bytes()[:300])
        (pictures / "n02" / "lost.jpg").symlink_to("nowhere")
        (pictures / "n02" / "circle.jpg").symlink_to("circle.jpg")
        os.mkfifo(pictures / "n03" / "pipe.bmp")
        Image.new("I;16", (30, 30)).save(pictures / "n03" / "deep.png")
        named = (
            r"colours: left out: \.ipynb_checkpoints \(no class\), n01/notes\.txt \(no picture or sound\), "
            r"n02/circle\.jpg \(no file\), n02/lost\.jpg \(no file\), n03/pipe\.bmp \(no file\) and 2 more"
        )
        for _ in range(2):  # the second time from the file of what was read
            with pytest.warns(UserWarning, match=named):
                found = load(pictures, size=24)
            assert (found.hash, found.classes) == (whole.hash, 3)

    def test_what_was_read_is_kept_until_the_folder_changes(self, pictures: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        first = load(pictures, size=8)
        (kept,) = Path("results/data").glob("colours-*.npz")
        monkeypatch.setattr(FOLDER, "decode_picture", None)
        assert load(pictures, size=8, recipe="paper-small").hash == first.hash
        with pytest.raises(DataError, match="no file of the class"):
            load(pictures, size=9)
        (pictures / "n01" / "n01_4.JPEG").rename(pictures / "n02" / "n01_4.JPEG")
        with pytest.raises(DataError, match="no file of the class"):
            load(pictures, size=8)
        kept.write_bytes(kept.read_bytes()[:-40])
        with pytest.raises(DataError, match=rf"{kept.name} is damaged: .*; delete it"):
            load(pictures, size=8)

    def test_sizes_colours_and_turns(self, pictures: Path) -> None:
        with pytest.raises(DataError, match=r"n01_0\.JPEG has 40 x 60 pixels, and .*n01_1\.JPEG 47 x 55; .*\{size: 64\}"):
            load(pictures)
        assert load(pictures, size=[6, 10], grey=True).image_shape == (1, 6, 10)
        turned, tags = Image.new("RGB", (20, 30)), Image.Exif()
        tags[0x0112] = 6  # a camera that was held upright
        for name in COLOURS:
            for file in (pictures / name).iterdir():
                turned.save(file, exif=tags)
        assert load(pictures).image_shape == (3, 20, 30)

    def test_the_middle_is_taken(self) -> None:
        for name in ("left", "right"):
            Path("own", name).mkdir(parents=True)
            pixels = np.zeros((8, 16, 3), np.uint8)
            pixels[:, 4:12] = 200
            for number in range(2):
                Image.fromarray(pixels).save(f"own/{name}/{number}.bmp")
        assert load(Path("own"), size=8).train_images.eq(200).all()

    def test_an_experiment_trains_on_them(self, pictures: Path) -> None:
        settings = {"folder": str(pictures), "size": 32, "recipe": "paper-small"}
        workload = {"data": "folder", "data_settings": settings, "width": 0.25, "training": {"epochs": 1, "batch": 4}}
        made = Experiment(name="own", workload=workload, spec={"depth": 4, "reads": "none"})
        record = prepare(made)
        assert (record.train_images, record.test_images, record.image_shape, record.majority) == (12, 3, (3, 32, 32), 1 / 3)
        assert {part: look().text for part, look in look_for("folder", settings).items()} == {"folder": "the folder colours"}


class TestSounds:
    def test_sounds_are_cut_or_filled_to_one_length(self, sounds: Path) -> None:
        with pytest.raises(DataError, match=r"0\.wav has 400 samples, and .*1\.wav 500; .*\{seconds: 1\.0\}"):
            load(sounds)
        said = r"tones: of the sounds, which have 800 .*, 4 are longer than 0\.7 seconds .*, and 4 are shorter"
        with pytest.warns(UserWarning, match=said):
            data = load(sounds, seconds=0.7)
        assert (data.train_count, data.test_count, data.image_shape) == (6, 2, (1, 560))
        images = torch.cat([data.train_images, data.test_images])
        assert images.dtype == torch.float32 and images.abs().max() == pytest.approx(0.5, abs=0.01)
        assert (images[:, 0, -60:] == 0).all(1).sum() == 4
        loudest = torch.fft.rfft(data.train_images[:, 0, :400]).abs().argmax(1) * RATE / 400
        assert loudest.tolist() == [200.0] * 3 + [100.0] * 3 and data.train_labels.tolist() == [0] * 3 + [1] * 3

    @pytest.mark.parametrize(
        ("samples", "expected"),
        [
            (np.array([0, 128, 192], np.uint8), [-1, 0, 0.5]),
            (np.array([-(2**31), 0, 2**30], np.int32), [-1, 0, 0.5]),
            (np.array([-1, 0, 0.5], np.float32), [-1, 0, 0.5]),
            (np.array([[-1, -1], [1, -1], [0.5, 0.5]]), [-1, 0, 0.5]),
        ],
        ids=["8 bits", "32 bits", "float", "stereo"],
    )
    def test_every_form_of_samples(self, sounds: Path, samples: Any, expected: list[float]) -> None:
        for file in sounds.glob("*/*.wav"):
            wavfile.write(file, RATE, samples)
        assert load(sounds).train_images[0, 0].tolist() == expected

    def test_24_bits(self, sounds: Path) -> None:
        for file in sounds.glob("*/*.wav"):
            with wave.open(str(file), "wb") as opened:
                opened.setparams((1, 3, RATE, 0, "NONE", ""))
                opened.writeframes(b"\x00\x00\x80" + b"\x00\x00\x40")
        assert load(sounds).train_images[0, 0].tolist() == [-1, 0.5]

    def test_damaged_sounds_are_left_out_and_named(self, sounds: Path) -> None:
        whole = load(sounds, seconds=0.5).hash
        content = (sounds / "low" / "0.wav").read_bytes()
        (sounds / "low" / "cut.wav").write_bytes(content[:-100])
        (sounds / "low" / "text.wav").write_bytes(b"none")
        wavfile.write(sounds / "low" / "empty.wav", RATE, np.zeros(0, np.int16))
        wavfile.write(sounds / "low" / "endless.wav", RATE, np.full(9, np.inf, np.float32))
        with pytest.warns(UserWarning) as found:
            assert load(sounds, seconds=0.5).hash == whole
        (said,) = [str(one.message) for one in found if "left out" in str(one.message)]
        assert [name for name in ("cut", "text", "empty", "endless") if f"low/{name}.wav (" not in said] == []

    def test_another_rate_is_an_error(self, sounds: Path) -> None:
        wavfile.write(sounds / "low" / "9.wav", 1600, np.zeros(400, np.int16))
        with pytest.raises(DataError, match=r"high/0\.wav has 800 samples in a second, and .*low/9\.wav 1,600; .* one rate"):
            load(sounds, seconds=0.1)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({}, "folder: is missing"),
        ({"folder": "colours", "seconds": 1.0}, r"seconds says nothing of pictures, which colours has; .* by size"),
        ({"folder": "tones", "size": 8, "grey": True}, r"grey, size says nothing of sounds, .* by seconds"),
    ],
)
def test_settings_of_the_other_kind(pictures: Path, sounds: Path, settings: dict[str, Any], message: str) -> None:
    with pytest.raises(SpecError, match=message):
        DATASETS["folder"](**settings)


def test_folders_that_hold_no_data(pictures: Path, sounds: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def says(place: str, **settings: Any) -> str:
        with pytest.raises(DataError) as error:
            load(Path(place), **settings)
        return str(error.value)

    assert re.match(r"there is no folder colour \(looked for in /.*\); .*\{folder: \.\.\.\}", says("colour"))
    assert "n01 holds no folders" in says("colours/n01")
    Path("own/train").mkdir(parents=True)
    (pictures / "n01").rename("own/train/n01")
    assert says("own").startswith("own has the folder train, but no val, valid, validation or test beside it")
    assert says("own/train", size=8).startswith('own/train has one class, "n01"')
    write_folder(Path("own/val"), 1)
    assert "own/train and own/val have different classes: 2" in says("own")
    (sounds / "high").rename(pictures / "high")
    assert re.search(r"has sounds, such as .*\.wav, and pictures, such as .*\.JPEG", says("colours"))
    write_folder(Path("few"), 1)
    assert 'the class "n01" has one file that can be read' in says("few", size=8)
    monkeypatch.setattr(FOLDER, "MOST_BYTES", 100)
    assert "few has 3 samples, which are 576 bytes in memory; 100 bytes are allowed" in says("few", size=8)


def test_samples_that_are_also_there_to_train_on_are_said() -> None:
    write_folder(Path("both/train"), 5)
    shutil.copytree("both/train", "both/val")
    workload = {"width": 0.25, "data": "folder", "data_settings": {"folder": "both", "size": 16}}
    own = Experiment(name="own", workload=workload, evaluate="cost", reward={"name": "savings"}, train={"seeds": []})
    record = look(own)
    assert record.repeated_tests == record.test_images > 0
    assert (
        f"warning: {record.test_images} of the {record.test_images} pictures to test on are also there to train on"
        in data_text(own, record)
    )
