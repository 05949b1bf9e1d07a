"""How long the clients of a run take on the simulated clock.

The one place where a job, a population and a tariff become seconds. Deadlines, what rules learn of
durations, and what a round costs all come through here.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace

import numpy as np

from fedskew.accounting.clock import Errand, turn_seconds
from fedskew.accounting.links import FORWARD_SHARE, Links, compute_seconds
from fedskew.loop.method import Setting
from fedskew.objective import plain, teaches
from fedskew.types import Chain, LocalJob, Pace, Plan


def links_of(setting: Setting) -> Links:
    """The ways between the server and the clients of a run."""
    description = setting.description
    return Links(description.population, setting.method.tariff, description.layout.bytes)


def training_passes(
    setting: Setting,
    clients: Iterable[int],
    job: LocalJob,
    examples: Mapping[int, int] | None = None,
) -> dict[int, float]:
    """Sample passes of a turn of training: epochs x examples, and a look at them all if a loss is
    reported before or after, and one if the received model teaches. ``examples``: how many a client
    really had.
    """
    sizes = setting.description.population.num_examples
    looks = (job.report_loss != "train") + teaches(job)
    known = examples or {}
    counts = {c: known.get(c, job.max_examples or int(sizes[c])) for c in clients}
    return {c: n * (job.epochs + FORWARD_SHARE * looks) for c, n in counts.items()}


def errand_of(
    setting: Setting,
    plan: Plan,
    passes: Mapping[int, float],
    *,
    down: float,
    up: float,
    held: float = 0.0,
    silent: Collection[int] = frozenset(),
    failed: Collection[int] = frozenset(),
    holders: Collection[int] = (),
    trains: bool = True,
) -> Errand:
    """Receive ``down`` bytes (``held`` for holders of the model), pass over so many examples, send
    ``up`` bytes: the errand of the clients of a plan, in seconds.
    """
    tariff, links, clients = setting.method.tariff, links_of(setting), plan.clients
    wanted = {c: passes.get(c, 0.0) for c in clients}
    ordinary_job = plain(replace(setting.method.job, report_loss="train"))
    ordinary = training_passes(setting, clients, ordinary_job)
    population = setting.description.population
    return Errand(
        plan=plan,
        compute=compute_seconds(population, tariff, wanted, ordinary, trains=trains),
        down=_times(links, clients, down) | _times(links, set(clients) & {*holders}, held),
        up=links.up(clients, up) if up else dict.fromkeys(clients, 0.0),
        hop=links.hop(clients, up),
        silent=silent,
        failed=failed,
        shared_uplink=tariff.shared_uplink,
        patience_seconds=tariff.patience_seconds,
    )


def _times(links: Links, clients: Iterable[int], size: float) -> dict[int, float]:
    return links.down(clients, size) if size else dict.fromkeys(clients, 0.0)


def model_bytes(setting: Setting) -> int:
    """What travels with every model of this method: the model and its extra vectors."""
    return setting.description.layout.bytes * (1 + setting.method.aggregation.rule.extra_models)


def turn_times(
    setting: Setting,
    clients: Iterable[int],
    job: LocalJob,
    *,
    examples: Mapping[int, int] | None = None,
    holders: Collection[int] = (),
    down: float | None = None,
    up: float | None = None,
) -> dict[int, float]:
    """client -> seconds from the model's departure to the answer's arrival, for a turn of training
    through the server. ``down``, ``up``: bytes each way; None: the model and its extra vectors.
    """
    clients = [int(c) for c in clients]
    passes = training_passes(setting, clients, job, examples)
    plan = Plan(tuple(Chain(0, (c,)) for c in clients))
    size = model_bytes(setting)
    held = size - setting.description.layout.bytes
    errand = errand_of(
        setting,
        plan,
        passes,
        down=size if down is None else down,
        up=size if up is None else up,
        held=held,
        holders=holders,
    )
    return turn_seconds(errand)


def pace_of(setting: Setting, job: LocalJob) -> Pace:
    """What a turn takes at every client, for procedures that plan by it."""
    population, tariff = setting.description.population, setting.method.tariff
    everyone, size, links = range(population.size), model_bytes(setting), links_of(setting)
    passes = training_passes(setting, everyone, job)
    ordinary = training_passes(setting, everyone, plain(replace(job, report_loss="train")))
    compute = compute_seconds(population, tariff, passes, ordinary)
    return Pace(
        compute=np.array([compute[c] for c in everyone]),
        send=np.array([*links.up(everyone, size).values()]),
        hop=np.array([*links.hop(everyone, size).values()]),
        shared_uplink=tariff.shared_uplink,
    )


def late_clients(
    setting: Setting,
    clients: Iterable[int],
    job: LocalJob,
    holders: Collection[int] = (),
    *,
    down: float | None = None,
    up: float | None = None,
) -> set[int]:
    """Whose answer would come after ``faults.deadline_seconds``, as in :func:`turn_times`."""
    deadline = setting.method.tariff.patience_seconds
    if not deadline:
        return set()
    times = turn_times(setting, clients, job, holders=holders, down=down, up=up)
    return {client for client, seconds in times.items() if seconds > deadline}
