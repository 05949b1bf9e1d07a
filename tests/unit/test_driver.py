"""The one driver, over a scripted runtime: what it keeps, when it saves, how it goes on."""

from __future__ import annotations

from contextlib import nullcontext

import numpy as np
import pytest

import fedskew
from fedskew.errors import RoundFailed, RunError, RunFolderError
from fedskew.experiment.driver import Backend, drive
from fedskew.loop.probe import PROBE_ROUNDS
from fedskew.recipe import resolve
from fedskew.records import Labels, RunFolder, read_checkpoint, read_json
from fedskew.runtime.replies import Reply
from fedskew.runtime.scripted import ScriptedRuntime
from fedskew.types import Layout

COUNTS = np.array([[6, 0], [0, 6], [3, 3], [4, 2]])
RECIPE = resolve({"name": "scripted", "run": {"rounds": 4, "clients_per_round": 2}})


class Stopped(Exception):
    pass


def play(out=None, *, opened=None, heard=None, stop_after=None, **options):
    """Play the recipe; ``opened`` and ``heard`` take down what the backend hears."""
    changes = {key: options.pop(key) for key in ("labels", "save_every_round") if key in options}

    def backend(reached):
        if opened is not None:
            opened.append(reached)
        return nullcontext(
            Backend(
                ScriptedRuntime(COUNTS),
                clients_have_tests=lambda: False,
                labels=changes.get("labels", lambda: None),
                save_every_round=changes.get("save_every_round", False),
                after_round=(heard if heard is not None else []).append,
            )
        )

    def on_round(record):
        if record.round == stop_after:
            raise Stopped

    return drive(RECIPE, 3, backend, out=out, on_round=on_round, **options)


def test_a_backend_hears_of_every_round_and_of_the_end(tmp_path):
    opened, heard = [], []
    played = play(tmp_path / "r", opened=opened, heard=heard)
    assert opened == [-1]
    assert heard == [0, 1, 2, 3, 4, 4]  # the last once more, when clients have been tested
    assert [record.round for record in played.rounds] == [0, 1, 2, 3, 4]
    assert played.facts["seed"] == 3


def test_a_stopped_run_goes_on_where_it_was_saved(tmp_path):
    opened: list[int] = []
    with pytest.raises(Stopped):
        play(tmp_path / "r", stop_after=2, save_every_round=True)
    resumed = play(tmp_path / "r", opened=opened, resume=True)
    whole = play()
    assert opened == [2]
    assert np.array_equal(resumed.models, whole.models)
    assert [r.chains for r in resumed.rounds] == [r.chains for r in whole.rounds]


def test_a_finished_run_is_only_read(tmp_path):
    first, opened = play(tmp_path / "r"), []
    again = play(tmp_path / "r", opened=opened, resume=True)
    assert opened == []
    assert again.summary()["bytes_up"] == first.summary()["bytes_up"]


@pytest.mark.parametrize(("every_round", "saved"), [(True, [0, 1, 2, 3, 4]), (False, [0, 4])])
def test_no_state_is_saved_twice(tmp_path, monkeypatch, every_round, saved):
    """Or only round 0 and the last one: run.checkpoint_seconds has not passed."""
    rounds: list[int] = []
    save = RunFolder.save
    monkeypatch.setattr(
        RunFolder, "save", lambda self, state: (rounds.append(state.round), save(self, state))
    )
    play(tmp_path / "r", save_every_round=every_round)
    assert rounds == saved
    assert (
        read_checkpoint(
            tmp_path / "r" / "checkpoint.safetensors",
            read_json(tmp_path / "r" / "run.json")["mark"],
        ).round
        == 4
    )


def test_labels_are_kept_only_if_the_backend_gives_them(tmp_path):
    known = Labels(COUNTS, ["cat", "dog"])
    with_labels = play(tmp_path / "a", labels=lambda: known)
    assert with_labels.labels.counts.tolist() == COUNTS.tolist()
    assert (tmp_path / "a" / "labels.json").is_file()
    assert play(tmp_path / "b").labels is None
    assert not (tmp_path / "b" / "labels.json").exists()


def test_a_folder_that_somebody_holds_is_waited_for(tmp_path, monkeypatch):
    held = RunFolder(tmp_path / "r", RECIPE, 3)
    with pytest.raises(RunFolderError, match="another process"):
        play(tmp_path / "r", resume=True)
    monkeypatch.setattr("fedskew.experiment.driver.time.sleep", lambda seconds: held.close())
    assert play(tmp_path / "r", resume=True, wait_seconds=60.0).finished


def test_a_probe_that_nobody_answers_is_an_error(tmp_path):
    """All would count as uniform, and the run would look as if there were no skew."""
    settings = {"run.rounds": 0, "signal.use": "estimated", "faults.dropout": 1.0}
    with pytest.raises(RunError, match="none of 20 clients answered the probe"):
        fedskew.run("fedavg", settings=settings, workers=1)
    with pytest.raises(RoundFailed, match="dropped out"):  # then this is what they hear
        fedskew.run("fedavg", settings={**settings, "run.rounds": 1}, workers=1)
    run = fedskew.run("fedavg", settings={**settings, "faults.dropout": 0.5}, workers=1)
    assert run.rounds[0].failures  # a few cost no more than what they do not say


def test_clients_that_train_but_refuse_the_probe_are_noticed():
    counts = np.array([[8, 0, 2], [0, 5, 0], [1, 1, 8]])
    layout = Layout.of([("weight", (3, 2), "weight"), ("bias", (3,), "weight")])

    def script(client, round, model):
        if round in PROBE_ROUNDS:
            return Reply(None, failure="its policy does not give 'estimated'", sent=False)
        return Reply(model + 1, 1.0, 0.1, 1, int(counts[client].sum()))

    runtime = ScriptedRuntime(counts, layout=layout, script=script)
    backend = Backend(runtime, clients_have_tests=lambda: False, labels=lambda: None)
    recipe = resolve({"signal": {"use": "estimated"}, "run": {"rounds": 3, "clients_per_round": 2}})
    with pytest.raises(RunError, match="none of 3 clients answered the probe"):
        drive(recipe, 0, lambda reached: nullcontext(backend))
