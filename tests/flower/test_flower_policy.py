"""A node's own policy against every message and every run configuration, over a Grid without
processes.
"""

from __future__ import annotations

import json
import math
import subprocess
import sys
import tomllib
from dataclasses import asdict
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("flwr", reason="Flower is not installed: make test-flower has it")
from fake_grid import TASK, FakeGrid, server_context

from fedskew.errors import RecipeError, RunError
from fedskew.experiment.fleet import read_settings, serve
from fedskew.loop.probe import PROBE_ROUNDS
from fedskew.records import read_json
from fedskew.runtime.flower import policy as policies
from fedskew.runtime.flower.exchange import Letter, Outcome, exchange
from fedskew.runtime.flower.ledger import new_ledger, release_once, spent
from fedskew.runtime.flower.policy import FIRST_PROBE, Policy, Refused, policy_of, read_policy
from fedskew.runtime.flower.records import Note
from fedskew.types import LocalJob

ROOT = Path(__file__).parents[2]
SMALL = "data.clients=4; run.rounds=2; run.clients_per_round=4; local.epochs=1"
GREEDY = [  # what a submitter may write into the run configuration
    {"recipe": "fedlecc"},
    {"recipe": "fedlecc", "set": "signal.use=private; signal.epsilon=100000"},
    {"recipe": "fedlecc", "set": "signal.use=private; signal.epsilon=1e-300"},
    {"recipe": "fedlecc", "set": "signal.use=private; signal.epsilon=-5"},
    {"recipe": "fedlecc", "set": "signal.use=private; signal.epsilon=inf"},
]


def config_of(out: Path, **more: object) -> dict[str, object]:
    changes = f"{SMALL}; {more.pop('set', '')}"
    quick = {"poll-seconds": 0.0, "wait-seconds": 0.0, "deadline-seconds": 0.01}
    return {"recipe": "fedavg", "seed": 3, "out": str(out), **quick, **more, "set": changes}


def write(folder: Path, name: str = "policy", **rules: object) -> str:
    """A policy file, with a ledger where it needs one; its path."""
    if "private" in rules.get("signals", ()) or rules.get("max_rounds"):
        rules = {"ledger": f"{name}.ledger", **rules}
        new_ledger(folder / f"{name}.ledger")
    text = "".join(f"{key} = {json.dumps(value)}\n" for key, value in rules.items())
    (folder / f"{name}.toml").write_text(text)
    return str(folder / f"{name}.toml")


def ask(grid: FakeGrid, kind: str, values: dict[str, object] | None = None, **arrays) -> Outcome:
    """One message to client 0, as the server would send it."""
    asked = Letter(1000, "query.hello", Note("hello", {"model": True}))
    who = exchange(grid, [asked], deadline_seconds=0.01)[0]
    mark = who.note.layout if who.note else ""
    name = kind.removeprefix("query.")
    note = Note(name, {"client": 0, **(values or {})}, arrays, mark)
    return exchange(grid, [Letter(1000, kind, note)], deadline_seconds=0.01)[0]


def one(config: dict[str, object], policy: str, run: int = 7) -> FakeGrid:
    grid = FakeGrid(config)
    grid.join(0, policy=policy)
    grid.nodes[1000].run_id = run
    return grid


def job(**changes: object) -> dict[str, object]:
    return {"job": {**asdict(LocalJob()), **changes}, "seed": "1", "round": 1}


def truth(config: dict[str, object]) -> np.ndarray:
    return np.bincount(TASK.load_data(0, read_settings(config, Path("."))).y, minlength=10)


def model_of(grid: FakeGrid) -> np.ndarray:
    return np.zeros(2410, np.float32)


# ---------------------------------------------------------------- signals


