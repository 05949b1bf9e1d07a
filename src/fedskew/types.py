"""The nouns of fedskew: frozen values that pass between the stages. Arrays are read-only after construction.

Shapes in comments: K clients, C classes, D model parameters, S model slots, n clients of one call.
NaN has one meaning everywhere: not known yet.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol, TypeAlias, TypeVar

import numpy as np
from numpy.typing import ArrayLike, DTypeLike, NDArray

Floats: TypeAlias = NDArray[np.float64]
Params: TypeAlias = NDArray[np.float32]
Ints: TypeAlias = NDArray[np.int64]
Bools: TypeAlias = NDArray[np.bool_]
Ids: TypeAlias = Sequence[int] | NDArray[np.int64]  # client numbers, or slot numbers
F = TypeVar("F", bound=Callable[..., Any])
Memory: TypeAlias = Mapping[str, Any]  # what a stage remembers between rounds: arrays, numbers, strings, nested by name


def frozen(array: ArrayLike, dtype: DTypeLike | None = None) -> NDArray[Any]:
    """A read-only view (a copy only if the dtype must change).

    >>> frozen([1, 2], np.float64).flags.writeable
    False
    """
    view = np.asarray(array, dtype).view()
    view.flags.writeable = False
    return view


def _freeze(value: object, **dtypes: DTypeLike) -> None:
    """Replace the named array fields of a frozen dataclass by read-only arrays of these dtypes (None stays None)."""
    for name, dtype in dtypes.items():
        given = getattr(value, name)
        if given is not None:
            object.__setattr__(value, name, frozen(given, dtype))


# ---------------------------------------------------------------- what is known of the clients


@dataclass(frozen=True)
class Population:
    """What the server may know of each client's means without asking about its labels."""

    num_examples: Ints  # (K,)
    seconds_per_example: Floats | None = None  # (K,) one forward and backward pass
    latency_seconds: Floats | None = None  # (K,) one message, one way
    uplink_bps: Floats | None = None  # (K,)
    snr: Floats | None = None  # (K,) linear, not dB
    watts: Floats | None = None  # (K,) while training

    def __post_init__(self) -> None:
        floats = ("seconds_per_example", "latency_seconds", "uplink_bps", "snr", "watts")
        _freeze(self, num_examples=np.int64, **dict.fromkeys(floats, np.float64))

    @property
    def size(self) -> int:
        """K, the number of clients."""
        return len(self.num_examples)


@dataclass(frozen=True)
class Signal:
    """Label proportions of every client and where they came from.

    A client without examples has ``known`` False and a row of zeros: it is left out of clustering and never selected.
    """

    rows: Floats  # (K, C), each known row sums to 1
    num_examples: Floats  # (K,), float because private counts may be
    source: Literal["disclosed", "private", "estimated"]
    epsilon: float | None = None  # privacy budget spent, for source "private"
    known: Bools = None  # type: ignore[assignment]  # (K,), default: rows that sum to 1

    def __post_init__(self) -> None:
        if self.known is None:
            object.__setattr__(self, "known", np.asarray(self.rows, np.float64).sum(axis=1) > 0)
        _freeze(self, rows=np.float64, num_examples=np.float64, known=np.bool_)

    @property
    def num_classes(self) -> int:
        """C."""
        return int(self.rows.shape[1])


@dataclass(frozen=True)
class HeadUpdates:
    """What a probe leaves: the output layer of every client after a short training from one and the same model."""

    received_weight: Floats  # (C, L)
    weight: Floats  # (K, C, L) after training
    received_bias: Floats | None  # (C,)
    bias: Floats | None  # (K, C) after training
    steps: Ints  # (K,) optimiser steps taken
    answered: Bools  # (K,) False: no usable reply
    num_examples: Ints  # (K,)
    confusion: Floats | None = None  # (K, C, C) mean softmax per true class on the auxiliary set, before and after averaged

    def __post_init__(self) -> None:
        floats = ("received_weight", "weight", "received_bias", "bias", "confusion")
        _freeze(self, steps=np.int64, answered=np.bool_, num_examples=np.int64, **dict.fromkeys(floats, np.float64))


