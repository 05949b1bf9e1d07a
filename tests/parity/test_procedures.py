"""With real training on digits: the order of training through the server, from device to device,
and at both ends of the dial.

All of it bit for bit: batch orders hang on (seed, client, round) alone, and every procedure draws
its order in the same way.
"""

from __future__ import annotations

from functools import lru_cache

import pytest

pytest.importorskip("torch")

import fedskew

FEW = {"run.rounds": 3}


@lru_cache
def play(recipe: str, *settings: tuple[str, object]) -> fedskew.Run:
    return fedskew.run(recipe, settings={**FEW, **dict(settings)}, workers=1, seed=4)


def bits(run):
    return run.models.tobytes(), [record.chains for record in run.rounds], run.evaluations


def traffic(run):
    return [record.transfers for record in run.rounds]


def as_chains(count, **options):
    return (
        ("procedure.use", "chains"),
        ("procedure.chains", count),
        *((f"procedure.{k}", v) for k, v in options.items()),
    )


def test_fedseq_and_d2d_are_bit_identical():
    assert bits(play("fedseq")) == bits(play("fedseq_d2d"))
    assert traffic(play("fedseq")) != traffic(play("fedseq_d2d"))


@pytest.mark.parametrize("relay", ["server", "d2d"])
def test_one_chain_is_sequential(relay):
    one, sequential = (
        play("afls", *as_chains(1, relay=relay)),
        play("fedseq" if relay == "server" else "fedseq_d2d"),
    )
    assert bits(one) == bits(sequential)
    assert traffic(one)[1:] == traffic(sequential)[1:]


@pytest.mark.parametrize("groups", ["random", "balanced"])
def test_one_chain_per_client_is_parallel(groups):
    every = play("afls", *as_chains(10, relay="d2d", groups=groups))
    assert bits(every) == bits(play("fedtra"))
    assert traffic(every)[1:] == traffic(play("fedtra"))[1:]


def test_one_chain_per_client_is_parallel_for_a_part_of_the_clients_too():
    few = (("run.clients_per_round", 4), ("partition.use", "dirichlet"), ("partition.alpha", 0.3))
    assert bits(play("fedtra", *few)) == bits(play("fedtra", *few, *as_chains(4)))


@pytest.mark.parametrize(("classes", "branch"), [(2, "fedseq_d2d"), (5, "fedtra")])
def test_afls_is_the_branch_it_chose(classes, branch):
    world = ("partition.classes_per_client", classes)
    assert bits(play("afls", world)) == bits(play(branch, world))
    assert traffic(play("afls", world))[1:] == traffic(play(branch, world))[1:]


def test_four_chains_are_neither():
    models = {play("afls", *as_chains(n)).models.tobytes() for n in (1, 4, 10)}
    assert len(models) == 3
