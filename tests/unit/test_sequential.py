"""Sequential training: a fresh order every round; the same model by server or by device."""

from __future__ import annotations

import numpy as np

from fedskew.accounting.traffic import total_bytes
from fedskew.loop.federation import run, settle
from fedskew.recipe import method_of, resolve
from fedskew.runtime.scripted import ScriptedRuntime

COUNTS = np.full((8, 3), 4)


def play(seed=0, **procedure):
    recipe = resolve({"procedure": procedure, "run": {"rounds": 3, "clients_per_round": 5}})
    return list(run(settle(method_of(recipe), ScriptedRuntime(COUNTS), seed)))


def test_server_and_device_to_device_give_the_same_bits():
    server, d2d = play(use="sequential"), play(use="sequential", relay="d2d")
    assert server[-1][0].models.tobytes() == d2d[-1][0].models.tobytes()
    down = [total_bytes(rounds[-1][1].transfers, "down") for rounds in (server, d2d)]
    assert down == [5 * 24, 24 + 5 * 8]


def test_it_is_one_chain_in_a_fresh_order():
    chains = [record.chains for _, record in play(use="sequential")[1:]]
    assert all(len(c) == 1 and len(c[0].clients) == 5 for c in chains)
    assert len({c[0].clients for c in chains}) == 3
    assert any(list(c[0].clients) != sorted(c[0].clients) for c in chains)


def test_it_is_not_parallel():
    assert (
        play(use="sequential")[-1][0].models.tobytes()
        != play(use="parallel")[-1][0].models.tobytes()
    )
