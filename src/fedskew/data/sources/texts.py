"""Two sets of short texts, from a Parquet file of yours; the texts never enter a dataset.

Sentiment140: is a tweet positive or negative (Go, Bhayani, Huang 2009)? The neutral tweets of its
test file are left out, as no training tweet is neutral (docs/methods.md 10). Amazon: which of six
departments a review belongs to (Kashnitsky, Kaggle); the title and the finer categories are not
used. Every word has a number here; the 10,000 that a model sees are the most frequent ones of the
training clients' texts and are chosen when clients are built
(:func:`fedskew.data.text.fit_vocabulary`).
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from ...errors import DataError
from ...types import Ints
from ..arrays import from_arrays
from ..dataset import Dataset
from ..text import FIRST_WORD, build_vocabulary, encode, tokenise
from .source import Info, Source, find_one
from .tables import read_parquet

VOCAB_SIZE = 10_000
LENGTHS = {"sent140": 40, "amazon": 100}  # words kept of a text
AMAZON_CLASSES = (
    "health personal care",
    "toys games",
    "beauty",
    "pet supplies",
    "baby products",
    "grocery gourmet food",
)
SENT140_INFO = Info(
    title="Sentiment140 tweets, negative or positive (100,000 of them)",
    examples=100_000,
    test_examples=359,
    classes=2,
    origin="sent140*.parquet in a folder you name",
    license="none stated (for research)",
    size_mb=3.1,
    default_model="lstm",
    needs_folder=True,
)
AMAZON_INFO = Info(
    title="Amazon product reviews in six departments",
    examples=9_046,
    test_examples=0,
    classes=6,
    origin="amazon*.parquet in a folder you name",
    license="CC0 (as declared by the uploader)",
    size_mb=1.1,
    default_model="embedding",
    needs_folder=True,
)


@dataclass(frozen=True)
class Texts:
    """Raw texts and labels, for a vocabulary of one's own (from the training clients only, say)."""

    texts: list[str]
    labels: Ints
    test_texts: list[str]
    test_labels: Ints


def read_texts(name: str, folder: Path) -> Texts:
    """The raw texts of ``sent140`` or ``amazon``."""
    return _sent140(folder) if name == "sent140" else _amazon(folder)


def encode_texts(raw: Texts, length: int) -> tuple[np.ndarray, np.ndarray, int]:
    """Word numbers of the training and test texts, and how many words there are: all of them."""
    train = [tokenise(t) for t in raw.texts]
    test = [tokenise(t) for t in raw.test_texts]
    numbers = build_vocabulary([*train, *test], sys.maxsize)
    return encode(train, numbers, length), encode(test, numbers, length), len(numbers) + FIRST_WORD


def read(name: str, folder: Path) -> Dataset:
    """The dataset as token ids."""
    raw = read_texts(name, folder)
    x, x_test, words = encode_texts(raw, LENGTHS[name])
    info, names = (
        (SENT140_INFO, ("negative", "positive"))
        if name == "sent140"
        else (AMAZON_INFO, AMAZON_CLASSES)
    )
    return from_arrays(
        x,
        raw.labels,
        x_test,
        raw.test_labels,
        name=name,
        num_classes=len(names),
        class_names=names,
        default_model=info.default_model,
        license=info.license,
        source=find_one(folder, f"{name}*.parquet")[0].name,
        vocab_size=VOCAB_SIZE,
        words=words,
    )


def _sent140(folder: Path) -> Texts:
    path, table = read_parquet(folder, "sent140*.parquet", ("split", "polarity", "text"))
    polarity = table["polarity"].to_numpy(dtype=np.int64)
    split = table["split"].astype(str).to_numpy(dtype=np.str_)
    if not np.isin(polarity, (0, 2, 4)).all():
        raise DataError(
            f"file {path}", "polarity is not always 0, 2 or 4", "Bring the original labels"
        )
    texts = table["text"].astype(str).to_numpy(dtype=object)
    train, test = (np.flatnonzero((split == part) & (polarity != 2)) for part in ("train", "test"))
    return Texts(
        texts[train].tolist(), polarity[train] // 4, texts[test].tolist(), polarity[test] // 4
    )


def _amazon(folder: Path) -> Texts:
    _, table = read_parquet(folder, "amazon*.parquet", ("text", "label"))
    return Texts(
        table["text"].astype(str).tolist(),
        table["label"].to_numpy(dtype=np.int64),
        [],
        np.zeros(0, np.int64),
    )


SENT140 = Source(
    info=SENT140_INFO,
    find=lambda folder: find_one(folder, "sent140*.parquet"),
    read=lambda folder: read("sent140", folder),
)
AMAZON = Source(
    info=AMAZON_INFO,
    find=lambda folder: find_one(folder, "amazon*.parquet"),
    read=lambda folder: read("amazon", folder),
)
