"""Texts as rows of token ids: lower-case words, the most frequent kept, cut or padded.

Web addresses and @names become one token each, so nobody's name enters a vocabulary. Ids: 0
padding, 1 unknown word, 2.. words by falling frequency. A vocabulary comes from training texts
only: datasets number every word they have, and :func:`fit_vocabulary` keeps the most frequent ones
of the training rows once it is known which rows those are.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from ..types import Ints
from .dataset import CHUNK_ROWS

PADDING = 0
UNKNOWN = 1
FIRST_WORD = 2
_TOKEN = re.compile(r"(?P<url>https?://\S+|www\.\S+)|(?P<user>@\w+)|[^\W_]+(?:['’][^\W_]+)?")


def tokenise(text: str) -> list[str]:
    """Lower-case words of one text.

    >>> tokenise("Can't wait, @Anna! https://x.y/z")
    ["can't", 'wait', '<user>', '<url>']
    """
    return [
        f"<{m.lastgroup}>" if m.lastgroup else m.group().replace("’", "'")
        for m in _TOKEN.finditer(text.lower())
    ]


def build_vocabulary(documents: Iterable[Sequence[str]], size: int = 10_000) -> dict[str, int]:
    """Word -> id for the most frequent words; ``size`` counts padding and unknown too.

    Words with equal counts are in alphabetical order.

    >>> build_vocabulary([["b", "a"], ["b", "c"]], size=4)
    {'b': 2, 'a': 3}
    """
    counts: Counter[str] = Counter()
    for words in documents:
        counts.update(words)
    ranked = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    return {word: FIRST_WORD + i for i, (word, _) in enumerate(ranked[: max(size - FIRST_WORD, 0)])}


def fit_vocabulary(
    ids: NDArray[np.integer], rows: Ints, words: int, size: int
) -> NDArray[np.int32]:
    """(words,) the new id of every word: the ``size`` most frequent stay, all others are unknown.

    Only what is left of a text after cutting is counted; equal counts keep the order of their old
    ids.

    >>> fit_vocabulary(np.array([[2, 3, 3], [4, 4, 4]]), np.array([0]), 5, 4)
    array([0, 1, 3, 2, 1], dtype=int32)
    """
    counts = np.zeros(words, np.int64)
    for begin in range(0, len(rows), CHUNK_ROWS):
        counts += np.bincount(ids[rows[begin : begin + CHUNK_ROWS]].ravel(), minlength=words)
    counts[:FIRST_WORD] = 0
    ranked = np.argsort(-counts, kind="stable")[: max(size - FIRST_WORD, 0)]
    kept = ranked[counts[ranked] > 0]
    table = np.full(words, UNKNOWN, np.int32)
    table[PADDING] = PADDING
    table[kept] = FIRST_WORD + np.arange(len(kept))
    return table


def encode(
    documents: Sequence[Sequence[str]], vocabulary: Mapping[str, int], length: int
) -> NDArray[np.int32]:
    """(N, length) ids: the first ``length`` words, then padding; an empty text is one unknown word.

    >>> encode([["b", "z"], []], {"b": 2}, 3).tolist()
    [[2, 1, 0], [1, 0, 0]]
    """
    ids = np.zeros((len(documents), length), np.int32)
    for row, words in zip(ids, documents, strict=True):
        word_ids = [vocabulary.get(word, UNKNOWN) for word in words[:length]] or [UNKNOWN]
        row[: len(word_ids)] = word_ids
    return ids
