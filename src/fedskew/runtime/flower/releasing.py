"""Label counts with noise, drawn at the node: one release for a run, no more, however often it is
asked.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from flwr.app import Array, ArrayRecord, Context

from fedskew.runtime.flower.ledger import release_once
from fedskew.runtime.flower.policy import Policy
from fedskew.signal import release
from fedskew.types import Floats, Ints

RELEASED = "fedskew-released"  # where a node keeps what it has released in this run


def release_by(
    policy: Policy, context: Context, client: int, counts: Ints, signal: Mapping[str, Any]
) -> Floats:
    """Noised counts by the options of a ``[signal]`` that is ``private``, if the policy gives them
    and its budget lasts.
    """
    policy.check_signal("private", client)
    if policy.ledger is None:
        return _remembered(context, lambda: release(counts, **signal))
    price = policy.price(float(signal["epsilon"]), signal["neighbours"])
    run = str(context.run_id)
    return release_once(policy, run, price, client, lambda: release(counts, **signal))


def _remembered(context: Context, draw: Callable[[], Floats]) -> Floats:
    """What this node has released in this run, kept by Flower until the node is restarted."""
    if RELEASED not in context.state:
        context.state[RELEASED] = ArrayRecord({"counts": Array(draw())})
    kept: Floats = context.state.array_records[RELEASED]["counts"].numpy()
    return kept
