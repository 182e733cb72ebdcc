"""CIFAR-100 out of small files of the real form: the three sources give one result, and what is damaged says so."""

from __future__ import annotations

import pickle
import subprocess
import sys
from collections.abc import Callable
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow
import pyarrow.parquet
import pytest
import torch
from numpy.typing import NDArray
from PIL import Image

from syno.config import Experiment
from syno.errors import DataError, SpecError
from syno.evaluate.datasets import DATASETS, DataSet
from syno.stages.data import DataRecord, prepare

SIZES = {"train": 23, "test": 11}
Part = tuple[NDArray[np.uint8], list[int]]


@pytest.fixture(scope="module")
def parts() -> dict[str, Part]:
    """Pictures [n, 32, 32, 3] and labels."""
    random = np.random.default_rng(0)
    return {
        split: (random.integers(0, 256, (count, 32, 32, 3), dtype=np.uint8), random.integers(0, 100, count).tolist())
        for split, count in SIZES.items()
    }


def encoded(pixels: NDArray[np.uint8]) -> bytes:
    file = BytesIO()
    Image.fromarray(pixels).save(file, "PNG")
    return file.getvalue()


def table(pictures: list[bytes], labels: list[Any]) -> Any:
    """As on the Hub."""
    rows = [{"bytes": png, "path": f"{place}.png"} for place, png in enumerate(pictures)]
    return pyarrow.table({"img": rows, "fine_label": labels, "coarse_label": [0] * len(labels)})


def write_parquet(folder: Path, parts: dict[str, Part]) -> Path:
    (folder / "cifar100").mkdir(parents=True)
    for split, (pixels, labels) in parts.items():
        made = table([encoded(picture) for picture in pixels], labels)
        pyarrow.parquet.write_table(made, folder / "cifar100" / f"{split}-00000-of-00001.parquet")
    return folder


def write_pickles(folder: Path, parts: dict[str, Part]) -> Path:
    """As Python 2 wrote them."""
    (folder / "cifar-100-python").mkdir(parents=True)
    for split, (pixels, labels) in parts.items():
        rows = pixels.transpose(0, 3, 1, 2).reshape(len(pixels), -1)
        content = {b"filenames": [b"a.png"] * len(rows), b"data": rows, b"fine_labels": labels, b"coarse_labels": labels}
        (folder / "cifar-100-python" / split).write_bytes(pickle.dumps(content, protocol=2))
    return folder


Load = Callable[..., DataSet]


@pytest.fixture
def load(tmp_path: Path) -> Load:
    def call(folder: Path, **settings: Any) -> DataSet:
        data = DATASETS["cifar100"](**{"folder": folder, "prepared": tmp_path / "prepared" / "cifar100.npz", **settings})
        assert isinstance(data, DataSet)
        return data

    return call


@pytest.fixture
def parquet(tmp_path: Path, parts: dict[str, Part]) -> Path:
    return write_parquet(tmp_path / "parquet", parts)


@pytest.fixture
def pickles(tmp_path: Path, parts: dict[str, Part]) -> Path:
    return write_pickles(tmp_path / "pickles", parts)


