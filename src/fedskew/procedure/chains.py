"""Several chains of clients at once: in a chain each client trains on what the one before it
learnt; their ends are averaged.

What paper 003 (AFLS) leaves to future work, and what the mediators of Astraea (Duan et al., ICCD
2019) do; docs/methods.md 6.7. One chain is sequential training, one chain per client is parallel
training, bit for bit. In between a round takes about 1/M of the sequential time; if every chain
holds all labels its end has seen all labels, so that averaging the ends costs little. New groups
and a new order inside each of them in every round.

How it is done (docs/methods.md 6.7): how many chains fit under theta is tried one by one up to 32
clients, by bisection above; the greedy groups begin with a random client each, else the same
clients would make the same groups in every round.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from fedskew.labels.omega import threshold
from fedskew.procedure.groups import (
    Broken,
    Builder,
    Kind,
    Relay,
    choose_count,
    cut,
    labels_of,
    link,
    predicted_omega,
)
from fedskew.types import Ints, Plan, View, declares, needs


def wanted(options: Mapping[str, Any]) -> set[str]:
    """What chains need to know of the clients."""
    known = {"signal"} if options["groups"] == "balanced" or options["chains"] == 0 else set()
    return known | ({"clustering"} if options["groups"] == "clusters" else set())


@needs(when=wanted)
@declares(hands_on=True)
def chains(
    ids: Ints,
    view: View,
    rng: np.random.Generator,
    *,
    chains: int = 2,
    groups: Kind = "random",
    builder: Builder = "swap",
    theta: float = 8.5,
    theta_classes: int = 0,
    epsilon: float = 1e-6,
    relay: Relay = "server",
    broken: Broken = "skip",
) -> Plan:
    """Several chains at once: a given number, or as many as keep omega below theta.

    ``chains``: how many; 0 = as many as keep omega, with groups for clients, below theta.

    ``groups`` are cut at random, ``balanced`` in their labels (by ``builder``), or with one of
    every cluster in each. theta is ``theta``, or omega of clients with ``theta_classes`` classes
    each if that is not 0. ``broken``: a client that fails is skipped, or ends its chain, which then
    counts for nothing. Fewer clients than chains: one chain each.
    """
    order = rng.permutation(np.asarray(ids, np.int64))
    if not len(order):
        return Plan(())

    def group(count: int) -> Ints:
        return cut(order, view, count, rng, groups=groups, builder=builder)

    def predict(count: int) -> float:
        return predicted_omega(order, view, group(count), epsilon)

    count = min(chains, len(order))
    if chains == 0:
        level = threshold(
            labels_of(view, order).rows.shape[1],
            theta=theta,
            theta_classes=theta_classes,
            eps=epsilon,
        )
        count, _ = choose_count(len(order), predict, lambda count: level)
    return link(ids, order, group(count), relay=relay, broken=broken)