@dataclass(frozen=True)
class Geometry:
    """How far clients are from each other: a distance matrix, or points whose Euclidean distance it is, or both.

    Above a few thousand clients only ``points`` exist, never a K x K matrix.
    """

    pairwise: Floats | None = None  # (K, K)
    points: Floats | None = None  # (K, F)
    known: Bools = None  # type: ignore[assignment]  # (K,), default: everyone
    name: str = ""

    def __post_init__(self) -> None:
        present = self.pairwise if self.pairwise is not None else self.points
        if present is None:
            raise ValueError("a Geometry needs pairwise distances or points")
        if self.known is None:
            object.__setattr__(self, "known", np.ones(len(present), np.bool_))
        _freeze(self, pairwise=np.float64, points=np.float64, known=np.bool_)

    @property
    def size(self) -> int:
        """K."""
        return len(self.known)


@dataclass(frozen=True)
class Clustering:
    """Groups of clients, numbered 0..k-1 by their smallest member. Label -1: in no group, never chosen by a cluster rule."""

    labels: Ints  # (K,)
    silhouette: float | None = None
    noise_fraction: float = 0.0
    exact: bool = True  # False: found on a sample or with mini-batches
    details: Mapping[str, Any] = field(default_factory=dict)  # parameters chosen, the scanned curve, centroids ...

    def __post_init__(self) -> None:
        _freeze(self, labels=np.int64)

    @property
    def k(self) -> int:
        """The number of clusters."""
        return int(self.labels.max(initial=-1)) + 1

    def members(self, cluster: int) -> Ints:
        """Client ids of one cluster, ascending."""
        return np.flatnonzero(self.labels == cluster)


@dataclass(frozen=True)
class AskLoss:
    """A rule's request before it selects: the loss of the present model on these clients' training data."""

    clients: Ints
    max_examples: int = 0  # 0 = on all of it, else on a fresh random draw of this many

    def __post_init__(self) -> None:
        _freeze(self, clients=np.int64)


@dataclass(frozen=True)
class AskUpdates:
    """A rule's request: let these clients train from the present model, keep only what changed (of the last layer, or all)."""

    clients: Ints
    layer: Literal["last", "all"] = "all"

    def __post_init__(self) -> None:
        _freeze(self, clients=np.int64)


@dataclass(frozen=True)
class AskTrial:
    """A rule's request: a throw-away round of these clients; the answer is the loss of its outcome at every client."""

    clients: Ints

    def __post_init__(self) -> None:
        _freeze(self, clients=np.int64)


Ask: TypeAlias = AskLoss | AskUpdates | AskTrial


@dataclass(frozen=True)
class Answer:
    """What came back for a request; nan where a client failed.

    ``values``: (n,) for AskLoss, (n, F) for AskUpdates, (K,) for AskTrial.
    """

    ask: Ask
    values: Floats

    def __post_init__(self) -> None:
        _freeze(self, values=np.float64)


@dataclass(frozen=True)
class View:
    """Everything a selection rule may look at. Never test data."""

    round: int  # counts from 1
    budget: int  # how many clients may train this round
    population: Population
    available: Bools  # (K,)
    loss: Floats  # (K,) last reported, nan = never
    times_selected: Ints  # (K,)
    last_selected: Ints  # (K,) round of the last selection, 0 = never
    signal: Signal | None = None
    clustering: Clustering | None = None
    answers: tuple[Answer, ...] = ()  # to what the rule has asked for in this round, oldest first

    def __post_init__(self) -> None:
        _freeze(self, available=np.bool_, loss=np.float64, times_selected=np.int64, last_selected=np.int64)

    @property
    def size(self) -> int:
        """K."""
        return len(self.available)


# ---------------------------------------------------------------- what a round does


@dataclass(frozen=True)
class Chain:
    """Clients that train one after another, starting from the model in ``slot``."""

    slot: int
    clients: tuple[int, ...]


@dataclass(frozen=True)
class Wave:
    """The d-th client of every chain that is long enough: what can train at once."""

    chains: tuple[int, ...]  # index of the chain in the plan
    clients: tuple[int, ...]