@pytest.mark.parametrize("greedy", GREEDY)
@pytest.mark.parametrize("signals", [[], ["estimated"], None])
def test_no_run_configuration_gets_label_counts_out_of_a_node_that_gives_none(
    greedy, signals, tmp_path
):
    """Neither exact nor noised; a node without any policy file (None) gives none either."""
    config = config_of(tmp_path / "run", **greedy)
    policy = "" if signals is None else write(tmp_path, signals=signals)
    grid = one(config, policy)
    arrived = []
    grid.tamper = lambda node, q, r: (arrived.append(r), r)[1]
    hello = exchange(grid, [Letter(1000, "query.hello", Note("hello"))], deadline_seconds=0.01)[0]
    released = ask(grid, "query.release")
    assert not (hello.note and hello.note.arrays)
    assert released.note is None
    assert not [r for r in arrived if r.has_content() and "arrays" in r.content]


@pytest.mark.parametrize("greedy", GREEDY[1:])
def test_no_run_configuration_overdraws_epsilon(greedy, tmp_path):
    """The recipe of the run asks, the file of the node decides."""
    policy = write(tmp_path, signals=["private"], epsilon=0.5)
    grid = one(config_of(tmp_path / "run", **greedy), policy)
    outcome = ask(grid, "query.release")
    assert spent(tmp_path / "policy.ledger") <= 0.5
    if outcome.note is not None:  # noise of scale 1e300: that may be asked for
        assert "1e-300" in greedy["set"]
    elif "100000" in greedy["set"]:
        assert "epsilon 100000 asked, 0.5 of 0.5 is left" in outcome.why


def test_an_exact_signal_is_given_only_where_both_want_it(tmp_path):
    config = config_of(tmp_path / "run", recipe="fedlecc")
    allowed = one(config, write(tmp_path, signals=["exact"]))
    hello = exchange(allowed, [Letter(1000, "query.hello", Note("hello"))], deadline_seconds=0.01)
    assert np.array_equal(hello[0].note.arrays["counts"], truth(config))


def test_a_message_brings_no_policy_with_it(tmp_path):
    """Whatever stands in a message beside what is asked is not looked at."""
    grid = one(config_of(tmp_path / "run", recipe="fedlecc"), write(tmp_path, signals=[]))
    extra = {"policy": "open", "signals": ["exact"], "signal": {"use": "histogram"}, "epsilon": 1.0}
    note = Note("hello", extra)
    hello = exchange(grid, [Letter(1000, "query.hello", note)], deadline_seconds=0.01)[0]
    assert hello.note.arrays == {}
    assert "does not give 'exact'" in hello.note.values["withheld"]
    assert ask(grid, "query.release", extra).note is None


def test_a_run_configuration_names_no_policy(tmp_path):
    with pytest.raises(RecipeError, match="unknown key 'policy'"):
        one({**config_of(tmp_path / "run", recipe="fedlecc"), "policy": "open"}, "")


def test_a_probe_is_training_only_where_estimating_is_allowed(tmp_path):
    assert PROBE_ROUNDS[0] == FIRST_PROBE
    closed = one(config_of(tmp_path / "run"), write(tmp_path, signals=["private"], epsilon=1.0))
    for round in PROBE_ROUNDS:
        probe = {**job(), "round": round}
        assert (
            "does not give 'estimated'" in ask(closed, "train", probe, model=model_of(closed)).why
        )
    assert ask(closed, "train", job(), model=model_of(closed)).status == "ok"
    opened = one(config_of(tmp_path / "run"), write(tmp_path, "other", signals=["estimated"]))
    probe = {**job(), "round": PROBE_ROUNDS[0]}
    assert ask(opened, "train", probe, model=model_of(opened)).status == "ok"


# ---------------------------------------------------------------- the ledger

PRIVATE = {"recipe": "fedlecc", "set": "signal.use=private; signal.epsilon=0.4"}


def release(config: dict[str, object], policy: str, run: int) -> Outcome:
    """As a node that has just been started: nothing is known but the files on its disk."""
    return ask(one(config, policy, run), "query.release")


