"""What is known of the clients: their means, their labels, how far apart they are, their groups."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any, Literal

import numpy as np

from fedskew.types.arrays import Bools, Floats, Ints, freeze


@dataclass(frozen=True)
class Population:
    """What the server may know of each client's means without asking about its labels."""

    num_examples: Ints  # (K,)
    seconds_per_example: Floats | None = None  # (K,) one forward and backward pass
    latency_seconds: Floats | None = None  # (K,) what a rule may rank by: delay, and there and back
    uplink_bps: Floats | None = None  # (K,) to and from the server
    snr: Floats | None = None  # (K,) linear, not dB
    watts: Floats | None = None  # (K,) while training
    delay_seconds: Floats | None = None  # (K,) whenever it trains, whatever it trains on
    trip_seconds: Floats | None = None  # (K,) one message, one way, whatever its size
    d2d_bps: Floats | None = None  # (K,) to the next device
    transmit_watts: Floats | None = None  # (K,) while sending

    def __post_init__(self) -> None:
        floats = [f.name for f in fields(self) if f.name != "num_examples"]
        freeze(self, num_examples=np.int64, **dict.fromkeys(floats, np.float64))

    @property
    def size(self) -> int:
        """K, the number of clients."""
        return len(self.num_examples)


@dataclass(frozen=True)
class Signal:
    """Label proportions of every client and where they came from.

    A client without examples has ``known`` False and a row of zeros: it is left out of clustering
    and never selected.
    """

    rows: Floats  # (K, C), each known row sums to 1
    num_examples: Floats  # (K,), float because private counts may be
    source: Literal["disclosed", "private", "estimated"]
    epsilon: float | None = None  # privacy budget spent, for source "private"
    known: Bools = None  # type: ignore[assignment]  # (K,), default: rows that sum to 1

    def __post_init__(self) -> None:
        if self.known is None:
            object.__setattr__(self, "known", np.asarray(self.rows, np.float64).sum(axis=1) > 0)
        freeze(self, rows=np.float64, num_examples=np.float64, known=np.bool_)

    @property
    def num_classes(self) -> int:
        """C."""
        return int(self.rows.shape[1])


@dataclass(frozen=True)
class HeadUpdates:
    """What a probe leaves: every client's output layer after a short training from one model."""

    received_weight: Floats  # (C, L)
    weight: Floats  # (K, C, L) after training
    received_bias: Floats | None  # (C,)
    bias: Floats | None  # (K, C) after training
    steps: Ints  # (K,) optimiser steps taken
    answered: Bools  # (K,) False: no usable reply
    num_examples: Ints  # (K,)
    # (K, C, C) mean softmax per true class on the auxiliary set, before and after averaged
    confusion: Floats | None = None

    def __post_init__(self) -> None:
        floats = ("received_weight", "weight", "received_bias", "bias", "confusion")
        freeze(
            self,
            steps=np.int64,
            answered=np.bool_,
            num_examples=np.int64,
            **dict.fromkeys(floats, np.float64),
        )


@dataclass(frozen=True)
class Geometry:
    """How far clients are from each other: distances, or points with these distances, or both.

    Above a few thousand clients only ``points`` exist, never a K x K matrix.
    """

    pairwise: Floats | None = None  # (K, K)
    points: Floats | None = None  # (K, F)
    known: Bools = None  # type: ignore[assignment]  # (K,), default: everyone
    name: str = ""

    def __post_init__(self) -> None:
        present = self.pairwise if self.pairwise is not None else self.points
        if present is None:
            raise ValueError("a Geometry needs pairwise distances or points")
        if self.known is None:
            object.__setattr__(self, "known", np.ones(len(present), np.bool_))
        freeze(self, pairwise=np.float64, points=np.float64, known=np.bool_)

    @property
    def size(self) -> int:
        """K."""
        return len(self.known)


@dataclass(frozen=True)
class Clustering:
    """Groups of clients, numbered 0..k-1 by their smallest member. Label -1: in no group, never
    chosen by a cluster rule.
    """

    labels: Ints  # (K,)
    silhouette: float | None = None
    noise_fraction: float = 0.0
    exact: bool = True  # False: found on cells of near-equal clients
    # parameters chosen, the scanned curve, centroids ...
    details: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        freeze(self, labels=np.int64)

    @property
    def k(self) -> int:
        """The number of clusters."""
        return int(self.labels.max(initial=-1)) + 1

    def members(self, cluster: int) -> Ints:
        """Client ids of one cluster, ascending."""
        return np.flatnonzero(self.labels == cluster)
