"""One hostile client: each attack that once ended a run, and what it costs now: the client its own
part, and nobody anything else.
"""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("flwr", reason="Flower is not installed: make test-flower has it")
import fuzz
from fake_grid import FakeGrid, server_context
from flwr.app import Array, ArrayRecord
from poison import claiming, npy

from fedskew.experiment.fleet import serve
from fedskew.experiment.run import Run

HOSTILE = 1003
SMALL = "data.clients=4; run.rounds=3; run.clients_per_round=4; run.evaluate_clients_every=1"


def play(
    out: Path,
    attack=None,
    recipe: str = "fedavg",
    changes: str = "",
    clients: int = 4,
    wait: float = 0,
) -> Run:
    """A run in which node 1003 has its replies changed by ``attack(kind, head, content)``."""
    config = {"recipe": recipe, "set": f"{SMALL}; {changes}", "seed": 3, "out": str(out)}
    config |= {"poll-seconds": 0.0, "wait-seconds": wait, "deadline-seconds": 0.01}

    def tamper(node, question, reply):
        if node == HOSTILE and reply.has_content():
            attack(question.metadata.message_type, reply.content["fedskew"], reply.content)
        return reply

    grid = FakeGrid(config)
    if attack is not None:
        grid.tamper = tamper
    for client in range(clients):
        grid.join(client)
    return serve(grid, server_context(config), grid.task, Path("."))


@pytest.fixture(scope="module")
def alone(tmp_path_factory):
    """The same run with the hostile client dead from the start."""
    return play(tmp_path_factory.mktemp("alone") / "run", clients=3)


def saying(kind: str, **changes):
    """An attack: other values in replies of this kind."""

    def attack(found, head, content):
        if found == kind:
            head["values"] = json.dumps({**json.loads(head["values"]), **changes})

    return attack


def writing(kind: str, text: str):
    def attack(found, head, content):
        if found == kind:
            head["values"] = text

    return attack


def sending(kind: str, name: str, change):
    """An attack: another array, as bytes that ``change`` makes of the honest one."""

    def attack(found, head, content):
        if found == kind:
            honest = content["arrays"][name].numpy() if "arrays" in content else np.ones(10)
            array = Array(honest.dtype.str, honest.shape, "numpy.ndarray", change(honest))
            content["arrays"] = ArrayRecord({name: array})

    return attack


RNG = np.random.default_rng(0)
NAN, INF = float("nan"), float("inf")
UPDATES = {
    "steps of 10^30": saying("train", steps=10**30),
    "examples of 10^30": saying("train", examples=10**30),
    "more examples than its hello said": saying("train", examples=10**6),
    "no steps": saying("train", steps=0),
    "steps below 0": saying("train", steps=-4),
    "more steps than examples": saying("train", steps=10**6),
    "seconds that are none": saying("train", seconds=NAN),
    "seconds below 0": saying("train", seconds=-1.0),
    "seconds without end": saying("train", seconds=INF),
    "a loss below 0": saying("train", loss=-1e9),
    "a loss beyond float32": saying("train", loss=1e300),
    "a loss of 10^400": saying("train", loss=10**400),
    "a loss that is a text": saying("train", loss="0.5"),
    "nested values": writing("train", "[" * 100_000),
    "nested tables": writing("train", '{"a":' * 100_000),
    "a long text": writing("train", '{"loss": "' + "x" * (2 << 20) + '"}'),
    "2^33 floats claimed": sending("train", "model", lambda m: claim(1 << 33)),
    "2^60 floats claimed": sending("train", "model", lambda m: claim(1 << 60)),
    "a model of 1e30": sending("train", "model", lambda m: npy(np.full_like(m, 1e30))),
    "a model times 1e9": sending("train", "model", lambda m: npy(m * np.float32(1e9))),
}


def claim(size: int) -> bytes:
    return npy(np.zeros(2, np.float32)).replace(
        b"(2,), }" + b" " * 20, f"({size},), }}".ljust(27).encode()
    )


@pytest.mark.parametrize("name", UPDATES)
def test_an_attack_costs_the_attacker_its_update(name, tmp_path, alone):
    run = play(tmp_path / "run", UPDATES[name])
    assert np.array_equal(run.models, alone.models)
    assert all(list(r.failures) == [3] and len(r.failures[3]) < 300 for r in run.rounds[1:])
    kept = Run.load(tmp_path / "run")  # the folder can be read again
    assert [r.round for r in kept.rounds] == [0, 1, 2, 3]