def test_epsilon_lasts_over_runs_and_restarts(tmp_path):
    """0.4 + 0.4 of 1.0: the third run gets nothing, and so does every later one."""
    pytest.importorskip("opendp")
    config, policy = (
        config_of(tmp_path / "run", **PRIVATE),
        write(tmp_path, signals=["private"], epsilon=1.0),
    )
    found = [release(config, policy, run) for run in (1, 2, 3, 4, 1)]
    assert [o.note is not None for o in found] == [True, True, False, False, True]
    assert "epsilon 0.4 asked, 0.2 of 1 is left" in found[2].why
    assert np.array_equal(found[0].note.arrays["counts"], found[4].note.arrays["counts"])
    assert not np.array_equal(found[0].note.arrays["counts"], found[1].note.arrays["counts"])
    assert spent(tmp_path / "policy.ledger") == 0.8


def test_ten_tenths_are_one(tmp_path):
    pytest.importorskip("opendp")
    config = config_of(
        tmp_path / "run", recipe="fedlecc", set="signal.use=private; signal.epsilon=0.1"
    )
    policy = write(tmp_path, signals=["private"], epsilon=1.0)
    given = [release(config, policy, run).note is not None for run in range(11)]
    assert given == [True] * 10 + [False]


def test_the_price_is_by_the_nodes_own_notion_of_neighbours(tmp_path):
    """add_remove with epsilon 0.4 is replace_one with 0.8: asking the cheaper way buys no more."""
    pytest.importorskip("opendp")
    config = config_of(tmp_path / "run", **PRIVATE)
    policy = write(tmp_path, signals=["private"], epsilon=1.0, neighbours="replace_one")
    assert release(config, policy, 1).note is not None
    assert spent(tmp_path / "policy.ledger") == 0.8
    assert release(config, policy, 2).note is None


@pytest.mark.parametrize("epsilon", [math.nan, math.inf, 0.0, -1.0])
def test_no_epsilon_is_refunded(epsilon, tmp_path):
    policy = read_policy(Path(write(tmp_path, signals=["private"], epsilon=1.0)))
    with pytest.raises(Refused, match="Ask for a number above 0"):
        release_once(policy, "1", epsilon, 0, lambda: np.ones(3))
    assert spent(tmp_path / "policy.ledger") == 0


SPENDER = """
import sys
import numpy as np
from fedskew.errors import RecipeError, RunError
from fedskew.runtime.flower.ledger import release_once
from fedskew.runtime.flower.policy import read_policy
from pathlib import Path

policy, got = read_policy(Path(sys.argv[1])), 0
for run in range(20):
    try:
        release_once(policy, f"{sys.argv[2]}-{run}", 0.1, 0, lambda: np.ones(3))
        got += 1
    except RunError:
        pass
print(got)
"""


def test_processes_that_spend_at_once_do_not_overdraw(tmp_path):
    policy = write(tmp_path, signals=["private"], epsilon=3.0)
    command = [sys.executable, "-c", SPENDER, policy]
    running = [
        subprocess.Popen([*command, str(i)], stdout=subprocess.PIPE, text=True) for i in range(4)
    ]
    given = sum(int(process.communicate(timeout=120)[0]) for process in running)
    assert given == 30
    assert math.isclose(spent(tmp_path / "policy.ledger"), 3.0)


@pytest.mark.parametrize(
    "damage",
    [
        lambda path: path.unlink(),
        lambda path: path.write_text(""),
        lambda path: path.write_text(path.read_text()[:-3]),
        lambda path: path.write_text(path.read_text() + "{}\n"),
        lambda path: path.write_text(path.read_text() + "\n"),
        lambda path: path.write_text(path.read_text().replace("0.4", "-0.4")),
        lambda path: path.write_text(path.read_text().replace("0.4", "NaN")),
        lambda path: path.write_text(path.read_text().replace('"epsilon": 0.4, ', "")),
        lambda path: path.write_text(path.read_text().replace("ledger/1", "ledger/2")),
        lambda path: path.write_bytes(b"\xff\xfe"),
    ],
)
def test_a_damaged_ledger_stops_every_release(damage, tmp_path):
    pytest.importorskip("opendp")
    config, policy = (
        config_of(tmp_path / "run", **PRIVATE),
        write(tmp_path, signals=["private"], epsilon=1.0),
    )
    assert release(config, policy, 1).note is not None
    damage(tmp_path / "policy.ledger")
    for run in (1, 2):
        outcome = release(config, policy, run)
        assert outcome.note is None
        assert "what was spent is not known" in outcome.why


