"""Tokens in a file: a header of one page, JSON in one line, then two bytes for each token, to be mapped to memory."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from hashlib import blake2b, file_digest
from pathlib import Path
from typing import Annotated, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, Field

from syno.base.errors import DataError
from syno.base.files import json_with_checksum, parse_json, replaced

PAGE = 4096  # bytes of the header, filled up with blanks
TOKEN = np.dtype("<u2")
Tokens = NDArray[np.uint16]


class TokenHeader(BaseModel):
    """What the tokens are.

    Attributes:
        format: of the file.
        vocabulary: how many different ones there may be.
        tokenizer, tokenizer_hash: what made them of text.
        count: how many there are.
        hash: of all of them.
        made_from: which files of text, as a hash.
        at_most: how many tokens were asked for at most.
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
    """Write a file, whole or not at all, and return its header with count and hash.

    Args:
        file: where.
        header: but for these two.
        parts: the tokens, as many at once as are made at once.

    Raises DataError if a token is not in the vocabulary or there are none, SpecError if the file cannot be written.
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
    """The header. DataError, with the file's name, if it has none, or not as many tokens as it says."""
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
    """Return the header, and the tokens, which are read when they are asked for.

    All are read once before, for their hash, which takes about a second for a gigabyte. DataError as `read_header`, and if they
    are others than were written.
    """
    assert sys.byteorder == "little", "token files are little-endian, and so are all machines that PyTorch is built for"
    header = read_header(file)
    with file.open("rb") as opened:
        opened.seek(PAGE)
        digest = file_digest(opened, lambda: blake2b(digest_size=16)).hexdigest()
    if digest != header.hash:
        raise DataError(f"{file} is damaged: it has other tokens than were written; delete it, and it is made again")
    return header, np.memmap(file, dtype=TOKEN, mode="r", offset=PAGE, shape=(header.count,))
