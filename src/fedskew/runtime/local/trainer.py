"""Trains and scores single clients on the resident model. The same object works in a worker
process and in-process.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional as F

from fedskew.objective import LocalLoss, loss_for
from fedskew.runtime.border import why_unfit
from fedskew.runtime.local.allocator import tune_allocator
from fedskew.runtime.local.flat import FlatModule, seeded
from fedskew.runtime.local.honoured import covers
from fedskew.runtime.local.linear import MAX_FEATURES, MAX_NUMBERS, LinearTrainer, Member
from fedskew.runtime.local.step import Step, linear_layers, step_for
from fedskew.runtime.local.store import Store
from fedskew.runtime.replies import Trained
from fedskew.streams import seed_for, stream
from fedskew.types import Ints, LocalJob, Params, frozen

GATHER = 2048  # examples copied out of the store at a time


class Examples:
    """One array of examples and its labels as torch tensors; turns rows into a batch a model can
    take.
    """

    def __init__(
        self,
        x: NDArray[Any],
        y: Ints,
        mean: NDArray[np.float32] | None,
        std: NDArray[np.float32] | None,
    ) -> None:
        self._x, self._y = _tensor(x), _tensor(y)
        self._scale: Tensor | float | None = None
        self._shift: Tensor | float | None = None
        self._images = x.dtype == np.uint8 and x.ndim >= 3
        if x.dtype == np.uint8 or mean is not None:
            mean = np.zeros((), np.float32) if mean is None else np.asarray(mean, np.float32)
            std = np.ones((), np.float32) if std is None else np.asarray(std, np.float32)
            top = np.float32(255 if x.dtype == np.uint8 else 1)
            shape = (1, -1, 1, 1) if self._images and mean.ndim else mean.shape
            self._scale = _scalar_or_tensor(np.reshape(1 / (top * std), shape))
            self._shift = _scalar_or_tensor(np.reshape(-mean / std, shape))

    def take(self, rows: Ints) -> tuple[Tensor, Tensor]:
        """Raw examples and labels of these rows, copied together."""
        index = _tensor(rows)
        return self._x.index_select(0, index), self._y.index_select(0, index)

    def batch(self, raw: Tensor) -> Tensor:
        """Raw examples as the model wants them: normalised floats, images channel first; tokens
        as int64.
        """
        if self._images:
            raw = raw.unsqueeze(1) if raw.ndim == 3 else raw.permute(0, 3, 1, 2).contiguous()
        if self._scale is not None and self._shift is not None:
            return raw.to(torch.float32).mul_(self._scale).add_(self._shift)
        return raw if raw.is_floating_point() else raw.to(torch.int64)


def _scalar_or_tensor(values: NDArray[Any]) -> Tensor | float:
    """One number for grey images: arithmetic with a Python number is quicker than with a tensor
    of one element.
    """
    return (
        float(np.float32(values))
        if values.ndim == 0
        else torch.as_tensor(values, dtype=torch.float32)
    )


def _tensor(array: NDArray[Any]) -> Tensor:
    """A tensor on the array's own memory. The arrays are read-only and torch would warn; nothing
    here ever writes to them.
    """
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="The given NumPy array is not writable")
        return torch.from_numpy(array.astype(np.float32) if array.dtype == np.float64 else array)


class Trainer:
    """The resident model of one process, the examples, and what can be done with them."""

    def __init__(self, store: Store, factory: Callable[[], nn.Module], seed: int) -> None:
        tune_allocator()
        # torch warns of a read-only array once per process: here nobody hears it
        _tensor(frozen(np.zeros(1, np.float32)))
        self.store = store
        self._factory = factory
        self._train = Examples(store.x, store.y, store.mean, store.std)
        self._test = Examples(store.x_test, store.y_test, store.mean, store.std)
        self.model = FlatModule(factory, seed)
        self._linear: dict[str, LinearTrainer] = {}

    def linear_for(self, job: LocalJob) -> LinearTrainer | None:
        """Who trains many clients at once, if the model is one linear layer on small examples
        and the job asks for nothing else than it can do; else None.
        """
        return self._linear_on("train") if covers(LinearTrainer.HONOURED, job) else None

    def _linear_on(self, which: str) -> LinearTrainer | None:
        layer = None if which in self._linear else linear_layer(self.model.module, self.store)
        if layer is not None:
            examples, labels = (
                (self._test, self.store.y_test) if which == "test" else (self._train, self.store.y)
            )
            pieces = [
                np.arange(i, min(i + GATHER, len(labels))) for i in range(0, len(labels), GATHER)
            ]
            scaled = [examples.batch(examples.take(rows)[0]).flatten(1).numpy() for rows in pieces]
            self._linear[which] = LinearTrainer(
                np.concatenate(scaled), np.asarray(labels), layer.out_features
            )
        return self._linear.get(which)

    def member(
        self, client: int, params: Params, out: Params, job: LocalJob, seed: int, round: int
    ) -> Member:
        """One client of a group of :class:`LinearTrainer`."""
        rng = stream(seed, "batch", client, round)
        rows = draw_rows(self.store.rows(client, "train"), job.max_examples, rng)
        if not len(rows):
            raise ValueError("client has no examples")
        return Member(params, out, rows, rng, self._loss(job, rows))

    def _loss(self, job: LocalJob, rows: Ints) -> LocalLoss:
        """What a client with these rows minimises, by their labels."""
        counts = np.bincount(self.store.y[rows], minlength=self.store.num_classes)
        return loss_for(job, counts)

    def initial(self, seed: int, out: Params) -> None:
        """Build the model anew and hand out its first parameters."""
        self.model = FlatModule(self._factory, seed)
        self.model.write(out)

    def train(
        self,
        client: int,
        params: Params,
        out: Params,
        job: LocalJob,
        seed: int,
        round: int,
        correction: Params | None = None,
    ) -> Trained:
        """Train one client, parameters into ``out``."""
        began = time.perf_counter()
        member = self.member(client, params, out, job, seed, round)
        linear = self.linear_for(job)
        if linear is not None:
            return linear.train([replace(member, correction=correction)], job)[0]
        rows = member.rows
        self.model.read(params)
        received = None
        if member.loss.distillation is not None:
            received = self._logits(rows)
            self.model.read(params)  # a model may remember what it was asked
        if job.report_loss == "start":
            start_loss = self._mean_loss(rows)
            self.model.read(params)
        with seeded(seed_for(seed, "dropout", client, round)):
            loss, steps = self._epochs(member, job, correction, received)
        self.model.write(out)
        if job.report_loss != "train":
            loss = start_loss if job.report_loss == "start" else self._mean_loss(rows)
        # Looked at here, where the numbers are still in the cache: for ten models 0.2 ms less while
        # nobody trains.
        unfit = why_unfit(out, self.model.layout)
        return Trained(loss, time.perf_counter() - began, steps, len(rows), unfit)

    def _epochs(
        self, member: Member, job: LocalJob, correction: Params | None, received: Tensor | None
    ) -> tuple[float, int]:
        """Train; ``received`` are the received model's logits for the member's rows."""
        self.model.module.train()
        added = None if correction is None else _tensor(correction)
        step: Step = step_for(self.model, job, added, member.loss)
        rows, total, steps, lesson = member.rows, torch.zeros(()), 0, None
        if received is not None:
            lesson = step.criterion.lesson(received, _tensor(self.store.y[rows]))
        for _ in range(job.epochs):
            order, begin = member.rng.permutation(len(rows)), 0
            taught = None if lesson is None else lesson.ordered(_tensor(order))
            for x, y in self._batches(rows[order], job.batch):
                part = None if taught is None else taught.part(begin, begin + len(y))
                total = total + step(x, y, part)
                steps, begin = steps + 1, begin + len(y)
        return float(total) / (len(rows) * job.epochs), steps

    def _logits(self, rows: Ints) -> Tensor:
        """What the model says to each of these examples, tested as it stands. It is asked once a
        client: the received model does not change while the client trains.
        """
        self.model.module.eval()
        with torch.inference_mode():
            pieces = [
                self.model.module(self._train.batch(self._train.take(rows[i : i + GATHER])[0]))
                for i in range(0, len(rows), GATHER)
            ]
            return torch.cat(pieces)

    def _batches(self, rows: Ints, size: int) -> Iterator[tuple[Tensor, Tensor]]:
        """Batches in the given order. Under BatchNorm a last batch of one example joins the one
        before: it has no variance.
        """
        stops = [*range(size, len(rows), size), len(rows)]
        if self.model.has_batch_norm and len(stops) > 1 and len(rows) - stops[-2] == 1:
            del stops[-2]
        per_gather = max(1, GATHER // size)
        begin = 0
        for first in range(0, len(stops), per_gather):
            group = stops[first : first + per_gather]
            raw, labels = self._train.take(rows[begin : group[-1]])
            offset = begin
            for stop in group:
                yield (
                    self._train.batch(raw[begin - offset : stop - offset]),
                    labels[begin - offset : stop - offset],
                )
                begin = stop

    def _mean_loss(self, rows: Ints) -> float:
        return float(self._score(self._train, rows)[0].mean())

    def score(
        self, params: Params, which: str, rows: Ints
    ) -> tuple[NDArray[np.float32], NDArray[np.bool_]]:
        """Loss and correctness of every example of ``rows`` under a model."""
        linear = self._linear_on(which) if len(rows) else None
        if linear is not None:
            return linear.score(params, rows)
        self.model.read(params)
        return self._score(self._test if which == "test" else self._train, rows)

    def moments(
        self, params: Params, client: int
    ) -> tuple[Ints, NDArray[np.float64], NDArray[np.float64]]:
        """One client's features before the output layer, added up class by class: counts (C,),
        sums (C, L), products (C, L, L), to the precision in which they would be sent.
        """
        self.model.read(params)
        self.model.module.eval()
        rows, classes = self.store.rows(client, "train"), self.store.num_classes
        width = last_linear(self.model.module).in_features
        counts = np.bincount(self.store.y[rows], minlength=classes)
        sums = torch.zeros((classes, width), dtype=torch.float64)
        products = torch.zeros((classes, width, width), dtype=torch.float64)
        for begin in range(0, len(rows), GATHER):
            raw, labels = self._train.take(rows[begin : begin + GATHER])
            features = self._features(raw).double()
            for label in np.unique(labels.numpy()).tolist():
                mine = features[labels == label]
                sums[label] += mine.sum(0)
                products[label] += mine.t() @ mine
        return counts, sums.float().double().numpy(), products.float().double().numpy()

    def _features(self, raw: Tensor) -> Tensor:
        """(n, L) what reaches the output layer."""
        seen: list[Tensor] = []
        hook = last_linear(self.model.module).register_forward_pre_hook(
            lambda layer, given: seen.append(given[0])
        )
        try:
            with torch.inference_mode():
                self.model.module(self._train.batch(raw))
        finally:
            hook.remove()
        return seen[0].flatten(1)

    def react(self, params: Params) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Class by class on the server's own examples: squared gradient norms of the output
        layer (C,), mean softmax (C, C).
        """
        self.model.read(params)
        self.model.module.eval()
        features: list[Tensor] = []
        hook = last_linear(self.model.module).register_forward_pre_hook(
            lambda layer, given: features.append(given[0])
        )
        try:
            with torch.inference_mode():
                raw, labels = self._train.take(self.store.auxiliary_order)
                softmax = torch.softmax(self.model.module(self._train.batch(raw)).double(), 1)
        finally:
            hook.remove()
        truth = F.one_hot(labels, self.store.num_classes).double()
        gradient = (softmax - truth).t() @ features[0].flatten(1).double() / len(labels)
        per_class = truth.t() @ softmax / truth.sum(0).clamp(min=1).unsqueeze(1)
        return gradient.square().sum(1).numpy(), per_class.numpy()

    def _score(
        self, examples: Examples, rows: Ints
    ) -> tuple[NDArray[np.float32], NDArray[np.bool_]]:
        self.model.module.eval()
        losses, correct = np.empty(len(rows), np.float32), np.empty(len(rows), np.bool_)
        with torch.inference_mode():
            for begin in range(0, len(rows), GATHER):
                raw, labels = examples.take(rows[begin : begin + GATHER])
                logits = self.model.module(examples.batch(raw))
                losses[begin : begin + GATHER] = F.cross_entropy(
                    logits, labels, reduction="none"
                ).numpy()
                correct[begin : begin + GATHER] = (logits.argmax(1) == labels).numpy()
        return losses, correct


