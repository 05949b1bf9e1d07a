"""READ FIRST: the only loop. ``prepare`` once, then ``play_round`` after ``play_round``; ``run`` does both.

::

    prepare   describe -> signal -> distance -> clustering                    (each optional but the first)
    round t   view -> select -> procedure -> [runtime trains wave by wave] -> aggregate -> account
"""

from __future__ import annotations

import inspect
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from fedskew.accounting.traffic import histogram_transfers, model_transfers
from fedskew.errors import RecipeError, RoundFailed, RunError
from fedskew.probe import head_updates
from fedskew.streams import stream
from fedskew.types import (
    Chain,
    Description,
    Ends,
    Ids,
    Ints,
    LocalJob,
    Memory,
    Params,
    Plan,
    RoundRecord,
    Runtime,
    State,
    Stateful,
    Transfer,
    View,
)


@dataclass(frozen=True)
class Stage:
    """A function in one slot of the pipeline, with the options the recipe gave it."""

    name: str
    function: Any  # a plain function, or Stateful
    options: Mapping[str, Any] = field(default_factory=dict)

    @property
    def wants(self) -> str:
        """The name of the first thing the loop supplies."""
        function = self.function.step if isinstance(self.function, Stateful) else self.function
        names = list(inspect.signature(function).parameters)
        return names[isinstance(self.function, Stateful)]

    def __call__(self, *inputs: Any, memory: Memory) -> tuple[Any, Memory]:
        """Call with what the loop supplies; plain functions leave memory as it is."""
        if isinstance(self.function, Stateful):
            return self.function.step(memory, *inputs, **self.options)
        return self.function(*inputs, **self.options), memory


@dataclass(frozen=True)
class Method:
    """A recipe ready to play: one function per slot, and the numbers of the run."""

    selection: Stage
    procedure: Stage
    aggregation: Stage
    signal: Stage | None = None
    distance: Stage | None = None
    clustering: Stage | None = None
    job: LocalJob = field(default_factory=LocalJob)
    lr_decay: float = 1.0  # learning rate of round t = lr * lr_decay ** (t - 1)
    rounds: int = 10
    clients_per_round: int = 10
    evaluate_every: int = 1  # rounds; 0 = only before the first and after the last
    min_ok: int = 1  # fewer usable replies than this end the run

    def job_at(self, round: int) -> LocalJob:
        """What clients do in this round."""
        return self.job if self.lr_decay == 1.0 else replace(self.job, lr=self.job.lr * self.lr_decay ** (round - 1))


@dataclass(frozen=True)
class Setting:
    """What stays the same over a run: the method, the world it plays in, and the model everything began with."""

    method: Method
    runtime: Runtime
    description: Description
    initial: Params
    seed: int


# ---------------------------------------------------------------- before the first round


def settle(method: Method, runtime: Runtime, seed: int) -> Setting:
    """Ask the runtime who is there and what the first model is."""
    return Setting(method, runtime, runtime.describe(), runtime.initial(seed), seed)


def prepare(setting: Setting) -> tuple[State, RoundRecord]:
    """Measure and group the clients, evaluate the untrained model: the state before round 1 and record 0."""
    began = time.perf_counter()
    population = setting.description.population
    state = State(
        models=setting.initial[None],
        round=0,
        seed=setting.seed,
        loss=np.full(population.size, np.nan),
        times_selected=np.zeros(population.size, np.int64),
        last_selected=np.zeros(population.size, np.int64),
    )
    state, transfers = _measure(setting, state)
    accuracy, test_loss = evaluate(setting, state)
    return state, RoundRecord(0, (), {}, {}, transfers, accuracy, test_loss, time.perf_counter() - began, {})


def _measure(setting: Setting, state: State) -> tuple[State, tuple[Transfer, ...]]:
    method, rng = setting.method, stream(setting.seed, "cluster")
    if method.signal is None:
        return state, ()
    memory = dict(state.memory)
    given, transfers = _source_of(setting, method.signal)
    signal, memory["signal"] = method.signal(given, memory={})
    state = replace(state, signal=signal, memory=memory)
    if method.distance is None or method.clustering is None:
        return state, transfers
    geometry, memory["distance"] = method.distance(signal, memory={})
    clustering, memory["clustering"] = method.clustering(geometry, rng, memory={})
    return replace(state, clustering=clustering, memory=memory), transfers


def _source_of(setting: Setting, signal: Stage) -> tuple[Any, tuple[Transfer, ...]]:
    """What a signal source wants, by the name of its first argument: label ``counts``, or the ``updates`` of a probe."""
    if signal.wants == "updates":
        method = setting.method
        return head_updates(
            setting.runtime, setting.description, setting.initial, setting.seed, method.clients_per_round, signal.options
        )
    counts = setting.runtime.label_counts()
    return counts, histogram_transfers(*counts.shape)


