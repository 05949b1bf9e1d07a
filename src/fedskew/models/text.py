"""Networks over token ids: paper 004's models for Amazon reviews and Sent140 (docs/methods.md 10),
and a small transformer.

Token id 0 is padding.

Differs from the paper:

- GloVe vectors are not shipped. ``lstm`` starts from seeded random vectors, or from a file you
  name; see its docstring.
- torch has no recurrent dropout: the LSTM's 0.2 falls on its input and on its last state instead.
- the vocabulary (10,000), width (16) and length (100) of the Amazon model are not in the paper.
- a torch LSTM has two bias vectors where the authors' Keras has one: 12,480 weights instead of
  12,440.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Literal, TypeAlias

import numpy as np

from fedskew.errors import DataError, RecipeError
from fedskew.models.border import Module, Shape, check_memory, check_rates, check_sizes, read_length
from fedskew.streams import stream
from fedskew.types import Params

if TYPE_CHECKING:
    from torch import nn

Embedding: TypeAlias = Literal["frozen_random", "frozen_file", "trainable"]


def embedding(
    shape: Shape, num_classes: int, *, vocab: int = 10_000, width: int = 16, hidden: int = 8
) -> Module:
    """Embedding, flatten, 8 ReLU units (paper 004, Amazon): 172,862 weights.

    That is for 100 tokens and 6 classes.

    Word vectors begin uniform within 0.05 of 0, Keras' default. From torch's standard normal ones
    ten IID clients reached 0.32 (the share of the largest class) in 8 rounds of 5 epochs of Adam
    1e-3, from these 0.63.
    """
    from torch import nn

    length = read_length("model embedding", shape)
    check_sizes("model embedding", vocab=vocab, width=width, hidden=hidden)
    check_memory("model embedding", vocab * width, "vocab x width")
    words = nn.Embedding(vocab, width)
    nn.init.uniform_(words.weight, -0.05, 0.05)
    dense = [nn.Linear(length * width, hidden), nn.ReLU(), nn.Linear(hidden, num_classes)]
    return nn.Sequential(words, nn.Flatten(), *dense)


def lstm(
    shape: Shape,
    num_classes: int,
    *,
    embedding: Embedding = "frozen_random",
    vectors: str | None = None,
    vectors_seed: int = 0,
    vocab: int = 10_000,
    width: int | None = None,
    units: int = 10,
    dropout: float = 0.5,
    lstm_dropout: float = 0.2,
) -> Module:
    """Embedding, dropout, LSTM of 10, linear (paper 004, Sent140): 12,480 + 22 trained weights.

    That is with a frozen embedding.

    ``embedding="frozen_random"``: random vectors that are never trained; ``vectors_seed`` alone
    decides them, so every process builds the same ones and none needs sending. ``"frozen_file"``:
    the vectors in the text file ``vectors``, which has one line per token id, in order, of numbers
    apart by spaces (a word in front, as in GloVe files, is skipped). ``"trainable"``: it is trained
    and sent with the model, starting from ``vectors`` when given. ``width``: None means 300 frozen,
    32 trainable.

    Why frozen is the default: after 3 epochs of Adam on 40,000 tweets (batch 32, one seed) random
    frozen vectors had 0.677 on 5,000 others, trained ones 0.682 with 26 times the weights. Without
    dropout the frozen ones had 0.755.
    """
    from fedskew.models._layers import TokenLSTM

    read_length("model lstm", shape)
    width = width if width is not None else (32 if embedding == "trainable" else 300)
    check_sizes("model lstm", vocab=vocab, width=width, units=units)
    check_memory("model lstm", vocab * width, "vocab x width")
    check_rates("model lstm", dropout=dropout, lstm_dropout=lstm_dropout)
    table = _table(embedding, vectors, vectors_seed, vocab, width)
    # Two dropouts in a row are one: an entry survives both with probability (1 - a)(1 - b), scaled
    # by its inverse.
    dropout_in = 1 - (1 - dropout) * (1 - lstm_dropout)
    return TokenLSTM(
        _embed(table, vocab, width, embedding != "trainable"),
        units,
        num_classes,
        dropout_in,
        lstm_dropout,
    )


def transformer(
    shape: Shape,
    num_classes: int,
    *,
    vocab: int = 10_000,
    width: int = 64,
    blocks: int = 2,
    heads: int = 4,
    hidden: int = 128,
) -> Module:
    """Two blocks of attention over 64 numbers a token, then their mean (Vaswani et al., NeurIPS
    2017, the encoder, norms first): 713,862 weights for 100 tokens and 6 classes.

    No dropout. In no paper of the five: for whoever looks for it.
    """
    from fedskew.models._residual import TokenTransformer

    length = read_length("model transformer", shape)
    sizes = {"vocab": vocab, "width": width, "blocks": blocks, "heads": heads, "hidden": hidden}
    check_sizes("model transformer", **sizes)
    check_memory("model transformer", vocab * width, "vocab x width")
    if width % heads:
        what = f"width = {width} cannot be shared by {heads} heads"
        raise RecipeError("model transformer", what, "Make width a multiple of heads")
    return TokenTransformer(length, num_classes, **sizes)


def _table(
    embedding: Embedding, vectors: str | None, vectors_seed: int, vocab: int, width: int
) -> Params | None:
    """The start values of the embedding, (vocab, width); None leaves them to torch."""
    if embedding not in ("frozen_random", "frozen_file", "trainable"):
        raise RecipeError(
            "model lstm",
            f"embedding is {embedding!r}",
            "Known: frozen_file, frozen_random, trainable",
        )
    if embedding == "frozen_file" and vectors is None:
        raise RecipeError(
            "model lstm",
            'embedding = "frozen_file" needs a file',
            "Name it with vectors; GloVe is not shipped",
        )
    if embedding == "frozen_random" and vectors is not None:
        raise RecipeError(
            "model lstm",
            "vectors are named but the embedding is random",
            'Set embedding = "frozen_file"',
        )
    if vectors is not None:
        return _read_vectors(Path(vectors), vocab, width)
    return _random_vectors(vectors_seed, vocab, width) if embedding == "frozen_random" else None


def _random_vectors(seed: int, vocab: int, width: int) -> Params:
    """Normal vectors of length near 7; padding is zero."""
    # Scale 0.4: with torch's LSTM start (uniform within 1/sqrt(10)) the 300-d input reaches the
    # gates with a spread near 1.3.
    table = stream(seed, "frozen_embedding").standard_normal(
        (vocab, width), dtype=np.float32
    ) * np.float32(0.4)
    table[0] = 0
    return table


def _read_vectors(path: Path, vocab: int, width: int) -> Params:
    """The first ``vocab`` lines of a text file of vectors."""
    if not path.is_file():
        raise DataError(
            "model lstm",
            f"there is no file of vectors at {path}",
            "GloVe is not shipped; name a file you have",
        )
    table = np.empty((vocab, width), np.float32)
    with path.open(encoding="utf-8") as lines:
        row = -1
        for row, line in zip(range(vocab), lines, strict=False):
            table[row] = _read_vector(line.split(), path, row, width)
    if row + 1 < vocab:
        raise DataError(
            "model lstm",
            f"{path} holds {row + 1} vectors, fewer than vocab = {vocab}",
            "Lower vocab or add lines",
        )
    return table


def _read_vector(words: list[str], path: Path, row: int, width: int) -> Params:
    try:
        if len(words) in (width, width + 1):
            return np.array(words[-width:], np.float32)
    except ValueError:
        pass
    raise DataError(
        "model lstm",
        f"line {row + 1} of {path} does not hold {width} numbers",
        "Set width to the file's",
    )


def _embed(table: Params | None, vocab: int, width: int, frozen: bool) -> nn.Embedding:
    """The embedding layer; a frozen one draws no random numbers and asks for no gradient."""
    import torch
    from torch import nn

    if table is None:
        return nn.Embedding(vocab, width, padding_idx=0)
    weights = torch.from_numpy(table)
    layer: nn.Embedding = nn.Embedding.from_pretrained(weights, freeze=frozen, padding_idx=0)  # type: ignore[no-untyped-call]
    return layer
