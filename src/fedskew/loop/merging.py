"""Merging what came back from a round, slot by slot."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from fedskew.aggregation.shares import bounded
from fedskew.errors import RecipeError
from fedskew.loop.guard import bucketed
from fedskew.loop.method import Setting
from fedskew.loop.probe import find_head
from fedskew.loop.training import Runner
from fedskew.streams import stream
from fedskew.types import Ends, Floats, Ints, Memory, Params, Plan, Signal


@dataclass(frozen=True)
class Merged:
    """The models after a round, and what was done about whom."""

    models: Params  # (S, D)
    memory: Memory  # slot -> what the rule remembers of it
    notes: Mapping[int, str] = field(default_factory=dict)  # client -> why it counted for less


def merge_slots(
    setting: Setting,
    plan: Plan,
    models: Params,
    runners: Sequence[Runner],
    memory: Memory,
    round: int,
    home: Ints | None = None,
    signal: Signal | None = None,
) -> Merged:
    """Aggregate the chain ends of each slot; a slot nobody served keeps its model. ``home`` (K,) is
    the slot each client lives in, where there are several; ``signal`` what is known of labels.
    """
    merged, kept, notes = np.array(models), dict(memory), dict[int, str]()
    rule, bucket = setting.method.aggregation.rule, setting.method.guard.bucket
    for slot in sorted({chain.slot for chain in plan.chains}):
        pairs = zip(plan.chains, runners, strict=True)
        served = [runner for chain, runner in pairs if chain.slot == slot]
        ended = [runner for runner in served if runner.answered and not runner.dropped]
        if not ended:
            continue
        sizes = _sizes(setting, ended, notes)
        living = _inhabitants(setting, slot, home)
        ends = _ends(setting, ended, sizes, models[slot], living, round, signal)
        if bucket > 1:
            ends = bucketed(ends, bucket, stream(setting.seed, "buckets", round, slot))
        merged[slot], kept[str(slot)] = rule.merge(kept.get(str(slot), {}), models[slot], ends)
        notes |= rule.remarks(kept[str(slot)])
    return Merged(merged, kept, notes)


def _sizes(setting: Setting, runners: Sequence[Runner], notes: dict[int, str]) -> list[Ints]:
    """For each chain the examples its clients count for, none for more than its largest share;
    who is cut is noted.
    """
    clients = [client for runner in runners for client in runner.work]
    told = np.array([runner.work[c][0] for runner in runners for c in runner.work], np.int64)
    if len(runners) == 1:
        return [told]
    share = setting.method.guard.share_of(len(told))
    counted = bounded(told, share)
    for client, before, after in zip(clients, told, counted, strict=True):
        if after < before:
            notes[client] = (
                f"counted for {after} examples, not {before}: at most {share:.2f} of all"
            )
    return np.split(counted, np.cumsum([len(runner.work) for runner in runners])[:-1])


def _ends(
    setting: Setting,
    runners: Sequence[Runner],
    sizes: Sequence[Ints],
    model: Params,
    num_clients: int,
    round: int,
    signal: Signal | None,
) -> Ends:
    """The chain ends of one slot, as an aggregation rule wants them."""
    params = _stack([r.params for r in runners])
    reads = setting.method.aggregation.rule.reads_head
    return Ends(
        params=params,
        num_examples=np.array([int(size.sum()) for size in sizes]),
        steps=np.array([r.steps for r in runners]),
        layout=setting.description.layout,
        clients=np.array([list(r.seconds)[-1] for r in runners]),
        num_clients=num_clients,
        job=setting.method.job_at(round),
        turns=tuple(tuple(steps for _, steps in r.work.values()) for r in runners),
        mixes=None if signal is None else _mixes(signal, runners, sizes),
        rises=_rises(setting, model, params) if reads else None,
    )


def _mixes(signal: Signal, runners: Sequence[Runner], sizes: Sequence[Ints]) -> Floats:
    """(n, C) label shares of the examples each chain was trained on."""
    rows = [
        size @ signal.rows[list(runner.work)] / max(int(size.sum()), 1)
        for runner, size in zip(runners, sizes, strict=True)
    ]
    return np.stack(rows)


def _rises(setting: Setting, model: Params, params: Params) -> Floats:
    """(n, C) how far each end raised the output of each class: the change of its bias, or of the
    mean of its weights where there is no bias.
    """
    try:
        weight, bias = find_head(setting.description.layout, setting.description.num_classes)
    except RecipeError:
        where = f"aggregation {setting.method.aggregation.name}"
        what = "needs a model with a linear output layer"
        raise RecipeError(where, what, "Use another rule, or another model") from None
    block = weight if bias is None else bias
    change = params[:, block.offset : block.stop] - model[block.offset : block.stop]
    wide = change.astype(np.float64).reshape(len(params), block.shape[0], -1)
    return np.asarray(wide.mean(axis=2), np.float64)


def _stack(rows: Sequence[Params]) -> Params:
    """The rows as one array; no copy if they are all the rows of one, as after a parallel round."""
    owner = rows[0].base
    if (
        isinstance(owner, np.ndarray)
        and owner.shape == (len(rows), len(rows[0]))
        and owner.flags.c_contiguous
    ):
        first, width = owner.__array_interface__["data"][0], owner.strides[0]
        if all(
            row.__array_interface__["data"][0] == first + i * width for i, row in enumerate(rows)
        ):
            return owner
    return np.stack(rows)


def _inhabitants(setting: Setting, slot: int, home: Ints | None) -> int:
    """How many clients live in a slot: each group is a federation of its own (docs/methods.md
    7.1).
    """
    if home is None:
        return setting.description.population.size
    return max(1, int((home == slot).sum()))