class TestSources:
    def test_parquet_and_pickles_give_the_same(
        self, load: Load, parquet: Path, pickles: Path, parts: dict[str, Part], tmp_path: Path
    ) -> None:
        one, other = load(parquet), load(pickles, prepared=tmp_path / "other.npz")
        assert one == other and one.hash == other.hash
        for split, images, labels in (
            ("train", one.train_images, one.train_labels),
            ("test", one.test_images, one.test_labels),
        ):
            assert images.dtype == torch.uint8 and images.shape == (SIZES[split], 3, 32, 32)
            np.testing.assert_array_equal(images.numpy(), parts[split][0].transpose(0, 3, 1, 2))
            assert labels.dtype == torch.int64 and labels.tolist() == parts[split][1]
        assert one.classes == 100 and one.image_shape == (3, 224, 224)

    def test_files_in_several_parts_and_in_the_folder_itself(self, load: Load, tmp_path: Path, parts: dict[str, Part]) -> None:
        folder = tmp_path / "parts"
        folder.mkdir()
        for split, (pixels, labels) in parts.items():
            pngs = [encoded(picture) for picture in pixels]
            for number, chosen in enumerate((slice(0, 4), slice(4, None))):
                pyarrow.parquet.write_table(
                    table(pngs[chosen], labels[chosen]), folder / f"{split}-0000{number}-of-00002.parquet"
                )
        assert load(folder).train_labels.tolist() == parts["train"][1]
        (folder / "train-00001-of-00002.parquet").unlink()
        with pytest.raises(
            DataError, match=r"has 1 of the 2 files of train; missing is, for one, train-00001-of-00002\.parquet"
        ):
            load(folder)

    @pytest.fixture
    def _cache(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        datasets = pytest.importorskip("datasets", reason="datasets is not installed")
        monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "cache")

    @pytest.mark.usefixtures("_cache")
    def test_the_hub_is_asked_only_when_told_to(self, load: Load, parquet: Path, tmp_path: Path) -> None:
        """`datasets` takes a copy of a repository for the repository itself."""
        empty = tmp_path / "empty"
        with pytest.raises(DataError, match="there is no CIFAR-100"):
            load(empty, repository=str(parquet))
        assert load(empty, repository=str(parquet), download=True) == load(parquet, prepared=tmp_path / "other.npz")

    @pytest.mark.usefixtures("_cache")
    def test_a_repository_that_cannot_be_had_or_has_no_pictures(self, load: Load, parquet: Path, tmp_path: Path) -> None:
        with pytest.raises(
            DataError, match=r'nowhere", train cannot be had from the Hub: .*; or copy it to .*: hf download'
        ) as error:
            load(tmp_path / "empty", repository=str(tmp_path / "nowhere"), download=True)
        assert "\n" not in str(error.value)
        for file in (parquet / "cifar100").iterdir():
            pyarrow.parquet.write_table(pyarrow.parquet.read_table(file).drop_columns("img"), file)
        with pytest.raises(DataError, match=r'parquet", train has no column "img"; it has: fine_label, coarse_label'):
            load(tmp_path / "empty", repository=str(parquet), download=True)

    def test_nothing_there_says_what_was_looked_for_and_how_to_get_it(self, load: Load, tmp_path: Path) -> None:
        with pytest.raises(DataError) as error:
            load(tmp_path / "nothing")
        for part in (
            str(tmp_path / "nothing"),
            "cifar100/train-*.parquet",
            "cifar-100-python/train",
            "hf download uoft-cs/cifar100",
        ):
            assert part in str(error.value)
        assert "{download: true}" in str(error.value)


