"""/metrics and /health: what run folders hold, read while somebody else writes them."""

from __future__ import annotations

import http.client
import json
import math
import os
import re
import subprocess
import sys
import threading
import time
from contextlib import contextmanager
from pathlib import Path

import pytest

from fedskew.deploy import monitor as monitors
from fedskew.deploy.fleet_sheet import Fleet, write_fleet
from fedskew.deploy.metrics import CONTENT_TYPE
from fedskew.deploy.monitor import Monitor, server
from fedskew.deploy.processes import Started, birth_of
from fedskew.deploy.run_list import note_run
from fedskew.deploy.run_watch import KINDS, OTHER, RunWatch, find_runs, kind_of
from fedskew.errors import RunError
from fedskew.records import RESULT, ROUNDS, line_of, write_atomically
from fedskew.types import Chain, Cost, RoundRecord, Transfer

NAN = float("nan")
SAMPLE = re.compile(
    r'(?P<name>[a-z_]+)(?:\{(?P<labels>(?:[a-z]+="(?:[^"\\\n]|\\["\\n])*",?)+)\})? (?P<value>\S+)'
)
LABEL = re.compile(r'([a-z]+)="((?:[^"\\]|\\.)*)"')


def parsed(text: str) -> dict[tuple[str, ...], float]:
    """The samples of an exposition, by name and label values; strict about its form."""
    found: dict[tuple[str, ...], float] = {}
    kinds: dict[str, str] = {}
    assert text.endswith("\n")
    for line in text[:-1].split("\n"):
        if line.startswith("# HELP "):
            assert line.split(" ", 3)[2] not in kinds
            continue
        if line.startswith("# TYPE "):
            _, _, name, kind = line.split(" ")
            assert kind in ("gauge", "counter")
            kinds[name] = kind
            continue
        sample = SAMPLE.fullmatch(line)
        assert sample, line
        assert sample["name"] == list(kinds)[-1], "samples of one name stand together"
        values = [
            value.encode().decode("unicode_escape") for _, value in LABEL.findall(sample["labels"])
        ]
        key = (sample["name"].removeprefix("fedskew_"), *values)
        assert key not in found
        found[key] = float(sample["value"])
    return found


def record(number: int, failures: dict[int, str] | None = None, accuracy: float = NAN):
    """Round n: two replies, 100 n bytes down, 10 n up, n seconds."""
    sent = (Transfer("down", "model", 100 * number, 0), Transfer("up", "model", 10 * number, 0))
    return RoundRecord(
        number, (Chain(0, (0, 1)),), {0: 0.5, 1: 0.25}, failures or {}, sent, accuracy, NAN,
        float(number), {}, Cost(2.0 * number, 0.0, 0.0),
    )  # fmt: skip


def write(folder: Path, *records: RoundRecord) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "recipe.toml").write_text("[run]\nrounds = 9\n")
    with open(folder / ROUNDS, "a") as file:
        file.writelines(line_of(one) + "\n" for one in records)
    return folder


@contextmanager
def served(monitor: Monitor):
    """The monitor over HTTP: path and headers to (status, type, body)."""
    with server(monitor) as listening:
        thread = threading.Thread(target=listening.serve_forever, daemon=True)
        thread.start()

        def get(path: str, **headers: str) -> tuple[int, str, str]:
            connection = http.client.HTTPConnection("127.0.0.1", listening.server_address[1])
            connection.request("GET", path, headers=headers)
            reply = connection.getresponse()
            return reply.status, reply.getheader("Content-Type"), reply.read().decode()

        yield get
        listening.shutdown()
        thread.join()


@pytest.fixture
def at_once(monkeypatch):
    """Every question is answered anew."""
    monkeypatch.setattr(monitors, "FRESH_SECONDS", 0.0)


def test_metrics_are_the_sums_of_the_records(tmp_path):
    failed = {2: "no reply within 300 s", 3: "RuntimeError: the disk is gone"}
    folder = write(
        tmp_path / "a" / "run",
        record(0, accuracy=0.125), record(1, failed, 0.5), record(2, {3: "non-finite loss"}),
    )  # fmt: skip
    with served(Monitor(tmp_path, [folder])) as get:
        status, kind, text = get("/metrics")
    assert (status, kind) == (200, CONTENT_TYPE)
    found = parsed(text)
    run = "a/run"
    expected = {
        ("round", run): 2, ("rounds_planned", run): 9, ("finished", run): 0, ("damaged", run): 0,
        ("accuracy", run): 0.5, ("replies_total", run): 6, ("seconds_total", run): 3,
        ("round_seconds", run): 2, ("simulated_seconds_total", run): 6,
        ("bytes_total", run, "down"): 300, ("bytes_total", run, "up"): 30,
        ("bytes_total", run, "d2d"): 0, ("failures_total", run, "no_reply"): 1,
        ("failures_total", run, "raised"): 1, ("failures_total", run, "not_finite"): 1,
        ("failures_total", run, "left"): 0,
    }  # fmt: skip
    assert {key: found[key] for key in expected} == expected
    assert math.isnan(found["client_accuracy", run])
    age = time.time() - found["last_round_timestamp_seconds", run]
    assert -1 < age < 60


