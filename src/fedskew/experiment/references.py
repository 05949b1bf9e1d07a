"""The rows every personalised result has to be shown with (docs/methods.md 7.5).

They say what could be had without the method.

- ``majority_class``: each client always answers with the most frequent label of its TRAINING data.
- ``fine_tuned``: the final global model, trained for some epochs more at each client, which keeps
  the result to itself.
- ``centralised``: all training data in one place, trained for as many sample passes as the
  federation made.

``local_only`` is a procedure: run its recipe. All rows are tested on every client's own test set.
Where each client holds one class (similarity 0) the first of them scores about 0.98: a personalised
model that does no better has learnt nothing. ``fedskew compare`` shows them by itself; in Python:
``Comparison.of([with_references(fedavg_run), psi_run, local_only_run])``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from fedskew.accounting.fairness import Fairness, fairness
from fedskew.data import Shards
from fedskew.errors import RunError
from fedskew.experiment.run import Run
from fedskew.experiment.world import dataset_of, factory_of, shards_of, store_of
from fedskew.objective import plain
from fedskew.recipe import method_of
from fedskew.records import COMPUTED, read_references, write_references
from fedskew.runtime.local.runtime import LocalRuntime
from fedskew.types import Floats, Ints, LocalJob, Params, ScoreOrder, TrainOrder, frozen

if TYPE_CHECKING:
    from torch import nn

NAMES = COMPUTED
FINE_TUNING_ROUND = 1 << 29  # batch orders of no real round
AT_ONCE = 64  # clients whose tuned models are in memory at the same time


@dataclass(frozen=True)
class Reference:
    """One row: every client's accuracy on its own test set."""

    name: str
    accuracy: Floats  # (K,) nan: no test examples
    test_examples: Ints  # (K,)

    @property
    def fairness(self) -> Fairness:
        """The figures over clients."""
        return fairness(self.accuracy, self.test_examples)


def reference_rows(
    result: Run,
    *,
    names: Sequence[str] = NAMES,
    data: Any = None,
    model: Callable[[], nn.Module] | None = None,
    clients: Any = None,
    tuning_epochs: int = 0,
    shards: Shards | None = None,
) -> list[Reference]:
    """The rows for a finished run of one global model, on the same clients, split, job and seed.

    ``data``, ``model`` and ``clients`` as they were given to :func:`fedskew.run`; ``tuning_epochs``
    0 means ``local.epochs``.
    """
    resolved = result.recipe
    dataset = shards.dataset if shards is not None else dataset_of(resolved, data, model)
    shards = shards or shards_of(resolved, dataset, result.seed, clients)
    if shards.test is None:
        raise RunError(
            "references", "clients have no test sets", 'Set data.client_test = "split" or "matched"'
        )
    unknown = set(names) - set(NAMES)
    if unknown:
        raise RunError(
            "references", f"unknown rows {sorted(unknown)}", f"Known: {', '.join(NAMES)}"
        )
    job, rows = plain(method_of(resolved).job), []  # an objective is part of the method
    factory = model or factory_of(resolved, dataset)
    if "majority_class" in names:
        rows.append(majority_class(shards))
    if "fine_tuned" in names:
        if len(result.models) != 1:
            raise RunError(
                "references",
                "only a global model can be tuned, this run has several",
                "Give a run of FedAvg",
            )
        epochs = tuning_epochs or job.epochs
        rows.append(
            fine_tuned(factory, shards, result.models[0], replace(job, epochs=epochs), result.seed)
        )
    if "centralised" in names:
        rows.append(centralised(factory, shards, job, sample_passes(result), result.seed))
    return rows


def with_references(
    result: Run,
    *,
    data: Any = None,
    model: Callable[[], nn.Module] | None = None,
    clients: Any = None,
    on_row: Callable[[str], None] | None = None,
) -> Run:
    """The run with its reference rows, for :meth:`fedskew.Comparison.of`.

    If the run has a folder each row is kept there as soon as it is known, and none is computed
    twice. A row that cannot be had is kept with the reason. ``on_row`` is called with a row's name
    before it is computed.
    """
    mark = str(result.facts.get("mark", ""))
    kept = read_references(result.folder, mark) if result.folder is not None else {}
    missing = [name for name in NAMES if name not in kept]
    if missing:
        dataset = dataset_of(result.recipe, data, model)
        shards = shards_of(result.recipe, dataset, result.seed, clients)
        _tests(shards)
    for name in missing:
        if on_row is not None:
            on_row(name)
        kept = {**kept, name: _columns(result, name, model, shards)}
        if result.folder is not None:
            write_references(result.folder, kept, mark)
    return replace(result, references=kept)


