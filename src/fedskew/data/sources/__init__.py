"""One module per family of datasets; ``SOURCES`` lists every dataset fedskew can get by name."""

from __future__ import annotations

from . import cifar10, cifar100, digits, idx, nih, tables, texts
from .source import Info, Source

__all__ = ["SOURCES", "Info", "Source"]

SOURCES: dict[str, Source] = {
    "digits": digits.SOURCE,
    "mnist": idx.MNIST,
    "fmnist": idx.FMNIST,
    "cifar10": cifar10.SOURCE,
    "cifar100": cifar100.SOURCE,
    "nih_labels": nih.LABELS,
    "nih_images": nih.IMAGES,
    "acsincome": tables.ACSINCOME,
    "serengeti": tables.SERENGETI,
    "sent140": texts.SENT140,
    "amazon": texts.AMAZON,
}
