"""The live page over plain HTTP: only on loopback, only for this host, always the newest state,
gone at the end.
"""

from __future__ import annotations

import json
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import pytest
from played import write_run

from fedskew.report.live import Watched, live_page


def get(address, **headers):
    with urlopen(Request(address, headers=headers), timeout=10) as answer:
        return answer.headers.get("ETag"), answer.read().decode()


def test_a_page_before_the_first_round_waits(tmp_path):
    with live_page(Watched([tmp_path / "a"]), lambda address: None) as address:
        assert "Waiting for the first round" in get(address)[1]
        with pytest.raises(HTTPError, match="404"):
            get(f"{address}data.json")


def test_values_grow_and_unchanged_ones_are_not_sent_again(tmp_path):
    write_run(tmp_path / "a", until=2)
    watched = Watched([tmp_path / "a"], commands=["fedskew run"])
    with live_page(watched, lambda address: None) as address:
        page = get(address)[1]
        assert "connect-src 'self'" in page
        tag, text = get(f"{address}data.json")
        found = json.loads(text)
        assert found["live"] is True
        assert found["methods"][0]["runs"][0]["series"]["round"] == [0, 1, 2]
        with pytest.raises(HTTPError, match="304"):
            get(f"{address}data.json", **{"If-None-Match": tag})
        watched.over = True
        assert json.loads(get(f"{address}data.json", **{"If-None-Match": tag})[1])["live"] is False


def test_runs_that_have_not_begun_are_counted(tmp_path):
    write_run(tmp_path / "a")
    watched = Watched([tmp_path / name for name in "abcd"])
    with live_page(watched, lambda address: None) as address:
        found = json.loads(get(f"{address}data.json")[1])
        assert found["progress"] == {"runs": 4, "finished": 1}


def test_another_sites_name_is_refused(tmp_path):
    write_run(tmp_path / "a")
    with live_page(Watched([tmp_path / "a"]), lambda address: None) as address:
        with pytest.raises(HTTPError, match="403"):
            get(address, Host="evil.example:80")
        with pytest.raises(HTTPError, match="404"):
            get(f"{address}../../etc/passwd")


def test_the_server_is_gone_afterwards(tmp_path):
    write_run(tmp_path / "a")
    with live_page(Watched([tmp_path / "a"]), lambda address: None) as address:
        get(address)
    with pytest.raises(OSError, match="refused"):
        get(address)