@dataclass(frozen=True)
class Plan:
    """Who trains in this round, in what order, on which model.

    >>> plan = Plan((Chain(0, (4, 2)), Chain(0, (7,))))
    >>> plan.clients
    (4, 2, 7)
    >>> [wave.clients for wave in plan.waves()]
    [(4, 7), (2,)]
    """

    chains: tuple[Chain, ...]
    relay: Literal["server", "d2d"] = "server"  # how a model gets from one client of a chain to the next
    broken: Literal["skip", "drop"] = "skip"  # a client fails mid-chain: go on without it, or give the chain up
    home: Ints | None = None  # (K,) the slot each client is evaluated with; None = slot 0 for everyone

    def __post_init__(self) -> None:
        _freeze(self, home=np.int64)

    @property
    def clients(self) -> tuple[int, ...]:
        """Every client of the plan, chain by chain."""
        return tuple(client for chain in self.chains for client in chain.clients)

    def waves(self) -> Iterator[Wave]:
        """The plan cut into steps that can run at once."""
        depth = max((len(chain.clients) for chain in self.chains), default=0)
        for d in range(depth):
            index = tuple(i for i, chain in enumerate(self.chains) if len(chain.clients) > d)
            yield Wave(index, tuple(self.chains[i].clients[d] for i in index))


@dataclass(frozen=True)
class LocalJob:
    """What a client does with the model it receives. It travels as data, so no client has to remember a convention."""

    epochs: int = 1
    batch: int = 32
    lr: float = 0.05
    optimizer: Literal["sgd", "adam"] = "sgd"
    momentum: float = 0.0  # sgd only; state starts fresh every round
    weight_decay: float = 0.0
    prox_mu: float = 0.0  # FedProx: adds mu * (w - received) to every gradient
    clip_norm: float = 0.0  # 0 = off; else a longer gradient is shortened to this length before anything is added to it
    max_examples: int = 0  # 0 = all; else a fresh random draw of this many each round
    report_loss: Literal["train", "start", "end"] = "train"  # mean over the batches | received model | trained model


@dataclass(frozen=True)
class Replies:
    """What came back from one call to :meth:`Runtime.train`, one row per client asked."""

    params: Params  # (n, D); rows that are not ok are undefined
    loss: Floats  # (n,)
    seconds: Floats  # (n,)
    steps: Ints  # (n,) optimiser steps taken
    examples: Ints  # (n,) examples trained on, per epoch
    failures: tuple[str, ...]  # "" = ok, else why not
    sent: Bools  # (n,) whether bytes came back, usable or not: they are charged

    def __post_init__(self) -> None:
        _freeze(self, params=np.float32, loss=np.float64, seconds=np.float64, steps=np.int64, examples=np.int64, sent=np.bool_)

    @property
    def ok(self) -> Bools:
        """(n,) which rows may be used."""
        return np.array([not why for why in self.failures], np.bool_)


@dataclass(frozen=True)
class Ends:
    """What an aggregation rule averages: the last usable model of every chain on one slot."""

    params: Params  # (n, D)
    num_examples: Ints  # (n,) trained on along the chain
    steps: Ints  # (n,) optimiser steps along the chain
    layout: Layout
    clients: Ints  # (n,) the last of each chain
    num_clients: int  # K, all of them
    job: LocalJob = field(default_factory=LocalJob)  # what the clients did

    def __post_init__(self) -> None:
        _freeze(self, params=np.float32, num_examples=np.int64, steps=np.int64, clients=np.int64)


@dataclass(frozen=True)
class Scores:
    """Loss and accuracy of several evaluations: one row per model, or one row per client."""

    loss: Floats  # (n,) mean; nan where there was nothing to evaluate
    accuracy: Floats  # (n,) nan likewise
    num_examples: Ints  # (n,)

    def __post_init__(self) -> None:
        _freeze(self, loss=np.float64, accuracy=np.float64, num_examples=np.int64)


# ---------------------------------------------------------------- a model as one vector


@dataclass(frozen=True)
class Block:
    """One named tensor inside the flat model vector."""

    name: str
    shape: tuple[int, ...]
    offset: int
    kind: Literal["weight", "buffer", "counter"]  # trained | averaged (BatchNorm statistics) | integer, takes the maximum

    @property
    def size(self) -> int:
        """How many numbers it holds."""
        return int(np.prod(self.shape, dtype=np.int64))

    @property
    def stop(self) -> int:
        """Offset of the first number behind it."""
        return self.offset + self.size


