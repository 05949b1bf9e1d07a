"""Makes clients hostile on purpose, around any runtime (``[faults.hostile]``).

Who is hostile is drawn once (stream "hostile clients") and stays so for the run; the others' bytes
are those of a run without them. A client may be hostile in several ways at once::

    scale          sends ``factor`` times its update (1000)
    flip           sends minus ``factor`` times its update (10)
    noise          sends a random update, ``factor`` times as long as its own (10)
    collude        all hostile clients that train at once send one and the same update: minus
                   ``factor`` times the mean of theirs (1, so that no length gives them away)
    label_flip     holds label C - 1 - c where c is true: trains on it, tells it, is honest about it
    lie_loss       reports ``loss`` instead of its own, and trains honestly
    lie_histogram  discloses ``mix`` instead of its own label mix, and trains honestly
    lie_size       says, when it joins and whenever it trained, that it has ``size_factor`` times
                   its examples (in a reply alone the border would refuse it); it is as fast as ever

BatchNorm statistics are left as they are: a negative variance would be found at once.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Literal, TypeAlias

import numpy as np

from fedskew.errors import RecipeError
from fedskew.runtime.border import MOST_EXAMPLES
from fedskew.runtime.replies import collect, forms_of, reply_of
from fedskew.runtime.wrapped import WrappedRuntime
from fedskew.streams import stream
from fedskew.types import (
    Description,
    Ints,
    Params,
    Replies,
    Runtime,
    ScoreOrder,
    Scores,
    TrainOrder,
    loss_limit,
)

Kind: TypeAlias = Literal[
    "scale",
    "flip",
    "noise",
    "collude",
    "label_flip",
    "lie_loss",
    "lie_histogram",
    "lie_size",
]
UPDATE_FACTORS = {"scale": 1000.0, "flip": 10.0, "noise": 10.0, "collude": 1.0}


@dataclass(frozen=True)
class Hostile:
    """``[faults.hostile]``: how many clients are hostile, and how."""

    share: float = 0.0  # of all clients, rounded, at least one if above 0
    kind: Kind | tuple[Kind, ...] = "flip"
    clients: tuple[int, ...] = ()  # these, instead of a share drawn at random
    factor: float | None = None  # of scale, flip, noise, collude; None: as said above
    size_factor: float = 1000.0  # of lie_size
    loss: float | None = None  # of lie_loss; None: just below what counts as plausible
    # of lie_histogram: all labels alike, or nothing but the federation's rarest label
    mix: Literal["uniform", "rare"] = "uniform"

    def __post_init__(self) -> None:
        object.__setattr__(self, "clients", tuple(self.clients))  # JSON has lists
        if not 0 <= self.share <= 1:
            what = f"{self.share} is not a share"
            raise RecipeError("faults.hostile.share", what, "Give a number from 0 to 1")
        if self.share and self.clients:
            what = "gives a share and names clients"
            raise RecipeError("faults.hostile", what, "Give one of the two")
        changes = [kind for kind in self.kinds if kind in UPDATE_FACTORS]
        if len(changes) > 1:
            what = f"{' and '.join(changes)} are two updates of one client"
            raise RecipeError("faults.hostile.kind", what, "Give at most one of them")

    @property
    def kinds(self) -> tuple[str, ...]:
        """Everything a hostile client does."""
        return (self.kind,) if isinstance(self.kind, str) else tuple(self.kind)

    @property
    def anybody(self) -> bool:
        """Whether there is a hostile client at all."""
        return bool(self.share or self.clients)

    @property
    def change(self) -> str:
        """What becomes of an update; empty: nothing."""
        return next((kind for kind in self.kinds if kind in UPDATE_FACTORS), "")

    def who(self, size: int, seed: int) -> Ints:
        """The hostile among ``size`` clients, ascending.

        >>> Hostile(share=0.2).who(20, seed=0).size, Hostile(clients=(3,)).who(20, seed=0).tolist()
        (4, [3])
        """
        if self.clients:
            return _named(self.clients, size)
        count = max(1, round(self.share * size)) if self.share else 0
        return np.sort(stream(seed, "hostile clients").permutation(size)[:count])

    def facts(self, size: int, seed: int) -> dict[str, Any]:
        """Who does what, for ``run.json``."""
        return {"hostile": {"kinds": list(self.kinds), "clients": self.who(size, seed).tolist()}}


def _named(clients: tuple[int, ...], size: int) -> Ints:
    ids = np.unique(np.asarray(clients, np.int64))
    if ids.min() < 0 or ids.max() >= size:
        what = f"{list(clients)} names clients outside 0..{size - 1}"
        raise RecipeError("faults.hostile.clients", what, "Correct the list")
    return ids


class HostileRuntime(WrappedRuntime):
    """Another runtime, some of whose clients are hostile.

    ``flipped``: the clients behind ``inner`` hold the labels that ``label_flip`` gives them
    already. Only whoever owns the examples can see to that.
    """

    def __init__(
        self, inner: Runtime, hostile: Hostile, seed: int, *, flipped: bool = False
    ) -> None:
        super().__init__(inner)
        self._hostile, self._seed = hostile, seed
        known = inner.describe()
        self._classes, self._layout = known.num_classes, known.layout
        self._weights = known.layout.num_weights
        self._who = hostile.who(known.population.size, seed)
        if "label_flip" in hostile.kinds and not flipped:
            what = "label_flip needs clients whose examples are here"
            raise RecipeError("faults.hostile", what, "Use another kind, or run on this machine")

    def describe(self) -> Description:
        """As the inner runtime, with the claims of those who lie about their size."""
        known = self._inner.describe()
        if "lie_size" not in self._hostile.kinds:
            return known
        true, pace = known.population.num_examples, known.population.seconds_per_example
        sizes = self._claimed(true)
        if pace is not None:  # they take as long as ever
            pace = pace * true / np.maximum(sizes, 1)
        population = replace(known.population, num_examples=sizes, seconds_per_example=pace)
        return replace(known, population=population)

    def _claimed(self, sizes: Ints) -> Ints:
        """(K,) how many examples everybody says it has."""
        claimed = sizes.astype(np.float64)
        claimed[self._who] *= self._hostile.size_factor
        return np.minimum(claimed, MOST_EXAMPLES).astype(np.int64)

    def label_counts(self) -> Ints:
        """With the claims of those who lie about their labels."""
        counts = self._inner.label_counts()
        if "lie_histogram" not in self._hostile.kinds:
            return counts
        claimed, rarest = counts.copy(), int(counts.sum(axis=0).argmin())
        for client in self._who:
            claimed[client] = _claim(
                int(counts[client].sum()), self._classes, rarest, self._hostile
            )
        return claimed

    def score(self, order: ScoreOrder) -> Scores:
        """With the losses that liars report of their own training data."""
        scores = self._inner.score(order)
        if "lie_loss" not in self._hostile.kinds or order.which != "train":
            return scores
        lies = np.isin(np.asarray(order.clients), self._who)
        return replace(scores, loss=np.where(lies, self._lie, scores.loss))

    def train(self, order: TrainOrder) -> Replies:
        """Everybody trains; the hostile ones answer as they please."""
        replies = self._inner.train(order)
        rows = np.flatnonzero(np.isin(np.asarray(order.clients), self._who) & replies.ok)
        if not len(rows):
            return replies
        answers = [reply_of(replies, row) for row in range(len(order.clients))]
        sent = self._sent(order, replies, rows)
        for place, row in enumerate(rows):
            answers[row] = replace(
                answers[row], params=sent[place], **self._claims(replies, int(row))
            )
        forms = forms_of(order, self.describe().population.num_examples)
        return collect(answers, order.models.shape[1], layout=self._layout, forms=forms)

    def _claims(self, replies: Replies, row: int) -> dict[str, Any]:
        """What is said beside the parameters, where it is not the truth."""
        claims: dict[str, Any] = {}
        if "lie_loss" in self._hostile.kinds:
            claims["loss"] = self._lie
        if "lie_size" in self._hostile.kinds:
            claimed = self._hostile.size_factor * int(replies.examples[row])
            claims["examples"] = min(int(claimed), MOST_EXAMPLES)
        return claims

    @property
    def _lie(self) -> float:
        given = self._hostile.loss
        return loss_limit(self._classes) - 0.1 if given is None else given

    def _sent(self, order: TrainOrder, replies: Replies, rows: Ints) -> Params:
        """(n, D) the parameters that the hostile clients in these rows send."""
        kind, params = self._hostile.change, replies.params[rows].copy()
        if not kind:
            return params
        received = order.models[np.asarray(order.start)[rows]][:, : self._weights]
        update = params[:, : self._weights].astype(np.float64) - received
        factor = self._hostile.factor
        factor = UPDATE_FACTORS[kind] if factor is None else factor
        if kind == "noise":
            update = self._noise(order, rows, np.linalg.norm(update, axis=1))
        elif kind == "collude":
            update = np.broadcast_to(update.mean(axis=0), update.shape)
        sign = -1.0 if kind in ("flip", "collude") else 1.0
        with np.errstate(over="ignore"):  # what overflows is found non-finite
            params[:, : self._weights] = received + sign * factor * update
        return params

    def _noise(self, order: TrainOrder, rows: Ints, lengths: Any) -> Any:
        """(n, W) random directions of these lengths, another one for each client and round."""
        clients = np.asarray(order.clients)[rows]
        draws = [stream(self._seed, "hostile noise", c, order.round) for c in clients]
        noise = np.stack([rng.normal(size=self._weights) for rng in draws])
        return noise * (lengths / np.linalg.norm(noise, axis=1))[:, None]


def flip_labels(labels: Ints, num_classes: int) -> Ints:
    """Label C - 1 - c for every c: nobody keeps its label but the middle one of an odd C.

    >>> flip_labels(np.array([0, 1, 9]), 10)
    array([9, 8, 0])
    """
    return num_classes - 1 - labels


def _claim(total: int, classes: int, rarest: int, hostile: Hostile) -> Ints:
    """(C,) label counts a liar with so many examples discloses.

    >>> _claim(11, 3, 2, Hostile(mix="uniform")), _claim(11, 3, 2, Hostile(mix="rare"))
    (array([4, 4, 3]), array([ 0,  0, 11]))
    """
    claimed = np.zeros(classes, np.int64)
    if hostile.mix == "rare":
        claimed[rarest] = total
        return claimed
    claimed += total // classes
    claimed[: total % classes] += 1
    return claimed
