"""A hospital whose network is cut while it trains: what it has learned arrives when the link is
back.
"""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import pytest

pytest.importorskip("flwr", reason="Flower is not installed: make test-flower has it")
from hospitals import admitted, fedskew, network, start_node
from real_fleet import finish, is_online, make_app, wait_for
from steps import Steps, add_steps

from fedskew.deploy.processes import stop
from fedskew.experiment.run import Run

SETTINGS = {
    "data.clients": 1, "run.rounds": 2, "run.clients_per_round": 1, "data.client_test": "none",
    "local.epochs": 1, "run.min_ok": 0,
}  # fmt: skip
NOTICED_SECONDS = 30.0  # a node that is back before that has never been missed


@pytest.fixture(scope="module")
def story(tmp_path_factory):
    """(the run, what it printed, how long the link was down)."""
    folder, nodes = tmp_path_factory.mktemp("cut"), []
    with network(folder) as net:
        if not net.apart:
            pytest.skip("network namespaces are refused here: no link can be cut")
        server, hospital, steps = net["server"], net["a"], Steps(folder / "steps")
        fedskew(server, "up", "--tls", "--host", server.address, "--nodes", "0")
        try:
            line = admitted(server, hospital, "hospital-a")
            app = add_steps(make_app(server.folder / "app", "fedavg", SETTINGS), steps)
            fedskew(hospital, "approve", str(app), "hospital-a")
            nodes.append(start_node(hospital, line))
            wait_for(lambda: is_online(nodes[0].log))
            words = ["flower", "run", "app", "--config", "wait-seconds=600"]
            with open(f"{app}.log", "w") as output:
                run = subprocess.Popen(
                    [*server.prefix, sys.executable, "-m", "fedskew", *words],
                    cwd=server.folder, stdout=output, stderr=subprocess.STDOUT, text=True,
                )  # fmt: skip
            wait_for(lambda: steps.at(1, 0), run)
            net.link("a", "down")
            began = time.monotonic()
            steps.go(1, 0)
            wait_for(lambda: "the SuperLink does not answer" in Path(nodes[0].log).read_text(), run)
            net.link("a", "up")
            cut = time.monotonic() - began
            steps.go(2, 0)
            said = finish(run, app)
            yield Run.load(app / "run"), said, cut
        finally:
            steps.go(1, 0)
            steps.go(2, 0)
            stop(nodes)
            fedskew(server, "down")


def test_a_short_cut_costs_nothing(story):
    run, said, cut = story
    if cut > NOTICED_SECONDS:
        pytest.skip(f"this machine is so busy that the link was down for {cut:.0f} s")
    assert [list(one.loss) for one in run.rounds] == [[], [0], [0]]
    assert all(one.failures == {} for one in run.rounds)
    assert "has left" not in said


def test_a_hospital_that_was_cut_off_takes_part_again(story):
    run, said, _ = story
    assert list(run.rounds[-1].loss) == [0], said
    assert run.finished
