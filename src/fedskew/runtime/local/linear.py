"""Logistic regression on small tables, many clients at once.

A step on a batch of 32 rows of ten numbers is a few hundred multiplications, and autograd spends a
hundred microseconds around them. Here the d-th steps of all clients of a round are one stack of
matrix products: 50 clients of ACSIncome cost per step and client about 2 us instead of about 130
us, which turns the comparison of paper 004's Table III from hours into minutes.

The arithmetic of a client does not depend on who is beside it: every product is one BLAS call per
client on batches padded to the same size, and everything else works element by element. So a client
trained alone, as in a worker process, ends with the same bits as in a crowd (a parity test says
so); it ends close to, not bit for bit at, the autograd step's result.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import ClassVar

import numpy as np

from fedskew.objective import LocalLoss
from fedskew.runtime.border import too_large
from fedskew.runtime.local.honoured import AROUND_STEPS, Honoured, any_value, one_of
from fedskew.runtime.local.step import ADAM_BETAS, ADAM_EPS
from fedskew.runtime.replies import Trained
from fedskew.types import Bools, Floats, Ints, LocalJob, Params

MAX_FEATURES = 256  # wider examples keep the matrix products of one client busy by themselves
MAX_NUMBERS = 1 << 25  # of the scaled copy of all examples, 128 MB
MAX_PLACES = 1 << 22  # batch places of one group: 32 MB of row numbers
MAX_BATCH = 2048  # batches larger than this are as large as a client has rows, and little more
MAX_GATHERED = 1 << 24  # numbers that are copied together for a step of one group: 64 MB


@dataclass(frozen=True)
class Member:
    """One client of a group: what it begins with, where its result goes, its rows and its own
    random stream.
    """

    params: Params
    out: Params
    rows: Ints
    rng: np.random.Generator
    loss: LocalLoss = field(default_factory=LocalLoss)
    correction: Params | None = None


class LinearTrainer:
    """Trains and scores ``softmax(x W' + b)`` on examples (N, F) that are scaled already."""

    HONOURED: ClassVar[Honoured] = {
        **AROUND_STEPS,
        **dict.fromkeys(("lr", "momentum", "weight_decay", "prox_mu", "clip_norm"), any_value),
        "optimizer": one_of("sgd", "adam"),
        # those that only shift and scale logits
        "objective": one_of("cross_entropy", "logit_adjusted", "fedlc", "fedrs"),
        **dict.fromkeys(("objective_options", "label_shares"), any_value),
    }

    def __init__(self, x: Params, y: Ints, outputs: int) -> None:
        # A column of ones makes the bias one more weight: no sum, no addition and no copy of its
        # own in every step. A last row of zeros fills up short batches.
        self._x = np.zeros((len(x) + 1, x.shape[1] + 1), np.float32)
        self._x[:-1, :-1], self._x[:-1, -1] = x, 1
        self._padding = len(x)
        self._y = np.append(y, 0).astype(np.int64, copy=False)
        self._outputs = outputs

    def _inside(self, params: Params) -> Params:
        """Flat models (n, D), weight rows then bias, as (n, C, F + 1); C is the number of outputs,
        of which classes may need fewer.
        """
        edge = self._outputs * (self._x.shape[1] - 1)
        weight = params[:, :edge].reshape(len(params), self._outputs, -1)
        return np.concatenate([weight, params[:, edge:, None]], axis=2)

    def train(self, members: Sequence[Member], job: LocalJob) -> list[Trained]:
        """Train every member from its own model; results in their order. Numbers that overflow
        are no warning here: they end in a reply that is not finite.
        """
        with np.errstate(over="ignore", invalid="ignore"):
            return self._train(members, job)

    def _train(self, members: Sequence[Member], job: LocalJob) -> list[Trained]:
        results: list[Trained | None] = [None] * len(members)
        widths = [_width(member, job) for member in members]
        batches = [
            _batches(member, replace(job, batch=width), self._padding)
            for member, width in zip(members, widths, strict=True)
        ]
        for group in self._groups([len(b) for b in batches], widths):
            began = time.perf_counter()
            chosen = [members[i] for i in group]
            start = (
                [self._mean_loss(m.params, m.rows) for m in chosen]
                if job.report_loss == "start"
                else None
            )
            losses = self._descend(chosen, [batches[i] for i in group], job)
            per_step = (time.perf_counter() - began) / sum(len(batches[i]) for i in group)
            for place, i in enumerate(group):
                loss = losses[place] / (len(members[i].rows) * job.epochs)
                if job.report_loss != "train":
                    loss = (
                        start[place]
                        if start is not None
                        else self._mean_loss(members[i].out, members[i].rows)
                    )
                steps, unfit = len(batches[i]), too_large(members[i].out)
                results[i] = Trained(
                    float(loss), per_step * steps, steps, len(members[i].rows), unfit
                )
        return [result for result in results if result is not None]

    def _groups(self, steps: Sequence[int], widths: Sequence[int]) -> Iterator[list[int]]:
        """Members to train together, with batches of one width, the longest first, so that a step
        works on a contiguous block of those not done yet.
        """
        order = np.lexsort((-np.asarray(steps, np.int64), np.asarray(widths))).tolist()
        while order:
            width = widths[order[0]]
            alike = [i for i in order if widths[i] == width]
            places = MAX_PLACES // (steps[order[0]] * width)
            fits = max(1, min(places, MAX_GATHERED // (width * self._x.shape[1])))
            yield alike[:fits]
            order = alike[fits:] + order[len(alike) :]

    def _descend(self, members: Sequence[Member], batches: Sequence[Ints], job: LocalJob) -> Floats:
        """Write every member's model after all steps to its ``out``; (g,) sums of losses.
        Members come longest first.
        """
        models = self._inside(np.stack([member.params for member in members]))
        update = _Update(models, job, self._added(members))
        change = _Change(members, self._outputs)
        losses = self._steps(models, update, change, _lay_out(batches, self._padding))
        for member, trained in zip(members, models, strict=True):
            member.out[:] = np.concatenate([trained[:, :-1].ravel(), trained[:, -1]])
        return losses

    def _added(self, members: Sequence[Member]) -> Params | None:
        """What each member adds to its gradients, shaped as the models; None if nobody does."""
        if all(member.correction is None for member in members):
            return None
        nothing = np.zeros_like(members[0].params)
        return self._inside(
            np.stack([nothing if m.correction is None else m.correction for m in members])
        )

    def _steps(self, models: Params, update: _Update, change: _Change, places: _Places) -> Floats:
        """Train the models in place, step by step; (g,) sums of losses."""
        _, members, batch = places.rows.shape
        # where among the logits of a step, (n, C, B), the one of each example's own class stands
        first = np.arange(members)[:, None] * (self._outputs * batch) + np.arange(batch)
        truth = self._y.take(places.rows) * batch + first
        # An example's loss is log(sum of exp(logits)) - its own logit, both taken below the largest
        # logit: the logarithm of a probability would end at the smallest float32, at 87.5.
        total = np.ones(truth.shape, np.float32)
        own = np.zeros(truth.shape, np.float32)
        for step, n in enumerate(places.left):
            x = self._x.take(places.rows[step, :n].ravel(), axis=0).reshape(n, batch, -1)
            logits = np.matmul(models[:n], x.transpose(0, 2, 1))
            change(logits, n)
            flat, right = logits.reshape(-1), truth[step, :n]
            flat.take(right, out=own[step, :n], mode="clip")  # any other mode copies once more
            if change.others_only:
                flat[right] = -np.inf
            top = logits.max(axis=1, keepdims=True)
            logits -= top
            own[step, :n] -= top[:, 0]
            np.exp(logits, out=logits)
            logits.sum(axis=1, out=total[step, :n])
            logits /= total[step, :n, None]
            flat[right] -= 1
            logits *= places.share[step, :n, None]
            change.backward(logits, n)
            update(np.matmul(logits, x), n)
        losses = np.log(total, out=total)
        losses -= own
        losses *= places.share > 0
        return np.asarray(losses.sum(axis=2).sum(axis=0, dtype=np.float64))

    def score(self, params: Params, rows: Ints) -> tuple[Params, Bools]:
        """Loss and correctness of every one of these examples under a model."""
        labels = self._y[rows]
        # (C, n): sums over classes run along memory
        logits = self._inside(params[None])[0] @ self._x.take(rows, axis=0).T
        logits -= logits.max(axis=0)
        own, right = logits[labels, np.arange(len(rows))], logits.argmax(axis=0) == labels
        np.exp(logits, out=logits)
        return np.log(logits.sum(axis=0)) - own, right

    def _mean_loss(self, params: Params, rows: Ints) -> float:
        return float(self.score(params, rows)[0].mean())


class _Change:
    """What each member's objective does to its logits, (n, C, B), and the way back."""

    def __init__(self, members: Sequence[Member], outputs: int) -> None:
        losses = [member.loss for member in members]
        self.others_only = losses[0].others_only  # one objective for all
        self._shift = _rows([loss.shift for loss in losses], outputs, 0.0)
        self._scale = _rows([loss.scale for loss in losses], outputs, 1.0)

    def __call__(self, logits: Params, n: int) -> None:
        self.backward(logits, n)
        if self._shift is not None:
            logits += self._shift[:n]

    def backward(self, gradient: Params, n: int) -> None:
        """From the changed logits to the model's own."""
        if self._scale is not None:
            gradient *= self._scale[:n]


def _rows(given: Sequence[Floats | None], outputs: int, neutral: float) -> Params | None:
    """(n, C, 1), with what changes nothing for outputs beyond the classes; None if nobody has
    any.
    """
    if all(row is None for row in given):
        return None
    rows = np.full((len(given), outputs, 1), neutral, np.float32)
    for place, row in zip(rows, given, strict=True):
        if row is not None:
            place[: len(row), 0] = row
    return rows


class _Update:
    """One optimiser step for the first n models of a group, in the order of ``AutogradStep``."""

    def __init__(self, models: Params, job: LocalJob, added: Params | None) -> None:
        self._models, self._job, self._added, self._taken = models, job, added, 0
        self._received = models.copy() if job.prox_mu else None
        remembers = job.momentum or job.optimizer == "adam"
        self._first = np.zeros_like(models) if remembers else models[:0]
        self._second = np.zeros_like(models) if job.optimizer == "adam" else models[:0]

    def __call__(self, gradient: Params, n: int) -> None:
        job, models = self._job, self._models[:n]
        self._taken += 1
        if job.clip_norm:
            norms = np.sqrt(np.square(gradient).sum(axis=(1, 2), keepdims=True))
            gradient *= np.minimum(
                np.float32(job.clip_norm) / np.maximum(norms, np.float32(1e-12)), np.float32(1)
            )
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
        """Adam with both means kept without their factor 1 - beta, which goes into the two
        constants instead.
        """
        (beta1, beta2), t = ADAM_BETAS, self._taken
        first, second = self._first[:n], self._second[:n]
        first *= np.float32(beta1)
        first += gradient
        gradient *= gradient
        second *= np.float32(beta2)
        second += gradient
        scale = np.sqrt(second, out=gradient)
        scale *= np.float32(((1 - beta2) / (1 - beta2**t)) ** 0.5)
        scale += np.float32(ADAM_EPS)
        np.divide(first, scale, out=scale)
        scale *= np.float32(self._job.lr * (1 - beta1) / (1 - beta1**t))
        models -= scale


def _batches(member: Member, job: LocalJob, padding: int) -> Ints:
    """(steps, B) the rows of every batch of all epochs; padding behind the last row of a short
    batch.
    """
    size = len(member.rows)
    steps = -(-size // job.batch)
    places = np.full((job.epochs, steps * job.batch), padding, np.int64)
    for epoch in places:
        epoch[:size] = member.rows[member.rng.permutation(size)]
    return places.reshape(job.epochs * steps, job.batch)


def _width(member: Member, job: LocalJob) -> int:
    """How many places the batches of a member have. It depends on the member alone, and a batch
    that no client can fill is not filled up to its end.
    """
    if job.batch <= MAX_BATCH:
        return job.batch
    return min(job.batch, 1 << max(0, len(member.rows) - 1).bit_length())


@dataclass(frozen=True)
class _Places:
    """Which example stands where: step, member, place in the batch."""

    rows: Ints  # (T, g, B)
    share: Params  # (T, g, B) weight of each place in its batch's mean, 0 for padding
    left: list[int]  # (T,) members that still train


def _lay_out(batches: Sequence[Ints], padding: int) -> _Places:
    lengths = np.array([len(b) for b in batches])
    rows = np.full((lengths.max(), len(batches), batches[0].shape[1]), padding, np.int64)
    for member, own in enumerate(batches):
        rows[: len(own), member] = own
    taken = rows != padding
    share = taken / np.maximum(taken.sum(axis=2, keepdims=True), 1).astype(np.float32)
    left = (lengths[:, None] > np.arange(lengths.max())).sum(axis=0).tolist()
    return _Places(rows, share.astype(np.float32, copy=False), left)
