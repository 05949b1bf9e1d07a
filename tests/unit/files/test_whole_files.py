"""Files that know themselves: what is written can be read back, what is damaged is not used."""

from __future__ import annotations

import builtins
import errno
import json
import math
import os
import random
import shutil
import sys
import warnings
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from safetensors import safe_open
from safetensors.numpy import save
from test_damage import COUNTS, RECIPE, Stopped, finish, play

from fedskew import Comparison, Run
from fedskew.errors import RunFolderError, RunFolderWarning, plain_warnings
from fedskew.measure.sources import counts_of_run
from fedskew.records import (
    Labels,
    RunFolder,
    checkpoint_bytes,
    labels_bytes,
    line_of,
    model_bytes,
    read_json,
    read_labels,
    read_model,
    read_references,
    read_rounds,
    record_of,
    write_atomically,
    write_references,
    write_sealed,
)
from fedskew.records.rounds import first_chain, read_lines, sealed_line
from fedskew.types import Chain, Cost, Layout, RoundRecord, State, Transfer

sys.path.append(str(Path(__file__).parents[3] / "benchmarks"))
from damage import comparable

OLD = Path(__file__).parent / "old"


@pytest.fixture
def finished(tmp_path):
    return play(tmp_path / "run").folder


@pytest.fixture
def stopped(tmp_path):
    with pytest.raises(Stopped):
        play(tmp_path / "run", stop_after=4)
    return tmp_path / "run"


@pytest.fixture
def whole(tmp_path):
    """What the run leaves that nobody stopped."""
    return comparable(play(tmp_path / "undisturbed").folder)


