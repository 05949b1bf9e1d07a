"""Federated averaging written as plainly as possible: the independent program the engine is
compared with.

It shares with fedskew only the data, the initial parameters, the random streams' names and the list
of chosen clients.
"""

from __future__ import annotations

import copy

import numpy as np
import torch
from torch import nn

from fedskew.streams import stream


def train_client(
    model,
    x,
    y,
    *,
    epochs,
    batch,
    lr,
    rng,
    momentum=0.0,
    weight_decay=0.0,
    prox_mu=0.0,
    optimizer="sgd",
):
    """Ordinary PyTorch: an optimiser object, backward, step."""
    received = [p.detach().clone() for p in model.parameters()]
    if optimizer in ("adam", "adamw"):
        kind = {"adam": torch.optim.Adam, "adamw": torch.optim.AdamW}[optimizer]
        optimizer = kind(model.parameters(), lr=lr, weight_decay=weight_decay)
    else:
        optimizer = torch.optim.SGD(
            model.parameters(), lr=lr, momentum=momentum, weight_decay=weight_decay
        )
    for _ in range(epochs):
        order = rng.permutation(len(y))
        for begin in range(0, len(y), batch):
            index = torch.from_numpy(order[begin : begin + batch])
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(model(x[index]), y[index])
            if prox_mu:  # with it every weight has a gradient, used by the model or not
                for p, old in zip(model.parameters(), received, strict=True):
                    loss = loss + prox_mu / 2 * ((p - old) ** 2).sum()
            loss.backward()
            optimizer.step()
    return model


def fedavg_round(model, shards, chosen, x, y, *, seed, round, **local):
    """One round: every chosen client from the same model, average by examples."""
    total, states = 0, []
    for client in chosen:
        rows = torch.from_numpy(np.array(shards.train.indices(client)))
        mine = train_client(
            copy.deepcopy(model),
            x[rows],
            y[rows],
            rng=stream(seed, "batch", client, round),
            **local,
        )
        states.append((len(rows), mine.state_dict()))
        total += len(rows)
    average = {k: sum(n / total * s[k] for n, s in states) for k in states[0][1]}
    model.load_state_dict(average)
    return model


def flat(model):
    return torch.cat([p.detach().reshape(-1) for p in model.parameters()]).numpy()
