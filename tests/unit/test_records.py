"""Run folders: what is written is read back, damage is noticed, nothing is overwritten."""

from __future__ import annotations

import errno
import json
import os
from dataclasses import replace

import numpy as np
import pytest

from fedskew import records
from fedskew.errors import RunFolderError
from fedskew.recipe import resolve
from fedskew.records import (
    RunFolder,
    checkpoint_bytes,
    line_of,
    read_checkpoint,
    read_rounds,
    record_of,
)
from fedskew.types import Chain, Clustering, Cost, Layout, RoundRecord, Signal, State, Transfer

RECIPE = resolve({})


def state(round=3):
    return State(
        models=np.arange(6, dtype=np.float32).reshape(2, 3),
        round=round,
        seed=5,
        loss=np.array([np.nan, 1.5]),
        times_selected=np.array([0, 3]),
        last_selected=np.array([0, 2]),
        signal=Signal(np.array([[0.5, 0.5], [0.0, 0.0]]), np.array([4.0, 0.0]), "private", 1.0),
        clustering=Clustering(
            np.array([0, -1]), 0.25, details={"curve": [1, 2.5], "centroids": np.eye(2)}
        ),
        home=np.array([0, 1]),
        memory={
            "selection": {
                "age": np.array([1, 2]),
                "note": "x",
                "nested": {"v": 1.25, "none": None, "flag": True},
            }
        },
    )


def record(round=1):
    chains = (Chain(0, (1, 2)), Chain(1, (0,)))
    transfers = (Transfer("down", "model", 12, 4),)
    return RoundRecord(
        round, chains, {1: 0.1 + 0.2}, {2: "gone"}, transfers, float("nan"), 0.5, 1.25, {1: 0.5}
    )


def test_a_state_survives_the_disk(tmp_path):
    before = state()
    (tmp_path / "c").write_bytes(checkpoint_bytes(before, "mark"))
    after = read_checkpoint(tmp_path / "c", "mark")
    assert checkpoint_bytes(after, "mark") == checkpoint_bytes(before, "mark")
    assert after.memory["selection"]["nested"] == {"v": 1.25, "none": None, "flag": True}
    assert after.clustering.details["curve"] == [1, 2.5]
    assert after.signal.known.tolist() == [True, False]


def test_a_checkpoint_of_another_recipe_or_version_is_refused(tmp_path, monkeypatch):
    (tmp_path / "c").write_bytes(checkpoint_bytes(state(), "mark"))
    with pytest.raises(RunFolderError, match="another recipe"):
        read_checkpoint(tmp_path / "c", "other")
    monkeypatch.setattr("fedskew.records.tensors.VERSION", "9.9")
    with pytest.raises(RunFolderError, match=r"written by fedskew .*, this is 9\.9"):
        read_checkpoint(tmp_path / "c", "mark")


@pytest.mark.parametrize("keep", [0, 5, 40, -7])
def test_a_damaged_checkpoint_is_refused(tmp_path, keep):
    (tmp_path / "c").write_bytes(checkpoint_bytes(state(), "mark")[:keep])
    with pytest.raises(RunFolderError, match="not a readable checkpoint"):
        read_checkpoint(tmp_path / "c", "mark")


def test_records_survive_the_disk():
    again = record_of(line_of(record()))
    assert line_of(again) == line_of(record())
    assert again.loss[1] == 0.1 + 0.2
    assert np.isnan(again.accuracy)


def test_a_half_written_last_line_is_passed_over(tmp_path):
    (tmp_path / "rounds.jsonl").write_text(line_of(record(0)) + "\n" + line_of(record(1))[:30])
    assert [r.round for r in read_rounds(tmp_path)] == [0]


def test_damage_in_the_middle_is_an_error(tmp_path):
    (tmp_path / "rounds.jsonl").write_text(
        line_of(record(0)) + "\nxx\n" + line_of(record(2)) + "\n"
    )
    with pytest.raises(RunFolderError, match=r"rounds\.jsonl:2: damaged record"):
        read_rounds(tmp_path)


def test_resume_cuts_records_behind_the_checkpoint(tmp_path):
    folder = RunFolder(tmp_path / "r", RECIPE, 5)
    folder.begin({})
    for t in range(6):
        folder.append(record(t))
    folder.save(state(round=3))
    folder.close()
    folder = RunFolder(tmp_path / "r", RECIPE, 5, resume=True)
    assert folder.restore().round == 3
    assert [r.round for r in read_rounds(tmp_path / "r")] == [0, 1, 2, 3]
    folder.close()