class TestPrepared:
    def test_it_is_read_when_the_source_is_gone(self, load: Load, pickles: Path) -> None:
        first = load(pickles)
        for file in (pickles / "cifar-100-python").iterdir():
            file.unlink()
        again = load(pickles)
        assert again == first and torch.equal(again.train_images, first.train_images)

    def test_it_is_made_again_when_the_source_changes(self, load: Load, pickles: Path, parts: dict[str, Part]) -> None:
        first = load(pickles)
        other = {split: (255 - pixels, labels) for split, (pixels, labels) in parts.items()}
        for file in (pickles / "cifar-100-python").iterdir():
            file.unlink()
        (pickles / "cifar-100-python").rmdir()
        write_pickles(pickles, {**other, "train": (other["train"][0][:20], other["train"][1][:20])})
        again = load(pickles)
        assert again.hash != first.hash and again.train_count == 20

    def test_a_file_that_was_cut_off_or_changed_is_an_error(self, load: Load, pickles: Path, tmp_path: Path) -> None:
        load(pickles)
        file = tmp_path / "prepared" / "cifar100.npz"
        whole = file.read_bytes()
        changed = bytearray(whole)
        changed[5000] ^= 1  # in a picture
        for content in (whole[: len(whole) // 2], bytes(changed)):
            file.write_bytes(content)
            with pytest.raises(DataError, match=r"cifar100\.npz is damaged: .*; delete it"):
                load(pickles)

    def test_other_sizes_need_no_other_file(self, load: Load, pickles: Path) -> None:
        small = load(pickles, augmentation={"size": 32})
        images, _ = next(small.train_batches(8, seed=0).epoch(1))
        assert images.shape == (8, 3, 32, 32) == (8, *small.image_shape) and images.dtype == torch.float32
        assert small.hash == load(pickles).hash and small != load(pickles)


class Attack:
    """A pickle that would run a command."""

    def __init__(self, file: Path) -> None:
        self.file = file

    def __reduce__(self) -> Any:
        return subprocess.check_call, ([sys.executable, "-c", f"open({str(self.file)!r}, 'w')"],)


class TestDamage:
    def test_a_pickle_that_was_cut_off(self, load: Load, pickles: Path) -> None:
        file = pickles / "cifar-100-python" / "test"
        file.write_bytes(file.read_bytes()[:-100])
        with pytest.raises(DataError, match=r"cifar-100-python/test cannot be read as a pickle of arrays"):
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
    def test_other_ways_are_closed_too(self, load: Load, pickles: Path, name: str) -> None:
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
    def test_pickles_of_something_else(self, load: Load, pickles: Path, change: dict[bytes, Any], message: str) -> None:
        file = pickles / "cifar-100-python" / "train"
        content = pickle.loads(file.read_bytes())
        file.write_bytes(pickle.dumps(content | change, protocol=2))
        with pytest.raises(DataError, match=rf"cifar-100-python/train.*{message}"):
            load(pickles)

    def test_a_pickle_without_a_key(self, load: Load, pickles: Path) -> None:
        (pickles / "cifar-100-python" / "train").write_bytes(pickle.dumps({b"data": 1, b"labels": 2}, protocol=2))
        with pytest.raises(DataError, match="train has no fine_labels; it has: data, labels"):
            load(pickles)

    def test_parquet_without_a_column(self, load: Load, parquet: Path) -> None:
        file = parquet / "cifar100" / "train-00000-of-00001.parquet"
        pyarrow.parquet.write_table(pyarrow.parquet.read_table(file).drop_columns("fine_label"), file)
        with pytest.raises(
            DataError, match=r'train-00000-of-00001\.parquet has no column "fine_label"; it has: img, coarse_label'
        ):
            load(parquet)

    def test_parquet_that_was_cut_off(self, load: Load, parquet: Path) -> None:
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
    def test_pictures(
        self, load: Load, tmp_path: Path, parts: dict[str, Part], damage: Callable[[bytes], bytes], message: str
    ) -> None:
        folder = write_parquet(tmp_path / "damaged", parts)
        pngs = [encoded(picture) for picture in parts["train"][0]]
        pngs[7] = damage(pngs[7])
        file = folder / "cifar100" / "train-00000-of-00001.parquet"
        pyarrow.parquet.write_table(table(pngs, parts["train"][1]), file)
        with pytest.raises(DataError, match=rf"train-00000-of-00001\.parquet, row 7: {message}"):
            load(folder)

    def test_pictures_that_are_none(self, load: Load, parquet: Path) -> None:
        file = parquet / "cifar100" / "train-00000-of-00001.parquet"
        pyarrow.parquet.write_table(pyarrow.table({"img": [1, 2], "fine_label": [1, 2]}), file)
        with pytest.raises(DataError, match='the column "img" is int64'):
            load(parquet)

    def test_nothing_is_written_of_what_is_damaged(self, load: Load, pickles: Path, tmp_path: Path) -> None:
        (pickles / "cifar-100-python" / "test").write_bytes(b"")
        with pytest.raises(DataError):
            load(pickles)
        assert not (tmp_path / "prepared").exists() or not list((tmp_path / "prepared").iterdir())


def experiment(folder: Path, source: Path, **settings: Any) -> Experiment:
    data_settings = {"folder": str(source), "prepared": str(folder / "cifar100.npz"), **settings}
    workload = {"data": "cifar100", "data_settings": data_settings, "width": 0.25, "training": {"epochs": 1, "batch": 8}}
    return Experiment(
        name="small", workload=workload, spec={"depth": 4}, reward={"name": "accuracy"}, output=folder / "results"
    )


def test_the_data_stage_records_it_and_networks_train_on_it(tmp_path: Path, parquet: Path) -> None:
    made = experiment(tmp_path, parquet, augmentation={"size": 32})
    record = prepare(made)
    assert record == DataRecord.read(tmp_path / "results" / "data.json")
    assert (record.train_images, record.test_images, record.classes, record.image_shape) == (23, 11, 100, (3, 32, 32))
    assert record.hash == made.network.data.hash
    first, again = made.network.train(), made.network.train()
    assert first == again and first.steps == 2 and first.stopped is None


def test_what_is_wrong_is_said_once_and_plainly(tmp_path: Path, pickles: Path) -> None:
    with pytest.raises(DataError, match="^there is no CIFAR-100"):
        prepare(experiment(tmp_path, tmp_path / "nothing"))
    with pytest.raises(SpecError, match=r'of the data set "cifar100": foldr: there is no such option; there are: .*folder'):
        prepare(experiment(tmp_path, pickles, foldr="x"))


@pytest.fixture(scope="module")
def digits() -> DataSet:
    pytest.importorskip("sklearn", reason="scikit-learn is not installed")
    data = DATASETS["digits"]()
    assert isinstance(data, DataSet)
    return data


class TestDigits:
    def test_they_are_real_pictures_of_ten_classes(self, digits: DataSet) -> None:
        assert (digits.train_count, digits.test_count, digits.image_shape) == (1437, 360, (1, 8, 8))
        assert digits.train_images.dtype == torch.uint8 and digits.train_images.max() == 255
        assert set(digits.train_labels.tolist()) == set(digits.test_labels.tolist()) == set(range(10))

    def test_the_seed_chooses_those_for_testing(self, digits: DataSet) -> None:
        assert DATASETS["digits"]() == digits
        assert DATASETS["digits"](seed=1).hash != digits.hash
        with pytest.raises(SpecError, match="there are 1797 pictures in all"):
            DATASETS["digits"](test=1797)

    def test_a_network_learns_them(self, digits: DataSet) -> None:
        from syno.evaluate.settings import TrainingSettings
        from syno.evaluate.training import train
        from syno.model.backbones import BACKBONES

        model = BACKBONES["resnet8"](classes=10, channels=1, width=0.5)
        assert train(model, digits, TrainingSettings(epochs=2, batch=32)).score > 0.85  # chance is 0.1
