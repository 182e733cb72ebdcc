"""Tokenizers: bytes as they are, or GPT-2's from its files."""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import blake2b
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from syno.base.errors import DataError, MissingPackageError
from syno.data.parquet import one_line
from syno.data.token_file import Tokens

END = "<|endoftext|>"  # GPT-2's token between documents
FILES = (("tokenizer.json",), ("vocab.json", "merges.txt"))


class Tokenizer(Protocol):
    """Makes tokens of text."""

    name: str
    hash: str  # of what it does
    vocabulary: int

    def encode(self, documents: Sequence[str]) -> Tokens:
        """The tokens of documents, one after another, with a token at the end of each."""
        ...


class Bytes:
    """Every byte of UTF-8 is a token; documents end with a line."""

    name = "bytes"
    hash = "utf-8"
    vocabulary = 256

    def encode(self, documents: Sequence[str]) -> Tokens:
        """See `Tokenizer`."""
        text = "".join(f"{document}\n" for document in documents).encode(errors="replace")
        return np.frombuffer(text, np.uint8).astype(np.uint16)


class FromFiles:
    """A byte-pair tokenizer as `tokenizers` and `transformers` save it."""

    def __init__(self, folder: Path, vocabulary: int) -> None:
        """From the files in a folder.

        Raises:
            DataError: there are none, they are damaged, or hold another number of tokens than `vocabulary`. (`transformers`
                makes an empty tokenizer, without a word, where it has no files and no network.)
            MissingPackageError: `tokenizers` is not installed.
        """
        files = _files(folder)
        self._tokenizer = _loaded(files)
        self.name, self.vocabulary = folder.name, vocabulary
        self.hash = blake2b(b"\0".join(file.read_bytes() for file in files), digest_size=16).hexdigest()
        there = self._tokenizer.get_vocab_size()
        if there != vocabulary:
            raise DataError(
                f"the tokenizer in {folder} has {there} tokens, and the setting vocabulary is {vocabulary} (GPT-2's has "
                "50257); give its files, or set vocabulary to what it has"
            )
        self._end = self._tokenizer.token_to_id(END)
        if self._end is None:
            raise DataError(f"the tokenizer in {folder} has no token {END}, which ends each document")

    def encode(self, documents: Sequence[str]) -> Tokens:
        """See `Tokenizer`."""
        tokens: list[int] = []
        for encoded in self._tokenizer.encode_batch(list(documents), add_special_tokens=False):
            tokens += encoded.ids
            tokens.append(self._end)
        return np.array(tokens, np.uint16)


def _files(folder: Path) -> list[Path]:
    for names in FILES:
        found = [folder / name for name in names]
        if all(file.is_file() for file in found):
            return found
    raise DataError(
        f"there is no tokenizer in {folder}: neither tokenizer.json, nor vocab.json and merges.txt; get GPT-2's with "
        f"`hf download openai-community/gpt2 tokenizer.json --local-dir {folder}`"
    )


def _loaded(files: Sequence[Path]) -> Any:
    try:
        import tokenizers
    except ImportError:
        raise MissingPackageError('tokenizers is not installed: pip install "syno[text]"') from None
    try:
        if len(files) == 1:
            return tokenizers.Tokenizer.from_file(str(files[0]))
        return tokenizers.ByteLevelBPETokenizer(*map(str, files))
    except Exception as error:  # what it raises is an Exception, no more
        raise DataError(f"{files[0]} cannot be read as a tokenizer: {one_line(error)}; copy it again") from error