def flip(path: Path, bit: int) -> None:
    content = bytearray(path.read_bytes())
    content[bit // 8] ^= 1 << bit % 8
    path.write_bytes(content)


# ---------------------------------------------------------------- what was seen


@pytest.mark.parametrize("keep", [0, 1, 4, 6])
def test_cut_records_beside_an_intact_result_are_refused_by_every_reader(finished, keep):
    """Seen: .4305 where the run had .9074, and the report said nothing."""
    path = finished / "rounds.jsonl"
    path.write_bytes(b"".join(path.read_bytes().splitlines(keepends=True)[:keep]))
    for read in (Run.read, Run.load, Comparison.read, counts_of_run, finish):
        with pytest.raises(RunFolderError, match="Remove the folder and run again"):
            read(finished)


def test_a_deleted_rounds_file_is_noticed(stopped):
    """Seen: it resumed with the early rounds missing."""
    (stopped / "rounds.jsonl").unlink()
    with pytest.raises(RunFolderError, match="holds 0 rounds, the checkpoint 5"):
        finish(stopped)
    with pytest.raises(RunFolderError, match="holds 0 rounds, not the 5"):
        Run.read(stopped)


def test_rounds_of_another_run_are_noticed(stopped, tmp_path):
    with pytest.raises(Stopped):
        play(tmp_path / "other", seed=4, stop_after=4)
    shutil.copy(tmp_path / "other" / "rounds.jsonl", stopped)
    for read in (Run.read, finish):
        with pytest.raises(RunFolderError, match="does not follow the lines before it"):
            read(stopped)


def test_no_flipped_bit_of_a_model_is_used(finished):
    """Seen: a flipped final.safetensors loads."""
    path, chance = finished / "final.safetensors", random.Random(0)
    before, good = path.read_bytes(), read_model(path)[0]
    refused = 0
    for _ in range(200):
        path.write_bytes(before)
        flip(path, chance.randrange(8 * len(before)))
        try:
            # a flip in the word "sum" itself: it counts as a file without one, and is right
            assert np.array_equal(read_model(path)[0], good)
        except RunFolderError:
            refused += 1
        with pytest.raises(RunFolderError):
            _ = Run.read(finished).models
    assert refused > 150


def test_a_missing_time_does_not_make_a_folder_unreadable(tmp_path):
    """Seen: ``seconds`` = NaN in a reply; all rounds play, then "damaged record", for ever."""
    folder = RunFolder(tmp_path / "run", RECIPE, 3)
    folder.begin({})
    odd = RoundRecord(0, (), {1: math.inf}, {}, (), 0.5, 1.0, math.nan, {1: math.nan, 2: math.inf})
    folder.append(odd)
    folder.close()
    (read,) = read_rounds(tmp_path / "run")
    assert math.isnan(read.seconds)
    assert all(math.isnan(value) for value in read.client_seconds.values())


def test_what_could_not_be_read_back_is_not_written(tmp_path):
    folder = RunFolder(tmp_path / "run", RECIPE, 3)
    folder.begin({})
    record = RoundRecord(0, (), {}, {}, (), 0.5, 1.0, 0.1, {})
    for odd in ({"loss": {"x": 1.0}}, {"loss": {1: object()}}, {"failures": None}):
        with pytest.raises(RunFolderError, match="could not be read back"):
            folder.append(replace(record, **odd))
    folder.append(record)
    folder.close()
    assert len(read_rounds(tmp_path / "run")) == 1


@pytest.mark.parametrize(
    "odd",
    [object(), {1}, np.array(["a"]), np.array([object()]), 10**5000],
    ids=["object", "set", "text", "objects", "digits"],
)
def test_a_state_that_cannot_be_kept_is_an_error_of_ours(odd):
    none = np.zeros(2)
    state = State(np.zeros((1, 2)), 0, 0, none, none, none, memory={"selection": {"odd": odd}})
    with pytest.raises(RunFolderError, match="holds what cannot be written"):
        checkpoint_bytes(state, "mark")


# ---------------------------------------------------------------- two checkpoints


def test_resume_falls_back_to_the_older_checkpoint_with_a_word(stopped, whole):
    flip(stopped / "checkpoint.safetensors", 5000)
    with pytest.warns(RunFolderWarning, match=r"checksum does not fit.*round 3\."):
        finish(stopped)
    assert comparable(stopped) == whole


def test_a_record_damaged_behind_the_older_checkpoint_comes_again(stopped, whole):
    path = stopped / "rounds.jsonl"
    flip(path, 8 * (path.stat().st_size - 40))
    with pytest.warns(RunFolderWarning, match=r"rounds.jsonl:5: damaged record"):
        finish(stopped)
    assert comparable(stopped) == whole


def test_both_checkpoints_damaged_is_an_error(stopped):
    for name in ("checkpoint.safetensors", "checkpoint.previous.safetensors"):
        flip(stopped / name, 5000)
    with pytest.raises(RunFolderError, match="not a readable checkpoint"):
        finish(stopped)


def test_a_folder_without_any_checkpoint_does_not_start_again_by_itself(stopped):
    for name in ("checkpoint.safetensors", "checkpoint.previous.safetensors"):
        (stopped / name).unlink()
    with pytest.raises(RunFolderError, match="is gone"):
        finish(stopped)
    assert len(Run.read(stopped).rounds) == 5, "it can still be read"


def test_a_finished_folder_has_one_checkpoint(finished):
    assert not (finished / "checkpoint.previous.safetensors").exists()


# ---------------------------------------------------------------- remedies


@pytest.mark.parametrize("name", ["final.safetensors", "clients.json", "result.json"])
def test_the_remedy_for_a_damaged_end_works(finished, name):
    before = comparable(finished)
    flip(finished / name, 300)
    with pytest.raises(RunFolderError, match=r"then use --resume: only the end is done again"):
        _ = Run.read(finished).models
    (finished / name).unlink()
    (finished / "result.json").unlink(missing_ok=True)
    finish(finished)
    assert comparable(finished) == before


def test_a_damaged_recipe_is_written_again_by_resume(stopped, whole):
    flip(stopped / "recipe.toml", 99)
    with pytest.raises(RunFolderError, match=r"recipe\.toml.*--resume: it is written again"):
        Run.read(stopped)
    finish(stopped)
    assert comparable(stopped) == whole


def test_a_run_that_goes_on_stays_readable(stopped):
    """Records run ahead of the checkpoint, and the last may be half written."""
    with open(stopped / "rounds.jsonl", "a", encoding="utf8") as file:
        file.write('{"round":5,')
    run = Run.read(stopped)
    assert (run.finished, len(run.rounds)) == (False, 5)


# ---------------------------------------------------------------- folders without checksums


def test_an_old_folder_opens_with_a_note():
    run = Run.read(OLD / "finished")
    assert (run.checked, run.finished, len(run.rounds), run.models.shape) == (
        False,
        True,
        4,
        (1, 650),
    )
    (note,) = [note for note in Comparison.read(OLD / "finished").notes() if "checksums" in note]
    assert note.startswith("1 of 1 runs: written before run folders had checksums")
    counts, seed = counts_of_run(OLD / "finished")
    assert seed == 1
    assert any("checksums" in note for note in counts.notes)


def test_an_old_folder_cut_short_is_refused(tmp_path):
    shutil.copytree(OLD / "finished", tmp_path / "run")
    path = tmp_path / "run" / "rounds.jsonl"
    path.write_bytes(b"".join(path.read_bytes().splitlines(keepends=True)[:2]))
    with pytest.raises(RunFolderError, match="holds 2 records, the finished run left 4"):
        Run.read(tmp_path / "run")


def without_checksums(folder: Path) -> None:
    """What main wrote before there were any."""
    (folder / "checkpoint.previous.safetensors").unlink()
    for name in ("run.json", "labels.json"):
        content = read_json(folder / name)
        for key in ("checksums", "recipe_sum", "run"):
            content.pop(key, None)
        (folder / name).write_text(json.dumps(content))
    lines = [line_of(record) + "\n" for record in read_rounds(folder)]
    (folder / "rounds.jsonl").write_text("".join(lines))
    path = folder / "checkpoint.safetensors"
    with safe_open(str(path), "np") as file:
        arrays = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        meta = json.loads(file.metadata()["fedskew"])
    del meta["sum"], meta["records"]
    path.write_bytes(save(arrays, {"fedskew": json.dumps(meta)}))


def test_an_old_run_goes_on_to_the_same_bytes(stopped, whole):
    without_checksums(stopped)
    assert [*read_json(stopped / "run.json")] == [*read_json(OLD / "unfinished" / "run.json")][:-2]
    assert not Run.read(stopped).checked
    finish(stopped)
    after = comparable(stopped)
    for name in ("final.safetensors", "clients.json", "labels.json"):
        assert after[name] == whole[name]
    for line in (*after["rounds.jsonl"], *whole["rounds.jsonl"]):
        line.pop("chain", None)  # lines from before have none
    assert after["rounds.jsonl"] == whole["rounds.jsonl"]
    flip(stopped / "rounds.jsonl", 8 * 40)
    with pytest.raises(RunFolderError, match=r"does not follow|damaged record"):
        Run.read(stopped)


# ---------------------------------------------------------------- a full disk


class Disk:
    """So many bytes may be written to files, then it is full; what fits is written."""

    def __init__(self, free: int) -> None:
        self.free = free

    def open(self, path, mode="r", **options):
        file = builtins.open(path, mode, **options)  # noqa: SIM115 (as open does)
        return _Limited(file, self) if mode in ("wb", "a") else file


class _Limited:
    def __init__(self, file, disk: Disk) -> None:
        self._file, self._disk = file, disk

    def write(self, content) -> None:
        fits = content[: max(0, self._disk.free)]
        self._file.write(fits)
        self._file.flush()
        self._disk.free -= len(content)
        if self._disk.free < 0:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self._file.close()

    def __getattr__(self, name):
        return getattr(self._file, name)


def test_a_full_disk_is_an_error_of_ours_and_resumes_exactly(tmp_path, monkeypatch, whole):
    """Full after every 997th byte of all that a run writes."""
    used = 10**9 - _played_on(Disk(10**9), tmp_path / "all", monkeypatch).free
    assert used > 10_000
    for free in range(0, used, 997):
        out = tmp_path / f"{free}"
        with pytest.raises(RunFolderError, match="Free some space, then use --resume"):
            _played_on(Disk(free), out, monkeypatch)
        finish(out)
        assert comparable(out) == whole, free


def _played_on(disk: Disk, out: Path, monkeypatch) -> Disk:
    with monkeypatch.context() as patch:
        for module in ("files", "folder"):
            patch.setattr(f"fedskew.records.{module}.open", disk.open, raising=False)
        play(out)
    return disk


# ---------------------------------------------------------------- round trips

anything = settings(
    max_examples=50,
    deadline=None,
    phases=[Phase.generate],  # shrinking takes minutes on a busy machine
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
numbers = st.floats() | st.floats(width=32).map(np.float32) | st.integers(-9, 9).map(np.float64)
clients = st.integers(0, 2**40) | st.integers(0, 99).map(np.int64)
transfers = st.builds(
    Transfer,
    st.sampled_from(["down", "up", "d2d"]),
    st.sampled_from(["model", "loss"]),
    st.integers(0, 2**80),
    st.integers(0, 9).map(np.int64),
)
rounds = st.builds(
    RoundRecord,
    st.just(0),
    st.lists(st.builds(Chain, st.integers(0, 9), st.lists(clients).map(tuple))).map(tuple),
    st.dictionaries(clients, numbers),
    st.dictionaries(clients, st.text() | st.just("\ud800\n\x00")),
    st.lists(transfers).map(tuple),
    *(numbers, numbers, numbers),
    st.dictionaries(clients, numbers),
    st.builds(Cost, numbers, numbers, numbers),
    *(numbers, numbers, numbers),
)


@anything
@given(rounds)
def test_every_record_is_read_back(tmp_path, record):
    line, _ = sealed_line(record, first_chain("mark"))
    (tmp_path / "rounds.jsonl").write_text(line + "\n")
    (read,) = read_lines(tmp_path, "mark", sealed=True).check().records
    assert line_of(read) == line_of(record_of(line_of(record)))
    assert read.chains == record.chains
    assert read.failures == record.failures
    assert read.transfers == record.transfers
    for name in ("loss", "client_seconds"):
        before, after = getattr(record, name), getattr(read, name)
        assert before.keys() == after.keys()
        assert all(_alike(before[c], after[c], name != "loss") for c in before)
    assert _alike(record.accuracy, read.accuracy, False)


def _alike(before: float, after: float, rounded: bool) -> bool:
    """Finite numbers are as they were (times: to six digits), others are nan."""
    if not math.isfinite(before):
        return math.isnan(after)
    return after == (round(float(before), 6) if rounded else float(before))


values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(-9, 9) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=8,
)


@anything
@given(st.dictionaries(st.text().filter(lambda name: name not in ("sum", "run")), values))
def test_every_json_file_is_read_back_and_no_flip_is(tmp_path, content):
    path = tmp_path / "x.json"
    seal = write_sealed(path, content)
    read = read_json(path, expected=seal)
    assert read == json.loads(json.dumps(content))
    before = path.read_bytes()
    for bit in random.Random(len(before)).sample(range(8 * len(before)), 5):
        path.write_bytes(before)
        flip(path, bit)
        with pytest.raises(RunFolderError):
            read_json(path, expected=seal)


@anything
@given(st.lists(st.text(), min_size=2, max_size=2), st.lists(st.text(), min_size=4, max_size=4))
def test_labels_and_references_are_read_back(tmp_path, classes, names):
    labels = Labels(COUNTS, classes, names)
    (tmp_path / "labels.json").write_bytes(labels_bytes(labels, "mark"))
    read = read_labels(tmp_path, "mark")
    assert np.array_equal(read.counts, COUNTS)
    assert (list(read.class_names), list(read.client_names)) == (classes, names)
    rows = {"fine_tuned": {"accuracy": [math.nan, 0.5], "test_examples": [0, 2]}}
    write_references(tmp_path, rows, "mark")
    read_back = read_references(tmp_path, "mark")
    assert read_back == {"fine_tuned": {"accuracy": [None, 0.5], "test_examples": [0, 2]}}
    for read_other in (read_labels, read_references):
        with pytest.raises(RunFolderError, match="belongs to another run"):
            read_other(tmp_path, "other")


@anything
@given(st.integers(1, 3), st.integers(0, 2**32 - 1))
def test_every_model_is_read_back_and_no_flip_is(tmp_path, slots, seed):
    layout = Layout.of([("w", (3, 2), "weight"), ("n", (), "counter")])
    models = np.random.default_rng(seed).normal(size=(slots, 7)).astype(np.float32)
    path = tmp_path / "final.safetensors"
    path.write_bytes(model_bytes(models, layout))
    assert np.array_equal(read_model(path)[0], models)
    flip(path, 8 * (path.stat().st_size - 1 - seed % 20))
    with pytest.raises(RunFolderError, match="checksum does not fit"):
        read_model(path)


def test_a_word_is_one_line_on_the_command_line(monkeypatch):
    monkeypatch.setattr(warnings, "formatwarning", warnings.formatwarning)
    plain_warnings()
    said = warnings.formatwarning(RunFolderWarning("going on"), RunFolderWarning, "x.py", 1)
    assert said == "note going on\n"
    assert "x.py:1: UserWarning: other" in warnings.formatwarning("other", UserWarning, "x.py", 1)


@pytest.mark.parametrize("second_names", [True, False])
def test_a_kill_between_two_checkpoints_leaves_one(tmp_path, monkeypatch, second_names):
    # the older one was moved away before the newer had its name: a kill between left none there
    path, previous = tmp_path / "checkpoint", tmp_path / "before"
    write_atomically(path, b"one", previous=previous)
    write_atomically(path, b"two", previous=previous)
    assert (path.read_bytes(), previous.read_bytes()) == (b"two", b"one")
    move = os.replace

    def die(old, new):
        if Path(new) == path:
            raise KeyboardInterrupt
        move(old, new)

    def refuse(*_):
        raise OSError(errno.EPERM, "no links here")

    monkeypatch.setattr(os, "replace", die)
    if not second_names:
        monkeypatch.setattr(os, "link", refuse)
    with pytest.raises(KeyboardInterrupt):
        write_atomically(path, b"three", previous=previous)
    assert previous.read_bytes() == b"two"
    if second_names:
        assert path.read_bytes() == b"two"
