"""Text: the one-billion-word benchmark, and what is in every Python."""

from __future__ import annotations

from collections.abc import Iterator
from hashlib import blake2b
from pathlib import Path
from typing import Any

import numpy as np

from syno.base.errors import DataError
from syno.data.contract import DATASETS, described
from syno.data.parquet import parquet_files, rows_of_files, rows_of_hub
from syno.data.settings import Lm1bSettings, PydocSettings
from syno.data.token_file import TokenHeader, Tokens, map_tokens, read_header, write_tokens
from syno.data.tokenizing import Bytes, FromFiles, Tokenizer
from syno.data.tokens import TokenSet

SPLITS = ("train", "test")
COLUMN = "text"
TENTH = 10  # of the topics, one is for testing


@DATASETS.register("lm1b")
def lm1b(**settings: Any) -> TokenSet:
    """The one-billion-word benchmark. The first time, and whenever its files or settings have changed, it is tokenized.

    Args:
        settings: fields of Lm1bSettings.

    Raises:
        SpecError: a setting that there is not.
        DataError: the text or the tokenizer is missing or damaged.
        MissingPackageError: a tokenizer is given, and `tokenizers` is not installed.
    """
    chosen = Lm1bSettings.of(**settings)
    tokenizer: Tokenizer = Bytes() if chosen.tokenizer is None else FromFiles(chosen.tokenizer, chosen.vocabulary)
    files = [_tokenized(chosen, split, tokenizer) for split in SPLITS]
    (train, train_tokens), (test, test_tokens) = map(map_tokens, files)
    both = blake2b(f"{train.hash} {test.hash} {train.vocabulary}".encode(), digest_size=16).hexdigest()
    return TokenSet(f"lm1b, {tokenizer.name}", train_tokens, test_tokens, train.vocabulary, chosen.length, both)


def _tokenized(settings: Lm1bSettings, split: str, tokenizer: Tokenizer) -> Path:
    """The file with the tokens of a split. One that was made of the same text in the same way is taken as it is."""
    file, texts = settings.prepared / f"{split}.tokens", parquet_files(settings.folder, split)
    most = settings.most_train_tokens if split == "train" else None
    header = TokenHeader(
        vocabulary=tokenizer.vocabulary,
        tokenizer=tokenizer.name,
        tokenizer_hash=tokenizer.hash,
        made_from=blake2b(described(texts).encode(), digest_size=16).hexdigest(),
        at_most=most,
    )
    if file.is_file():
        there = read_header(file)
        passing = {"count", "hash"} if texts else {"count", "hash", "made_from"}  # the text may be gone by now
        if there.model_dump(exclude=passing) == header.model_dump(exclude=passing):
            return file
    write_tokens(file, header, at_most(most, (tokenizer.encode(part) for part in _documents(settings, split, texts))))
    return file


def _documents(settings: Lm1bSettings, split: str, files: list[Path]) -> Iterator[list[str]]:
    if files:
        tables = rows_of_files(files, [COLUMN])
    elif settings.download:
        tables = rows_of_hub(settings.repository, split, [COLUMN], settings.folder)
    else:
        raise DataError(
            f"there is no text ({split}) in the folder {settings.folder}: no {split}-*.parquet and no {split}/*.parquet; get "
            f"it with `hf download {settings.repository} --repo-type dataset --local-dir {settings.folder}`, or with "
            "data_settings: {download: true}, or name its folder with data_settings: {folder: ...}"
        )
    for place, table in tables:
        texts = table.column(COLUMN).to_pylist()
        if not all(isinstance(text, str) for text in texts):
            raise DataError(f'{place}: the column "{COLUMN}" holds something that is no text')
        yield texts


def at_most(count: int | None, parts: Iterator[Tokens]) -> Iterator[Tokens]:
    """The first `count` tokens of all; all of them for None."""
    left = count
    for part in parts:
        if left is None:
            yield part
            continue
        yield part[:left]
        left -= len(part[:left])
        if not left:
            return


@DATASETS.register("pydoc")
def pydoc(**settings: Any) -> TokenSet:
    """Python's own help on the language: half a million bytes of English, on every machine.

    Every tenth topic is for testing, without the paragraphs that are in others, too.

    Args:
        settings: fields of PydocSettings.

    Raises SpecError for a setting that there is not.
    """
    from pydoc_data.topics import topics

    chosen = PydocSettings.of(**settings)
    texts = [topics[name] for name in sorted(topics)]
    train = "\n".join(text for place, text in enumerate(texts) if place % TENTH)
    known = set(_paragraphs(train))
    test = "\n\n".join(part for text in texts[::TENTH] for part in _paragraphs(text) if part not in known)
    tokens = [np.frombuffer(text.encode(), np.uint8).astype(np.uint16) for text in (train, test)]
    digest = blake2b(b"\0".join(part.tobytes() for part in tokens), digest_size=16).hexdigest()
    return TokenSet("pydoc", tokens[0], tokens[1], Bytes.vocabulary, chosen.length, digest)


def _paragraphs(text: str) -> list[str]:
    return [part.strip("\n") for part in text.split("\n\n") if part.strip()]