# ---------------------------------------------------------------- one round


def play_round(setting: Setting, state: State) -> tuple[State, RoundRecord]:
    """Select, plan, train, aggregate, account: the state after the round and its record."""
    began = time.perf_counter()
    method, t = setting.method, state.round + 1
    memory = dict(state.memory)
    view = look(setting, state, t)
    chosen, memory["selection"] = method.selection(view, stream(setting.seed, "select", t), memory=memory.get("selection", {}))
    ids = _checked_ids(chosen, view, method.selection.name)
    plan, memory["procedure"] = method.procedure(
        ids, view, stream(setting.seed, "procedure", t), memory=memory.get("procedure", {})
    )
    models = _with_slots(state.models, setting.initial, plan)
    runners = _train(setting, plan, models, t)
    _check_enough(setting, runners, t)
    models, memory["aggregation"] = _merge(setting, plan, models, runners, memory.get("aggregation", {}))
    state = _remember(state, plan, models, runners, memory)
    accuracy, test_loss = evaluate(setting, state) if _evaluates(method, t) else (float("nan"), float("nan"))
    return state, _record(setting, state, plan, runners, accuracy, test_loss, began)


def look(setting: Setting, state: State, round: int) -> View:
    """What a selection rule may see in this round."""
    population = setting.description.population
    there = setting.runtime.available(round) & (population.num_examples > 0)
    return View(
        round=round,
        budget=setting.method.clients_per_round,
        population=population,
        available=there if state.signal is None else there & state.signal.known,
        loss=state.loss,
        times_selected=state.times_selected,
        last_selected=state.last_selected,
        signal=state.signal,
        clustering=state.clustering,
    )


def _checked_ids(chosen: Any, view: View, rule: str) -> Ints:
    ids = np.asarray(chosen, np.int64).reshape(-1)
    if len(np.unique(ids)) != len(ids):
        raise RunError(
            f"selection {rule}", f"chose a client twice in round {view.round}: {ids.tolist()}", "Return distinct ids"
        )
    if len(ids) and (ids.min() < 0 or ids.max() >= view.size or not view.available[ids].all()):
        raise RunError(f"selection {rule}", f"chose a client that is not there in round {view.round}", "Use view.available")
    return ids


def _with_slots(models: Params, initial: Params, plan: Plan) -> Params:
    """Room for every slot the plan names; a new slot starts from the initial model."""
    missing = 1 + max((chain.slot for chain in plan.chains), default=0) - len(models)
    return np.concatenate([models, np.repeat(initial[None], missing, axis=0)]) if missing > 0 else models


@dataclass
class _Runner:
    """How far one chain has come."""

    params: Params  # the last usable model; the slot's own until somebody has answered
    answered: bool = False
    examples: int = 0
    steps: int = 0
    dropped: bool = False
    loss: dict[int, float] = field(default_factory=dict)
    seconds: dict[int, float] = field(default_factory=dict)
    failures: dict[int, str] = field(default_factory=dict)
    silent: set[int] = field(default_factory=set)


def _train(setting: Setting, plan: Plan, models: Params, round: int) -> list[_Runner]:
    """Train the plan wave by wave. A client that fails mid-chain is skipped, or ends its chain (``plan.broken``)."""
    runners = [_Runner(models[chain.slot]) for chain in plan.chains]
    job = setting.method.job_at(round)
    for wave in plan.waves():
        live = [(i, client) for i, client in zip(wave.chains, wave.clients, strict=True) if not runners[i].dropped]
        starts, index = _starts(plan.chains, runners, models, [i for i, _ in live])
        replies = setting.runtime.train([c for _, c in live], starts, index, job, seed=setting.seed, round=round)
        for row, (i, client) in enumerate(live):
            runner = runners[i]
            runner.seconds[client] = float(replies.seconds[row])
            if not replies.sent[row]:
                runner.silent.add(client)
            if replies.failures[row]:
                runner.failures[client] = replies.failures[row]
                runner.dropped = plan.broken == "drop"
                continue
            runner.params, runner.answered = replies.params[row], True
            runner.examples += int(replies.examples[row])
            runner.steps += int(replies.steps[row])
            runner.loss[client] = float(replies.loss[row])
    return runners


def _starts(chains: Sequence[Chain], runners: Sequence[_Runner], models: Params, live: Sequence[int]) -> tuple[Params, Ids]:
    """The models this wave begins with, and which of them each chain takes. Chains at their beginning share their slot's."""
    if not any(runners[i].answered for i in live):
        return models, [chains[i].slot for i in live]
    return np.stack([runners[i].params for i in live]), range(len(live))


