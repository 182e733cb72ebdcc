"""Text as tokens: sequences of one length, each with the token that follows it, in a random order."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from syno.base.errors import ShapeError
from syno.data.contract import Orders
from syno.data.token_file import Tokens


@dataclass(frozen=True)
class TokenSet:
    """Two texts as tokens.

    Batches are int64 [batch, length + 1]: inputs are all but the last column, targets all but the first.

    Attributes:
        name: a label.
        train_tokens, test_tokens: uint16 [n], perhaps mapped from files.
        vocabulary: tokens are below it.
        length: of a sequence.
        hash: of all tokens and the vocabulary.
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
        """What a network chooses from: the vocabulary."""
        return self.vocabulary

    @property
    def train_count(self) -> int:
        """How many sequences there are to train on: as many as follow one another without overlap."""
        return (len(self.train_tokens) - 1) // self.length

    @property
    def test_count(self) -> int:
        """How many sequences there are to test on."""
        return (len(self.test_tokens) - 1) // self.length

    def train_batches(self, batch: int, *, seed: int, device: Any = "cpu") -> TokenBatches:
        """Batches in a random order, see `Batches`. ShapeError if there are not as many sequences."""
        if batch > self.train_count:
            raise ShapeError(
                f"batch is {batch}, but {self.name} has {self.train_count} sequences to train on; give a smaller one"
            )
        return TokenBatches(self.train_tokens, self.length, batch, seed, device)

    def test_batches(self, batch: int, *, device: Any = "cpu") -> Iterator[torch.Tensor]:
        """All sequences for testing, in their order; the last batch may be smaller."""
        for first in range(0, self.test_count, batch):
            chosen = np.arange(first, min(first + batch, self.test_count))
            yield sequences(self.test_tokens, chosen, self.length).to(device)


class TokenBatches:
    """The sequences of a text, in another order in each epoch."""

    def __init__(self, tokens: Tokens, length: int, batch: int, seed: int, device: Any) -> None:
        self.tokens, self.length, self.batch, self.device = tokens, length, batch, device
        self._orders = Orders((len(tokens) - 1) // length, seed)

    def __len__(self) -> int:
        return self._orders.count // self.batch

    def epoch(self, number: int, first: int = 0) -> Iterator[torch.Tensor]:
        """See `Batches`. Int64 [batch, length + 1]."""
        order = self._orders.of(number).numpy()
        for start in range(first * self.batch, len(self) * self.batch, self.batch):
            yield sequences(self.tokens, order[start : start + self.batch], self.length).to(self.device)


def sequences(tokens: Tokens, chosen: NDArray[np.int64], length: int) -> torch.Tensor:
    """These of the sequences that follow one another, each with the token after it: int64 [chosen, length + 1]."""
    places = chosen[:, None] * length + np.arange(length + 1)
    return torch.from_numpy(tokens[places].astype(np.int64))