def linear_layer(module: nn.Module, store: Store) -> nn.Linear | None:
    """The one layer of a model that :class:`LinearTrainer` can train: an output for every class,
    examples that are few numbers each. None for any other model.
    """
    layers = linear_layers(module)
    tokens = store.x.dtype.kind in "iu" and store.x.dtype != np.uint8
    if layers is None or len(layers) != 1 or tokens:
        return None
    features = int(np.prod(store.x.shape[1:], dtype=np.int64))
    small = features <= MAX_FEATURES and store.x.size <= MAX_NUMBERS
    fits = features == layers[0].in_features and layers[0].out_features >= store.num_classes
    return layers[0] if small and fits else None


def last_linear(module: nn.Module) -> nn.Linear:
    """The output layer: the linear layer registered last."""
    layers = [part for part in module.modules() if isinstance(part, nn.Linear)]
    if not layers:
        raise ValueError("the model has no linear output layer")
    return layers[-1]


def draw_rows(rows: Ints, max_examples: int, rng: np.random.Generator) -> Ints:
    """All rows, or a fresh random draw of ``max_examples``; a client with fewer repeats its own to
    fill up (BACSA-FS).

    >>> sorted(draw_rows(np.arange(3), 5, np.random.default_rng(0)).tolist())[:3] != [0, 0, 0]
    True
    """
    if not max_examples or not len(rows):
        return rows
    if len(rows) >= max_examples:
        return rng.choice(rows, max_examples, replace=False)
    return np.concatenate(
        [
            np.tile(rows, max_examples // len(rows)),
            rng.choice(rows, max_examples % len(rows), replace=False),
        ]
    )
