"""``advise`` and ``fedskew advise``, on a bank whose truth is known."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

import fedskew
from fedskew.advice.budget import Budget
from fedskew.advice.costs import Means, Price, over_server, price_of
from fedskew.cli import main as cli
from fedskew.errors import FedskewError, RecipeError, RunError
from fedskew.recipe import load, resolve

FIVE = {"run.clients_per_round": 5}
ROOT = Path(fedskew.__file__).parents[1]


def ask(bank, source, **options):
    settings = {**FIVE, **options.pop("settings", {})}
    return fedskew.advise(source, bank=bank, settings=settings, **options)


def names(advice):
    return [choice.method for choice in advice.choices]


# ---------------------------------------------------------------- ranking


def test_the_best_method_comes_first_and_what_is_not_allowed_does_not_come(bank, skewed):
    advice = ask(bank, skewed, budget="40rounds")
    assert names(advice) == ["balanced_chains", "fed_cbs", "fedavg"]
    assert "personal" in advice.left_out["clust_psi_pfl"]
    assert names(ask(bank, skewed, budget="40rounds", allow="personal,histograms"))[0] == (
        "clust_psi_pfl"
    )
    assert names(ask(bank, skewed, budget="40rounds", allow="none")) == ["fedavg"]


def test_without_skew_chains_are_not_advised(bank):
    even = np.full((30, 10), 6)
    assert names(ask(bank, even, budget="40rounds"))[0] != "balanced_chains"


def test_noisy_counts_stand_in_for_exact_ones_unless_noise_drowns_them(bank, skewed):
    quiet = ask(bank, skewed, budget="40rounds", allow="private=10")
    assert "fed_cbs" in names(quiet)
    assert quiet.recipe("fed_cbs")["signal"] == resolve(
        {**load("fed_cbs"), "signal": {"use": "private", "epsilon": 10.0}}
    )["signal"]  # fmt: skip
    loud = ask(bank, skewed, budget="40rounds", allow="private=0.05")
    assert "noise would move label mixes" in loud.left_out["fed_cbs"]


def test_a_method_that_cannot_train_as_asked_is_left_out_with_the_reason(bank, skewed):
    """Chains of two need two clients a round."""
    advice = ask(bank, skewed, budget="40rounds", settings={"run.clients_per_round": 1})
    assert "procedure.chains" in advice.left_out["balanced_chains"]


# ---------------------------------------------------------------- budgets


def test_a_budget_in_bytes_is_read_off_in_rounds_and_kept(bank, skewed):
    """FedAvg sends 2 x 5 models of 400 kB a round: 4 MB. Half the clients, 15, train for
    clust_psi_pfl: 12 MB. Chains probe 30 clients first (24 MB), then 6 models: 2.4 MB.
    """
    advice = ask(bank, skewed, budget="40MB", allow="d2d,histograms,probe,personal")
    rounds = {choice.method: choice.rounds for choice in advice.choices}
    assert rounds == {"fedavg": 10, "fed_cbs": 10, "clust_psi_pfl": 3, "balanced_chains": 6}
    assert all(choice.spent["bytes"] <= 40e6 * (1 + 1e-9) for choice in advice.choices)
    assert names(ask(bank, skewed, budget="20MB")) == ["fed_cbs", "fedavg"]
    assert "costs more" in ask(bank, skewed, budget="20MB").left_out["balanced_chains"]


@pytest.mark.parametrize("nearly", [np.nextafter(4e6, 0), 4e6, np.nextafter(4e6, 5e6)])
def test_how_a_processor_rounds_a_mean_costs_no_round(nearly):
    """Seen on a machine whose dot product gave a price of 4,000,000.0000000005 bytes."""
    price = Price({"bytes": 0.0}, {"bytes": float(nearly)})
    assert price.rounds_for(Budget("bytes", 40e6)) == 10
    assert price.rounds_for(Budget("bytes", 39.9e6)) == 9


def test_time_and_energy_by_hand():
    """A model takes 0.5 s, an example 1 ms, 100 examples a client, two epochs: a turn is 0.2 s."""
    means = Means(20, 5, 100.0, 1000, 0.5, 0.1, 0.001, 30.0, 1.0)
    units = dict.fromkeys(
        ("down", "up", "d2d", "passes", "hops", "handed", "turns", "chosen", "start_down",
         "start_up", "start_passes", "start_hops"), 0.0,
    )  # fmt: skip
    units |= {"down": 0.4, "up": 0.4, "d2d": 0.6, "passes": 1.0, "chosen": 5.0, "hops": 2.0}
    units |= {"handed": 3.0, "turns": 4.0, "start_up": 1.0, "start_passes": 0.5, "start_hops": 2.0}
    price = price_of(units, 2, means)
    assert price.each["bytes"] == pytest.approx(1000 * 5 * 1.4)
    assert price.each["time"] == pytest.approx(2 * 0.5 + 3 * 0.1 + 4 * 0.2)
    assert price.each["energy"] == pytest.approx(30 * 0.2 * 5 + 1.0 * (2 * 0.5 + 3 * 0.1))
    assert price.start["time"] == pytest.approx(1.0)
    assert price.start["energy"] == pytest.approx(30 * 0.001 * 100 * 0.5 * 20 + 20 * 0.5)
    served = price_of(over_server(units), 2, means)
    assert served.each["bytes"] == pytest.approx(1000 * 5 * 2.0)
    assert served.each["time"] == pytest.approx(8 * 0.5 + 4 * 0.2)


def test_over_the_server_chains_cost_more(bank, skewed):
    d2d, server = (
        ask(bank, skewed, budget="40rounds", allow=allow) for allow in ("d2d,probe", "probe")
    )
    assert server.recipe("balanced_chains")["procedure"]["relay"] == "server"
    costs = [advice.choices[0].spent for advice in (d2d, server)]
    assert costs[1]["bytes"] > 1.3 * costs[0]["bytes"]
    assert costs[1]["time"] > costs[0]["time"]


def test_a_budget_that_pays_for_nothing_is_an_error(bank, skewed):
    with pytest.raises(RecipeError, match="pays for no round"):
        ask(bank, skewed, budget="10B")


def test_a_budget_beyond_the_bank_is_said_to_be(bank, skewed):
    advice = ask(bank, skewed, budget="5000rounds")
    assert advice.beyond
    assert "no more than 60 rounds" in advice.paragraph
    assert not ask(bank, skewed, budget="50rounds").beyond


# ---------------------------------------------------------------- words


def test_the_answer_says_what_why_and_what_else(bank, skewed):
    advice = ask(bank, skewed, budget="40rounds")
    first = advice.choices[0]
    assert "Switch on balanced_chains: within 40 rounds" in advice.paragraph
    assert f"{first.accuracy:.3f} (90 % interval {first.low:.3f} to {first.high:.3f})" in (
        advice.paragraph
    )
    assert "Each client discloses its updates, to the server and other clients" in advice.paragraph
    assert "nearest of 60 federations" in advice.paragraph
    assert any("without probe" in line for line in advice.changes)
    assert len(advice.nearest) == 5
    assert advice.nearest[0].best["balanced_chains"] == max(advice.nearest[0].best.values())


def test_a_change_that_is_told_does_change_the_answer(bank, skewed):
    advice = ask(bank, skewed, budget="40rounds")
    told = dict(advice.rivals)
    assert told["without probe"] == "fed_cbs"
    assert names(ask(bank, skewed, budget="40rounds", allow="d2d,histograms"))[0] == "fed_cbs"
    assert told["with personal"] == "clust_psi_pfl"


def test_unlike_anything_in_the_bank(bank, skewed):
    strange = {"local.lr": 1e-6, "local.epochs": 500, "run.clients_per_round": 30}
    advice = ask(bank, skewed, budget="40rounds", settings=strange)
    assert advice.unlike
    assert "unlike anything in the bank of 60" in advice.paragraph
    assert "learning rate" in advice.paragraph
    assert "Runs of the first choices on your data tell more" in advice.paragraph
    fleet = replace(advice, subject=replace(advice.subject, fleet=True))
    assert "(fedskew flower run)" in fleet.paragraph
    here = replace(advice, subject=replace(advice.subject, has_data=True))
    assert "Use --pilot" in here.paragraph  # which is refused where there are no data
    assert not ask(bank, skewed, budget="40rounds").unlike


# ---------------------------------------------------------------- sources, recipes, pilots


def test_a_pilot_needs_data(bank, skewed):
    with pytest.raises(RunError, match="only label counts"):
        ask(bank, skewed, budget="40rounds", pilot=True)


def test_sources_that_are_none(bank, tmp_path):
    with pytest.raises(RecipeError, match="Did you mean 'fedavg'"):
        ask(bank, "fedavgg")
    with pytest.raises(RecipeError, match="neither a recipe nor whole numbers"):
        ask(bank, [0.5, 0.5])
    with pytest.raises(FedskewError, match="means nothing for label counts"):
        ask(bank, np.full((20, 3), 5), settings={"data.use": "mnist"})


def test_a_recipe_gives_its_own_data_model_and_rounds(bank):
    pytest.importorskip("torch")
    advice = fedskew.advise("fedavg", bank=bank)
    assert advice.subject.parameters == 2410
    assert advice.budget.amount == 30
    assert advice.subject.assumed == ()
    assert {choice.rounds for choice in advice.choices} == {30}


def test_the_written_recipe_resolves_and_runs(bank, tmp_path):
    pytest.importorskip("torch")
    out = tmp_path / "r.toml"
    done = invoke(bank, tmp_path, "advise", "fedavg", "--budget", "2rounds", "-o", out)
    assert done.exit_code == 0, (done.output, done.exception)
    written = load(out)
    assert resolve(written)["run"]["rounds"] == 2
    assert resolve(written)["data"] == resolve(load("fedavg"))["data"]
    run = fedskew.run(out, workers=1)
    assert run.rounds[-1].round == 2
    assert run.name == written["name"]


def test_the_recipe_of_counts_runs_with_the_users_own_data(bank, tmp_path):
    pytest.importorskip("torch")
    rng = np.random.default_rng(0)
    owner, y = np.repeat(np.arange(20), 30), rng.integers(0, 4, 600)
    x = rng.normal(size=(600, 5)).astype(np.float32) + y[:, None]
    table = np.array([np.bincount(y[owner == k], minlength=4) for k in range(20)])
    advice = ask(bank, table, budget="2rounds")
    for choice in advice.choices:
        run = fedskew.run(advice.recipe(choice.method), data=(x, y), clients=owner, workers=1)
        assert run.rounds[-1].round == 2
    with pytest.raises(RecipeError, match="not among the choices"):
        advice.recipe("fedlecc")


def test_a_pilot_is_played_and_told(bank):
    pytest.importorskip("torch")
    advice = fedskew.advise("fedavg", bank=bank, pilot=True, allow="none")
    assert set(advice.pilot) == {"fedavg"}
    measured = advice.pilot["fedavg"].accuracy
    alone = fedskew.run("fedavg", settings={"run.rounds": 8}, workers=1)
    assert measured == pytest.approx(alone.summary()["final_accuracy"])
    assert f"fedavg {measured:.3f} after 8 rounds" in advice.paragraph


def test_a_run_folder_anchors_the_forecast(bank, tmp_path):
    pytest.importorskip("torch")
    run = fedskew.run("fedavg", settings={"run.rounds": 5}, workers=1, out=tmp_path / "run")
    advice = fedskew.advise(tmp_path / "run", bank=bank, budget="5rounds")
    mine = next(choice for choice in advice.choices if choice.method == "fedavg")
    assert mine.accuracy == pytest.approx(run.summary()["final_accuracy"])
    assert advice.subject.parameters == 2410


def test_a_run_folder_that_names_code_is_asked_about_without_importing_it(bank, tmp_path):
    from fedskew.records import Labels, RunFolder
    from fedskew.types import Cost, Layout, RoundRecord

    raw = {"name": "evil", "data": {"clients": 20}, "run": {"rounds": 1, "clients_per_round": 5}}
    resolved = resolve(raw)
    for stage in ("selection", "partition", "model", "procedure"):
        resolved[stage] = {"use": f"no_such_module_{stage}:choose"}
    out = RunFolder(tmp_path / "came", resolved, 0)
    out.begin({})
    out.keep_labels(Labels(np.full((20, 4), 9), list("abcd")))
    for number, accuracy in enumerate((0.1, 0.4)):
        out.append(RoundRecord(number, (), {}, {}, (), accuracy, 1.0, 0.1, {}, Cost(0.0, 0.0)))
    columns = {"client": [*range(20)], "examples": [36] * 20, "times_selected": [0] * 20}
    layout = Layout.of([("weight", (2, 2), "weight")])
    out.finish(np.zeros((1, 4), np.float32), layout, columns, {})
    out.close()
    advice = fedskew.advise(tmp_path / "came", bank=bank)
    assert not advice.subject.has_data
    assert advice.pilot == {}  # the bank does not know the method "evil"
    assert advice.recipe()["partition"]["use"] == "iid"


def test_what_costs_nothing_is_not_played_for_ever():
    price = Price({"bytes": 0.0}, {"bytes": 0.0})
    assert price.rounds_for(Budget("bytes", 1.0)) == np.inf


# ---------------------------------------------------------------- the command


def invoke(bank, tmp_path, *arguments):
    from fedskew.advice.bank import bank_bytes

    (tmp_path / "bank.json").write_bytes(bank_bytes(bank))
    given = [str(argument) for argument in (*arguments, "--bank", tmp_path / "bank.json")]
    return CliRunner().invoke(cli.app, given)


def counts_file(tmp_path, table):
    lines = [f"{k},{c},{n}" for k, row in enumerate(table) for c, n in enumerate(row)]
    path = tmp_path / "counts.csv"
    path.write_text("client,label,count\n" + "\n".join(lines) + "\n")
    return path


def test_json_holds_everything(bank, skewed, tmp_path):
    pytest.importorskip("pyarrow")
    file = counts_file(tmp_path, skewed)
    five = ("--set", "run.clients_per_round=5")
    done = invoke(bank, tmp_path, "advise", file, "--budget", "40MB", "--json", *five)
    assert done.exit_code == 0, (done.output, done.exception)
    found = json.loads(done.stdout)
    assert set(found) == {
        "format", "source", "notes", "assumed", "budget", "allow", "answer", "paragraph", "unlike",
        "beyond_bank", "choices", "left_out", "other_answers", "measured", "nearest", "bank",
        "recipe",
    }  # fmt: skip
    assert set(found["choices"][0]) == {
        "method", "accuracy", "low", "high", "gain", "gain_low", "gain_high", "rounds", "spent",
        "discloses", "wanted", "note",
    }  # fmt: skip
    assert found["answer"] == found["choices"][0]["method"]
    assert found["budget"] == {"resource": "bytes", "amount": 4e7}
    assert found["allow"] == "d2d,histograms,probe"
    assert set(found["choices"][0]["spent"]) == {"bytes", "time", "energy", "rounds"}
    assert len(found["nearest"]) == 5


def test_the_terminal_names_every_choice(bank, skewed, tmp_path):
    pytest.importorskip("pyarrow")
    done = invoke(bank, tmp_path, "advise", counts_file(tmp_path, skewed), "--budget", "1h")
    assert done.exit_code == 0, (done.output, done.exception)
    for word in ("balanced_chains", "fed_cbs", "fedavg", "nearest in the bank", "assumed: 10"):
        assert word in done.stdout


def test_counts_are_answered_in_two_seconds_without_torch(skewed, tmp_path):
    """With the shipped bank, torch hidden, in a process of its own; CPU seconds."""
    pytest.importorskip("pyarrow")
    code = (
        "import sys, time; sys.modules['torch'] = None; sys.argv = ['fedskew', *sys.argv[1:]];"
        "from fedskew.cli.main import app; app(standalone_mode=False);"
        "print(time.process_time(), file=sys.stderr)"
    )
    given = ["advise", str(counts_file(tmp_path, skewed)), "--budget", "200MB", "--json"]
    done = subprocess.run(
        [sys.executable, "-c", code, *given], capture_output=True, text=True, check=False,
        env={**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["choices"]
    assert float(done.stderr.split()[-1]) < 2.0
