"""The end of a run, and clients that do not answer when they are tested, over a Grid without
processes. A run whose rounds are all played has its model, whatever becomes of the tests.
"""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("flwr", reason="Flower is not installed: make test-flower has it")
from fake_grid import TASK, FakeGrid, server_context
from flwr.app import Error, Message

from fedskew.cli.summaries import summary_table
from fedskew.compare.comparison import Comparison
from fedskew.experiment.fleet import serve
from fedskew.experiment.run import Run
from fedskew.report.page.payload import payload_of

SMALL = "data.clients=4; run.clients_per_round=4; local.epochs=1; run.rounds=2"
LEFT = "is not connected"


def config_of(out: Path, changes: str = "", **more: object) -> dict[str, Any]:
    asked = {"recipe": "fedavg", "set": f"{SMALL}; {changes}", "seed": 3, "out": str(out)}
    return {**asked, "poll-seconds": 0.0, "wait-seconds": 0.0, **more}


def fleet(config: dict[str, Any], **more: Any) -> FakeGrid:
    grid = FakeGrid(config, **more)
    for client in range(4):
        grid.join(client)
    return grid


def play(grid: FakeGrid) -> Run:
    return serve(grid, server_context(grid.config), grid.task, Path("."))


def seen(grid: FakeGrid, kind: str) -> int:
    return sum(said == kind for _, said in grid.log)


def read(folder: Path, name: str) -> Any:
    return json.loads((folder / name).read_text())


def rounds(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / "rounds.jsonl").read_text().splitlines()]


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("undisturbed") / "run"
    play(fleet(config_of(folder)))
    return folder


# ---------------------------------------------------------------- the model comes first


def test_a_run_whose_nodes_stop_after_the_last_round_has_its_model(tmp_path, undisturbed):
    grid = fleet(config_of(tmp_path / "run"))

    def tamper(node, question, reply):
        if seen(grid, "train") == 8 and question.metadata.message_type == "train":
            grid.nodes.clear()  # every node stops once the last of two rounds is answered
        return reply

    grid.tamper = tamper
    result = play(grid)
    assert Run.load(tmp_path / "run").models.tobytes() == Run.load(undisturbed).models.tobytes()
    columns = read(tmp_path / "run", "clients.json")
    assert columns["untested"] == [LEFT] * 4
    assert columns["accuracy"] == [None] * 4
    assert columns["examples"] == read(undisturbed, "clients.json")["examples"]
    kept = read(tmp_path / "run", "result.json")
    assert kept["final_accuracy"] == read(undisturbed, "result.json")["final_accuracy"]
    assert (kept["client_accuracy"]["clients"], "pending" in kept) == (0, False)
    assert "the final model was tested at 0 of 4 clients (client 0: is not" in result.notes[-1]


def test_a_server_killed_in_the_final_tests_has_its_model_and_tests_them_later(
    tmp_path, undisturbed
):
    config = config_of(tmp_path / "run")
    grid = fleet(config)

    def killed(node, question, reply):
        if question.metadata.message_type == "evaluate" and seen(grid, "evaluate") == 3:
            raise KeyboardInterrupt
        return reply

    grid.tamper = killed
    with pytest.raises(KeyboardInterrupt):
        play(grid)
    found = Run.load(tmp_path / "run")
    assert found.models.tobytes() == Run.load(undisturbed).models.tobytes()
    assert "tests" in read(tmp_path / "run", "result.json")["pending"]
    assert found.fairness is None
    play(fleet({**config, "resume": True}))
    for name in ("final.safetensors", "clients.json"):
        assert (tmp_path / "run" / name).read_bytes() == (undisturbed / name).read_bytes()
    assert "pending" not in read(tmp_path / "run", "result.json")
    again = fleet({**config, "resume": True})
    play(again)
    assert again.log == []  # complete: it is only read


# ---------------------------------------------------------------- whom figures cover


