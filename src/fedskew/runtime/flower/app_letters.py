"""Messages to somebody else's app, in the form Flower's own strategies give them, and what its
replies say.

Exactly one ArrayRecord and one ConfigRecord go out; one ArrayRecord and one MetricRecord come back
from training, one MetricRecord from an evaluation.
"""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from flwr.app import ArrayRecord, ConfigRecord, MetricRecord, RecordDict

from fedskew.runtime.border import (
    LOSS,
    MOST_EXAMPLES,
    OBJECTIVE,
    SECONDS,
    Form,
    Number,
    shown,
)
from fedskew.runtime.flower.app_arrays import AppArrays
from fedskew.runtime.flower.exchange import Letter
from fedskew.runtime.flower.records import ForeignMessage, Note
from fedskew.types import Params

COUNT = Number(1, MOST_EXAMPLES, whole=True)
SAID_NOTHING = Number(0, 0, nan=True)  # of a loss that nobody needs

Merge = Callable[[list[RecordDict], str], MetricRecord]


@dataclass(frozen=True)
class Names:
    """What an app calls things in its records; of several names the first that is there counts."""

    arrays: str = "arrays"
    config: str = "config"
    examples: str = "num-examples"
    loss: tuple[str, ...] = ("train_loss", "loss")
    seconds: tuple[str, ...] = ("train_seconds", "seconds")  # else measured here
    steps: tuple[str, ...] = ("num-steps", "steps")
    test_loss: tuple[str, ...] = ("eval_loss", "test_loss", "loss")
    accuracy: tuple[str, ...] = ("eval_acc", "eval_accuracy", "accuracy", "test_accuracy", "acc")


@dataclass(frozen=True, kw_only=True)
class AppLetter(Letter):
    """A message whose content is the app's."""

    content: RecordDict
    reader: Callable[[RecordDict], Note]

    def records(self) -> RecordDict:
        """What travels."""
        return self.content

    def read(self, records: RecordDict) -> Note:
        """What a reply says; ForeignMessage if it cannot be used."""
        return self.reader(records)


@dataclass(frozen=True)
class Writer:
    """Writes letters to an app: ``needs_loss`` if a reply without one is of no use."""

    form: AppArrays
    names: Names
    needs_loss: bool = False

    def train(self, node: int, model: Params, arrays: ArrayRecord, config: ConfigRecord) -> Letter:
        """An order to train; how long the answer took is measured from now on."""
        began = time.monotonic()
        return AppLetter(
            node,
            "train",
            Note("train", arrays={"model": model}),
            content=self._content(arrays, config),
            reader=lambda records: self._trained(records, time.monotonic() - began),
        )

    def evaluate(
        self, node: int, model: Params, arrays: ArrayRecord, config: ConfigRecord
    ) -> Letter:
        """A request to test a model."""
        return AppLetter(
            node,
            "evaluate",
            Note("evaluate", {"which": "test"}, {"model": model}),
            content=self._content(arrays, config),
            reader=self._tested,
        )

    def _content(self, arrays: ArrayRecord, config: ConfigRecord) -> RecordDict:
        return RecordDict({self.names.arrays: arrays, self.names.config: config})

    def _trained(self, records: RecordDict, seconds: float) -> Note:
        found = list(records.array_records.values())
        if len(found) != 1:
            raise ForeignMessage("reply", f"{len(found)} ArrayRecords instead of one")
        metrics = metrics_of(records)
        loss = first(metrics, self.names.loss)
        if loss is None and self.needs_loss:
            line = f"MetricRecord({{'{self.names.loss[0]}': ..., '{self.names.examples}': ...}})"
            what = f"no '{self.names.loss[0]}', by which clients are chosen"
            raise ForeignMessage("reply", what, f"Return {line} from @app.train()")
        values = {
            "loss": float("nan") if loss is None else loss,
            "said_loss": loss is not None,
            "seconds": first(metrics, self.names.seconds, otherwise=seconds),
            "steps": whole(first(metrics, self.names.steps, otherwise=1)),
            "examples": self._examples(metrics),
            "content": records,
        }
        return Note("train", values, {"model": self.form.vector(found[0])})

    def _tested(self, records: RecordDict) -> Note:
        metrics = metrics_of(records)
        examples = self._examples(metrics)
        why = COUNT.why_not(self.names.examples, examples)
        if why:
            raise ForeignMessage("reply", why)
        return Note("evaluate", {"examples": examples, "content": records})

    def _examples(self, metrics: MetricRecord) -> Any:
        if self.names.examples not in metrics:
            line = f"MetricRecord({{..., '{self.names.examples}': ...}})"
            what = f"no '{self.names.examples}' among its metrics"
            raise ForeignMessage("reply", what, f"Return {line}")
        return whole(metrics[self.names.examples])

    def form_of(self, note: Note | None) -> Form:
        """What a reply to an order to train may say beside its model."""
        said = note is not None and note.values["said_loss"]
        loss = (LOSS if self.needs_loss else OBJECTIVE) if said else SAID_NOTHING
        return {"loss": loss, "seconds": SECONDS, "steps": COUNT, "examples": COUNT}


def metrics_of(records: RecordDict) -> MetricRecord:
    """The one MetricRecord of a reply."""
    found = list(records.metric_records.values())
    if len(found) != 1:
        raise ForeignMessage("reply", f"{len(found)} MetricRecords instead of one")
    return found[0]


def first(metrics: Mapping[str, Any], names: Sequence[str], otherwise: Any = None) -> Any:
    """The first of these that is there.

    >>> first({"loss": 0.5}, ("train_loss", "loss")), first({}, ("loss",), otherwise=1)
    (0.5, 1)
    """
    return next((metrics[name] for name in names if name in metrics), otherwise)


def whole(value: Any) -> Any:
    """A float that is a whole number as one; apps count in either.

    >>> whole(32.0), whole(0.5), whole([1.0])
    (32, 0.5, [1.0])
    """
    return int(value) if isinstance(value, float) and value.is_integer() else value


# ---------------------------------------------------------------- metrics of several replies


def merged(contents: Sequence[RecordDict], weight: str, merge: Merge) -> MetricRecord | None:
    """Metrics of several replies as one, by the app's own function. A reply that names others than
    most, or has a number in it that is none, has no say in this.
    """
    forms = [_form(metrics_of(content)) for content in contents]
    known = Counter(form for form in forms if form)
    if not known:
        return None
    usual = known.most_common(1)[0][0]
    agreeing = [content for content, form in zip(contents, forms, strict=True) if form == usual]
    return merge(agreeing, weight)


def _form(metrics: MetricRecord) -> tuple[tuple[str, int], ...]:
    """Names, and how many numbers each has; () if one of them is not finite."""
    sizes: list[tuple[str, int]] = []
    for name, value in sorted(metrics.items()):
        numbers = value if isinstance(value, list) else [value]
        if not all(math.isfinite(number) for number in numbers):
            return ()
        sizes.append((name, len(value) if isinstance(value, list) else -1))
    return tuple(sizes)


def words(metrics: Mapping[str, Any]) -> str:
    """Metrics in one line."""
    return ", ".join(f"{shown(name)} {shown(value)}" for name, value in metrics.items())