HELLOS = {
    "10^30 examples": saying("query.hello", num_examples=10**30),
    "10^30 tests": saying("query.hello", num_test=10**30),
    "tests below 0": saying("query.hello", num_test=-1),
    "client 10^30": saying("query.hello", client=10**30),
    "half an example": saying("query.hello", num_examples=28.5),
    "nested values": writing("query.hello", "[" * 100_000),
    "2^40 counts claimed": sending("query.hello", "counts", lambda m: claim(1 << 40)),
}


@pytest.mark.parametrize("name", HELLOS)
def test_an_attack_costs_the_attacker_its_hello(name, tmp_path, alone, capsys):
    run = play(tmp_path / "run", HELLOS[name])
    assert np.array_equal(run.models, alone.models)
    assert "node 1003 takes no part" in capsys.readouterr().out
    assert all(not r.failures for r in run.rounds)


def test_words_of_a_client_cannot_end_a_run(tmp_path, capsys):
    """A lone surrogate cannot be printed; an escape sequence can, and should not."""
    words = "\ud800\x1b[2J\nfedskew: round 9: accuracy 1.0" + "x" * 10**5

    def attack(kind, head, content):
        if kind == "query.hello":
            del content["arrays"]
            saying(kind, withheld=words)(kind, head, content)

    play(tmp_path / "run", attack, "fedlecc", "local.epochs=1", clients=4)
    shown = capsys.readouterr().out
    assert "client 3 gives no label counts: [2J fedskew: round 9" in shown
    assert "\x1b" not in shown
    assert "\nfedskew: round 9" not in shown
    assert max(map(len, shown.splitlines())) < 400


def negative_counts(honest):
    """They add up, but one is below 0."""
    counts = honest.astype(np.float64)
    counts[0], counts[1] = counts[0] + counts[1] + 5, -5
    return npy(counts)


@pytest.mark.parametrize("change", [negative_counts, lambda m: npy(m * 2), lambda m: npy(m[:-1])])
def test_counts_that_cannot_be(change, tmp_path):
    options = ("fedlecc", "local.epochs=1; signal.use=histogram")
    run = play(tmp_path / "run", sending("query.hello", "counts", change), *options)
    dead = play(tmp_path / "dead", None, *options, clients=3)
    assert np.array_equal(run.models, dead.models)


@pytest.mark.parametrize("bad", [NAN, INF, 1e200, -1e200])
def test_released_counts_that_cannot_be(bad, tmp_path, capsys):
    pytest.importorskip("opendp")
    attack = sending("query.release", "counts", lambda m: npy(np.full(10, bad)))
    run = play(tmp_path / "run", attack, "fedlecc", "local.epochs=1; signal.use=private")
    assert all(3 not in r.loss for r in run.rounds)
    assert "client 3 gives no label counts" in capsys.readouterr().out


@pytest.mark.parametrize(
    "row",
    [
        [NAN, 2.0, 5],
        [0.5, -0.1, 5],
        [0.5, 0.5, 10**30],
        [0.5, 0.5, 10**6],  # more than its hello said
        [0.5, 0.5, -5],
        [10**400, 0.5, 5],
        [-7.0, 0.5, 5],
        [0.5, "0.5", 5],
    ],
)
def test_a_score_that_cannot_be_is_no_score(row, tmp_path, alone, capsys):
    """Its update counts, its score does not: neither in a round nor at the end."""
    run = play(tmp_path / "run", saying("evaluate", scores=[row]))
    honest = play(tmp_path / "honest")
    assert np.array_equal(run.models, honest.models)
    assert np.isnan(run.clients["accuracy"][3])
    assert run.clients["accuracy"][:3] == honest.clients["accuracy"][:3]
    sizes = np.array(honest.clients["test_examples"][:3])
    right = sizes @ np.array(honest.clients["accuracy"][:3]) / sizes.sum()
    assert run.rounds[-1].client_accuracy == pytest.approx(right)
    assert "client 3 says nothing of the model's quality" in capsys.readouterr().out


@pytest.mark.parametrize("votes", [[-1, 40], [10**30, 0], [0, 0], [1e5, 1], [5000, 1], "ab"])
def test_votes_that_cannot_be(votes, tmp_path):
    options = ("fedsoft", "local.epochs=1; procedure.centres=2; run.evaluate_clients_every=0")
    run = play(tmp_path / "run", saying("query.vote", votes=votes), *options)

    def silent(kind, head, content):
        if kind == "query.vote":
            head["kind"] = "nothing"

    assert np.array_equal(run.models, play(tmp_path / "silent", silent, *options).models)