def test_label_counts_grow_with_the_clients_that_join_and_forget_nobody(tmp_path):
    """A fleet begun without client 1, resumed without client 0."""
    folder = RunFolder(tmp_path / "r", RECIPE, 5)
    for counts in ([[3, 1], [0, 0]], [[0, 0], [2, 2]]):
        folder.keep_labels(records.Labels(np.array(counts), ["cat", "dog"]))
    folder.close()
    kept = records.read_labels(tmp_path / "r")
    assert kept.counts.tolist() == [[3, 1], [2, 2]]
    assert (list(kept.class_names), kept.clients) == (["cat", "dog"], ["0", "1"])


def test_an_existing_folder_is_left_alone(tmp_path):
    (tmp_path / "thesis.tex").write_text("years of work")
    with pytest.raises(RunFolderError, match="exists and is not empty"):
        RunFolder(tmp_path, RECIPE, 0)
    folder = RunFolder(tmp_path, RECIPE, 0, resume=True)
    with pytest.raises(RunFolderError, match="is not a run folder"):
        folder.restore()
    folder.close()
    assert (tmp_path / "thesis.tex").read_text() == "years of work"


def test_a_folder_of_another_seed_is_refused(tmp_path):
    folder = RunFolder(tmp_path / "r", RECIPE, 0)
    folder.begin({})
    folder.close()
    folder = RunFolder(tmp_path / "r", RECIPE, 1, resume=True)
    with pytest.raises(RunFolderError, match="another recipe or seed"):
        folder.restore()
    folder.close()


def test_two_writers_are_refused(tmp_path):
    first = RunFolder(tmp_path / "r", RECIPE, 0)
    with pytest.raises(RunFolderError, match="another process"):
        RunFolder(tmp_path / "r", RECIPE, 0, resume=True)
    first.close()


def test_a_full_disk_leaves_the_old_checkpoint(tmp_path, monkeypatch):
    folder = RunFolder(tmp_path / "r", RECIPE, 5)
    folder.begin({})
    folder.save(state(1))
    before = (tmp_path / "r" / records.CHECKPOINT).read_bytes()

    def full(descriptor):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(
        RunFolderError, match=r"No space left on device\. Free some space, then use --resume"
    ):
        folder.save(state(2))
    folder.close()
    assert (tmp_path / "r" / records.CHECKPOINT).read_bytes() == before
    assert not list((tmp_path / "r").glob(".*.tmp"))


def test_a_file_in_the_way(tmp_path):
    (tmp_path / "f").write_text("")
    with pytest.raises(RunFolderError, match="is a file"):
        RunFolder(tmp_path / "f", RECIPE, 0)
    with pytest.raises(RunFolderError, match="Not a directory"):
        RunFolder(tmp_path / "f" / "deeper", RECIPE, 0)


def test_json_has_no_nan(tmp_path):
    records.write_json(tmp_path / "x.json", {"a": float("nan"), "b": [float("inf"), 1.0]})
    assert json.loads((tmp_path / "x.json").read_text()) == {"a": None, "b": [None, 1.0]}


def test_the_final_model_survives_the_disk(tmp_path):
    layout = Layout.of([("w", (2, 2), "weight"), ("n", (), "counter"), ("m", (2,), "buffer")])
    models = np.arange(14, dtype=np.float32).reshape(2, 7)
    (tmp_path / "final").write_bytes(records.model_bytes(models, layout))
    again, same = records.read_model(tmp_path / "final")
    assert np.array_equal(again, models)
    assert same == layout
    assert layout.bytes == 4 * 6 + 8


def test_costs_survive_the_disk_and_folders_of_older_versions_still_load():
    played = replace(record(), cost=Cost(1.552, 0.1 + 0.2, 70.0), measured_joules=12.5)
    again = record_of(line_of(played))
    assert (again.cost, again.measured_joules) == (played.cost, 12.5)
    raw = json.loads(line_of(played))
    assert "joules" in raw["times"], "measured energy differs from run to run"
    del raw["cost"], raw["times"]["joules"]
    old = record_of(json.dumps(raw))
    assert all(
        np.isnan([old.cost.seconds, old.cost.joules, old.cost.sample_passes, old.measured_joules])
    )