@dataclass(frozen=True)
class Layout:
    """Where each tensor of a model lies in its flat float32 vector: weights first, then buffers, then counters.

    >>> layout = Layout.of([("w", (2, 3), "weight"), ("b", (2,), "weight")])
    >>> layout.size, layout.bytes, layout["b"].offset
    (8, 32, 6)
    """

    blocks: tuple[Block, ...]

    @classmethod
    def of(cls, tensors: Sequence[tuple[str, Sequence[int], str]]) -> Layout:
        """Lay tensors (name, shape, kind) out one behind the other, weights first."""
        order = {"weight": 0, "buffer": 1, "counter": 2}
        blocks: list[Block] = []
        for name, shape, kind in sorted(tensors, key=lambda t: order[t[2]]):
            blocks.append(Block(name, tuple(shape), blocks[-1].stop if blocks else 0, kind))  # type: ignore[arg-type]
        return cls(tuple(blocks))

    def __getitem__(self, name: str) -> Block:
        return next(block for block in self.blocks if block.name == name)

    @property
    def size(self) -> int:
        """D, the length of the flat vector."""
        return self.blocks[-1].stop if self.blocks else 0

    @property
    def num_weights(self) -> int:
        """How many numbers at the front of the vector are trained."""
        return sum(block.size for block in self.blocks if block.kind == "weight")

    @property
    def bytes(self) -> int:
        """Bytes of one serialised model: 4 per float, 8 per integer counter (METHODS 9.1)."""
        return sum(block.size * (8 if block.kind == "counter" else 4) for block in self.blocks)

    def unpack(self, vector: Params) -> dict[str, Params]:
        """Named arrays that share the vector's memory."""
        return {b.name: vector[b.offset : b.stop].reshape(b.shape) for b in self.blocks}


# ---------------------------------------------------------------- what a round cost


@dataclass(frozen=True)
class Transfer:
    """Bytes of one kind in one direction. ``multicast`` is what they cost when one send reaches everybody."""

    direction: Literal["down", "up", "d2d"]
    kind: Literal["model", "control", "loss", "histogram", "order", "latency", "gradient", "probe"]
    bytes: int
    multicast: int


@dataclass(frozen=True)
class RoundRecord:
    """What one round did and cost, as it is written to disk. Round 0 is the state before training."""

    round: int
    chains: tuple[Chain, ...]
    loss: Mapping[int, float]  # client -> loss it reported, usable replies only
    failures: Mapping[int, str]  # client -> why its reply was not used
    transfers: tuple[Transfer, ...]
    accuracy: float  # nan = not evaluated in this round
    test_loss: float
    seconds: float  # wall time; differs from run to run, everything above does not
    client_seconds: Mapping[int, float]


# ---------------------------------------------------------------- the checkpoint, and the door to the outside


@dataclass(frozen=True)
class State:
    """Everything that passes from one round to the next: this value is the checkpoint, and nothing else is."""

    models: Params  # (S, D)
    round: int  # rounds finished
    seed: int
    loss: Floats  # (K,)
    times_selected: Ints  # (K,)
    last_selected: Ints  # (K,)
    signal: Signal | None = None
    clustering: Clustering | None = None
    home: Ints | None = None  # (K,)
    memory: Mapping[str, Memory] = field(default_factory=dict)  # stage name -> what it remembers

    def __post_init__(self) -> None:
        _freeze(self, models=np.float32, loss=np.float64, times_selected=np.int64, last_selected=np.int64, home=np.int64)


@dataclass(frozen=True)
class Feedback:
    """What a round taught, for rules that learn: one row per client whose reply was used, in the order of the plan."""

    round: int
    clients: Ints  # (n,)
    loss: Floats  # (n,) as reported
    seconds: Floats  # (n,) simulated, never measured: a rule that learns from it must repeat exactly
    examples: Ints  # (n,)
    steps: Ints  # (n,)
    delta: Params  # (n, F) trained minus received: the whole model, or its output layer (weight rows, then bias)
    head_shape: tuple[int, int]  # (C, L) of the output layer; (0, 0) if the model has none
    class_gradients: Floats | None = None  # (n, C) squared norms on the auxiliary set, if the rule asked for them

    def __post_init__(self) -> None:
        _freeze(self, clients=np.int64, loss=np.float64, seconds=np.float64, examples=np.int64, steps=np.int64)
        _freeze(self, delta=np.float32, class_gradients=np.float64)