def test_nothing_is_released_that_is_not_on_disk(tmp_path, monkeypatch):
    """The disk is full: no counts leave, and the ledger reads as before."""
    pytest.importorskip("opendp")
    config, policy = (
        config_of(tmp_path / "run", **PRIVATE),
        write(tmp_path, signals=["private"], epsilon=1.0),
    )

    def full(descriptor):
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr("fedskew.runtime.flower.ledger.os.fsync", full)
        outcome = release(config, policy, 1)
    assert outcome.note is None
    assert "cannot be written" in outcome.why
    assert spent(tmp_path / "policy.ledger") == 0
    assert release(config, policy, 1).note is not None


# ---------------------------------------------------------------- work, sizes, scores


@pytest.mark.parametrize("epochs", [6, 10**9, "5", True, 5.5, None])
def test_too_many_epochs_are_refused(epochs, tmp_path):
    grid = one(config_of(tmp_path / "run"), write(tmp_path, max_epochs=5))
    outcome = ask(grid, "train", job(epochs=epochs), model=model_of(grid))
    assert f"{epochs} epochs in one round, its policy allows 5" in outcome.why
    assert ask(grid, "train", job(epochs=5), model=model_of(grid)).status == "ok"


def test_repeated_examples_are_epochs_too(tmp_path):
    """A draw of more examples than there are repeats them: one epoch of it can be a million."""
    config = config_of(tmp_path / "run")
    size = len(TASK.load_data(0, read_settings(config, Path("."))).y)
    grid = one(config, write(tmp_path, max_epochs=5))
    for epochs, drawn in ((1, 5 * size + 1), (5, size + 1), (1, 10**6 * size), (5, True)):
        asked = job(epochs=epochs, max_examples=drawn, batch=4096)
        outcome = ask(grid, "train", asked, model=model_of(grid))
        assert (outcome.status, "its policy allows 5" in outcome.why) == ("error", True), drawn
    for epochs, drawn in ((1, 5 * size), (5, size), (5, size // 2)):
        asked = job(epochs=epochs, max_examples=drawn, batch=4096)
        assert ask(grid, "train", asked, model=model_of(grid)).status == "ok"


def test_rounds_are_counted_over_restarts(tmp_path):
    policy = write(tmp_path, max_rounds=2)

    def train(run: int) -> Outcome:
        grid = one(config_of(tmp_path / "run"), policy, run)
        return ask(grid, "train", job(), model=model_of(grid))

    found = [train(run) for run in (1, 1, 1, 2)]
    assert [o.status for o in found] == ["ok", "ok", "error", "ok"]
    assert "has trained 2 times in this run, its policy allows 2" in found[2].why


def test_sizes_are_told_in_hundreds_wherever_they_are_told(tmp_path):
    """Hello, training, steps of single examples, scores and votes: no number tells the true one."""
    config = config_of(tmp_path / "run", set="data.client_test=split")
    size = len(TASK.load_data(0, read_settings(config, Path("."))).y)
    assert size % 100
    grid = one(config, write(tmp_path, round_examples_to=100))
    hello = exchange(grid, [Letter(1000, "query.hello", Note("hello"))], deadline_seconds=0.01)[0]
    trained = ask(grid, "train", job(batch=1), model=model_of(grid))
    part = ask(grid, "train", job(batch=1, max_examples=size - 1), model=model_of(grid))
    models = np.zeros((2, 2410), np.float32)
    which = {"which": "train", "max_examples": 0, "seed": "1", "round": 1}
    scored = ask(grid, "evaluate", which, models=models)
    voted = ask(grid, "query.vote", models=models)
    said = [hello.note.values["num_examples"], hello.note.values["num_test"]]
    said += [o.note.values[key] for o in (trained, part) for key in ("examples", "steps")]
    said += [row[2] for row in scored.note.values["scores"]] + [sum(voted.note.values["votes"])]
    assert all(number % 100 == 0 for number in said), said
    assert all(number > 0 for number in said)


def test_an_accuracy_does_not_tell_the_size(tmp_path):
    """It is a fraction of whole numbers: the one below the line is the number of examples."""
    config = config_of(tmp_path / "run")
    size = len(TASK.load_data(0, read_settings(config, Path("."))).y)
    which = {"which": "train", "max_examples": 0, "seed": "1", "round": 1}
    models = np.random.default_rng(0).normal(size=(8, 2410)).astype(np.float32)

    def guess(policy: str) -> int:
        scored = ask(one(config, policy), "evaluate", which, models=models)
        shares = [Fraction(row[1]).limit_denominator(2000) for row in scored.note.values["scores"]]
        return math.lcm(*(share.denominator for share in shares))

    assert guess(write(tmp_path, "exact")) % size == 0
    assert 100 % guess(write(tmp_path, "rounded", round_examples_to=100)) == 0


def test_scores_can_be_kept_back(tmp_path):
    """A model that always says 'class c' has, as its accuracy, the share of class c: with ten such
    models scores are label counts.
    """
    config = config_of(tmp_path / "run")
    models = np.zeros((10, 2410), np.float32)
    models[np.arange(10), 2400 + np.arange(10)] = 9.0  # the ten biases of the output layer
    which = {"which": "train", "max_examples": 0, "seed": "1", "round": 1}
    opened = ask(one(config, write(tmp_path, "open")), "evaluate", which, models=models)
    counts = [round(row[1] * row[2]) for row in opened.note.values["scores"]]
    assert counts == truth(config).tolist()
    closed = one(config, write(tmp_path, scores=False))
    assert "gives no scores" in ask(closed, "evaluate", which, models=models).why
    assert "gives no scores" in ask(closed, "query.vote", models=models).why


# ---------------------------------------------------------------- the run goes on


def play(config: dict[str, object], policies_: list[str]):
    grid = FakeGrid(config)
    for client, policy in enumerate(policies_):
        grid.join(client, policy=policy)
    return serve(grid, server_context(config), grid.task, Path(".")), grid


def test_the_run_goes_on_without_that_clients_signal(tmp_path, capsys):
    config = config_of(tmp_path / "run", recipe="fedlecc")
    result, _ = play(
        config, ["open", "open", write(tmp_path, signals=["private"], epsilon=1.0), "open"]
    )
    assert [sorted(r.loss) for r in result.rounds[1:]] == [[0, 1, 3]] * 2
    why = "its policy does not give 'exact' label counts (allowed: private)"
    assert f"client 2 gives no label counts: {why}" in capsys.readouterr().out
    assert read_json(tmp_path / "run" / "fleet.json")["runs"][0]["withheld"] == {"2": why}
    histograms = [sum(t.bytes for t in r.transfers if t.kind == "histogram") for r in result.rounds]
    assert histograms == [3 * 40, 0, 0]


def test_a_client_whose_budget_is_spent_is_passed_over(tmp_path):
    pytest.importorskip("opendp")
    config = config_of(tmp_path / "run", **PRIVATE)
    result, grid = play(
        config, ["open", write(tmp_path, signals=["private"], epsilon=0.3), "open", "open"]
    )
    assert [sorted(r.loss) for r in result.rounds[1:]] == [[0, 2, 3]] * 2
    assert sum(kind == "query.release" for _, kind in grid.log) == 4
    histograms = [sum(t.bytes for t in r.transfers if t.kind == "histogram") for r in result.rounds]
    assert histograms == [3 * 40, 0, 0]


@pytest.mark.parametrize("changes", ["", "signal.use=private"])
def test_without_any_signal_a_run_says_that(changes, tmp_path):
    config = config_of(tmp_path / "run", recipe="fedlecc", set=changes)
    with pytest.raises(RunError, match="none of 4 clients gives its label counts") as caught:
        play(config, [""] * 4)
    assert "client 0: " in str(caught.value)
    assert "its policy does not give" in str(caught.value)


def test_without_opendp_a_run_says_that(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "opendp.prelude", None)
    config = config_of(tmp_path / "run", recipe="fedlecc", set="signal.use=private")
    with pytest.raises(RunError, match="OpenDP is not installed"):
        play(config, ["open"] * 4)


def test_the_documented_install_can_release_private_counts():
    """docs/flower.md: pip install 'fedskew[flower]'."""
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"][
        "optional-dependencies"
    ]
    assert any(part.startswith("opendp") for part in extras["private"])
    assert "fedskew[torch,private]" in extras["flower"]


def test_a_client_that_refuses_the_work_is_on_record_with_the_reason(tmp_path):
    config = config_of(tmp_path / "run", set="local.epochs=3")
    result, _ = play(config, ["open", write(tmp_path, max_epochs=2), "open", "open"])
    for record in result.rounds[1:]:
        assert sorted(record.loss) == [0, 2, 3]
        assert "3 epochs in one round, its policy allows 2" in record.failures[1]


# ---------------------------------------------------------------- the file itself


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("signal = ['exact']", "unknown key 'signal'. Did you mean 'signals'"),
        ("signals = ['everything']", "signals = ['everything']"),
        ("signals = 'exact'", "signals = 'exact'"),
        ("signals = ['private']\nledger = 'l'", "'private' without epsilon"),
        ("signals = ['private']\nepsilon = 1.0", "no ledger"),
        ("max_rounds = 3", "no ledger"),
        ("epsilon = inf", "epsilon = inf"),
        ("epsilon = -1", "epsilon = -1"),
        ("epsilon = nan", "epsilon = nan"),
        ("epsilon = true", "epsilon = True"),
        ("max_epochs = 1.5", "max_epochs = 1.5"),
        ("max_epochs = -1", "max_epochs = -1"),
        ("round_examples_to = 0", "round_examples_to = 0"),
        ("scores = 'no'", "scores = 'no'"),
        ("neighbours = 'none'", "neighbours = 'none'"),
        ("signals = ['exact']\nround_examples_to = 10", "tell the number of examples"),
        ("signals = [", "cannot be read"),
    ],
)
def test_a_policy_that_cannot_be_understood_gives_nothing(text, why, tmp_path):
    (tmp_path / "policy.toml").write_text(text)
    with pytest.raises(Refused) as caught:
        read_policy(tmp_path / "policy.toml")
    assert why in str(caught.value)
    grid = one(config_of(tmp_path / "run"), str(tmp_path / "policy.toml"))
    hello = exchange(grid, [Letter(1000, "query.hello", Note("hello"))], deadline_seconds=0.01)[0]
    assert hello.note is None
    assert "policy policy.toml" in hello.why


def test_a_missing_policy_file_gives_nothing(tmp_path):
    with pytest.raises(Refused, match="cannot be read"):
        policy_of({"policy": str(tmp_path / "nothing.toml")})


def test_the_environment_is_the_nodes_too(monkeypatch):
    monkeypatch.setenv(policies.VARIABLE, "open")
    assert policy_of({}) == policies.EVERYTHING
    monkeypatch.delenv(policies.VARIABLE)
    assert policy_of({}) == Policy()


def test_a_policy_is_read_anew_for_every_message(tmp_path):
    grid = one(config_of(tmp_path / "run"), write(tmp_path, max_epochs=1))
    assert ask(grid, "train", job(epochs=2), model=model_of(grid)).status == "error"
    write(tmp_path, max_epochs=2)
    assert ask(grid, "train", job(epochs=2), model=model_of(grid)).status == "ok"
