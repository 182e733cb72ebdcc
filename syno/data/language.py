"""Data sets of text, and their tokenizers: the one-billion-word benchmark, and Python's built-in documentation."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b, file_digest
from pathlib import Path
from typing import Annotated, Any, Literal, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, Field

from syno.base.errors import DataError, ShapeError, one_line
from syno.base.files import checksum, json_with_checksum, parse_json, replaced
from syno.data.contract import DATASETS, WHOLE, Orders, Share, check_batch, described
from syno.data.files import SPLITS, no_text, no_tokenizers, parquet_files, token_files, tokenizer_files
from syno.data.hub_rows import rows_of_files, rows_of_hub
from syno.data.settings import Lm1bSettings, PydocSettings

PAGE = 4096  # bytes of the header, filled up with blanks
TOKEN = np.dtype("<u2")
Tokens = NDArray[np.uint16]


@dataclass(frozen=True)
class TokenSet:
    """Training and test text as tokens.

    Batches are int64 [batch, length + 1]: inputs are all but the last column, targets all but the first.

    Attributes:
        name: a label.
        train_tokens, test_tokens: uint16 [n], perhaps mapped from files.
        vocabulary: number of different tokens; all tokens are below it.
        length: number of tokens of a sequence.
        hash: hash of all tokens and of the vocabulary's size.

    Raises ShapeError if a text has no more tokens than a sequence.
    """

    name: str = field(compare=False)
    train_tokens: Tokens = field(repr=False, compare=False)
    test_tokens: Tokens = field(repr=False, compare=False)
    vocabulary: int
    length: int
    hash: str

    def __post_init__(self) -> None:
        for part, tokens in (("training", self.train_tokens), ("testing", self.test_tokens)):
            if len(tokens) <= self.length:
                raise ShapeError(
                    f"length is {self.length}, but {self.name} has {len(tokens)} tokens for {part}; a sequence takes one more "
                    "than its length; give a smaller one"
                )

    @property
    def classes(self) -> int:
        """The number of classes of a prediction, which is the size of the vocabulary."""
        return self.vocabulary

    @property
    def train_count(self) -> int:
        """Number of training sequences, which are consecutive parts of the text without overlap."""
        return (len(self.train_tokens) - 1) // self.length

    @property
    def test_count(self) -> int:
        """Number of test sequences."""
        return (len(self.test_tokens) - 1) // self.length

    def train_batches(self, batch: int, *, seed: int, device: Any = "cpu") -> TokenBatches:
        """Return training batches in random order, see `Batches`. ShapeError if there are fewer sequences than `batch`."""
        check_batch(batch, self.name, self.train_count, "sequences")
        return TokenBatches(self.train_tokens, self.length, batch, seed, device)

    def test_batches(self, batch: int, *, device: Any = "cpu") -> Iterator[torch.Tensor]:
        """Yield all test sequences, in order; the last batch may be smaller."""
        for first in range(0, self.test_count, batch):
            chosen = np.arange(first, min(first + batch, self.test_count))
            yield sequences(self.test_tokens, chosen, self.length).to(device)


class TokenBatches:
    """The sequences of a text, in a different random order in each epoch."""

    def __init__(self, tokens: Tokens, length: int, batch: int, seed: int, device: Any, share: Share = WHOLE) -> None:
        self.tokens, self.length, self.batch, self.seed, self.device, self.share = tokens, length, batch, seed, device, share
        self._orders = Orders((len(tokens) - 1) // length, seed)

    def of_share(self, share: Share) -> TokenBatches:
        """Return batches with only this process's share of the sequences of each batch."""
        return TokenBatches(self.tokens, self.length, self.batch, self.seed, self.device, share)

    def __len__(self) -> int:
        return self._orders.count // self.batch

    def epoch(self, number: int, first: int = 0) -> Iterator[torch.Tensor]:
        """Yield the batches of an epoch, see `Batches`: int64 [batch, length + 1]."""
        order = self._orders.of(number).numpy()
        for start in range(first * self.batch, len(self) * self.batch, self.batch):
            yield moved(sequences(self.tokens, order[self.share.part(start, self.batch)], self.length), self.device)


def moved(tensor: torch.Tensor, device: Any) -> torch.Tensor:
    """Return a tensor of the host on a device.

    The copy to a GPU is asynchronous, so that the host does not wait for its queue.
    """
    if torch.device(device).type != "cuda":
        return tensor.to(device)
    return tensor.pin_memory().to(device, non_blocking=True)


def sequences(tokens: Tokens, chosen: NDArray[np.int64], length: int) -> torch.Tensor:
    """Return the sequences with the indices `chosen`, each with the token after it: int64 [len(chosen), length + 1]."""
    places = chosen[:, None] * length + np.arange(length + 1)
    return torch.from_numpy(tokens[places].astype(np.int64))


