"""What both apps of benchmarks/fleet.py do at a client: the same data, the same network."""

import numpy as np
from torch import nn

EXAMPLES, BATCH, LR = 600, 64, 0.005


def build() -> nn.Module:
    """784-200-200-10."""
    hidden = (nn.Linear(784, 200), nn.ReLU(), nn.Linear(200, 200), nn.ReLU())
    return nn.Sequential(nn.Flatten(), *hidden, nn.Linear(200, 10))


def data(client: int) -> tuple[np.ndarray, np.ndarray]:
    """Noise of the shape of Fashion-MNIST."""
    rng = np.random.default_rng(client)
    pixels = rng.integers(0, 256, (EXAMPLES, 28, 28), dtype=np.uint8)
    return pixels, rng.integers(0, 10, EXAMPLES)
