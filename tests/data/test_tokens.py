"""Text as tokens: files of the real form, batches that are windows of it, and what is damaged says so."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow
import pyarrow.parquet
import pytest
import torch

from syno.base.errors import DataError, ShapeError
from syno.config import Experiment
from syno.data import DATASETS, TokenSet
from syno.data.language import END, PAGE, TokenHeader, at_most, map_tokens, write_tokens
from syno.stages.data import prepare

DOCUMENTS = {
    "train": [f"The {number}th sentence is about the number {number} .\n" for number in range(60)],
    "test": [f"Nobody knows the number {number} , naïve as they are ." for number in range(20)],
}
Load = Callable[..., TokenSet]


def write_text(folder: Path, documents: dict[str, list[str]], files: int = 2) -> Path:
    folder.mkdir(parents=True)
    for split, texts in documents.items():
        for number in range(files):
            part = pyarrow.table({"text": pyarrow.array(texts[number::files], pyarrow.string())})
            pyarrow.parquet.write_table(part, folder / f"{split}-0000{number}-of-0000{files}.parquet")
    return folder


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return write_text(tmp_path / "lm1b", DOCUMENTS)


@pytest.fixture
def load(tmp_path: Path, folder: Path) -> Load:
    def call(**settings: Any) -> TokenSet:
        data = DATASETS["lm1b"](**{"folder": folder, "prepared": tmp_path / "tokens", "length": 16, **settings})
        assert isinstance(data, TokenSet)
        return data

    return call


def text_of(tokens: Any) -> str:
    return bytes(tokens.astype(np.uint8)).decode()


class TestBytes:
    def test_tokens_are_the_text_in_order(self, load: Load) -> None:
        data = load()
        for split, tokens in (("train", data.train_tokens), ("test", data.test_tokens)):
            texts = DOCUMENTS[split]
            assert text_of(tokens) == "".join(f"{text}\n" for text in texts[0::2] + texts[1::2])
            assert isinstance(tokens, np.memmap) and tokens.dtype == np.uint16
        assert data.vocabulary == data.classes == 256

    def test_the_token_file_is_made_once_and_outlives_its_source(self, load: Load, folder: Path, tmp_path: Path) -> None:
        first = load()
        times = {file: file.stat().st_mtime_ns for file in (tmp_path / "tokens").iterdir()}
        assert len(times) == 2
        for file in folder.iterdir():
            file.unlink()
        assert load() == first
        assert times == {file: file.stat().st_mtime_ns for file in (tmp_path / "tokens").iterdir()}
        with pytest.raises(DataError, match="there is no text"):
            load(most_train_tokens=50)  # that would be another file

    def test_the_token_file_is_made_again_when_text_or_settings_change(self, load: Load, folder: Path, tmp_path: Path) -> None:
        first = load()
        few = load(most_train_tokens=333)
        assert len(few.train_tokens) == 333 and np.array_equal(few.train_tokens, first.train_tokens[:333])
        assert np.array_equal(few.test_tokens, first.test_tokens) and few.hash != first.hash
        for file in folder.iterdir():
            file.unlink()
        folder.rmdir()
        write_text(folder, {**DOCUMENTS, "train": ["Other text, which is long enough for a sequence."]}, files=1)
        assert text_of(load().train_tokens).startswith("Other text")

    def test_nothing_there_says_what_was_looked_for_and_how_to_get_it(self, load: Load, tmp_path: Path) -> None:
        with pytest.raises(DataError) as error:
            load(folder=tmp_path / "nothing")
        for part in (str(tmp_path / "nothing"), "train-*.parquet", "hf download dvruette/lm1b", "{download: true}"):
            assert part in str(error.value)

    def test_the_hub_gives_the_same_tokens_as_a_folder(
        self, load: Load, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        datasets = pytest.importorskip("datasets", reason="datasets is not installed")
        monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "cache")
        fetched = load(folder=tmp_path / "empty", repository=str(folder), download=True, prepared=tmp_path / "other")
        assert fetched == load()


class TestDamage:
    def test_parquet_without_the_column_text_is_an_error(self, load: Load, folder: Path) -> None:
        file = folder / "test-00001-of-00002.parquet"
        pyarrow.parquet.write_table(pyarrow.table({"sentence": ["a"]}), file)
        with pytest.raises(DataError, match=r'test-00001-of-00002\.parquet .*"text".*sentence'):
            load()

    @pytest.mark.parametrize("column", [[1, 2], ["a", None]])
    def test_a_column_that_holds_no_text_is_an_error(self, load: Load, folder: Path, column: list[Any]) -> None:
        file = folder / "train-00000-of-00002.parquet"
        pyarrow.parquet.write_table(pyarrow.table({"text": column}), file)
        with pytest.raises(DataError, match=r'train-00000-of-00002\.parquet: .*"text"'):
            load()

    def test_parquet_that_was_cut_off_leaves_no_tokens(self, load: Load, folder: Path, tmp_path: Path) -> None:
        file = folder / "train-00001-of-00002.parquet"
        file.write_bytes(file.read_bytes()[:-50])
        with pytest.raises(DataError, match=r"train-00001-of-00002\.parquet cannot be read as Parquet"):
            load()
        assert list((tmp_path / "tokens").iterdir()) == []

    def test_truncated_tokens_are_an_error(self, load: Load, tmp_path: Path) -> None:
        load()
        file = tmp_path / "tokens" / "train.tokens"
        whole = file.read_bytes()
        file.write_bytes(whole[:-3])
        with pytest.raises(DataError, match=r"train\.tokens has \d+ bytes; .*delete it"):
            load()
        for content in (b"", b"tokens" * 1000, whole[:100]):
            file.write_bytes(content)
            with pytest.raises(DataError, match=r"train\.tokens is no file of tokens"):
                load()

    def test_a_file_without_text_is_an_error(self, load: Load, tmp_path: Path) -> None:
        with pytest.raises(DataError, match=r"train\.tokens: there is no text"):
            load(folder=write_text(tmp_path / "empty", {"train": [], "test": []}))


class TestFiles:
    def test_the_header_says_what_is_in_it(self, tmp_path: Path) -> None:
        file = tmp_path / "some.tokens"
        header = TokenHeader(vocabulary=700, tokenizer="x", tokenizer_hash="y", made_from="z")
        written = write_tokens(file, header, [np.arange(5, dtype=np.uint16), np.array([699], np.uint16)])
        read, tokens = map_tokens(file)
        assert read == written and (read.count, read.vocabulary) == (6, 700)
        assert tokens.tolist() == [0, 1, 2, 3, 4, 699]
        assert json.loads(file.read_bytes()[:PAGE])["tokenizer_hash"] == "y"
        assert file.stat().st_size == PAGE + 12

    def test_a_token_outside_of_the_vocabulary(self, tmp_path: Path) -> None:
        header = TokenHeader(vocabulary=5, tokenizer="x", tokenizer_hash="y", made_from="z")
        with pytest.raises(DataError, match="a token is 5, but the vocabulary has 5"):
            write_tokens(tmp_path / "some.tokens", header, [np.arange(6, dtype=np.uint16)])
        assert list(tmp_path.iterdir()) == []

    @pytest.mark.parametrize(("count", "sizes"), [(None, [3, 3]), (6, [3, 3]), (4, [3, 1]), (3, [3]), (9, [3, 3])])
    def test_no_more_tokens_are_taken_than_asked_for(self, count: int | None, sizes: list[int]) -> None:
        parts = iter([np.zeros(3, np.uint16), np.zeros(3, np.uint16)])
        assert [len(part) for part in at_most(count, parts)] == sizes


class TestTokenizer:
    @pytest.fixture
    def tokenizer(self, tmp_path: Path) -> Path:
        tokenizers = pytest.importorskip("tokenizers", reason="tokenizers is not installed")
        made = tokenizers.ByteLevelBPETokenizer()
        made.train_from_iterator(DOCUMENTS["train"], vocab_size=300, special_tokens=[END], show_progress=False)
        folder = tmp_path / "bpe"
        folder.mkdir()
        made.save(str(folder / "tokenizer.json"))
        return folder

    def test_documents_come_back_and_each_is_ended(self, load: Load, tokenizer: Path) -> None:
        import tokenizers

        data = load(tokenizer=tokenizer, vocabulary=300)
        made = tokenizers.Tokenizer.from_file(str(tokenizer / "tokenizer.json"))
        end = made.token_to_id(END)
        assert int((data.test_tokens == end).sum()) == 20 and data.test_tokens[-1] == end
        documents = np.split(data.test_tokens, np.flatnonzero(data.test_tokens == end) + 1)[:-1]
        assert [made.decode(part[:-1].tolist()) for part in documents] == DOCUMENTS["test"][0::2] + DOCUMENTS["test"][1::2]
        assert data.vocabulary == 300 and len(data.train_tokens) < 0.5 * len(load().train_tokens)

    def test_gpt2s_two_files_give_the_same(self, load: Load, tokenizer: Path, tmp_path: Path) -> None:
        content = json.loads((tokenizer / "tokenizer.json").read_text(encoding="utf-8"))["model"]
        two = tmp_path / "two"
        two.mkdir()
        (two / "vocab.json").write_text(json.dumps(content["vocab"]), encoding="utf-8")
        merges = "\n".join(" ".join(pair) if isinstance(pair, list) else pair for pair in content["merges"])
        (two / "merges.txt").write_text(f"#version: 0.2\n{merges}\n", encoding="utf-8")
        found = load(tokenizer=two, vocabulary=300, prepared=tmp_path / "other")
        assert np.array_equal(found.train_tokens, load(tokenizer=tokenizer, vocabulary=300).train_tokens)

    def test_another_tokenizer_makes_other_files(self, load: Load, tokenizer: Path) -> None:
        assert load().hash != load(tokenizer=tokenizer, vocabulary=300).hash != load().hash

    def test_an_empty_tokenizer_is_not_taken_for_gpt2s(self, load: Load, tokenizer: Path) -> None:
        with pytest.raises(DataError, match=r"300 tokens, .*vocabulary is 50257"):
            load(tokenizer=tokenizer)

    def test_files_that_are_missing_or_damaged(self, load: Load, tokenizer: Path, tmp_path: Path) -> None:
        with pytest.raises(DataError, match=r"tokenizer\.json.*merges\.txt.*`hf download"):
            load(tokenizer=tmp_path / "nothing")
        (tokenizer / "tokenizer.json").write_text("{", encoding="utf-8")
        with pytest.raises(DataError, match=r"tokenizer\.json cannot be read as a tokenizer"):
            load(tokenizer=tokenizer)


class TestBatches:
    @pytest.fixture
    def counted(self) -> TokenSet:
        """Every token is its place."""
        return TokenSet("counted", np.arange(1001, dtype=np.uint16), np.arange(95, dtype=np.uint16), 2000, 10, "")

    def test_sequences_follow_one_another_without_overlap(self, counted: TokenSet) -> None:
        assert (counted.train_count, counted.test_count) == (100, 9)
        starts = []
        for batch in counted.train_batches(8, seed=0).epoch(1):
            assert batch.shape == (8, 11) and batch.dtype == torch.int64
            assert torch.equal(batch, batch[:, :1] + torch.arange(11))
            starts += batch[:, 0].tolist()
        assert len(set(starts)) == len(starts) == 96 and all(start % 10 == 0 for start in starts)
        assert starts != sorted(starts)

    def test_testing_takes_all_in_their_order(self, counted: TokenSet) -> None:
        batches = list(counted.test_batches(4))
        assert [len(batch) for batch in batches] == [4, 4, 1]
        assert torch.cat(batches)[:, 0].tolist() == list(range(0, 90, 10))

    @pytest.mark.parametrize(("epoch", "place"), [(1, 0), (2, 5), (3, 11), (1, 12)])
    def test_an_epoch_can_be_resumed_at_any_batch(self, counted: TokenSet, epoch: int, place: int) -> None:
        whole = counted.train_batches(8, seed=3)
        passed = [list(whole.epoch(number)) for number in (1, 2, 3)][epoch - 1][place:]
        resumed = list(counted.train_batches(8, seed=3).epoch(epoch, place))
        assert len(resumed) == 12 - place
        assert all(torch.equal(one, other) for one, other in zip(passed, resumed, strict=True))

    def test_seeds_and_epochs_differ(self, counted: TokenSet) -> None:
        first = [next(counted.train_batches(8, seed=seed).epoch(epoch)) for seed, epoch in ((0, 1), (1, 1), (0, 2))]
        assert not any(torch.equal(first[0], other) for other in first[1:])

    def test_sequences_and_batches_that_are_too_large_are_errors(self, counted: TokenSet) -> None:
        with pytest.raises(ShapeError, match="batch is 101, but counted has 100 sequences"):
            counted.train_batches(101, seed=0)
        with pytest.raises(ShapeError, match="length is 95, but counted has 95 tokens for testing"):
            TokenSet("counted", counted.train_tokens, counted.test_tokens, 2000, 95, "")


class TestPydoc:
    def test_the_text_is_english_and_the_same_every_time(self) -> None:
        data = DATASETS["pydoc"]()
        assert data == DATASETS["pydoc"]() and data.vocabulary == 256
        assert len(data.train_tokens) > 200_000 and len(data.test_tokens) > 5_000  # 3.11: 414 kB and 25 kB
        assert "statement" in text_of(data.train_tokens) and "the" in text_of(data.test_tokens)

    def test_test_text_is_not_trained_on(self) -> None:
        data = DATASETS["pydoc"]()
        known = set(text_of(data.train_tokens).split("\n\n"))
        tested = [part for part in text_of(data.test_tokens).split("\n\n") if part.strip()]
        assert len(tested) > 50 and not any(part in known for part in tested)

    def test_the_data_stage_records_the_tokens(self, tmp_path: Path) -> None:
        sizes = {"data": "pydoc", "data_settings": {"length": 32}, "training": {"batch": 2}}
        made = Experiment(
            name="small", workload={**sizes, "model": "gpt_tiny", "layers": "paper"}, reward={"name": "loss"}, output=tmp_path
        )
        record = prepare(made)
        assert (record.classes, record.length, record.image_shape, record.model) == (256, 32, None, "gpt_tiny")
        assert record.hash == made.network.data.hash and record.train_images == made.network.data.train_count
