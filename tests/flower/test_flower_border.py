"""Joining, leaving, doubles, foreign messages, privacy, resume: over a Grid without processes."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("flwr", reason="Flower is not installed: make test-flower has it")
from fake_grid import TASK, FakeGrid, server_context
from flwr.app import Array, ArrayRecord, Error, Message, RecordDict

from fedskew.errors import RecipeError, RoundFailed, RunError
from fedskew.experiment.fleet import read_settings, serve
from fedskew.experiment.local import run
from fedskew.records import read_json, read_rounds
from fedskew.runtime.flower import records
from fedskew.runtime.flower.exchange import Letter, exchange
from fedskew.runtime.flower.records import Note, from_records, to_records

SMALL = "data.clients=4; run.rounds=3; run.clients_per_round=4"


def config_of(
    out: Path, recipe: str = "fedavg", changes: str = "", **more: object
) -> dict[str, object]:
    given = {"recipe": recipe, "set": f"{SMALL}; {changes}", "seed": 3, "out": str(out)}
    return given | {"poll-seconds": 0.0, "wait-seconds": 0.0, "deadline-seconds": 0.01} | more


def fleet(config: dict[str, object], clients: int = 4, **more: object) -> FakeGrid:
    grid = FakeGrid(config, **more)
    for client in range(clients):
        grid.join(client)
    return grid


def play(grid: FakeGrid):
    return serve(grid, server_context(grid.config), grid.task, Path("."))


# ---------------------------------------------------------------- outcomes


def test_exactly_one_outcome_each(tmp_path):
    """ok, an exception, silence, a dead node and two foreign replies in one batch. What is inside
    a reply of ours is not looked at here, but at the border.
    """
    grid = fleet(config_of(tmp_path, changes="data.clients=6"), 6)
    hello = [Letter(1000 + c, "query.hello", Note("hello")) for c in range(7)]

    def tamper(node, question, reply):
        if node == 1001:
            return Message(Error(2, "<class 'ValueError'>:<'no disk'>"), reply_to=question)
        if node == 1002:
            return None
        if node == 1003:
            reply.content["fedskew"]["values"] = "[" * 100_000
            return reply
        return Message(RecordDict(), reply_to=question) if node == 1004 else reply

    grid.tamper = tamper
    found = exchange(grid, hello, deadline_seconds=0.01, poll_seconds=0.0)
    assert [o.status for o in found] == [
        "ok",
        "error",
        "timeout",
        "error",
        "error",
        "ok",
        "error",
    ]
    assert "nested too deep" in found[3].why
    assert found[1].why == "ValueError: no disk"
    assert found[2].why == "no reply within 0.01 s"
    assert "is not one of fedskew's" in found[4].why
    assert (found[6].why, found[6].lost, found[1].lost) == ("the node has left", True, False)


def test_one_bad_client_costs_one_update(tmp_path):
    """Each client in turn raises, falls silent or sends NaN: the round goes on with the others."""
    grid = fleet(config_of(tmp_path))

    def tamper(node, question, reply):
        if question.metadata.message_type != "train":
            return reply
        if node == 1001:
            return Message(Error(2, "<class 'MemoryError'>:<'full'>"), reply_to=question)
        if node == 1002:
            return None
        if node == 1003:
            reply.content["arrays"] = ArrayRecord(
                {"model": Array(np.full(2410, np.nan, np.float32))}
            )
        return reply

    grid.tamper = tamper
    result = play(grid)
    expected = {1: "MemoryError: full", 2: "no reply within 0.01 s", 3: "non-finite parameters"}
    assert all(r.failures == expected and list(r.loss) == [0] for r in result.rounds[1:])
    assert np.isfinite(result.models).all()


def test_min_ok_is_the_loops(tmp_path):
    grid = fleet(config_of(tmp_path, changes="run.min_ok=4"))
    grid.tamper = lambda node, q, r: (
        None if (node, q.metadata.message_type) == (1000, "train") else r
    )
    with pytest.raises(RoundFailed, match="3 usable replies, 4 needed"):
        play(grid)


# ---------------------------------------------------------------- who is there


def test_absent_clients_are_not_available_and_late_ones_become(tmp_path):
    """Client 3 joins in the middle of round 2: asked from round 3 on, and it has a cluster."""
    config = config_of(tmp_path, "fedlecc", "run.rounds=4; local.epochs=1")
    grid = fleet(config, 3)

    def tamper(node, question, reply):
        if sum(kind == "train" for _, kind in grid.log) == 6 and 1003 not in grid.nodes:
            grid.join(3)
        return reply

    grid.tamper = tamper
    result = play(grid)
    asked = [sorted(c for chain in r.chains for c in chain.clients) for r in result.rounds[1:]]
    assert asked == [[0, 1, 2], [0, 1, 2], [0, 1, 2, 3], [0, 1, 2, 3]]
    histograms = [sum(t.bytes for t in r.transfers if t.kind == "histogram") for r in result.rounds]
    assert histograms == [3 * 40, 0, 0, 40, 0]
    assert sum(kind == "query.hello" for _, kind in grid.log) == 4


def test_estimated_signals_probe_only_the_newcomer(tmp_path):
    config = config_of(
        tmp_path,
        "bacsa",
        "run.rounds=2; local.epochs=1; run.clients_per_round=2; partition.use=dirichlet",
    )
    grid = fleet(config, 3)
    grid.tamper = lambda node, q, r: (
        grid.join(3) if len(grid.nodes) == 3 and len(grid.log) >= 8 else 0,
        r,
    )[1]
    result = play(grid)
    probes = [
        sum(t.bytes for t in r.transfers if t.kind == "probe" and t.direction == "down")
        for r in result.rounds
    ]
    size = 4 * result.models.shape[1]
    assert probes == [3 * size, 0, size]


def test_a_client_that_left_and_came_back_under_another_number(tmp_path):
    grid = fleet(config_of(tmp_path, changes="run.rounds=4"))
    trains = []

    def tamper(node, question, reply):
        trains.append(question.metadata.message_type == "train")
        if sum(trains) == 4 and 1003 in grid.nodes:
            grid.leave(1003)
        if sum(trains) == 10 and 2003 not in grid.nodes:
            grid.join(3, node=2003)
        return reply

    grid.tamper = tamper
    asked = [len(r.loss) for r in play(grid).rounds[1:]]
    assert asked == [4, 3, 3, 4]


def test_two_nodes_claim_one_client(tmp_path, capsys):
    grid = fleet(config_of(tmp_path))
    grid.join(2, node=2002)
    result = play(grid)
    assert (
        "node 2002 also claims client 2, which is node 1002: it is left out"
        in capsys.readouterr().out
    )
    assert [len(r.loss) for r in result.rounds[1:]] == [4, 4, 4]
    assert not [1 for node, kind in grid.log if node == 2002 and kind == "train"]


def test_nobody_joins(tmp_path):
    with pytest.raises(RunError, match="0 clients have joined, 1 needed"):
        play(fleet(config_of(tmp_path), 0))


@pytest.mark.parametrize(
    ("number", "why"),
    [(9, "says it is client 9, the recipe has 0..3"), (None, "has no client number")],
)
def test_a_node_with_a_wrong_number_is_left_out(number, why, tmp_path, capsys):
    grid = fleet(config_of(tmp_path, changes="partition.use=iid"), 3)
    grid.join(0, node=77)
    grid.nodes[77].node_config = {} if number is None else {"client-id": number}
    assert [len(r.loss) for r in play(grid).rounds[1:]] == [3, 3, 3]
    said = capsys.readouterr().out
    assert why in said or "this node is number 9" in said


# ---------------------------------------------------------------- data and models that do not fit


def with_task(task, tmp_path, **more):
    config = config_of(tmp_path, **more)
    grid = FakeGrid(config, task=task)
    for client in range(4):
        grid.join(client)
    return grid


def test_client_without_data(tmp_path, capsys):
    """No rows: it never trains. No file: it says so, and the run goes on without it."""

    def load(client, settings):
        if client == 1:
            raise OSError("data.npz is missing")
        data = TASK.load_data(client, settings)
        return replace(data, x=data.x[:0], y=data.y[:0]) if client == 2 else data

    result = play(with_task(replace(TASK, load_data=load), tmp_path))
    assert [sorted(r.loss) for r in result.rounds[1:]] == [[0, 3]] * 3
    assert "node 1001 takes no part: OSError: data.npz is missing" in capsys.readouterr().out
    assert result.clients["examples"][1:3] == [0, 0]


def test_wrong_labels_are_named_at_the_client(tmp_path, capsys):
    def load(client, settings):
        data = TASK.load_data(client, settings)
        return replace(data, y=data.y + 7) if client == 3 else data

    play(with_task(replace(TASK, load_data=load), tmp_path))
    assert "to 16. They must be 0..9" in capsys.readouterr().out


def test_a_node_with_another_model_is_left_out(tmp_path, capsys):
    import torch

    calls = []

    def build(settings):
        calls.append(1)
        return (
            torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(64, 10))
            if len(calls) == 4
            else TASK.build_model(settings)
        )

    # The server builds two, then every client one of its own when it first trains: the fourth is
    # client 1's.
    result = play(with_task(replace(TASK, build_model=build), tmp_path))
    said = capsys.readouterr().out
    assert "node 1001 takes no part: builds a model of another layout" in said
    assert [sorted(r.loss) for r in result.rounds[1:]] == [[0, 2, 3]] * 3
    assert [sorted(r.failures) for r in result.rounds[1:]] == [[1], [], []]


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"format": "fedskew/0"}, "has format 'fedskew/0'"),
        ({"kind": "evaluate"}, "is a 'evaluate', expected a 'train'"),
        ({"layout": "0" * 16}, "is for a model of another layout"),
        ({"values": "{"}, "is damaged"),
        ({"values": "[1]"}, "its values are no table"),
    ],
)
def test_messages_that_are_not_ours(change, why):
    content = to_records(Note("train", {"a": 1}, {}, "f" * 16))
    content["fedskew"].update(change)
    with pytest.raises(records.ForeignMessage, match=why):
        from_records(content, "train", "f" * 16)


def test_only_plain_numbers_are_read():
    content = RecordDict({**to_records(Note("train"))})
    content["arrays"] = ArrayRecord({"model": Array(np.array(["text"]))})
    with pytest.raises(records.ForeignMessage, match="an array of type"):
        from_records(content, "train")


def test_a_client_refuses_what_is_not_for_it(tmp_path):
    grid = fleet(config_of(tmp_path), 1)
    odd = [
        Letter(1000, "train", Note("train", {"client": 0}, {}, "0" * 16)),
        Letter(1000, "train", Note("evaluate")),
        Letter(1000, "query.release", Note("release", {"client": 0})),
    ]
    found = exchange(grid, odd, deadline_seconds=0.01, poll_seconds=0.0)
    assert [o.status for o in found] == ["error"] * 3
    assert "is for a model of another layout" in found[0].why
    assert "expected a 'train'" in found[1].why


def test_unknown_run_configuration():
    with pytest.raises(RecipeError, match="Did you mean 'seed'"):
        read_settings({"sead": 1}, Path("."))


# ---------------------------------------------------------------- what is disclosed


def seen_arrays(grid: FakeGrid) -> list[np.ndarray]:
    """Everything that ever reached the server, recorded by a tamperer that changes nothing."""
    found: list[np.ndarray] = []

    def tamper(node, question, reply):
        if reply.has_content() and "arrays" in reply.content:
            found.extend(a.numpy() for a in reply.content["arrays"].values())
        return reply

    grid.tamper = tamper
    return found


def test_private_counts_are_noised_at_the_client_once(tmp_path):
    pytest.importorskip("opendp")
    config = config_of(
        tmp_path, "fedlecc", "signal.use=private; signal.epsilon=0.001; local.epochs=1"
    )
    grid = fleet(config)
    arrived = seen_arrays(grid)
    result = play(grid)
    # the recipe itself still runs on one machine
    exact = run({**dict(result.recipe)}, seed=3, workers=1).rounds
    truth = TASK.load_data(0, read_settings(config, Path("."))).y
    counts = [a for a in arrived if a.shape == (10,)]
    assert len(counts) == 4  # one release each, never repeated
    assert not any(np.array_equal(a, np.bincount(truth, minlength=10)) for a in counts)
    # noise of scale 1000 on counts of at most 180
    assert max(np.abs(a).max() for a in counts) > 500
    assert len(exact) == len(result.rounds)


def test_a_second_question_gets_the_same_noise(tmp_path):
    pytest.importorskip("opendp")
    grid = fleet(config_of(tmp_path, "fedlecc", "signal.use=private; local.epochs=1"), 1)
    mark = exchange(
        grid, [Letter(1000, "query.hello", Note("hello", {"model": True}))], deadline_seconds=0.01
    )[0].note.layout
    ask = [Letter(1000, "query.release", Note("release", {"client": 0}, {}, mark))]
    first, second = (
        exchange(grid, ask, deadline_seconds=0.01)[0].note.arrays["counts"] for _ in range(2)
    )
    assert np.array_equal(first, second)


@pytest.mark.parametrize(("recipe", "disclosed"), [("fedlecc", 4), ("fedavg", 0), ("bacsa", 0)])
def test_exact_counts_only_where_the_recipe_discloses_them(recipe, disclosed, tmp_path):
    grid = fleet(config_of(tmp_path, recipe, "local.epochs=1; partition.use=dirichlet"))
    arrived = seen_arrays(grid)
    play(grid)
    assert sum(a.shape == (10,) for a in arrived) == disclosed


# ---------------------------------------------------------------- resume


def test_resume_goes_on_from_the_same_bytes(tmp_path):
    """The ServerApp dies in round 3; a new Flower run ends with the model of an undisturbed one."""
    config = config_of(
        tmp_path / "broken", "fedlecc", "run.rounds=5; local.epochs=1; run.clients_per_round=2"
    )
    grid = fleet(config)

    def dies(node, question, reply):
        if sum(kind == "train" for _, kind in grid.log) == 5:
            raise KeyboardInterrupt
        return reply

    grid.tamper = dies
    with pytest.raises(KeyboardInterrupt):
        play(grid)
    assert [r.round for r in read_rounds(tmp_path / "broken")] == [0, 1, 2]
    resumed = play(fleet({**config, "resume": True}))
    whole = play(fleet({**config, "out": str(tmp_path / "whole")}))
    assert np.array_equal(resumed.models, whole.models)
    assert [r.chains for r in resumed.rounds] == [r.chains for r in whole.rounds]
    sheets = read_json(tmp_path / "broken" / "fleet.json")["runs"]
    assert [(s["after_round"], s["last_round"]) for s in sheets] == [(-1, 2), (2, 5)]


def test_a_private_signal_is_not_asked_for_again_after_resume(tmp_path):
    pytest.importorskip("opendp")
    config = config_of(
        tmp_path / "run", "fedlecc", "signal.use=private; run.rounds=3; local.epochs=1"
    )
    grid = fleet(config)
    grid.tamper = lambda node, q, r: 1 / 0 if sum(k == "train" for _, k in grid.log) == 6 else r
    with pytest.raises(ZeroDivisionError):
        play(grid)
    again = fleet({**config, "resume": True})
    play(again)
    assert sum(kind == "query.release" for _, kind in grid.log) == 4
    assert sum(kind == "query.release" for _, kind in again.log) == 0


def test_few_messages(tmp_path):
    """One hello each, a message per trained client and round, one evaluation: nothing else."""
    grid = fleet(config_of(tmp_path, "fedlecc", "local.epochs=1; run.clients_per_round=2"))
    play(grid)
    kinds = [kind for _, kind in grid.log]
    assert {kind: kinds.count(kind) for kind in kinds} == {
        "query.hello": 4,
        "train": 6,
        "evaluate": 4,
    }
    tally = read_json(tmp_path / "fleet.json")["runs"][0]
    assert (tally["messages_down"], tally["messages_up"]) == (14, 14)
    assert tally["payload_up"] == 6 * 2410 * 4 + 4 * 40


@pytest.mark.parametrize(
    ("kind", "change"),
    [
        ("query.hello", {"values": "{}"}),
        ("query.hello", {"values": '{"client": "x", "num_examples": 1, "num_test": 0}'}),
        ("query.hello", {"values": '{"client": 3, "num_examples": -1, "num_test": 0}'}),
        ("train", {"values": "{}"}),
        ("train", {"values": '{"loss": 1, "seconds": 1, "steps": 0, "examples": 0}'}),
        ("evaluate", {"values": '{"scores": 7}'}),
    ],
)
def test_a_hostile_client_cannot_end_the_run(kind, change, tmp_path):
    """Replies of the right format full of nonsense: that client is left out, the others go on."""
    grid = fleet(config_of(tmp_path))

    def tamper(node, question, reply):
        if node == 1003 and question.metadata.message_type == kind:
            reply.content["fedskew"].update(change)
        return reply

    grid.tamper = tamper
    result = play(grid)
    assert all({0, 1, 2} <= set(r.loss) for r in result.rounds[1:])
    assert (kind == "evaluate") == all(3 in r.loss for r in result.rounds[1:])
    assert np.isfinite(result.models).all()
    assert np.isnan(result.clients["accuracy"][3]) == (kind != "train")


def test_label_counts_that_do_not_add_up(tmp_path, capsys):
    grid = fleet(config_of(tmp_path, "fedlecc", "local.epochs=1"))

    def tamper(node, question, reply):
        if node == 1003 and question.metadata.message_type == "query.hello":
            reply.content["arrays"] = ArrayRecord(
                {"counts": Array(np.full(10, 1 << 30, np.uint32))}
            )
        return reply

    grid.tamper = tamper
    assert all(3 not in r.loss for r in play(grid).rounds)
    assert "node 1003 takes no part" in capsys.readouterr().out


def test_a_claimed_test_set_does_not_outweigh_everybody(tmp_path):
    """One of six clients claims a billion test examples, all of them right."""
    changes = "data.clients=6; data.client_test=split; run.rounds=1; run.evaluate_clients_every=1"
    grid = fleet(config_of(tmp_path, changes=changes), 6)

    def tamper(node, question, reply):
        kind, note = question.metadata.message_type, reply.content["fedskew"]
        values = json.loads(note["values"])
        if node == 1000 and kind == "query.hello":
            values["num_test"] = 10**9
        if node == 1000 and kind == "evaluate":
            values["scores"] = [[0.0, 1.0, 10**9] for _ in values["scores"]]
        note["values"] = json.dumps(values)
        return reply

    grid.tamper = tamper
    first, last = play(grid).rounds
    assert first.client_accuracy < 0.85 + 0.15 * 0.5  # before training the others guess
    assert 0.85 < last.client_accuracy < 0.999
