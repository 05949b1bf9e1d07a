"""Everything the loop relies on, in worlds that have broken rules before."""

from __future__ import annotations

import inspect
import tempfile
from pathlib import Path
from typing import Any

from fedskew.errors import RunFolderError
from fedskew.records import checkpoint_bytes, read_checkpoint
from fedskew.testing.game import Played, expect, name_of, play, same_memory
from fedskew.testing.world import WORLDS, World
from fedskew.types import State


def check_selection(
    rule: Any, *, worlds: tuple[World, ...] = WORLDS, fills_budget: bool = True, **options: Any
) -> None:
    """Raise AssertionError unless the rule keeps every promise in every world.

    Distinct available clients, ``min(budget, available)`` of them (``fills_budget = False``: at
    least one, if any has a cluster); the same stream gives the same answer; nothing it is given is
    changed; its memory survives a checkpoint and it goes on from there as if nothing had happened.
    """
    for world in worlds:
        where = f"{name_of(rule)} in {world}"
        whole = list(play(rule, world, options, fills_budget=fills_budget))
        again = play(rule, world, options, fills_budget=fills_budget)
        _same(whole, list(again), where, "another answer from the same stream")
        if inspect.isclass(rule):
            saved = play(
                rule,
                world,
                options,
                fills_budget=fills_budget,
                between=lambda s: _reread(s, name_of(rule)),
            )
            _same(whole, list(saved), where, "another answer after memory was saved and read back")


def _same(some: list[Played], others: list[Played], where: str, what: str) -> None:
    for one, other in zip(some, others, strict=True):
        equal = one.ids.tolist() == other.ids.tolist() and [*map(repr, one.asks)] == [
            *map(repr, other.asks)
        ]
        expect(
            equal,
            f"{where}, round {one.round}",
            f"{what}: {one.ids.tolist()} and {other.ids.tolist()}",
        )


def _reread(state: State, where: str) -> State:
    """The state as a checkpoint gives it back."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "checkpoint.safetensors"
        try:
            path.write_bytes(checkpoint_bytes(state, "mark"))
        except RunFolderError as error:
            raise AssertionError(f"{where}: {error}") from None
        read = read_checkpoint(path, "mark")
    same = same_memory(state.memory, read.memory)
    expect(same, where, f"a checkpoint gives another memory back than {state.memory['selection']}")
    return read
