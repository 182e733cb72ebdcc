"""CIFAR-100 out of small files of the real form: the three sources give one result."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow
import pyarrow.parquet
import pytest
import torch
from small_cifar100 import SIZES, Load, Part, encoded, table, write_parquet

from syno.base.errors import DataError, SpecError
from syno.config import Experiment
from syno.stages.data import DataRecord, prepare


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
        with pytest.raises(DataError, match=r"1 of the 2 files .*train-00001-of-00002\.parquet"):
            load(folder)

    @pytest.fixture
    def _cache(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        datasets = pytest.importorskip("datasets", reason="datasets is not installed")
        monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "cache")

    @pytest.mark.usefixtures("_cache")
    def test_a_copy_of_the_repository_needs_no_download(self, load: Load, parquet: Path, tmp_path: Path) -> None:
        expected = load(parquet, prepared=tmp_path / "other.npz")
        assert load(tmp_path / "empty", repository=str(parquet)) == expected

    @pytest.mark.usefixtures("_cache")
    def test_the_cache_of_datasets_is_read_without_network(
        self, load: Load, parquet: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """The copy lies where `datasets` keeps what it has downloaded from the repository."""
        import datasets

        cached = tmp_path / "cache" / "uoft-cs___cifar100" / "default" / "0.0.0" / "commit"
        datasets.load_dataset_builder(str(parquet), cache_dir=str(tmp_path / "made")).download_and_prepare(str(cached))
        for file in cached.glob("*.arrow"):
            file.rename(cached / f"cifar100-{file.name.rpartition('-')[2]}")
        monkeypatch.setattr("socket.socket.connect", lambda *_: pytest.fail("there was an access to the network"))
        assert load(tmp_path / "empty") == load(parquet, prepared=tmp_path / "other.npz")
        assert not datasets.config.HF_HUB_OFFLINE

    @pytest.mark.usefixtures("_cache")
    def test_a_repository_that_cannot_be_had_or_has_no_pictures(self, load: Load, parquet: Path, tmp_path: Path) -> None:
        with pytest.raises(DataError, match=r'nowhere", train .*hf download') as error:
            load(tmp_path / "empty", repository=str(tmp_path / "nowhere"), download=True)
        assert "\n" not in str(error.value)
        for file in (parquet / "cifar100").iterdir():
            pyarrow.parquet.write_table(pyarrow.parquet.read_table(file).drop_columns("img"), file)
        with pytest.raises(DataError, match=r'parquet", train .*no column "img"'):
            load(tmp_path / "empty", repository=str(parquet), download=True)

    @pytest.mark.usefixtures("_cache")
    def test_nothing_there_says_what_was_looked_for_and_how_to_get_it(self, load: Load, tmp_path: Path) -> None:
        with pytest.raises(DataError) as error:
            load(tmp_path / "nothing")
        for part in (
            str(tmp_path / "nothing"),
            "cifar100/train-*.parquet",
            "cifar-100-python/train",
            "the cache of `datasets` has no uoft-cs/cifar100",
            "hf download uoft-cs/cifar100",
        ):
            assert part in str(error.value)
        assert "{download: true}" in str(error.value)


class TestPrepared:
    def test_arrays_are_read_when_the_source_is_gone(self, load: Load, parquet: Path) -> None:
        first = load(parquet)
        for file in (parquet / "cifar100").iterdir():
            file.unlink()
        again = load(parquet)
        assert again == first and torch.equal(again.train_images, first.train_images)

    def test_arrays_are_made_again_when_the_source_changes(self, load: Load, parquet: Path, parts: dict[str, Part]) -> None:
        first = load(parquet)
        other = {split: (255 - pixels, labels) for split, (pixels, labels) in parts.items()}
        for file in (parquet / "cifar100").iterdir():
            file.unlink()
        (parquet / "cifar100").rmdir()
        write_parquet(parquet, {**other, "train": (other["train"][0][:20], other["train"][1][:20])})
        again = load(parquet)
        assert again.hash != first.hash and again.train_count == 20

    def test_a_file_that_was_cut_off_or_changed_is_an_error(self, load: Load, parquet: Path, tmp_path: Path) -> None:
        load(parquet)
        file = tmp_path / "prepared" / "cifar100.npz"
        whole = file.read_bytes()
        changed = bytearray(whole)
        changed[5000] ^= 1  # in a picture
        for content in (whole[: len(whole) // 2], bytes(changed)):
            file.write_bytes(content)
            with pytest.raises(DataError, match=r"cifar100\.npz is damaged: .*; delete it"):
                load(parquet)

    def test_other_sizes_need_no_other_file(self, load: Load, parquet: Path) -> None:
        small = load(parquet, augmentation={"size": 32})
        images, _ = next(small.train_batches(8, seed=0).epoch(1))
        assert images.shape == (8, 3, 32, 32) == (8, *small.image_shape) and images.dtype == torch.float32
        assert small.hash == load(parquet).hash and small != load(parquet)


def experiment(folder: Path, source: Path, **settings: Any) -> Experiment:
    data_settings = {"folder": str(source), "prepared": str(folder / "cifar100.npz"), **settings}
    workload = {"data": "cifar100", "data_settings": data_settings, "width": 0.25, "training": {"epochs": 1, "batch": 8}}
    return Experiment(
        name="small",
        workload=workload,
        spec={"depth": 4, "reads": "none"},
        reward={"name": "accuracy"},
        output=folder / "results",
    )


@pytest.mark.slow
def test_the_data_stage_records_it_and_networks_train_on_it(tmp_path: Path, parquet: Path) -> None:
    made = experiment(tmp_path, parquet, augmentation={"size": 32})
    record = prepare(made)
    assert record == DataRecord.read(tmp_path / "results" / "data.json")
    assert (record.train_images, record.test_images, record.classes, record.image_shape) == (23, 11, 100, (3, 32, 32))
    assert record.hash == made.network.data.hash
    first, again = made.network.train(), made.network.train()
    assert first == again and first.steps == 2 and first.stopped is None


def test_wrong_settings_are_one_clear_error(tmp_path: Path, parquet: Path) -> None:
    with pytest.raises(DataError, match="^there is no CIFAR-100"):
        prepare(experiment(tmp_path, tmp_path / "nothing"))
    with pytest.raises(SpecError, match=r'"cifar100": foldr: .*folder'):
        prepare(experiment(tmp_path, parquet, foldr="x"))
