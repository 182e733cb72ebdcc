"""Data sets of text, and their tokenizers: the one-billion-word benchmark, and the help that every Python has."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from syno.base.errors import DataError, MissingPackageError, one_line
from syno.base.files import checksum
from syno.data.contract import DATASETS, described
from syno.data.parquet import parquet_files, rows_of_files, rows_of_hub
from syno.data.settings import Lm1bSettings, PydocSettings
from syno.data.tokens import TokenHeader, Tokens, TokenSet, map_tokens, read_header, write_tokens

SPLITS = ("train", "test")
COLUMN = "text"
TENTH = 10  # every tenth topic of Python's help is to test on
END = "<|endoftext|>"  # GPT-2's token between documents
FILES = (("tokenizer.json",), ("vocab.json", "merges.txt"))  # of a tokenizer


@DATASETS.register("lm1b")
def lm1b(**settings: Any) -> TokenSet:
    """Return the one-billion-word benchmark. It is tokenized the first time, and again when its files or settings change.

    Args:
        settings: fields of Lm1bSettings.

    Raises:
        SpecError: an unknown setting.
        DataError: the text or the tokenizer is missing or damaged.
        MissingPackageError: a tokenizer is given, and `tokenizers` is not installed.
    """
    chosen = Lm1bSettings.of(**settings)
    tokenizer: Tokenizer = Bytes() if chosen.tokenizer is None else FromFiles(chosen.tokenizer, chosen.vocabulary)
    files = [_tokenized(chosen, split, tokenizer) for split in SPLITS]
    (train, train_tokens), (test, test_tokens) = map(map_tokens, files)
    both = checksum(f"{train.hash} {test.hash} {train.vocabulary}".encode())
    return TokenSet(f"lm1b, {tokenizer.name}", train_tokens, test_tokens, train.vocabulary, chosen.length, both)


def _tokenized(settings: Lm1bSettings, split: str, tokenizer: Tokenizer) -> Path:
    """Return the token file of a split. It is written unless one that was made of the same text in the same way is there."""
    file, texts = settings.prepared / f"{split}.tokens", parquet_files(settings.folder, split)
    most = settings.most_train_tokens if split == "train" else None
    header = TokenHeader(
        vocabulary=tokenizer.vocabulary,
        tokenizer=tokenizer.name,
        tokenizer_hash=tokenizer.hash,
        made_from=checksum(described(texts).encode()),
        at_most=most,
    )
    if file.is_file():
        there = read_header(file)
        passing = {"count", "hash"} if texts else {"count", "hash", "made_from"}  # the text may have been deleted since
        if there.model_dump(exclude=passing) == header.model_dump(exclude=passing):
            return file
    write_tokens(file, header, at_most(most, (tokenizer.encode(part) for part in _documents(settings, split, texts))))
    return file


def _documents(settings: Lm1bSettings, split: str, files: list[Path]) -> Iterator[list[str]]:
    """Yield the documents of a split, many at once. DataError if there are none, or they are damaged."""
    absent = f"there is no text ({split}) in the folder {settings.folder}: no {split}-*.parquet and no {split}/*.parquet"
    tables = rows_of_files(files, [COLUMN]) if files else rows_of_hub(settings, split, [COLUMN], absent)
    for place, table in tables:
        texts = table.column(COLUMN).to_pylist()
        if not all(isinstance(text, str) for text in texts):
            raise DataError(f'{place}: the column "{COLUMN}" holds something that is no text')
        yield texts


def at_most(count: int | None, parts: Iterator[Tokens]) -> Iterator[Tokens]:
    """Yield the first `count` tokens of all parts; all of them if `count` is None."""
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
    """Return Python's own help on the language: half a million bytes of English, on every machine.

    Every tenth topic is to test on, without the paragraphs that other topics have, too.

    Args:
        settings: fields of PydocSettings.

    Raises SpecError for an unknown setting.
    """
    from pydoc_data.topics import topics

    chosen = PydocSettings.of(**settings)
    texts = [topics[name] for name in sorted(topics)]
    train = "\n".join(text for place, text in enumerate(texts) if place % TENTH)
    known = set(_paragraphs(train))
    test = "\n\n".join(part for text in texts[::TENTH] for part in _paragraphs(text) if part not in known)
    tokens = [np.frombuffer(text.encode(), np.uint8).astype(np.uint16) for text in (train, test)]
    digest = checksum(b"\0".join(part.tobytes() for part in tokens))
    return TokenSet("pydoc", tokens[0], tokens[1], Bytes.vocabulary, chosen.length, digest)


def _paragraphs(text: str) -> list[str]:
    return [part.strip("\n") for part in text.split("\n\n") if part.strip()]


class Tokenizer(Protocol):
    """Makes tokens of text. `hash` depends on everything that its tokens depend on."""

    name: str
    hash: str
    vocabulary: int

    def encode(self, documents: Sequence[str]) -> Tokens:
        """Return the tokens of documents, one after another, with a token at the end of each."""
        ...


class Bytes:
    """A tokenizer for which every byte of UTF-8 is a token. Documents end with a newline."""

    name = "bytes"
    hash = "utf-8"
    vocabulary = 256

    def encode(self, documents: Sequence[str]) -> Tokens:
        """Return the tokens of documents; see `Tokenizer`."""
        text = "".join(f"{document}\n" for document in documents).encode(errors="replace")
        return np.frombuffer(text, np.uint8).astype(np.uint16)


class FromFiles:
    """A byte-pair tokenizer as `tokenizers` and `transformers` save it."""

    def __init__(self, folder: Path, vocabulary: int) -> None:
        """Load the files in a folder.

        Raises:
            DataError: there are none, they are damaged, or they hold another number of tokens than `vocabulary`.
                (`transformers` silently makes an empty tokenizer where it has no files and no network.)
            MissingPackageError: `tokenizers` is not installed.
        """
        files = _tokenizer_files(folder)
        self._tokenizer = _loaded(files)
        self.name, self.vocabulary = folder.name, vocabulary
        self.hash = checksum(b"\0".join(file.read_bytes() for file in files))
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
        """Return the tokens of documents; see `Tokenizer`."""
        tokens: list[int] = []
        for encoded in self._tokenizer.encode_batch(list(documents), add_special_tokens=False):
            tokens += encoded.ids
            tokens.append(self._end)
        return np.array(tokens, np.uint16)


def _tokenizer_files(folder: Path) -> list[Path]:
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
    except Exception as error:  # `tokenizers` raises plain Exceptions
        raise DataError(f"{files[0]} cannot be read as a tokenizer: {one_line(error)}; copy it again") from error
