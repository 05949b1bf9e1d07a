"""Texts as rows of token ids: split into lower-case words, keep the most frequent ones, cut or pad to one length.

Web addresses and @names become one token each, so nobody's name enters a vocabulary. Ids: 0 padding, 1 unknown word,
2.. words by falling frequency. Build the vocabulary from training texts only.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

PADDING, UNKNOWN, FIRST_WORD = 0, 1, 2
_TOKEN = re.compile(r"(?P<url>https?://\S+|www\.\S+)|(?P<user>@\w+)|[^\W_]+(?:['’][^\W_]+)?")


def tokenise(text: str) -> list[str]:
    """Lower-case words of one text.

    >>> tokenise("Can't wait, @Anna! https://x.y/z")
    ["can't", 'wait', '<user>', '<url>']
    """
    return [f"<{m.lastgroup}>" if m.lastgroup else m.group().replace("’", "'") for m in _TOKEN.finditer(text.lower())]


def build_vocabulary(documents: Iterable[Sequence[str]], size: int = 10_000) -> dict[str, int]:
    """Word -> id for the most frequent words; ``size`` counts padding and unknown too. Equal counts: alphabetical.

    >>> build_vocabulary([["b", "a"], ["b", "c"]], size=4)
    {'b': 2, 'a': 3}
    """
    counts: Counter[str] = Counter()
    for words in documents:
        counts.update(words)
    ranked = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    return {word: FIRST_WORD + i for i, (word, _) in enumerate(ranked[: max(size - FIRST_WORD, 0)])}


def encode(documents: Sequence[Sequence[str]], vocabulary: Mapping[str, int], length: int) -> NDArray[np.int32]:
    """(N, length) ids: the first ``length`` words, padding behind them. An empty text is one unknown word.

    >>> encode([["b", "z"], []], {"b": 2}, 3).tolist()
    [[2, 1, 0], [1, 0, 0]]
    """
    ids = np.zeros((len(documents), length), np.int32)
    for row, words in zip(ids, documents, strict=True):
        found = [vocabulary.get(word, UNKNOWN) for word in words[:length]] or [UNKNOWN]
        row[: len(found)] = found
    return ids