def _columns(
    result: Run, name: str, model: Callable[[], nn.Module] | None, shards: Shards
) -> dict[str, Any]:
    try:
        (row,) = reference_rows(result, names=[name], model=model, shards=shards)
    # for example a pooled training that diverges: the other rows are worth having
    except RunError as error:
        return {"failed": str(error)}
    return {"accuracy": row.accuracy.tolist(), "test_examples": row.test_examples.tolist()}


def majority_class(shards: Shards) -> Reference:
    """Each client's most frequent training label; the lowest among equals.

    Of a client without examples it is everybody's.
    """
    test = _tests(shards)
    counts = shards.label_counts
    known = counts.sum(axis=1) > 0
    guess = np.where(known, counts.argmax(axis=1), counts.sum(axis=0).argmax())
    owners = np.repeat(np.arange(shards.clients), test.sizes)
    right = np.asarray(shards.y_test)[test.order] == guess[owners]
    with np.errstate(invalid="ignore"):
        accuracy = np.bincount(owners, weights=right, minlength=shards.clients) / test.sizes
    return Reference("majority_class", frozen(accuracy, np.float64), frozen(test.sizes, np.int64))


def fine_tuned(
    factory: Callable[[], nn.Module], shards: Shards, model: Params, job: LocalJob, seed: int
) -> Reference:
    """The global model after training at each client alone.

    A client that cannot train keeps the global model.
    """
    accuracy, tests = np.full(shards.clients, np.nan), _tests(shards).sizes
    with LocalRuntime(store_of(shards), factory, workers=1) as runtime:
        runtime.initial(seed)
        for begin in range(0, shards.clients, AT_ONCE):
            ids = np.arange(begin, min(begin + AT_ONCE, shards.clients))
            start = np.zeros(len(ids), np.int64)
            replies = runtime.train(
                TrainOrder(ids, model[None], start, job, seed=seed, round=FINE_TUNING_ROUND)
            )
            tuned = np.where(replies.ok[:, None], replies.params, model)
            scores = runtime.score(ScoreOrder(ids, tuned, np.arange(len(ids)), "test"))
            accuracy[ids] = scores.accuracy
    return Reference("fine_tuned", frozen(accuracy, np.float64), frozen(tests, np.int64))


def centralised(
    factory: Callable[[], nn.Module], shards: Shards, job: LocalJob, passes: float, seed: int
) -> Reference:
    """One model on the pooled training data, ``passes`` times over it (rounded, at least once)."""
    store = store_of(shards)
    pooled = replace(store, train_offsets=np.array([0, len(store.train_order)]))
    everyone = np.arange(shards.clients)
    with LocalRuntime(pooled, factory, workers=1) as runtime:
        first = runtime.initial(seed)
        whole = replace(job, epochs=max(1, round(passes)), prox_mu=0.0)
        replies = runtime.train(TrainOrder([0], first[None], [0], whole, seed=seed, round=1))
        if replies.failures[0]:
            raise RunError(
                "references.centralised", replies.failures[0], "Check the model on the pooled data"
            )
        slots = np.zeros(len(everyone), np.int64)
        scores = runtime.score(ScoreOrder(everyone, replies.params, slots, "test"))
    return Reference("centralised", scores.accuracy, scores.num_examples)


def sample_passes(result: Run) -> float:
    """How often the federation trained on its data: example passes of all rounds per example."""
    sizes = np.asarray(result.clients["examples"], np.float64)
    trained = sum(float(sizes[client]) for record in result.rounds for client in record.loss)
    return method_of(result.recipe).job.epochs * trained / max(1.0, float(sizes.sum()))


def _tests(shards: Shards) -> Any:
    if shards.test is None:
        raise RunError(
            "references", "clients have no test sets", 'Set data.client_test = "split" or "matched"'
        )
    return shards.test
