"""What a round cost in simulated seconds, joules and sample passes: the loop's one call into the
accounting of time and energy.

What clients do before they train is charged like training, one thing after the other: losses that a
rule asks for (the model goes down, a forward pass at a third of a pass, one number comes up),
updates and throw-away rounds (a parallel round each, the latter with a loss of everybody after it),
the probe behind an estimated signal (everybody at once, or so many at a time as a round has; who
failed is asked again), histograms (one small message). The server's own work takes no time and no
energy. A client that fails or falls silent is charged for the training it was asked for: nobody can
know when it stopped.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace

import numpy as np

from fedskew.accounting.clock import Errand, elapsed
from fedskew.accounting.energy import modelled_joules
from fedskew.accounting.links import FORWARD_SHARE, Links, compute_seconds
from fedskew.accounting.traffic import COUNT_BYTES, LOSS_BYTES
from fedskew.loop.method import Setting
from fedskew.loop.training import Runner
from fedskew.types import (
    Answer,
    AskLoss,
    AskShares,
    AskSlots,
    AskTrial,
    AskUpdates,
    Chain,
    Cost,
    LocalJob,
    Plan,
    Stateful,
)

NOTHING = Cost(0.0, 0.0, 0.0)


def preparation_cost(setting: Setting, failures: Collection[int]) -> Cost:
    """What measuring the clients before the first round cost."""
    signal, population = setting.method.signal, setting.description.population
    if signal is None:
        return NOTHING
    if signal.wants != "updates":
        everyone = range(population.size)
        return _cost(
            setting,
            _parallel(everyone),
            {},
            down=0.0,
            up=setting.description.num_classes * COUNT_BYTES,
            trains=False,
        )
    asked = [int(c) for c in np.flatnonzero(population.num_examples > 0)]
    job, size = LocalJob(epochs=signal.options["epochs"]), setting.method.clients_per_round
    total, model = NOTHING, setting.description.layout.bytes
    for attempt in (asked, sorted(failures)):
        at_once = max(1, len(attempt) if signal.options["probe"] == "all" else size)
        for begin in range(0, len(attempt), at_once):
            group = attempt[begin : begin + at_once]
            silent = set(group) & set(failures)
            total += _cost(
                setting,
                _parallel(group),
                _passes(setting, group, job),
                down=model,
                up=model,
                silent=silent,
            )
    return total


def round_cost(
    setting: Setting,
    plan: Plan,
    runners: Sequence[Runner],
    answers: Sequence[Answer],
    holders: Collection[int],
    round: int,
) -> Cost:
    """What a round cost: what the rule asked for before it selected, then the training of the
    plan.
    """
    asked = {client for runner in runners for client in runner.seconds}
    silent = {client for runner in runners for client in runner.silent}
    known = {client: work[0] for runner in runners for client, work in runner.work.items()}
    trained = replace(
        plan,
        chains=tuple(
            replace(c, clients=tuple(i for i in c.clients if i in asked)) for c in plan.chains
        ),
    )
    passes = _passes(setting, trained.clients, setting.method.job_at(round), known)
    size = setting.description.layout.bytes * (1 + _extra_models(setting))
    holding = () if setting.method.resend else holders
    down, up = size * plan.models_down, size * plan.models_up
    training = _cost(setting, trained, passes, down=down, up=up, silent=silent, holders=holding)
    return sum((_answer_cost(setting, answer, round) for answer in answers), training)


def _answer_cost(setting: Setting, answer: Answer, round: int) -> Cost:
    """What it cost to answer one question of a selection rule."""
    ask, model = answer.ask, setting.description.layout.bytes
    clients = [int(c) for c in ask.clients]
    if isinstance(ask, AskLoss):
        return _look(setting, clients, ask.max_examples)
    if isinstance(ask, AskSlots | AskShares):
        return _look(setting, clients, 0, models=len(ask.slots))
    passes = _passes(setting, clients, setting.method.job_at(round))
    if isinstance(ask, AskUpdates):
        silent = {c for c, row in zip(clients, answer.values, strict=True) if np.isnan(row).all()}
        up = LOSS_BYTES * answer.values.shape[1]
        return _cost(setting, _parallel(clients), passes, down=model, up=up, silent=silent)
    if isinstance(ask, AskTrial):
        training = _cost(setting, _parallel(clients), passes, down=model, up=model)
        return training + _look(setting, np.flatnonzero(~np.isnan(answer.values)).tolist(), 0)
    return NOTHING


def _look(setting: Setting, clients: Iterable[int], max_examples: int, models: int = 1) -> Cost:
    """Everyone evaluates so many models on its own data and reports one number for each."""
    sizes = setting.description.population.num_examples
    passes = {
        c: models * FORWARD_SHARE * min(int(sizes[c]), max_examples or int(sizes[c]))
        for c in clients
    }
    down = models * setting.description.layout.bytes
    return _cost(
        setting, _parallel(passes), passes, down=down, up=models * LOSS_BYTES, trains=False
    )


def _cost(
    setting: Setting,
    plan: Plan,
    passes: Mapping[int, float],
    *,
    down: float,
    up: float,
    silent: Collection[int] = frozenset(),
    holders: Collection[int] = (),
    trains: bool = True,
) -> Cost:
    """One errand of the clients of a plan, in seconds, joules and sample passes."""
    population, tariff = setting.description.population, setting.method.tariff
    links, clients = Links(population, tariff, setting.description.layout.bytes), plan.clients
    passes = {c: passes.get(c, 0.0) for c in clients}
    ordinary = _passes(setting, clients, replace(setting.method.job, report_loss="train"))
    compute = compute_seconds(population, tariff, passes, ordinary, trains=trains)
    nothing = dict.fromkeys(clients, 0.0)
    arrival = links.down(clients, down, holders=holders) if down else nothing
    errand = Errand(
        plan=plan,
        compute=compute,
        down=arrival,
        up=links.up(clients, up) if up else nothing,
        hop=links.hop(clients, up),
        silent=silent,
        shared_uplink=tariff.shared_uplink,
        patience_seconds=tariff.patience_seconds,
    )
    joules = modelled_joules(population, compute, _sending(plan, links, up, silent) if up else {})
    return Cost(elapsed(errand), joules, float(sum(passes.values())))


def _sending(plan: Plan, links: Links, size: float, silent: Collection[int]) -> dict[int, float]:
    """Seconds each client's radio sends: to the server, or to the next device, and the last that
    answers to the server.
    """
    busy: dict[int, float] = {}
    for chain in plan.chains:
        answered = [c for c in chain.clients if c not in silent]
        for client in answered:
            d2d = plan.relay == "d2d" and client != answered[-1]
            busy[client] = links.sending(client, size, d2d=d2d)
    return busy


def _passes(
    setting: Setting, clients: Iterable[int], job: LocalJob, known: Mapping[int, int] | None = None
) -> dict[int, float]:
    """Sample passes of a turn of training: epochs x examples, and a look at them all if a loss
    is reported before or after.
    """
    sizes, looks = setting.description.population.num_examples, job.report_loss != "train"
    examples = {c: (known or {}).get(c, job.max_examples or int(sizes[c])) for c in clients}
    return {c: n * (job.epochs + FORWARD_SHARE * looks) for c, n in examples.items()}


def _extra_models(setting: Setting) -> int:
    rule = setting.method.aggregation.function
    return rule.extra_models if isinstance(rule, Stateful) else 0


def _parallel(clients: Iterable[int]) -> Plan:
    return Plan(tuple(Chain(0, (int(c),)) for c in clients))
