"""Fixtures of the adviser's tests."""

from __future__ import annotations

import numpy as np
import pytest
from made_bank import make_bank, table_of

from fedskew.advice.bank import Bank


@pytest.fixture(scope="session")
def bank() -> Bank:
    return make_bank()


@pytest.fixture(scope="session")
def skewed() -> np.ndarray:
    """(30, 10) counts: one class or two at each client."""
    return table_of(np.random.default_rng(7), 30, 0.08)
