"""As many chains as a round's budget is best spent on: one long chain where bytes are scarce, many
short ones or none where time is.

Ours (docs/methods.md 6.8). A round of n clients in M chains of about L = n / M turns costs

    models sent   n + M            M down, n - M from device to device, M up
    seconds       of its slowest chain: a download, L turns, L - 1 hand-overs, an upload

and brings the model on by about L ** ``gain`` rounds of one turn each: turns that follow each other
add up, turns side by side are averaged (measured: evidence/baton_gain). The number of chains is the
one that brings most for what it costs,

    (models sent) ** (1 - haste) * (seconds) ** haste / L ** gain

so with ``haste`` = 0 bytes alone count, which always makes one chain, and with 1 time alone. Where
several numbers of chains are as good, the fewest are taken. A cut into unbalanced chains counts for
less: what a round brings is multiplied by 1 - ``imbalance`` * omega / omega of clients with one
class each, omega with the chains as clients (docs/methods.md 2.12).

Where nobody hands anything on, this is parallel training, bit for bit.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from fedskew.errors import RecipeError, RunError
from fedskew.labels.omega import omega_balanced
from fedskew.procedure.groups import Broken, Builder, Relay, cut, labels_of, link, predicted_omega
from fedskew.types import Floats, Ints, Pace, Plan, View, declares, needs

EPSILON = 1e-6  # of omega
AS_GOOD = 1e-9


def wanted(options: Mapping[str, Any]) -> set[str]:
    """Where time counts, what a turn takes, and labels to balance the chains by."""
    return {"signal", "pace"} if options["haste"] else set()


@needs(when=wanted)
@declares(hands_on=True)
def baton(
    ids: Ints,
    view: View,
    rng: np.random.Generator,
    *,
    haste: float = 0.0,
    gain: float = 0.32,
    imbalance: float = 0.45,
    builder: Builder = "swap",
    relay: Relay = "d2d",
    broken: Broken = "skip",
) -> Plan:
    """Chains whose number follows from what bytes and time are worth.

    ``haste``: 0 = spare bytes, 1 = spare time, or in between. ``gain`` and ``imbalance`` say what a
    turn that follows another brings, and what unbalanced chains cost.
    """
    if not 0 <= haste <= 1:
        raise RecipeError("procedure.haste", f"{haste} is not a share", "Give a number from 0 to 1")
    if not 0 < gain <= 1 or not 0 <= imbalance < 1:
        what = f"gain = {gain}, imbalance = {imbalance}"
        raise RecipeError("procedure.baton", what, "Give 0 < gain <= 1 and 0 <= imbalance < 1")
    order = rng.permutation(np.asarray(ids, np.int64))
    if not len(order):
        return Plan(())
    if haste == 0:
        return link(ids, order, np.zeros(len(order), np.int64), relay=relay, broken=broken)
    if view.pace is None:
        raise RunError("procedure baton", "nobody says what a turn takes", "Set haste = 0")
    pace, best, price = as_known(view.pace), np.zeros(len(order), np.int64), np.inf
    for count in counts_of(len(order)):
        groups = cut(order, view, count, rng, groups="balanced", builder=builder)
        seconds = round_seconds(pace, members_of(order, groups), relay)
        sent = models_sent(len(order), count, relay)
        worth = brings(len(order) / count, gain, imbalance, _unbalanced(order, view, groups))
        asked = sent ** (1 - haste) * seconds**haste / worth
        if asked < price * (1 - AS_GOOD):
            best, price = groups, asked
    return link(ids, order, best, relay=relay, broken=broken)


def as_known(pace: Pace) -> Pace:
    """What is not known of a client is as with the others; where nothing is, turns alone take time,
    all of them alike.

    >>> nothing = np.full(2, np.nan)
    >>> as_known(Pace(np.array([1.0, np.nan]), nothing, nothing)).compute.tolist()
    [1.0, 1.0]
    >>> as_known(Pace(np.zeros(2), nothing, nothing)).compute.tolist()
    [1.0, 1.0]
    """
    compute, send, hop = (_filled(values) for values in (pace.compute, pace.send, pace.hop))
    if not (compute.any() or send.any() or hop.any()):
        compute = np.ones(len(compute))
    return Pace(compute, send, hop, pace.shared_uplink)


def _filled(values: Floats) -> Floats:
    known = values[np.isfinite(values)]
    return np.where(np.isfinite(values), values, np.median(known) if len(known) else 0.0)


def counts_of(size: int) -> list[int]:
    """Numbers of chains worth trying, fewest first: one for each length of the longest chain.

    >>> counts_of(10)
    [1, 2, 3, 4, 5, 10]
    """
    return sorted({-(-size // length) for length in range(1, size + 1)})


def brings(turns: float, gain: float, imbalance: float, unbalanced: float) -> float:
    """How many rounds of one turn a round of chains is worth."""
    return float(turns**gain * (1 - imbalance * unbalanced))


def _unbalanced(order: Ints, view: View, groups: Ints) -> float:
    """omega of the chains, 1 if each had one class."""
    classes = labels_of(view, order).rows.shape[1]
    most = omega_balanced(1, classes, eps=EPSILON)
    return min(1.0, predicted_omega(order, view, groups, EPSILON) / most) if most > 0 else 0.0


def members_of(order: Ints, groups: Ints) -> list[Ints]:
    """The clients of each chain, in their order."""
    return [order[groups == group] for group in range(int(groups.max()) + 1)]


def models_sent(clients: int, chains: int, relay: Relay) -> int:
    """Models on their way in a round: through the server each turn is two."""
    return clients + chains if relay == "d2d" else 2 * clients


def round_seconds(pace: Pace, chains: Iterable[Ints], relay: Relay) -> float:
    """What a round of these chains takes where nobody fails. Of a shared uplink only the ends of
    chains are thought to wait for it.
    """
    ready = sorted((_turns(pace, chain, relay), float(pace.send[chain[-1]])) for chain in chains)
    end = 0.0
    for seconds, upload in ready:
        end = max(end, seconds) + upload if pace.shared_uplink else max(end, seconds + upload)
    return end


def _turns(pace: Pace, chain: Ints, relay: Relay) -> float:
    """Until the last client of a chain has trained."""
    handed: Floats = pace.hop[chain[:-1]]
    if relay == "server":
        handed = pace.send[chain[:-1]] + pace.send[chain[1:]]
    return float(pace.send[chain[0]] + pace.compute[chain].sum() + handed.sum())