def silent_at(grid: FakeGrid, node: int, first: int, last: int, kind: str = "evaluate") -> None:
    """One node fails to answer some of its questions."""

    def tamper(at, question, reply):
        number = sum(one == (node, kind) for one in grid.log)
        if at == node and question.metadata.message_type == kind and first <= number <= last:
            return Message(Error(2, "<class 'MemoryError'>:<'no room'>"), reply_to=question)
        return reply

    grid.tamper = tamper


def test_failed_tests_are_recorded_with_their_reasons(tmp_path, capsys):
    grid = fleet(config_of(tmp_path / "run", "run.evaluate_clients_every=1"))
    silent_at(grid, 1002, 2, 2)  # rounds 0, 1, 2 and the end: client 2 fails in round 1
    result = play(grid)
    written = rounds(tmp_path / "run")
    assert [(r.get("covers"), r.get("unscored")) for r in written] == [
        (None, None),
        (3, {"2": "MemoryError: no room"}),
        (None, None),
    ]
    assert "round 1: " in (said := capsys.readouterr().out)
    assert "4 of 4 replied, tested at 3 clients only" in said
    assert "client 2 says nothing of the model's quality: MemoryError: no room" in said
    again = Run.load(tmp_path / "run")
    assert (again.rounds[1].covers, again.rounds[1].unscored) == (3, {2: "MemoryError: no room"})
    assert again.notes == result.notes
    assert again.notes == [
        "fedavg, seed 3: clients did not answer tests in 1 rounds; at worst figures cover 3 "
        "clients (round 1: client 2: MemoryError: no room)"
    ]


def test_where_clients_test_for_the_server_its_accuracy_says_how_many_it_covers(tmp_path):
    grid = fleet(config_of(tmp_path / "run"), task=replace(TASK, load_test=None))
    silent_at(grid, 1000, 3, 3)  # the tests of rounds 0, 1, 2, then the end
    play(grid)
    assert [record.get("covers") for record in rounds(tmp_path / "run")] == [None, None, 3]


def test_losses_that_a_rule_asked_for_in_vain_are_recorded(tmp_path):
    changes = "selection.use=power_of_choice; selection.d=4; run.clients_per_round=2"
    grid = fleet(config_of(tmp_path / "run", changes))
    silent_at(grid, 1003, 1, 1)
    play(grid)
    found = rounds(tmp_path / "run")[1]
    assert (found["unscored"], "covers" in found) == ({"3": "MemoryError: no room"}, False)


def test_table_and_report_say_how_many_clients_a_figure_covers(tmp_path, undisturbed):
    grid = fleet(config_of(tmp_path / "run"))
    silent_at(grid, 1001, 1, 1)  # only the end asks clients
    result = play(grid)
    cells = [
        str(cell) for column in summary_table([result.summary()]).columns for cell in column.cells
    ]
    assert any(cell.endswith("(3 of 4 clients)") for cell in cells)
    page = payload_of(Comparison.of([Run.load(tmp_path / "run")]))
    assert page["methods"][0]["runs"][0]["covered"] == [3, 4]
    assert any("tested at 3 of 4 clients (client 1: MemoryError" in note for note in page["notes"])
    whole = payload_of(Comparison.of([Run.load(undisturbed)]))
    assert whole["methods"][0]["runs"][0]["covered"] == [4, 4]
    assert not any("clients" in note and "cover" in note for note in whole["notes"])


def test_what_nobody_failed_at_leaves_no_trace(undisturbed):
    assert not any({"covers", "unscored"} & set(record) for record in rounds(undisturbed))
    columns = read(undisturbed, "clients.json")
    assert "untested" not in columns
    assert np.isfinite(columns["accuracy"]).all()


def test_a_folder_with_false_coverage_is_refused(tmp_path, undisturbed):
    """A record that covers more clients than there are does not come from a run."""
    record = Run.load(undisturbed).rounds[-1]
    run = Run.load(undisturbed)
    from fedskew.experiment.plausible import fault_of

    assert fault_of(run) == ""
    for odd in ({"covers": 5}, {"covers": -1}, {"unscored": {7: "x"}}):
        wrong = replace(run, rounds=[*run.rounds[:-1], replace(record, **odd)])
        assert "is damaged" in fault_of(wrong)