def _check_enough(setting: Setting, runners: Sequence[_Runner], round: int) -> None:
    usable, needed = sum(len(runner.loss) for runner in runners), setting.method.min_ok
    if usable < needed:
        reasons = [f"client {c}: {why}" for runner in runners for c, why in runner.failures.items()]
        what = f"{usable} usable replies, {needed} needed ({'; '.join(reasons[:3]) or 'nobody was available'})"
        raise RoundFailed(f"round {round}", what, "Set run.min_ok = 0 to let such rounds pass")


def _merge(setting: Setting, plan: Plan, models: Params, runners: Sequence[_Runner], memory: Memory) -> tuple[Params, Memory]:
    """Aggregate the chain ends of each slot; a slot nobody served keeps its model."""
    merged, kept = np.array(models), dict(memory)
    for slot in sorted({chain.slot for chain in plan.chains}):
        served = [runner for chain, runner in zip(plan.chains, runners, strict=True) if chain.slot == slot]
        ends = [runner for runner in served if runner.answered and not runner.dropped]
        if not ends:
            continue
        stacked = Ends(
            params=np.stack([r.params for r in ends]),
            num_examples=np.array([r.examples for r in ends]),
            steps=np.array([r.steps for r in ends]),
            layout=setting.description.layout,
        )
        merged[slot], kept[str(slot)] = setting.method.aggregation(models[slot], stacked, memory=kept.get(str(slot), {}))
    return merged, kept


def _remember(state: State, plan: Plan, models: Params, runners: Sequence[_Runner], memory: Mapping[str, Memory]) -> State:
    loss, times, last = state.loss.copy(), state.times_selected.copy(), state.last_selected.copy()
    asked = [client for runner in runners for client in runner.seconds]
    times[asked] += 1
    last[asked] = state.round + 1
    for runner in runners:
        loss[list(runner.loss)] = list(runner.loss.values())
    return replace(
        state,
        models=models,
        round=state.round + 1,
        loss=loss,
        times_selected=times,
        last_selected=last,
        home=state.home if plan.home is None else plan.home,
        memory=memory,
    )


def _evaluates(method: Method, round: int) -> bool:
    return round == method.rounds or (method.evaluate_every > 0 and round % method.evaluate_every == 0)


def evaluate(setting: Setting, state: State) -> tuple[float, float]:
    """Accuracy and loss: of the one model on the central test set, or of each client's model on its own test set."""
    if len(state.models) == 1:
        scores = setting.runtime.evaluate(state.models)
        return float(scores.accuracy[0]), float(scores.loss[0])
    clients = range(setting.description.population.size)
    home = np.zeros(len(clients), np.int64) if state.home is None else state.home
    scores = setting.runtime.evaluate_clients(clients, state.models, home, "test")
    weight = scores.num_examples / max(1, scores.num_examples.sum())
    return float(np.nansum(weight * scores.accuracy)), float(np.nansum(weight * scores.loss))


def _record(
    setting: Setting,
    state: State,
    plan: Plan,
    runners: Sequence[_Runner],
    accuracy: float,
    test_loss: float,
    began: float,
) -> RoundRecord:
    def joined(name: str) -> dict[int, Any]:
        return {client: value for runner in runners for client, value in getattr(runner, name).items()}

    silent = {client for runner in runners for client in runner.silent}
    asked = {client for runner in runners for client in runner.seconds}
    trained = replace(plan, chains=tuple(replace(c, clients=tuple(i for i in c.clients if i in asked)) for c in plan.chains))
    return RoundRecord(
        round=state.round,
        chains=plan.chains,
        loss=joined("loss"),
        failures=joined("failures"),
        transfers=model_transfers(trained, silent, setting.description.layout.bytes),
        accuracy=accuracy,
        test_loss=test_loss,
        seconds=time.perf_counter() - began,
        client_seconds=joined("seconds"),
    )


# ---------------------------------------------------------------- all rounds


def run(setting: Setting, state: State | None = None) -> Iterator[tuple[State, RoundRecord]]:
    """Yield (state, record) for round 0, 1, ... up to the last; a ``state`` to go on from yields only the rounds after it.

    Examples
    --------
    >>> from fedskew.runtime.scripted import ScriptedRuntime
    >>> from fedskew.recipe import method_of, resolve
    >>> method = method_of(resolve({"run": {"rounds": 3, "clients_per_round": 2}}))
    >>> setting = settle(method, ScriptedRuntime(np.full((5, 2), 4)), seed=0)
    >>> [(record.round, len(record.loss)) for state, record in run(setting)]
    [(0, 0), (1, 2), (2, 2), (3, 2)]
    """
    if setting.method.clients_per_round < 1:
        raise RecipeError("run.clients_per_round", f"{setting.method.clients_per_round} is not positive", "Give at least 1")
    if state is None:
        state, record = prepare(setting)
        yield state, record
    while state.round < setting.method.rounds:
        state, record = play_round(setting, state)
        yield state, record
