"""READ FIRST: the only loop. ``prepare`` once, then ``play_round`` after ``play_round``; ``run``
does both.

::

    prepare   describe -> signal -> distance -> clustering      (each optional but the first)
    round t   view -> select -> procedure -> [runtime trains wave by wave] -> aggregate -> account
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from fedskew.accounting.links import check_means
from fedskew.accounting.traffic import model_transfers, report_transfers
from fedskew.errors import RecipeError, RoundFailed, RunError
from fedskew.loop.asking import MAX_QUESTIONS, answer, plausible
from fedskew.loop.costs import preparation_cost, round_cost
from fedskew.loop.evaluation import Evaluation, evaluate
from fedskew.loop.feedback import learn
from fedskew.loop.late_clients import source_of, welcome
from fedskew.loop.method import Method, Setting, Stage
from fedskew.loop.probe import silent_at_probe
from fedskew.loop.slots import begin_models, look_after, plan_round
from fedskew.loop.training import Runner, merge_slots, train_plan
from fedskew.streams import stream
from fedskew.types import (
    Answer,
    Ask,
    Chain,
    Cost,
    HeadUpdates,
    Ints,
    Memory,
    Params,
    Plan,
    RoundRecord,
    Runtime,
    Signal,
    State,
    Stateful,
    Transfer,
    View,
    needs_of,
)

__all__ = ["Method", "Setting", "Stage", "play_round", "prepare", "run", "settle"]

# ---------------------------------------------------------------- before the first round


def settle(method: Method, runtime: Runtime, seed: int) -> Setting:
    """Ask the runtime who is there and what the first model is."""
    description = runtime.describe()
    check_means(description.population)
    return Setting(method, runtime, description, runtime.initial(seed), seed)


def prepare(setting: Setting) -> tuple[State, RoundRecord]:
    """Measure and group the clients, evaluate the untrained model: the state before round 1 and
    record 0.
    """
    began = time.perf_counter()
    population = setting.description.population
    state = State(
        models=begin_models(setting),
        round=0,
        seed=setting.seed,
        loss=np.full(population.size, np.nan),
        times_selected=np.zeros(population.size, np.int64),
        last_selected=np.zeros(population.size, np.int64),
    )
    state, transfers, failures = _measure(setting, state)
    state, found = evaluate(setting, state)
    record = _record(
        state, Plan(()), (), transfers, found, began, preparation_cost(setting, failures)
    )
    return state, replace(record, failures=failures)


def _measure(setting: Setting, state: State) -> tuple[State, tuple[Transfer, ...], dict[int, str]]:
    method, rng = setting.method, stream(setting.seed, "cluster")
    if method.signal is None:
        return state, (), {}
    memory = dict(state.memory)
    given, transfers = source_of(
        setting, method.signal, np.flatnonzero(setting.description.population.num_examples)
    )
    failures = silent_at_probe(given) if isinstance(given, HeadUpdates) else {}
    signal, memory["signal"] = (
        (given, {}) if isinstance(given, Signal) else method.signal(given, memory={})
    )
    state = replace(state, signal=signal, memory=memory)
    if method.distance is None or method.clustering is None:
        return state, transfers, failures
    geometry, memory["distance"] = method.distance(signal, memory={})
    clustering, memory["clustering"] = method.clustering(geometry, rng, memory={})
    return replace(state, clustering=clustering, memory=memory), transfers, failures


# ---------------------------------------------------------------- one round


def play_round(setting: Setting, state: State) -> tuple[State, RoundRecord]:
    """Select, plan, train, aggregate, account: the state after the round and its record."""
    began = time.perf_counter()
    method, t = setting.method, state.round + 1
    setting, state, joining = welcome(setting, state)
    memory = dict(state.memory)
    choice = select(setting, state, t)
    state, memory["selection"] = choice.state, choice.memory
    planned = plan_round(setting, state, choice.ids, choice.view)
    plan = _checked_plan(planned.plan, view=choice.view, rule=method.procedure.name)
    before = _with_slots(state.models, setting.initial, plan)
    kept = memory.get("bn")
    runners = train_plan(
        setting,
        plan,
        before,
        t,
        memory.get("aggregation", {}),
        steering=planned.memory,
        statistics=kept,
    )
    if method.bn == "local":
        memory["bn"] = {
            **(kept or {}),
            **{c: own for r in runners for c, own in r.statistics.items()},
        }
    _check_enough(setting, runners, t)
    models, memory["aggregation"] = merge_slots(
        setting, plan, before, runners, memory.get("aggregation", {}), t
    )
    memory["selection"] = learn(setting, runners, t, memory["selection"])
    models, home, memory["procedure"] = look_after(
        setting, state, plan, before, models, runners, planned.memory
    )
    state, found = evaluate(setting, _remember(setting, state, home, models, runners, memory))
    holders = choice.holders | planned.holders
    transfers = (
        joining
        + choice.transfers
        + planned.transfers
        + round_transfers(setting, plan, runners, holders)
    )
    cost = round_cost(setting, plan, runners, choice.view.answers + planned.answers, holders, t)
    return state, _record(state, plan, runners, transfers, found, began, cost)


@dataclass(frozen=True)
class Choice:
    """Who was selected, and what it took to find out."""

    ids: Ints
    view: View
    state: State
    memory: Memory
    transfers: tuple[Transfer, ...]
    holders: frozenset[int]  # clients that hold the present model already


def select(setting: Setting, state: State, round: int) -> Choice:
    """Ask the rule; answer its questions until it names clients."""
    rule = setting.method.selection
    memory: Memory = state.memory.get("selection", {})
    answers: tuple[Answer, ...] = ()
    transfers: tuple[Transfer, ...] = ()
    holders: set[int] = set()
    for turn in range(MAX_QUESTIONS + 1):
        view = look(setting, state, round, answers)
        chosen, memory = rule(view, stream(setting.seed, "select", round, turn), memory=memory)
        if not isinstance(chosen, Ask):
            ids = _checked_ids(chosen, view, rule.name)
            return Choice(ids, view, state, memory, transfers, frozenset(holders))
        _checked_ids(chosen.clients, view, rule.name)
        given, state, charge, reached = answer(setting, state, chosen, round)
        answers, transfers, holders = (*answers, given), transfers + charge, holders | reached
    raise RunError(
        f"selection {rule.name}",
        f"asked {MAX_QUESTIONS + 1} questions in round {round}",
        "Select at last",
    )


def look(setting: Setting, state: State, round: int, answers: tuple[Answer, ...] = ()) -> View:
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
        answers=answers,
    )


def _checked_ids(chosen: Any, view: View, rule: str, stage: str = "selection") -> Ints:
    ids = np.asarray(chosen, np.int64).reshape(-1)
    if len(np.unique(ids)) != len(ids):
        raise RunError(
            f"selection {rule}",
            f"chose a client twice in round {view.round}: {ids.tolist()}",
            "Return distinct ids",
        )
    if len(ids) and (ids.min() < 0 or ids.max() >= view.size or not view.available[ids].all()):
        raise RunError(
            f"{stage} {rule}",
            f"chose a client that is not there in round {view.round}",
            "Use view.available",
        )
    return ids


def _checked_plan(plan: Plan, *, view: View, rule: str) -> Plan:
    """The plan with ordinary integers in it, if every client of it is there and trains once."""
    chains = tuple(
        Chain(int(chain.slot), tuple(int(c) for c in chain.clients)) for chain in plan.chains
    )
    _checked_ids([c for chain in chains for c in chain.clients], view, rule, stage="procedure")
    slots = [chain.slot for chain in chains] + ([] if plan.home is None else plan.home.tolist())
    if min(slots, default=0) < 0 or (plan.home is not None and plan.home.shape != (view.size,)):
        raise RunError(
            f"procedure {rule}",
            f"slots or homes of round {view.round} are out of range",
            "Number slots from 0",
        )
    return replace(plan, chains=chains)


def _with_slots(models: Params, initial: Params, plan: Plan) -> Params:
    """Room for every slot the plan names; a new slot starts from the initial model."""
    named = [chain.slot for chain in plan.chains] + (
        [] if plan.home is None else plan.home.tolist()
    )
    missing = 1 + max(named, default=0) - len(models)
    return (
        np.concatenate([models, np.repeat(initial[None], missing, axis=0)])
        if missing > 0
        else models
    )


def _check_enough(setting: Setting, runners: Sequence[Runner], round: int) -> None:
    usable, needed = (
        sum(len(runner.loss) for runner in runners if not runner.dropped),
        setting.method.min_ok,
    )
    if usable < needed:
        reasons = [f"client {c}: {why}" for runner in runners for c, why in runner.failures.items()]
        why = "; ".join(reasons[:3]) or "nobody was available"
        what = f"{usable} usable replies, {needed} needed ({why})"
        raise RoundFailed(f"round {round}", what, "Set run.min_ok = 0 to let such rounds pass")


def _remember(
    setting: Setting,
    state: State,
    home: Ints | None,
    models: Params,
    runners: Sequence[Runner],
    memory: Mapping[str, Memory],
) -> State:
    loss, times, last = state.loss.copy(), state.times_selected.copy(), state.last_selected.copy()
    asked = [client for runner in runners for client in runner.seconds]
    times[asked] += 1
    last[asked] = state.round + 1
    reported = {client: value for runner in runners for client, value in runner.loss.items()}
    loss[list(reported)] = plausible(
        np.array(list(reported.values())), setting.description.num_classes
    )
    return replace(
        state,
        models=models,
        round=state.round + 1,
        loss=loss,
        times_selected=times,
        last_selected=last,
        home=home,
        memory=memory,
    )


def round_transfers(
    setting: Setting, plan: Plan, runners: Sequence[Runner], holders: frozenset[int]
) -> tuple[Transfer, ...]:
    """The models of the round, and the small things a rule has the clients report with them."""
    silent = {client for runner in runners for client in runner.silent}
    asked = {client for runner in runners for client in runner.seconds}
    failed = {client for runner in runners for client in runner.failures}
    holding = frozenset() if setting.method.resend else holders
    models = model_transfers(
        plan, silent, setting.description.layout.bytes, failed=failed, holders=holding
    )
    rule, order = setting.method.selection, setting.method.procedure
    told = rule.keeps_losses or "loss" in needs_of(order.function, order.options)
    reported = needs_of(rule.function, rule.options) & {"latency", "snr"} | (
        {"loss"} if told else set()
    )
    reported |= needs_of(setting.method.aggregation.function) & {"steps"}
    return (
        models + _control(setting, models) + report_transfers(sorted(reported), len(asked - silent))
    )


def _control(setting: Setting, models: tuple[Transfer, ...]) -> tuple[Transfer, ...]:
    """Vectors of a model's size that travel with every model (SCAFFOLD's control variates)."""
    rule = setting.method.aggregation.function
    extra = rule.extra_models if isinstance(rule, Stateful) else 0
    return tuple(
        replace(t, kind="control", bytes=extra * t.bytes, multicast=extra * t.multicast)
        for t in models
        if extra and t.kind == "model"
    )


def _record(
    state: State,
    plan: Plan,
    runners: Sequence[Runner],
    transfers: tuple[Transfer, ...],
    found: Evaluation,
    began: float,
    cost: Cost,
) -> RoundRecord:
    def joined(name: str) -> dict[int, Any]:
        return {
            client: value for runner in runners for client, value in getattr(runner, name).items()
        }

    return RoundRecord(
        round=state.round,
        chains=plan.chains,
        loss=joined("loss"),
        failures=joined("failures"),
        transfers=transfers,
        accuracy=found.accuracy,
        test_loss=found.loss,
        seconds=time.perf_counter() - began,
        client_seconds=joined("seconds"),
        cost=cost,
        client_accuracy=found.client_accuracy,
        client_loss=found.client_loss,
    )


# ---------------------------------------------------------------- all rounds


def run(setting: Setting, state: State | None = None) -> Iterator[tuple[State, RoundRecord]]:
    """Yield (state, record) for round 0, 1, ... up to the last; a ``state`` to go on from yields
    only the rounds after it.

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
        raise RecipeError(
            "run.clients_per_round",
            f"{setting.method.clients_per_round} is not positive",
            "Give at least 1",
        )
    if state is None:
        state, record = prepare(setting)
        yield state, record
    while state.round < setting.method.rounds:
        state, record = play_round(setting, state)
        yield state, record
