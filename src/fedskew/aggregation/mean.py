"""The next model is the average of the models that came back (FedAvg).

McMahan et al., AISTATS 2017, Algorithm 1. Weights are explicit: by examples over the SELECTED clients (papers 000, 002, 004),
or uniform (FedCor, Power-of-Choice, BACSA-FS).
"""

from __future__ import annotations

from typing import Literal

import numpy as np

from fedskew.types import Ends, Floats, Params

BLOCK = 32_768  # numbers added up at a time: sum and summand stay in the cache


def mean(model: Params, ends: Ends, *, weights: Literal["examples", "uniform"] = "examples") -> Params:
    """Average weights and float buffers; integer counters take the maximum."""
    return average(ends, normalised(ends, weights))


def normalised(ends: Ends, weights: Literal["examples", "uniform"]) -> Floats:
    """One weight per model, summing to 1."""
    raw = ends.num_examples.astype(np.float64) if weights == "examples" else np.ones(len(ends.params))
    return np.asarray(raw / raw.sum(), np.float64)


def average(ends: Ends, shares: Floats) -> Params:
    """The weighted sum, added up in one fixed order: a BLAS product may round differently from machine to machine."""
    total = np.empty(ends.params.shape[1], np.float32)
    scratch = np.empty(BLOCK, np.float32)
    for begin in range(0, len(total), BLOCK):
        part = total[begin : begin + BLOCK]
        np.multiply(ends.params[0, begin : begin + BLOCK], np.float32(shares[0]), out=part)
        for row, share in zip(ends.params[1:], shares[1:], strict=True):
            np.multiply(row[begin : begin + BLOCK], np.float32(share), out=scratch[: len(part)])
            part += scratch[: len(part)]
    for block in ends.layout.blocks:
        if block.kind == "counter":
            total[block.offset : block.stop] = ends.params[:, block.offset : block.stop].max(axis=0)
    return total