@pytest.mark.parametrize("kind", ["query.hello", "train", "evaluate"])
@pytest.mark.parametrize("error", [KeyError, RecursionError])
def test_a_reply_that_flower_cannot_read(kind, error, tmp_path, alone, monkeypatch):
    """Flower's own Grid raises, and drops what it pulled along with it: that costs nobody else."""
    unreadable(monkeypatch, kind, error)
    run = play(tmp_path / "run", wait=0.5)
    assert kind == "evaluate" or np.array_equal(run.models, alone.models)
    assert np.isnan(run.clients["accuracy"][3]) == (kind != "train")
    assert not np.isnan(run.clients["accuracy"][:3]).any()


def test_a_broken_connection_is_no_reply(tmp_path, monkeypatch):
    unreadable(monkeypatch, "train", ConnectionError)
    with pytest.raises(ConnectionError):
        play(tmp_path / "run")


def unreadable(monkeypatch, kind, error):
    """As Flower does it: the replies of one request are read one after the other."""
    pull = FakeGrid.pull_messages

    def pull_messages(grid, message_ids):
        pulled = pull(grid, message_ids)
        for message in pulled:
            facts = message.metadata
            if (facts.src_node_id, facts.message_type) == (HOSTILE, kind):
                raise error("no such class")
        return pulled

    monkeypatch.setattr(FakeGrid, "pull_messages", pull_messages)


def test_the_largest_update_that_passes_leaves_the_run_alive(tmp_path):
    """Every round, from one client of four, with a network of two layers."""

    def change(model):
        size = np.sqrt(np.mean(np.square(model, dtype=np.float64)))
        return npy((model * (0.99e6 / size)).astype(np.float32))

    run = play(tmp_path / "run", sending("train", "model", change), changes="run.rounds=12")
    assert all(sorted(r.loss) == [0, 1, 2, 3] for r in run.rounds[1:])
    assert np.isfinite(run.models).all()


def test_a_rounded_size_is_no_lie(tmp_path):
    """A policy rounds what the client says of its sizes, up as well as down: all is accepted."""
    policy = tmp_path / "policy.toml"
    policy.write_text("round_examples_to = 100\nsignals = []\n")
    changes = "local.max_examples=160; run.evaluate_clients_every=1"
    config = {
        "recipe": "fedavg",
        "set": f"{SMALL}; {changes}",
        "seed": 3,
        "out": str(tmp_path / "r"),
    }
    config |= {"poll-seconds": 0.0, "wait-seconds": 0.0, "deadline-seconds": 0.01}
    grid = FakeGrid(config)
    for client in range(4):
        grid.join(client, policy=str(policy))
    run = serve(grid, server_context(config), grid.task, Path("."))
    assert all(not r.failures for r in run.rounds)
    assert not np.isnan(run.clients["accuracy"]).any()


def test_a_claim_allocates_nothing():
    """A header of 2^40 floats is refused before a byte is set aside for it."""
    import tracemalloc

    from fedskew.runtime.flower.wire import read_array

    data = claiming(RNG, np.zeros(100, np.float32))
    tracemalloc.start()
    with pytest.raises(ValueError, match="numbers in"):
        read_array(data)
    assert tracemalloc.get_traced_memory()[1] < 100_000
    tracemalloc.stop()


# ---------------------------------------------------------------- fuzz, on a budget


@pytest.mark.parametrize("name", fuzz.SCENES)
def test_fuzzed_messages_change_nothing(name):
    """Some 1,500 of the messages of `make fuzz`; it plays the others."""
    kept = {}
    calm, _ = fuzz.play(name, "dead", 0, 2, kept)
    run, sent = fuzz.play(name, "poisoned", 11, 2, kept)
    assert sum(sent.values()) >= 60
    assert fuzz.same(run, calm)
    shaken, _ = fuzz.play(name, "scrambled", 11, 2, kept)
    assert np.isfinite(shaken.models).all()


def test_the_fuzz_can_fail():
    """What it starts from is accepted, and changes the result: it is the poison that is refused."""
    kept = {}
    calm, _ = fuzz.play("train", "dead", 0, 2, kept)
    run, _ = fuzz.play("train", "honest", 0, 2, kept)
    assert all(len(r.loss) == 64 for r in run.rounds[1:])
    assert not fuzz.same(run, calm)
