"""Images from the Hugging Face hub, for people with its ``datasets`` library; checked like all."""

from __future__ import annotations

import importlib
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...errors import DataError
from .source import Arrays, Hub


def read_hub(hub: Hub) -> Arrays:
    """The train and test split of ``hub`` as arrays."""
    try:
        library = importlib.import_module("datasets")
    except ImportError as error:
        raise DataError(
            f"hub {hub.repository}", "the datasets library is not installed", "pip install datasets"
        ) from error
    try:
        splits = library.load_dataset(hub.repository)
        (x, y), (x_test, y_test) = (_arrays(splits[part], hub) for part in ("train", "test"))
    except Exception as error:  # the library raises its own, requests' and the file system's errors
        raise DataError(
            f"hub {hub.repository}",
            f"cannot be loaded ({error})",
            "Check that the network is there",
        ) from error
    return Arrays(x, y, x_test, y_test)


def _arrays(split: Any, hub: Hub) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    images = [np.asarray(image, np.uint8) for image in split[hub.image]]
    return np.stack(images), np.asarray(split[hub.label], np.int64)
