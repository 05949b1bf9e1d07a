"""What clients spend on an errand in simulated seconds, joules and sample passes.

What clients do before they train is charged like training, one thing after the other: losses that a
rule asks for (the model goes down, a forward pass at a third of a pass, one number comes up),
updates and throw-away rounds (a parallel round each, the latter with a loss of everybody after it),
the probe behind an estimated signal, histograms (one small message). The server's own work takes no
time and no energy. A client that fails or falls silent is charged for the training it was asked
for: nobody can know when it stopped.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace

from fedskew.accounting.clock import Errand, elapsed
from fedskew.accounting.energy import modelled_joules
from fedskew.accounting.journey import journeys
from fedskew.accounting.links import FORWARD_SHARE, Links
from fedskew.accounting.traffic import COUNT_BYTES, LOSS_BYTES
from fedskew.loop.method import Setting
from fedskew.loop.timing import errand_of, links_of, model_bytes, training_passes
from fedskew.loop.training import Runner
from fedskew.types import Chain, Cost, LocalJob, Plan

NOTHING = Cost(0.0, 0.0, 0.0)


def round_cost(
    setting: Setting, plan: Plan, runners: Sequence[Runner], holders: Collection[int], round: int
) -> Cost:
    """The training of a plan, as it went."""
    asked = {client for runner in runners for client in runner.seconds}
    chains = tuple(
        replace(chain, clients=tuple(c for c in chain.clients if c in asked))
        for chain in plan.chains
    )
    trained = replace(plan, chains=chains)
    examples = {c: work[0] for runner in runners for c, work in runner.work.items()}
    passes = training_passes(setting, trained.clients, setting.method.job_at(round), examples)
    size = model_bytes(setting)
    errand = errand_of(
        setting,
        trained,
        passes,
        down=size * plan.models_down,
        up=size * plan.models_up,
        held=(size - setting.description.layout.bytes) * plan.models_down,
        silent={client for runner in runners for client in runner.silent},
        failed={client for runner in runners for client in runner.failures},
        holders=holders,
    )
    return _cost(setting, errand, passes, size * plan.models_up)


def looking_cost(
    setting: Setting, clients: Iterable[int], *, max_examples: int = 0, models: int = 1
) -> Cost:
    """Everyone evaluates so many models on its own data and reports one number for each."""
    sizes = setting.description.population.num_examples
    passes = {
        int(c): models * FORWARD_SHARE * min(int(sizes[c]), max_examples or int(sizes[c]))
        for c in clients
    }
    down, up = models * setting.description.layout.bytes, models * LOSS_BYTES
    errand = errand_of(setting, _parallel(passes), passes, down=down, up=up, trains=False)
    return _cost(setting, errand, passes, up)


def throw_away_cost(
    setting: Setting,
    clients: Iterable[int],
    job: LocalJob,
    *,
    up: float,
    silent: Collection[int] = frozenset(),
) -> Cost:
    """A parallel round of training from the present model that leaves ``up`` bytes of each."""
    plan = _parallel(clients)
    passes = training_passes(setting, plan.clients, job)
    down = setting.description.layout.bytes
    errand = errand_of(setting, plan, passes, down=down, up=up, silent=silent)
    return _cost(setting, errand, passes, up)


def histogram_cost(setting: Setting, clients: Iterable[int]) -> Cost:
    """Label counts, one small message each."""
    up = setting.description.num_classes * COUNT_BYTES
    errand = errand_of(setting, _parallel(clients), {}, down=0.0, up=up, trains=False)
    return _cost(setting, errand, {}, up)


def feature_cost(setting: Setting, clients: Iterable[int], up: float) -> Cost:
    """Everyone passes its examples through the model once and sends ``up`` bytes about it."""
    sizes = setting.description.population.num_examples
    passes = {int(c): FORWARD_SHARE * int(sizes[c]) for c in clients}
    down = setting.description.layout.bytes
    errand = errand_of(setting, _parallel(passes), passes, down=down, up=up, trains=False)
    return _cost(setting, errand, passes, up)


def delivery_cost(setting: Setting, clients: Iterable[int], down: float) -> Cost:
    """Everyone is sent ``down`` bytes and answers nothing."""
    errand = errand_of(setting, _parallel(clients), {}, down=down, up=0.0, trains=False)
    return Cost(elapsed(errand), 0.0, 0.0)


def _cost(setting: Setting, errand: Errand, passes: Mapping[int, float], up: float) -> Cost:
    """An errand in seconds, joules and sample passes."""
    busy = radio_seconds(errand, links_of(setting), up)
    joules = modelled_joules(setting.description.population, errand.compute, busy)
    return Cost(elapsed(errand), joules, float(sum(passes.get(c, 0.0) for c in errand.compute)))


def radio_seconds(errand: Errand, links: Links, size: float) -> dict[int, float]:
    """client -> seconds its radio is busy sending ``size`` bytes, to the server or a device."""
    busy: dict[int, float] = {}
    for journey in journeys(errand.plan, errand.silent, errand.failed):
        for send in journey.sends:
            if send.sender is not None:
                seconds = links.sending(send.sender, size, d2d=send.way == "d2d")
                busy[send.sender] = busy.get(send.sender, 0.0) + seconds
    return busy


def _parallel(clients: Iterable[int]) -> Plan:
    return Plan(tuple(Chain(0, (int(c),)) for c in clients))