@dataclass(frozen=True)
class Stateful:
    """A stage that remembers: ``step(memory, *inputs, **options) -> (result, memory)``. Memory starts as ``{}``.

    A selection rule may also ``learn(memory, feedback, **options) -> memory`` after every round, from the updates of the
    ``layer`` it names, or with ``auxiliary`` from the server's own examples. An aggregation rule may change what clients do:
    ``job(job, **options) -> job`` for everyone, ``corrections(memory, clients, num_weights, **options)`` for each client (a
    vector added to every gradient); ``extra_models`` vectors of a model's size then travel with each model, both ways.
    """

    step: Callable[..., tuple[Any, Memory]]
    learn: Callable[..., Memory] | None = None
    layer: Literal["last", "all", "none"] = "last"  # an option ``layer`` of the rule comes first
    auxiliary: bool = False
    job: Callable[..., LocalJob] | None = None
    corrections: Callable[..., Params] | None = None
    extra_models: int = 0


def needs(*what: Literal["signal", "clustering", "loss", "latency", "snr"]) -> Callable[[F], F]:
    """Say what a selection rule cannot do without; the recipe is checked for it, and losses, latencies and SNRs are charged.

    >>> @needs("clustering")
    ... def rule(view, rng): ...
    >>> needs_of(rule)
    frozenset({'clustering'})
    """

    def mark(function: F) -> F:
        function.needs = frozenset(what)  # type: ignore[attr-defined]
        return function

    return mark


def needs_of(function: object) -> frozenset[str]:
    """What :func:`needs` said of a rule."""
    target = function.step if isinstance(function, Stateful) else function
    found: frozenset[str] = getattr(target, "needs", frozenset())
    return found


@dataclass(frozen=True)
class Auxiliary:
    """How models react to a small balanced set of examples that the server itself holds (``data.auxiliary``)."""

    class_gradients: Floats  # (n, C) squared norm of the output layer's gradient, class by class
    class_softmax: Floats  # (n, C, C) mean softmax on examples of each true class

    def __post_init__(self) -> None:
        _freeze(self, class_gradients=np.float64, class_softmax=np.float64)


@dataclass(frozen=True)
class Description:
    """What a runtime tells about itself before the first round."""

    population: Population
    num_classes: int
    layout: Layout


class Runtime(Protocol):
    """The one narrow door to the outside. It knows how to train client i from a model; never plans, clusters or rules."""

    def describe(self) -> Description:
        """Clients, classes and the shape of the model."""

    def initial(self, seed: int) -> Params:
        """A fresh model (D,)."""

    def label_counts(self) -> Ints:
        """(K, C) exact label counts, as the clients would disclose them."""

    def available(self, round: int) -> Bools:
        """(K,) who can be asked in this round."""

    def train(
        self,
        clients: Ids,
        models: Params,
        start: Ids,
        job: LocalJob,
        *,
        seed: int,
        round: int,
        corrections: Params | None = None,
    ) -> Replies:
        """Train client ``clients[i]`` from ``models[start[i]]``, all at once; ``corrections[i]`` is added to each gradient."""

    def evaluate(self, models: Params) -> Scores:
        """Each model on the central test set."""

    def evaluate_clients(
        self,
        clients: Ids,
        models: Params,
        start: Ids,
        which: Literal["test", "train"],
        *,
        max_examples: int = 0,
        seed: int = 0,
        round: int = 0,
    ) -> Scores:
        """``models[start[i]]`` on the own data of ``clients[i]``, or on a seeded random draw of at most ``max_examples``."""

    def auxiliary(self, models: Params) -> Auxiliary:
        """Each model on the server's own small balanced set of examples."""

    def close(self) -> None:
        """Let go of processes and memory."""
