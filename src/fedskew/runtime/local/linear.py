"""Logistic regression on small tables, many clients at once.

A step on a batch of 32 rows of ten numbers is a few hundred multiplications, and autograd spends a hundred microseconds around
them. Here the d-th steps of all clients of a round are one stack of matrix products: 50 clients of ACSIncome cost per step and
client about 2 us instead of about 130 us, which turns the comparison of paper 004's Table III from hours into minutes.

The arithmetic of a client does not depend on who is beside it: every product is one BLAS call per client on batches padded to
the same size, and everything else works element by element. So a client trained alone, as in a worker process, ends with the
same bits as in a crowd (a parity test says so); it ends close to, not bit for bit at, the autograd step's result.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from fedskew.runtime.local.step import ADAM_BETAS, ADAM_EPS
from fedskew.types import Ints, LocalJob, Params

MAX_FEATURES = 256  # wider examples keep the matrix products of one client busy by themselves
MAX_NUMBERS = 1 << 25  # of the scaled copy of all examples, 128 MB
MAX_PLACES = 1 << 22  # batch places of one group: 32 MB of row numbers

Result = tuple[float, float, int, int]  # loss, seconds, steps, examples


@dataclass(frozen=True)
class Member:
    """One client of a group: what it begins with, where its result goes, its rows and its own random stream."""

    params: Params
    out: Params
    rows: Ints
    rng: np.random.Generator
    correction: Params | None = None


class LinearTrainer:
    """Trains ``softmax(x W' + b)`` on examples (N, F) that are scaled already."""

    def __init__(self, x: Params, y: Ints, num_classes: int) -> None:
        self._x, self._y, self._classes = np.ascontiguousarray(x, np.float32), np.asarray(y), num_classes

    def train(self, members: Sequence[Member], job: LocalJob) -> list[Result]:
        """Train every member from its own model; results in their order."""
        results: list[Result | None] = [None] * len(members)
        batches = [_batches(member, job) for member in members]
        for group in _groups([len(b) for b in batches], job.batch):
            began = time.perf_counter()
            chosen = [members[i] for i in group]
            start = [self._mean_loss(m.params, m.rows) for m in chosen] if job.report_loss == "start" else None
            trained, losses = self._descend(chosen, [batches[i] for i in group], job)
            per_step = (time.perf_counter() - began) / sum(len(batches[i]) for i in group)
            for place, i in enumerate(group):
                members[i].out[:] = trained[place]
                loss = losses[place] / (len(members[i].rows) * job.epochs)
                if job.report_loss != "train":
                    loss = start[place] if start is not None else self._mean_loss(trained[place], members[i].rows)
                results[i] = float(loss), per_step * len(batches[i]), len(batches[i]), len(members[i].rows)
        return [result for result in results if result is not None]

    def _descend(self, members: Sequence[Member], batches: Sequence[Ints], job: LocalJob) -> tuple[Params, Params]:
        """Models (g, D) after all steps and the sum of every member's batch losses; members come longest first."""
        classes, features = self._classes, self._x.shape[1]
        edge = classes * features
        models = np.stack([member.params for member in members])
        weight, bias = models[:, :edge].reshape(-1, classes, features), models[:, edge:]
        update = _Update(models, job, [member.correction for member in members])
        gradient = np.empty_like(models)
        totals = np.zeros(len(members))
        every = np.arange(classes)[:, None]
        for n, rows, share in _steps(batches, job.batch):
            x = self._x.take(rows.ravel(), axis=0).reshape(n, job.batch, features)
            truth = self._y.take(rows)[:, None, :] == every  # (n, C, B)
            logits = np.matmul(weight[:n], x.transpose(0, 2, 1))
            logits += bias[:n, :, None]
            logits -= logits.max(axis=1, keepdims=True)
            np.exp(logits, out=logits)
            logits /= logits.sum(axis=1, keepdims=True)
            right = np.maximum((logits * truth).sum(axis=1), np.float32(1e-38))
            totals[:n] -= (np.log(right) * (share > 0)).sum(axis=1)
            logits -= truth
            logits *= share[:, None, :]
            gradient[:n, :edge] = np.matmul(logits, x).reshape(n, edge)
            gradient[:n, edge:] = logits.sum(axis=2)
            update(gradient[:n], n)
        return models, np.asarray(totals, np.float64)

    def _mean_loss(self, params: Params, rows: Ints) -> float:
        edge = self._classes * self._x.shape[1]
        logits = self._x[rows] @ params[:edge].reshape(self._classes, -1).T + params[edge:]
        logits -= logits.max(axis=1, keepdims=True)
        own = logits[np.arange(len(rows)), self._y[rows]]
        return float((np.log(np.exp(logits).sum(axis=1)) - own).mean())


class _Update:
    """One optimiser step for the first n models of a group, in the order of ``AutogradStep``."""

    def __init__(self, models: Params, job: LocalJob, corrections: Sequence[Params | None]) -> None:
        self._models, self._job, self._taken = models, job, 0
        self._received = models.copy() if job.prox_mu else None
        corrected = any(c is not None for c in corrections)
        nothing = np.zeros(models.shape[1], np.float32)
        self._added = np.stack([nothing if c is None else c for c in corrections]) if corrected else None
        remembers = job.momentum or job.optimizer == "adam"
        self._first = np.zeros_like(models) if remembers else models[:0]
        self._second = np.zeros_like(models) if job.optimizer == "adam" else models[:0]

    def __call__(self, gradient: Params, n: int) -> None:
        job, models = self._job, self._models[:n]
        self._taken += 1
        if job.clip_norm:
            norms = np.sqrt(np.square(gradient).sum(axis=1, keepdims=True))
            gradient *= np.minimum(np.float32(job.clip_norm) / np.maximum(norms, np.float32(1e-12)), np.float32(1))
        if self._added is not None:
            gradient += self._added[:n]
        if self._received is not None:
            gradient += np.float32(job.prox_mu) * (models - self._received[:n])
        if job.weight_decay:
            gradient += np.float32(job.weight_decay) * models
        if job.optimizer == "adam":
            self._adam(gradient, models, n)
        elif job.momentum:
            first = self._first[:n]
            first *= np.float32(job.momentum)
            first += gradient
            models -= np.float32(job.lr) * first
        else:
            gradient *= np.float32(job.lr)
            models -= gradient

    def _adam(self, gradient: Params, models: Params, n: int) -> None:
        (beta1, beta2), t = ADAM_BETAS, self._taken
        first, second = self._first[:n], self._second[:n]
        first += np.float32(1 - beta1) * (gradient - first)
        second *= np.float32(beta2)
        gradient *= gradient
        gradient *= np.float32(1 - beta2)
        second += gradient
        scale = np.sqrt(second, out=gradient)
        scale /= np.float32((1 - beta2**t) ** 0.5)
        scale += np.float32(ADAM_EPS)
        np.divide(first, scale, out=scale)
        scale *= np.float32(self._job.lr / (1 - beta1**t))
        models -= scale


def _batches(member: Member, job: LocalJob) -> Ints:
    """(steps, B) the rows of every batch of all epochs; -1 behind the last row of a short batch."""
    size = len(member.rows)
    steps = -(-size // job.batch)
    places = np.full((job.epochs, steps * job.batch), -1, np.int64)
    for epoch in places:
        epoch[:size] = member.rows[member.rng.permutation(size)]
    return places.reshape(job.epochs * steps, job.batch)


def _groups(steps: Sequence[int], batch: int) -> Iterator[list[int]]:
    """Members to train together, the longest first, so that a step works on a contiguous block of those not done yet."""
    order = np.argsort(-np.asarray(steps, np.int64), kind="stable").tolist()
    while order:
        fits = max(1, MAX_PLACES // (steps[order[0]] * batch))
        yield order[:fits]
        order = order[fits:]


def _steps(batches: Sequence[Ints], batch: int) -> Iterator[tuple[int, Ints, Params]]:
    """(members left, their rows (n, B), the share of each row in its batch's mean (n, B)), step after step."""
    lengths = np.array([len(b) for b in batches])
    rows = np.full((lengths.max(), len(batches), batch), -1, np.int64)
    for member, own in enumerate(batches):
        rows[: len(own), member] = own
    used = (rows >= 0).sum(axis=2)
    # row u of the table: 1 / u for the first u places, 0 behind them; padding repeats example 0 with share 0
    table = (
        np.tril(np.ones((batch + 1, batch), np.float32), -1) / np.maximum(np.arange(batch + 1, dtype=np.float32), 1)[:, None]
    )
    np.maximum(rows, 0, out=rows)
    left = (lengths[:, None] > np.arange(lengths.max())).sum(axis=0).tolist()
    for step, n in enumerate(left):
        yield n, rows[step, :n], table[used[step, :n]]