def test_only_what_is_new_is_read(tmp_path):
    """However long a run is, being asked costs whoever plays it nothing."""
    folder = write(tmp_path / "run", *(record(i) for i in range(50)))
    watch = RunWatch(folder)
    assert watch.look().round == 49
    before = (folder / ROUNDS).stat().st_size
    assert watch.bytes_read == before
    write(folder, record(50))
    assert watch.look().round == 50
    assert watch.look().round == 50
    assert watch.bytes_read == (folder / ROUNDS).stat().st_size


def test_a_line_that_is_being_written_waits(tmp_path):
    folder, line = write(tmp_path / "run", record(0)), line_of(record(1))
    watch = RunWatch(folder)
    with open(folder / ROUNDS, "a") as file:
        file.write(line[:40])
        file.flush()
        assert (watch.look().round, watch.damaged) == (0, False)
        file.write(line[40:] + "\n")
    assert (watch.look().round, watch.figures.replies) == (1, 4)


def test_a_resumed_run_is_read_anew(tmp_path):
    """Its records are cut and grow again, perhaps beyond where we had been."""
    folder = write(tmp_path / "run", *(record(i) for i in range(5)))
    watch = RunWatch(folder)
    watch.look()
    lines = [line_of(record(i, accuracy=0.25)) + "\n" for i in range(6)]
    write_atomically(folder / ROUNDS, "".join(lines).encode())
    found = watch.look()
    assert (found.round, found.replies, found.accuracy, watch.damaged) == (5, 12, 0.25, False)
    (folder / ROUNDS).unlink()
    assert watch.look().round == -1


def test_a_damaged_record_is_said_and_nothing_fails(tmp_path, at_once):
    folder = write(tmp_path / "run", record(0))
    with open(folder / ROUNDS, "a") as file:
        file.write('{"round": "x"}\n')
    with served(Monitor(tmp_path, [folder])) as get:
        assert parsed(get("/metrics")[2])["damaged", f"{tmp_path.name}/run"] == 1
        status, _, body = get("/health")
    assert (status, json.loads(body)["problems"]) == (
        503, [f"{tmp_path.name}/run: a record is damaged"],
    )  # fmt: skip


@pytest.mark.parametrize(
    ("why", "kind"),
    [
        ("no reply within 300 s", "no_reply"),
        ("missed the deadline", "no_reply"),
        ("the node has left", "left"),
        ("is not connected", "left"),
        ("Refused: client 1: 30 epochs in one round, its policy allows 20", "policy"),
        ("gave no label counts", "no_label_counts"),
        ("non-finite parameters", "not_finite"),
        ("examples is 1e+30, not within 1 and 409", "out_of_bounds"),
        ("wrong shape: (3,) instead of (4,)", "out_of_bounds"),
        ("parameters too large: their root mean square is 1e+30, the most is 1e+06",
         "out_of_bounds"),
        ("RuntimeError: the disk is gone", "raised"),
        ("Flower error 2: something", "raised"),
        ("the SuperLink did not take the message", OTHER),
    ],
)  # fmt: skip
def test_reasons_have_kinds(why, kind):
    assert kind_of(why) == kind


def test_no_client_makes_new_time_series(tmp_path, at_once):
    """Reasons hold a client's own words: a hundred of them add nothing to what is kept."""
    folder = write(tmp_path / "run", record(0))
    with served(Monitor(tmp_path, [folder])) as get:
        before = set(parsed(get("/metrics")[2]))
        odd = {i: f'E{i}: "}} 1\n# TYPE x {i}\\' for i in range(100)}
        write(folder, record(1, odd))
        after = parsed(get("/metrics")[2])
    assert set(after) == before
    assert sum(v for key, v in after.items() if key[0] == "failures_total") == 100
    assert len([key for key in after if key[0] == "failures_total"]) == len(KINDS) + 1


def test_a_folder_may_have_any_name(tmp_path):
    name = 'a "b" \\ c\nd'
    folder = write(tmp_path / name, record(3))
    with served(Monitor(tmp_path, [folder])) as get:
        assert parsed(get("/metrics")[2])["round", f"{tmp_path.name}/{name}"] == 3


