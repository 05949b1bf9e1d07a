"""A :class:`LocalLoss` on a batch of logits: its value and its gradient, both by formula.

No autograd: the fused step has none, and for any other model the gradient at the logits is where
autograd begins.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

from fedskew.objective import Distillation, LocalLoss, Suppression
from fedskew.types import Floats

GONE = -1e9  # the logit of what has no part in a softmax: its exponential is 0, it stays a number


@dataclass(frozen=True)
class Lesson:
    """What the received model says of a client's examples, as the distillation wants it."""

    shares: Tensor  # (n, C) its softmax
    certainty: Tensor  # (n,) minus its entropy

    def ordered(self, order: Tensor) -> Lesson:
        """The same for the examples in another order."""
        return Lesson(self.shares.index_select(0, order), self.certainty.index_select(0, order))

    def part(self, begin: int, end: int) -> Lesson:
        """The same for some of them."""
        return Lesson(self.shares[begin:end], self.certainty[begin:end])


class Criterion:
    """The loss of a client."""

    def __init__(self, loss: LocalLoss | None = None) -> None:
        loss = LocalLoss() if loss is None else loss
        self._shift, self._scale = _row(loss.shift), _row(loss.scale)
        self._others_only = loss.others_only
        self._taught = None if loss.distillation is None else _Taught(loss.distillation)
        self._pressed = None if loss.suppression is None else _Pressed(loss.suppression)

    @property
    def is_sum(self) -> bool:
        """Whether the loss of a batch is the sum of its examples' losses."""
        return self._pressed is None

    def lesson(self, received: Tensor, y: Tensor) -> Lesson | None:
        """What is taught by the received model's logits for examples with these labels."""
        return None if self._taught is None else self._taught.lesson(received, y)

    def __call__(self, logits: Tensor, y: Tensor, lesson: Lesson | None) -> tuple[Tensor, Tensor]:
        """The loss of a batch times its examples, and the gradient of the loss at the logits."""
        loss, gradient = _cross_entropy(self._changed(logits), y, self._others_only)
        if self._scale is not None:
            gradient.mul_(widened(self._scale, logits.shape[1], 1.0))
        if self._taught is not None and lesson is not None:
            loss += self._taught(logits, y, lesson, gradient)
        if self._pressed is not None:
            loss += self._pressed(logits, y, gradient)
        return loss, gradient

    def _changed(self, logits: Tensor) -> Tensor:
        """The logits whose cross-entropy is taken. A model with more outputs than there are
        classes keeps the others as they are.
        """
        if self._scale is not None:
            logits = logits * widened(self._scale, logits.shape[1], 1.0)
        return logits if self._shift is None else logits + widened(self._shift, logits.shape[1], 0)


def _cross_entropy(logits: Tensor, y: Tensor, others_only: bool) -> tuple[Tensor, Tensor]:
    """The sum of the losses, and the gradient of their mean at the logits."""
    target = y.unsqueeze(1)
    minus_one = torch.full_like(target, -1, dtype=logits.dtype)
    if others_only:
        others = logits.scatter(1, target, GONE)
        loss = others.logsumexp(1).sum() - logits.gather(1, target).sum()
        share = others.softmax(1)
    else:
        log_share = torch.log_softmax(logits, 1)
        loss = -log_share.gather(1, target).sum()
        share = log_share.exp_()
    return loss, share.scatter_add_(1, target, minus_one).div_(len(y))


class _Taught:
    """KL(received || own) over some classes."""

    def __init__(self, told: Distillation) -> None:
        self._weight, self._temperature = told.weight, told.temperature
        self._not_true = told.not_true
        # added to the logits: quicker than to fill in a mask
        self._left_out = None if told.classes is None else torch.tensor(~told.classes) * GONE

    def lesson(self, received: Tensor, y: Tensor) -> Lesson:
        """Once for all examples of a client."""
        logs = self._log_shares(received, y)
        shares = logs.exp()
        return Lesson(shares, (shares * logs).sum(1))

    def __call__(self, logits: Tensor, y: Tensor, lesson: Lesson, gradient: Tensor) -> Tensor:
        """The sum over the batch; its share of the gradient is added to what there is."""
        own = self._log_shares(logits, y)
        loss = lesson.certainty.sum() - torch.dot(lesson.shares.reshape(-1), own.reshape(-1))
        scale = self._weight / (self._temperature * len(y))
        gradient.add_(own.exp_().sub_(lesson.shares), alpha=scale)
        return loss * self._weight

    def _log_shares(self, logits: Tensor, y: Tensor) -> Tensor:
        if self._temperature != 1.0:
            logits = logits / self._temperature
        if self._left_out is not None:
            logits = logits + widened(self._left_out, logits.shape[1], GONE)
        if self._not_true:
            logits = logits.scatter(1, y.unsqueeze(1), GONE)
        return torch.log_softmax(logits, 1)


class _Pressed:
    """Logits of classes that are wrong, pressed down class by class over a batch."""

    def __init__(self, told: Suppression) -> None:
        self._weight = torch.tensor(told.weight, dtype=torch.float32)
        self._shift = torch.tensor(told.shift, dtype=torch.float32)
        self._total = float(told.weight.sum())
        self._counted = told.own == "one"

    def __call__(self, logits: Tensor, y: Tensor, gradient: Tensor) -> Tensor:
        """The term times the number of examples; its gradient is added to what there is."""
        n, width = logits.shape
        weight, own = widened(self._weight, width, 0), y.unsqueeze(1)
        raised = logits + widened(self._shift, width, 0)
        raised.scatter_(1, own, 0.0 if self._counted else GONE)
        logs = torch.log_softmax(raised, 0)
        # the same as raised.logsumexp(0), which takes seven passes
        level = raised[0] - logs[0] if self._counted else raised.logsumexp(0)
        gradient.addcmul_(logs.exp_().scatter_(1, own, 0.0), weight)
        if self._counted:
            return (torch.dot(weight, level) - self._total * math.log(n)) * n
        others = n - y.bincount(minlength=width)  # none: there is nothing to press down
        return (weight * torch.where(others > 0, level - others.log(), 0.0)).sum() * n


def widened(row: Tensor, width: int, value: float) -> Tensor:
    """A row with a value for every class, and this one for every other output."""
    return row if len(row) == width else F.pad(row, (0, width - len(row)), value=value)


def _row(values: Floats | None) -> Tensor | None:
    return None if values is None else torch.tensor(values, dtype=torch.float32)