class TokenHeader(BaseModel):
    """The header of a token file: a page with one line of JSON, followed by two bytes for each token (memory-mapped).

    Attributes:
        format: format version of the file.
        vocabulary: number of possible tokens.
        tokenizer, tokenizer_hash: name and hash of the tokenizer.
        count: number of tokens.
        hash: hash of all tokens.
        made_from: hash of the names, sizes and modification times of the text files.
        at_most: limit on the number of tokens when the file was written; None: no limit.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    format: Literal["syno tokens 1"] = "syno tokens 1"
    vocabulary: Annotated[int, Field(ge=1, le=2**16)]
    tokenizer: str
    tokenizer_hash: str
    made_from: str
    at_most: int | None = None
    count: Annotated[int, Field(ge=0)] = 0
    hash: str = ""


def write_tokens(file: Path, header: TokenHeader, parts: Iterable[Tokens]) -> TokenHeader:
    """Write a token file, atomically, and return its header.

    Args:
        file: path of the token file.
        header: the header without `count` and `hash`, which are computed here.
        parts: the tokens, in parts of any length.

    Raises DataError if a token is not in the vocabulary or there are no tokens, SpecError if the file cannot be written.
    """
    state, count = blake2b(digest_size=16), 0
    with replaced(file) as temporary, temporary.open("wb") as opened:
        opened.write(b" " * PAGE)
        for part in parts:
            if len(part) and part.max() >= header.vocabulary:
                raise DataError(f"{file}: a token is {part.max()}, but the vocabulary has {header.vocabulary}")
            encoded = part.astype(TOKEN).tobytes()
            state.update(encoded)
            opened.write(encoded)
            count += len(part)
        if not count:
            raise DataError(f"{file}: there is no text to make tokens of")
        made = header.model_copy(update={"count": count, "hash": state.hexdigest()})
        line = json_with_checksum(made.model_dump(mode="json"), indent=None).strip().encode()
        assert len(line) < PAGE, "a header is longer than its page"
        opened.seek(0)
        opened.write(line.ljust(PAGE - 1) + b"\n")
    return made


def read_header(file: Path) -> TokenHeader:
    """Return the header of a token file. DataError if it is missing, damaged, or does not match the file's size."""
    try:
        with file.open("rb") as opened:
            header = TokenHeader.model_validate(parse_json(opened.read(PAGE).strip()))
        size = file.stat().st_size
    except (OSError, ValueError) as error:
        raise DataError(
            f"{file} is no file of tokens: {' '.join(str(error).split())}; delete it, and it is made again"
        ) from None
    expected = PAGE + header.count * TOKEN.itemsize
    if size != expected:
        raise DataError(
            f"{file} has {size} bytes; with {header.count} tokens it must have {expected}; delete it, and it is made again"
        )
    return header


def map_tokens(file: Path) -> tuple[TokenHeader, Tokens]:
    """Return the header of a token file and its memory-mapped tokens, uint16 [count].

    The whole file is read once to check its hash, which takes about a second per gigabyte. DataError as for `read_header`, and
    if the hash does not match.
    """
    assert sys.byteorder == "little", "token files are little-endian, and so are all machines that PyTorch is built for"
    header = read_header(file)
    with file.open("rb") as opened:
        opened.seek(PAGE)
        digest = file_digest(opened, lambda: blake2b(digest_size=16)).hexdigest()
    if digest != header.hash:
        raise DataError(f"{file} is damaged: it has other tokens than were written; delete it, and it is made again")
    return header, np.memmap(file, dtype=TOKEN, mode="r", offset=PAGE, shape=(header.count,))


COLUMN = "text"
TENTH = 10  # every tenth topic of Python's documentation is for testing
END = "<|endoftext|>"  # GPT-2's token between documents


@DATASETS.register("lm1b")
def lm1b(**settings: Any) -> TokenSet:
    """Return the one-billion-word benchmark. It is tokenized at first use, and again after its files or settings change.

    Args:
        settings: fields of Lm1bSettings.

    Raises:
        SpecError: an unknown setting.
        DataError: the text or the tokenizer is missing or damaged.
        MissingPackageError: a tokenizer is given, and `tokenizers` is not installed.
    """
    chosen = Lm1bSettings.of(**settings)
    tokenizer: Tokenizer = Bytes() if chosen.tokenizer is None else FromFiles(chosen.tokenizer, chosen.vocabulary)
    files = [_tokenize(chosen, split, file, tokenizer) for split, file in zip(SPLITS, token_files(chosen), strict=True)]
    (train, train_tokens), (test, test_tokens) = map(map_tokens, files)
    both = checksum(f"{train.hash} {test.hash} {train.vocabulary}".encode())
    return TokenSet(f"lm1b, {tokenizer.name}", train_tokens, test_tokens, train.vocabulary, chosen.length, both)


def _tokenize(settings: Lm1bSettings, split: str, file: Path, tokenizer: Tokenizer) -> Path:
    """Return the token file of a split; write it first unless it exists and comes from the same text and tokenizer."""
    texts = parquet_files(settings.folder, split)
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
    """Yield batches of documents of a split. DataError if there are none, or they are damaged."""
    absent = no_text(settings.folder, split)
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
    """Return the documentation of Python's language as a data set: half a million bytes of English, available everywhere.

    Every tenth topic is for testing, without paragraphs that also occur in training topics.

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
    """A tokenizer of text. `hash` depends on everything that determines its tokens."""

    name: str
    hash: str
    vocabulary: int

    def encode(self, documents: Sequence[str]) -> Tokens:
        """Return the tokens of documents, concatenated, with an end token after each."""
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
    """A byte-pair tokenizer, in the file formats of `tokenizers` and `transformers`."""

    def __init__(self, folder: Path, vocabulary: int) -> None:
        """Load the tokenizer files of a folder.

        Raises:
            DataError: there are none, they are damaged, or their number of tokens is not `vocabulary`.
                (`transformers` silently creates an empty tokenizer if it has neither files nor network.)
            MissingPackageError: `tokenizers` is not installed.
        """
        files = tokenizer_files(folder)
        self._tokenizer = _load_tokens(files)
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


def _load_tokens(files: Sequence[Path]) -> Any:
    try:
        import tokenizers
    except ImportError:
        raise no_tokenizers() from None
    try:
        if len(files) == 1:
            return tokenizers.Tokenizer.from_file(str(files[0]))
        return tokenizers.ByteLevelBPETokenizer(*map(str, files))
    except Exception as error:  # `tokenizers` raises plain Exceptions
        raise DataError(f"{files[0]} cannot be read as a tokenizer: {one_line(error)}; copy it again") from error