def test_runs_are_found_where_they_are(tmp_path, at_once):
    """Named, below a folder, submitted to the fleet, or not there yet."""
    one, two = write(tmp_path / "runs" / "x" / "seed-0", record(0)), write(tmp_path / "mine")
    later = tmp_path / "later"
    assert find_runs([tmp_path / "runs", two, later]) == [one, two, later]
    watching = Monitor(tmp_path)
    assert watching.health()["runs"] == {}
    note_run(tmp_path, "17", one)
    assert list(watching.health()["runs"]) == ["x/seed-0"]


def test_two_runs_of_one_short_name_are_kept_apart(tmp_path):
    folders = [write(tmp_path / top / "app" / "run", record(i)) for i, top in enumerate("ab")]
    with served(Monitor(tmp_path, folders)) as get:
        found = parsed(get("/metrics")[2])
    assert [found["round", str(folder)] for folder in folders] == [0, 1]


def test_health_is_that_of_the_processes(tmp_path, at_once):
    mine = Started("superlink", os.getpid(), birth_of(os.getpid()), "")
    with subprocess.Popen(["sleep", "60"]) as child:
        other = Started("gate", child.pid, birth_of(child.pid), "")
        write_fleet(Fleet(str(tmp_path), "127.0.0.1:1", True, processes=(mine, other)))
        with served(Monitor(tmp_path)) as get:
            assert get("/health")[0] == 200
            child.kill()
            child.wait()
            status, kind, body = get("/health")
            assert (status, kind) == (503, "application/json")
            assert json.loads(body)["problems"] == ["gate is not running"]
            found = parsed(get("/metrics")[2])
    assert (found["process_up", "superlink"], found["process_up", "gate"]) == (1, 0)


def test_a_run_without_rounds_for_long_is_ill_until_it_has_ended(tmp_path, at_once):
    folder = write(tmp_path / "run", record(0))
    watching = Monitor(tmp_path, [folder], stale_seconds=60)
    assert watching.health()["status"] == "ok"
    os.utime(folder / ROUNDS, (time.time() - 100,) * 2)
    (problem,) = watching.health()["problems"]
    assert re.fullmatch(r".*/run: no round for 10[01] s", problem)
    assert Monitor(tmp_path, [folder]).health()["status"] == "ok"
    (folder / RESULT).write_text("{}")
    assert watching.health()["status"] == "ok"


def test_asking_often_reads_once_a_second(tmp_path):
    folder = write(tmp_path / "run", record(0))
    watching = Monitor(tmp_path, [folder])
    watching.metrics()
    write(folder, record(1))
    assert 'fedskew_round{run="' in watching.metrics()
    assert watching.watches[folder].figures.round == 0
    watching.looked -= monitors.FRESH_SECONDS
    watching.metrics()
    assert watching.watches[folder].figures.round == 1


def test_no_other_site_reads_it_through_a_browser(tmp_path):
    with served(Monitor(tmp_path)) as get:
        assert get("/metrics", Host="evil.example:80")[0] == 403
        assert get("/metrics", Host="localhost:80")[0] == 200
        assert get("/")[0] == 404


def test_a_port_that_is_taken(tmp_path):
    with server(Monitor(tmp_path)) as first, pytest.raises(RunError, match="Give another --port"):
        server(Monitor(tmp_path), port=first.server_address[1])


def test_a_run_that_another_process_plays(tmp_path, at_once):
    """From before its first round to its end; at the end the figures are those of its records, and
    being watched has changed none of them.
    """
    pytest.importorskip("torch")
    command = [sys.executable, "-P", "-m", "fedskew", "run", "fedavg", "--quiet", "--workers", "1",
               "--set", "run.rounds=60", "--set", "model.use=logistic", "--out"]  # fmt: skip
    watched, alone = tmp_path / "watched", tmp_path / "alone"
    with served(Monitor(tmp_path, [watched])) as get:
        name, seen = f"{tmp_path.name}/watched", set()
        assert parsed(get("/metrics")[2])["round", name] == -1
        with subprocess.Popen([*command, str(watched)]) as playing:
            while playing.poll() is None:
                seen.add(parsed(get("/metrics")[2])["round", name])
                time.sleep(0.01)
        found = parsed(get("/metrics")[2])
    assert playing.returncode == 0
    subprocess.run([*command, str(alone)], check=True)
    times = re.compile(r',"times":.*')
    lines = [times.sub("", (folder / ROUNDS).read_text()) for folder in (watched, alone)]
    assert lines[0] == lines[1]
    assert (found["round", name], found["finished", name]) == (60, 1)
    rounds = [json.loads(line) for line in (watched / ROUNDS).read_text().splitlines()]
    down = sum(t[2] for row in rounds for t in row["transfers"] if t[0] == "down")
    assert found["bytes_total", name, "down"] == down > 0
    assert found["accuracy", name] == rounds[-1]["accuracy"]
    assert len(seen) > 1
