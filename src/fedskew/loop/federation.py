"""READ FIRST: the only loop; ``prepare`` once, then ``play_round`` again and again, or ``run``.

::

    prepare   describe -> signal -> distance -> clustering        (each optional but the first)
    round t   view -> select -> procedure -> [runtime trains wave by wave] -> aggregate -> account
    finish    where the recipe has a [finish], after the last round
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from fedskew.accounting.links import check_means
from fedskew.accounting.traffic import model_transfers, report_transfers
from fedskew.errors import RecipeError, RoundFailed, RunError
from fedskew.loop.asking import Decision, decide, plausible
from fedskew.loop.costs import round_cost
from fedskew.loop.evaluation import Evaluation, evaluate
from fedskew.loop.feedback import learn
from fedskew.loop.finishing import finish
from fedskew.loop.label_shares import told_transfers, with_shares
from fedskew.loop.late_clients import admit
from fedskew.loop.measuring import measure
from fedskew.loop.merging import merge_slots
from fedskew.loop.method import Method, Named, Setting, Stage, named
from fedskew.loop.serving import with_served
from fedskew.loop.slots import after_round, begin_models, with_slots
from fedskew.loop.timing import pace_of
from fedskew.loop.training import Runner, train_plan
from fedskew.loop.trust.rounds import inspect, invite
from fedskew.loop.verifying import ROSE
from fedskew.streams import stream
from fedskew.types import (
    Answer,
    Ask,
    Chain,
    Cost,
    Ints,
    Memory,
    Params,
    Plan,
    RoundRecord,
    Runtime,
    State,
    Transfer,
    View,
)

__all__ = ["Method", "Named", "Setting", "Stage", "named", "play_round", "prepare", "run", "settle"]

# ---------------------------------------------------------------- before the first round


def settle(method: Method, runtime: Runtime, seed: int) -> Setting:
    """Ask the runtime who is there and what the first model is."""
    description = runtime.describe()
    check_means(description.population)
    return Setting(method, runtime, description, runtime.initial(seed), seed)


def prepare(setting: Setting) -> tuple[State, RoundRecord]:
    """Measure and group the clients, evaluate the untrained model: the first state and record 0."""
    began = time.perf_counter()
    size = setting.description.population.size
    state = State(
        models=begin_models(setting),
        round=0,
        seed=setting.seed,
        loss=np.full(size, np.nan),
        times_selected=np.zeros(size, np.int64),
        last_selected=np.zeros(size, np.int64),
    )
    state, effort = measure(setting, state)
    state, quality = evaluate(setting, state)
    record = _record(state, Plan(()), (), effort.transfers, quality, began, effort.cost)
    return state, replace(record, failures=effort.failures)


# ---------------------------------------------------------------- one round


def play_round(setting: Setting, state: State) -> tuple[State, RoundRecord]:
    """Select, plan, train, aggregate, account: the state after the round and its record."""
    began, t = time.perf_counter(), state.round + 1
    setting, state, joining = admit(setting, state)
    setting = with_shares(setting, state)

    view = look(setting, state, t)
    if setting.method.trust.on:
        view = invite(setting, state, view)
    choice = select(setting, state, view)
    order = arrange(setting, choice, view)
    state, plan = order.state, order.value
    holders = holders_of(setting, choice, order)

    memory = dict(state.memory)
    before = with_slots(state.models, setting.initial, plan)
    runners = train_plan(
        setting,
        plan,
        before,
        t,
        memory.get("aggregation", {}),
        steering=order.memory,
        statistics=memory.get("bn"),
        holders=holders,
        signal=state.signal,
    )
    _check_enough(setting, runners, t)
    if setting.method.trust.on:
        memory["trust"] = inspect(setting, state, runners, t)

    home = state.home if plan.home is None else plan.home
    merged = merge_slots(
        setting, plan, before, runners, memory.get("aggregation", {}), t, home, state.signal
    )
    memory["aggregation"] = merged.memory
    memory["selection"] = learn(setting, runners, t, choice.memory)
    models, home, memory["procedure"] = after_round(
        setting, state, plan, before, merged.models, runners, order.memory
    )
    if setting.method.bn == "local":
        memory["bn"] = _statistics(memory.get("bn"), runners)
    memory = with_served(memory, models, t, setting.method.served_rounds)
    state, quality = evaluate(setting, _remember(setting, state, home, models, runners, memory))

    transfers = joining.transfers + choice.transfers + order.transfers
    transfers += round_transfers(setting, plan, runners, holders)
    cost = round_cost(setting, plan, runners, holders, t)
    cost += joining.cost + choice.cost + order.cost
    record = _record(state, plan, runners, transfers, quality, began, cost)
    return state, replace(record, notes=merged.notes)


def select(setting: Setting, state: State, view: View) -> Decision:
    """Who trains: the rule is consulted until it names clients."""
    where, rule = f"selection {setting.method.selection.name}", setting.method.selection.rule

    def consult(
        state: State, answers: tuple[Answer, ...], memory: Memory, turn: int
    ) -> tuple[Any, Memory]:
        seen = replace(view, loss=state.loss, answers=answers)
        rng = stream(setting.seed, "select", view.round, turn)
        chosen, memory = rule.choose(memory, seen, rng)
        if isinstance(chosen, Ask):
            _checked_ids(chosen.clients, view, where)
            return chosen, memory
        return _checked_ids(chosen, view, where), memory

    return decide(setting, state, view.round, where, state.memory.get("selection", {}), consult)


def arrange(setting: Setting, choice: Decision, view: View) -> Decision:
    """In what order and on which model: the procedure is consulted until it gives a plan."""
    where, rule = f"procedure {setting.method.procedure.name}", setting.method.procedure.rule

    def consult(
        state: State, answers: tuple[Answer, ...], memory: Memory, turn: int
    ) -> tuple[Any, Memory]:
        seen = replace(view, loss=state.loss, answers=answers)
        keys = (view.round, turn) if turn else (view.round,)
        rng = stream(setting.seed, "procedure", *keys)
        plan, memory = rule.plan(memory, choice.value, seen, rng)
        return plan if isinstance(plan, Ask) else _checked_plan(plan, view, where), memory

    memory = choice.state.memory.get("procedure", {})
    return decide(setting, choice.state, view.round, where, memory, consult)


def holders_of(setting: Setting, choice: Decision, order: Decision) -> frozenset[int]:
    """Who need not be sent the model to train, because it was asked something about it. Where
    several models go to each client (FedSoft), nobody has them all.
    """
    if setting.method.resend or order.value.models_down != 1:
        return frozenset()
    return choice.holders | order.holders


def look(setting: Setting, state: State, round: int) -> View:
    """What rules may see in this round, before anybody is asked anything."""
    population = setting.description.population
    available = setting.runtime.available(round) & (population.num_examples > 0)
    if state.signal is not None:
        available = available & state.signal.known
    paced = "pace" in setting.method.procedure.rule.needs()
    return View(
        round=round,
        budget=setting.method.clients_per_round,
        population=population,
        available=available,
        loss=state.loss,
        times_selected=state.times_selected,
        last_selected=state.last_selected,
        signal=state.signal,
        clustering=state.clustering,
        pace=pace_of(setting, setting.method.job_at(round)) if paced else None,
    )


def _checked_ids(chosen: Any, view: View, where: str) -> Ints:
    """Distinct clients that can be asked."""
    ids = np.asarray(chosen, np.int64).reshape(-1)
    if len(np.unique(ids)) != len(ids):
        what = f"chose a client twice in round {view.round}: {ids.tolist()}"
        raise RunError(where, what, "Return distinct ids")
    outside = len(ids) and (ids.min() < 0 or ids.max() >= view.size)
    if outside or not view.available[ids].all():
        what = f"chose a client that is not there in round {view.round}"
        raise RunError(where, what, "Use view.available")
    return ids


def _checked_plan(plan: Plan, view: View, where: str) -> Plan:
    """The plan with ordinary integers in it, if every client of it is there and trains once."""
    chains = tuple(
        Chain(int(chain.slot), tuple(int(c) for c in chain.clients)) for chain in plan.chains
    )
    _checked_ids([c for chain in chains for c in chain.clients], view, where)
    slots = [chain.slot for chain in chains]
    if plan.home is not None:
        slots += plan.home.tolist()
    if min(slots, default=0) < 0 or (plan.home is not None and plan.home.shape != (view.size,)):
        what = f"slots or homes of round {view.round} are out of range"
        raise RunError(where, what, "Number slots from 0")
    return replace(plan, chains=chains)


def _check_enough(setting: Setting, runners: Sequence[Runner], round: int) -> None:
    usable = sum(len(runner.loss) for runner in runners if not runner.dropped)
    # whoever sends something harmful cannot end the run with it
    usable += sum(why.startswith(ROSE) for runner in runners for why in runner.failures.values())
    needed = setting.method.min_ok
    if usable < needed:
        reasons = [f"client {c}: {why}" for r in runners for c, why in r.failures.items()]
        shown = "; ".join(reasons[:3]) or "nobody was available"
        what = f"{usable} usable replies, {needed} needed ({shown})"
        raise RoundFailed(f"round {round}", what, "Set run.min_ok = 0 to let such rounds pass")


def _statistics(kept: Memory | None, runners: Sequence[Runner]) -> Memory:
    """Every client's own BatchNorm statistics, those of the round's clients renewed."""
    fresh = {client: row for runner in runners for client, row in runner.statistics.items()}
    return {**(kept or {}), **fresh}


def _remember(
    setting: Setting,
    state: State,
    home: Ints | None,
    models: Params,
    runners: Sequence[Runner],
    memory: Mapping[str, Memory],
) -> State:
    """The state after the round, before it is evaluated."""
    loss = state.loss.copy()
    times, last = state.times_selected.copy(), state.last_selected.copy()
    asked = [client for runner in runners for client in runner.seconds]
    times[asked] += 1
    last[asked] = state.round + 1
    reported = {client: value for runner in runners for client, value in runner.loss.items()}
    values = np.array(list(reported.values()))
    loss[list(reported)] = plausible(values, setting.description.num_classes)
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
    """The models of the round, and the small things rules have the clients report with them."""
    method = setting.method
    silent = {client for runner in runners for client in runner.silent}
    asked = {client for runner in runners for client in runner.seconds}
    models = model_transfers(
        plan,
        silent,
        setting.description.layout.bytes,
        failed={client for runner in runners for client in runner.failures},
        holders=holders,
        extra_models=method.aggregation.rule.extra_models,
    )
    reported = {*method.selection.rule.needs()} & {"latency", "snr", "loss"}
    reported |= {*method.procedure.rule.needs()} & {"loss"}
    reported |= {*method.aggregation.rule.needs()} & {"steps"}
    told = told_transfers(setting, len(asked))
    return models + told + report_transfers(sorted(reported), len(asked - silent))


def _record(
    state: State,
    plan: Plan,
    runners: Sequence[Runner],
    transfers: tuple[Transfer, ...],
    quality: Evaluation,
    began: float,
    cost: Cost,
) -> RoundRecord:
    def joined(name: str) -> dict[int, Any]:
        return {client: v for runner in runners for client, v in getattr(runner, name).items()}

    return RoundRecord(
        round=state.round,
        chains=plan.chains,
        loss=joined("loss"),
        failures=joined("failures"),
        transfers=transfers,
        accuracy=quality.accuracy,
        test_loss=quality.loss,
        seconds=time.perf_counter() - began,
        client_seconds=joined("seconds"),
        cost=cost,
        client_accuracy=quality.client_accuracy,
        client_loss=quality.client_loss,
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
        what = f"{setting.method.clients_per_round} is not positive"
        raise RecipeError("run.clients_per_round", what, "Give at least 1")
    if state is None:
        state, record = prepare(setting)
        yield state, record
    while state.round < setting.method.rounds:
        state, record = play_round(setting, state)
        yield state, record
    yield from finish(setting, state, play_round)
