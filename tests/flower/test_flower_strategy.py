"""fedskew.flower.Strategy in an app that knows nothing of fedskew (digits_app.py): the same model
as Flower's FedAvg, other recipes, what is refused, and members that lie.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from functools import cache
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("flwr", reason="Flower is not installed: make test-flower has it")
import digits_app
from digits_app import CLIENTS, main, make_client_app, training_part
from fake_grid import FakeGrid
from flwr.app import Array, ArrayRecord, ConfigRecord, Error, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.clientapp.mod import LocalDpMod, fixedclipping_mod
from flwr.serverapp.strategy import FedAvg, Result
from flwr.serverapp.strategy import Strategy as FlowerStrategy
from real_fleet import wait_for
from threadpoolctl import threadpool_info, threadpool_limits

import fedskew
from fedskew.deploy import local_fleet
from fedskew.deploy.flower_cli import CONNECTION, call
from fedskew.errors import RecipeError, RoundFailed, RunError
from fedskew.flower import Strategy, disclose
from fedskew.recipe import shipped_recipes
from fedskew.runtime.flower.app_arrays import AppArrays
from fedskew.runtime.flower.ledger import new_ledger, spent

ROOT = Path(__file__).parents[2]
NODE = 1000  # of client 0


def labels(context):
    return training_part(int(context.node_config["partition-id"]))[1]


def echo_app(mods=None):
    """Moves every weight a little, towards its own labels; trains nothing, so it takes no time."""
    app = ClientApp(mods=mods)

    @app.train()
    def train(message, context):
        client = int(context.node_config["partition-id"])
        mix, moved = shares()[client], {}
        for name, array in message.content["arrays"].items():
            value = array.numpy()
            if value.dtype.kind == "f":
                value = value * np.float32(1 + 0.01 * client)
            if name.startswith("fc2"):
                value = value + (mix[:, None] if value.ndim == 2 else mix).astype(np.float32)
            moved[name] = Array(np.asarray(value))
        metrics = MetricRecord({"train_loss": 1.0 + client, "num-examples": 20 + client})
        content = RecordDict({"arrays": ArrayRecord(moved), "metrics": metrics})
        return Message(content, reply_to=message)

    @app.evaluate()
    def evaluate(message, context):
        client = int(context.node_config["partition-id"])
        told = {"eval_loss": 2.0 + client, "eval_acc": 0.1 * client, "num-examples": 5}
        return Message(RecordDict({"metrics": MetricRecord(told)}), reply_to=message)

    return app


def start(grid, strategy, rounds=1, **options):
    """Like an app's main, without its tests at the server."""
    arrays = ArrayRecord(digits_app.first_model().state_dict())
    config = ConfigRecord({"lr": 0.05})
    return strategy.start(grid, arrays, rounds, train_config=config, **options)


def grid_of(app=None, clients=CLIENTS, policy="open", **options):
    grid = FakeGrid({"recipe": "fedavg"}, **options)
    grid._app = app or echo_app()
    for client in range(clients):
        grid.join(client, policy=policy)
    return grid


@cache
def shares():
    counts = [np.bincount(training_part(c)[1], minlength=10) for c in range(CLIENTS)]
    return np.array([row / row.sum() for row in counts])


def numbers(arrays):
    return np.concatenate([np.float64(array.numpy()).ravel() for array in arrays.values()])


def chains(strategy):
    return [[chain.clients for chain in record.chains] for record in strategy.run.rounds[1:]]


# ---------------------------------------------------------------- one line changed


@pytest.fixture(scope="module")
def stock():
    return main(grid_of(make_client_app()), FedAvg())


def test_all_clients_give_the_model_of_flowers_own_fedavg(stock):
    strategy = Strategy("fedavg", fraction_train=1.0)
    ours = main(grid_of(make_client_app()), strategy)
    assert isinstance(ours, Result)
    assert isinstance(strategy, FlowerStrategy)
    assert list(ours.arrays) == list(stock.arrays)
    np.testing.assert_allclose(numbers(ours.arrays), numbers(stock.arrays), rtol=0, atol=1e-5)
    for name in ("train_metrics_clientapp", "evaluate_metrics_clientapp"):
        for round, metrics in getattr(stock, name).items():
            assert getattr(ours, name)[round] == pytest.approx(dict(metrics), abs=1e-5), name
    for round, metrics in stock.evaluate_metrics_serverapp.items():
        assert ours.evaluate_metrics_serverapp[round] == pytest.approx(dict(metrics), abs=1e-4)
    assert sorted(ours.evaluate_metrics_serverapp) == [0, 1, 2, 3]


def test_messages_are_those_of_flowers_own_fedavg():
    """Not one record more or less, so that mods and apps see nothing new."""

    def sent_by(strategy):
        seen = []

        def watch(node, question, reply):
            records = {
                name: (type(record).__name__, list(record))
                for name, record in question.content.items()
            }
            config = dict(question.content["config"])
            seen.append((node, question.metadata.message_type, records, config))
            return reply

        start(grid_of(tamper=watch, clients=3), strategy, rounds=2)
        return sorted(seen, key=repr)

    assert sent_by(Strategy("fedavg", fraction_train=1.0)) == sent_by(FedAvg())


def test_bacsa_reads_labels_from_ordinary_replies():
    strategy, grid = Strategy("bacsa"), grid_of(make_client_app())
    main(grid, strategy, rounds=2)
    assert strategy.run.recipe["signal"]["method"] == "sqrt_delta"
    assert all(len(round) == 5 for round in chains(strategy))
    trained = [node for node, kind in grid.log if kind == "train"]
    assert len(trained) == CLIENTS + 2 * 5  # everybody once, to be read, then five a round
    assert strategy.run.rounds[0].failures == {}


def test_estimated_label_mixes_are_near_the_true_ones():
    """Several steps with momentum, learning rate unknown: docs/flower.md names what to expect."""
    from fedskew.loop.federation import prepare

    seen = {}

    def watching(setting):
        state, record = prepare(setting)
        seen["rows"] = state.signal.rows
        return state, record

    import fedskew.loop.federation as loop

    before, loop.prepare = loop.prepare, watching
    try:
        main(grid_of(make_client_app()), Strategy("bacsa"), rounds=1)
    finally:
        loop.prepare = before
    gap = np.abs(seen["rows"][:CLIENTS] - shares()).sum(axis=1) / 2
    even = np.abs(0.1 - shares()).sum(axis=1) / 2
    assert gap.mean() < 0.15 < 0.5 < even.mean()


def test_balanced_chains_hand_models_on():
    strategy = Strategy("balanced_chains", settings={"run.clients_per_round": 6})
    grid = grid_of(make_client_app())
    main(grid, strategy, rounds=2)
    assert [[len(chain) for chain in round] for round in chains(strategy)] == [[3, 3], [3, 3]]
    assert len([1 for _, kind in grid.log if kind == "train"]) == CLIENTS + 2 * 6


def test_a_chain_is_trained_one_after_another():
    """FedSeq: each client begins with what the one before it ended with."""
    seen = []

    def watch(node, question, reply):
        if question.metadata.message_type == "train":
            seen.append((question.content["arrays"], reply.content["arrays"]))
        return reply

    start(grid_of(clients=3, tamper=watch), Strategy("fedseq", fraction_train=1.0), rounds=1)
    assert len(seen) == 3
    for (_, ended), (began, _) in pairwise(seen):
        np.testing.assert_array_equal(numbers(ended), numbers(began))


def test_fedlecc_chooses_by_disclosed_labels_and_reported_losses():
    strategy = Strategy("fedlecc", settings={"run.clients_per_round": 3})
    main(grid_of(make_client_app([disclose(labels)])), strategy, rounds=3)
    assert all(len(round) == 3 for round in chains(strategy))
    clusters = np.array(strategy.run.clients["cluster"][:CLIENTS])
    assert len(set(clusters.tolist())) > 1
    examples = [len(training_part(client)[1]) for client in range(CLIENTS)]
    assert strategy.run.clients["examples"][:CLIENTS] == examples
    reported = strategy.run.rounds[1].loss
    assert sorted(reported) == sorted(c for (c,) in chains(strategy)[0])
    assert strategy.run.summary()["bytes_up"] > 0


# ---------------------------------------------------------------- what rules need and do not get


def test_an_app_that_does_not_disclose_is_told_the_line_to_add():
    strategy = Strategy("fedlecc")
    with pytest.raises(RunError) as error:
        start(grid_of(), strategy, rounds=1)
    assert "app = ClientApp(mods=[fedskew.flower.disclose(labels)])" in str(error.value)
    assert "signal.use = 'estimated'" in str(error.value)


def test_fedlecc_with_an_estimated_signal_needs_no_line():
    settings = {"signal.use": "estimated", "run.clients_per_round": 4}
    strategy = Strategy("fedlecc", settings=settings)
    start(grid_of(), strategy, rounds=1)
    assert len(chains(strategy)[0]) == 4


def app_without(metric):
    app = ClientApp()

    @app.train()
    def train(message, context):
        metrics = {"train_loss": 1.0, "num-examples": 4}
        del metrics[metric]
        content = {"arrays": message.content["arrays"], "metrics": MetricRecord(metrics)}
        return Message(RecordDict(content), reply_to=message)

    return app


def test_an_app_without_a_loss_is_told_the_line_to_add():
    strategy = Strategy("fedlecc", settings={"signal.use": "estimated"})
    with pytest.raises(RoundFailed, match="no 'train_loss'"):
        start(grid_of(app_without("train_loss")), strategy, rounds=1)
    start(grid_of(app_without("train_loss")), Strategy("fedavg"), rounds=1)  # nobody needs it


def test_an_app_without_its_number_of_examples_is_told_so():
    with pytest.raises(RoundFailed, match="no 'num-examples' among its metrics"):
        start(grid_of(app_without("num-examples")), Strategy("fedavg"), rounds=1)


def test_other_names_of_metrics_can_be_given():
    with pytest.raises(RecipeError, match="Did you mean 'loss'"):
        Strategy("fedlecc", metrics={"los": "x"})
    settings = {"signal.use": "estimated"}
    strategy = Strategy("fedlecc", settings=settings, metrics={"loss": "num-examples"})
    start(grid_of(app_without("train_loss")), strategy, rounds=1)
    assert set(strategy.run.rounds[1].loss.values()) == {4.0}


PLAYED = {
    "afls", "bacsa", "bacsa_fs", "balanced_chains", "centered_clipping", "chains",
    "divfl", "fed_cbs", "fedadagrad", "fedadam", "fedavg", "fedavgm", "fedcls", "feddisco",
    "fedlecc", "fedseq", "fedseq_d2d", "fedtra", "fedyogi", "greedy_balance", "haccs", "hics",
    "krum", "median", "oort", "psi_pfl", "rfa", "similarity", "skew_aware", "trimmed_mean",
}  # fmt: skip
REFUSED = {
    "bacsa_snr": "signal-to-noise ratios",
    "baton": "changes what clients minimise",
    "baton_fast": "changes what clients minimise",
    "cba": "examples that the server itself holds",
    "ccvr": "after the last round",
    "cfl": "a Result of Flower's has one",
    "clust_psi_pfl": "a Result of Flower's has one",
    "fedbabu": "changes the model",
    "fedconcat": "after the last round",
    "fedcor": "losses on training examples",
    "feddyn": "corrects every gradient",
    "fedetf": "changes what clients minimise",
    "fedlc": "changes what clients minimise",
    "fednova": "optimiser and steps",
    "fedntd": "changes what clients minimise",
    "fedprox": "adds a term to every gradient",
    "fedrs": "changes what clients minimise",
    "fedsoft": "corrects every gradient",
    "fedvls": "changes what clients minimise",
    "ifca": "a Result of Flower's has one",
    "local_only": "a Result of Flower's has one",
    "logit_adjusted": "changes what clients minimise",
    "per_cluster_hellinger": "a Result of Flower's has one",
    "poc": "losses on training examples",
    "scaffold": "corrects every gradient",
}


def test_every_shipped_recipe_is_played_or_refused():
    assert sorted(shipped_recipes()) == sorted(PLAYED | set(REFUSED))


@pytest.mark.parametrize("recipe", sorted(REFUSED))
def test_what_cannot_work_is_refused_at_construction(recipe):
    with pytest.raises(RecipeError, match=REFUSED[recipe]):
        Strategy(recipe)


@pytest.mark.parametrize("recipe", sorted(PLAYED))
def test_what_can_work_is_played(recipe):
    """With an app that answers at once: the round is what counts here."""
    grid = grid_of(echo_app([disclose(labels)]))
    result = start(grid, Strategy(recipe), rounds=2)
    assert sorted(result.train_metrics_clientapp) == [1, 2]


@pytest.mark.parametrize(
    ("settings", "match"),
    [
        ({"local.lr": 0.1}, "your app's"),
        ({"model.use": "mlp"}, "your app's"),
        ({"data.clients": 3}, "your app's"),
        ({"run.rounds": 3}, "num_rounds"),
        ({"selection.use": "fedlecc", "selection.loss_source": "exact"}, "needs a"),
    ],
)
def test_settings_that_would_change_nothing_are_refused(settings, match):
    with pytest.raises(RecipeError, match=match):
        Strategy("fedavg", settings=settings)


@pytest.mark.parametrize(
    "settings", [{"selection.loss_source": "exact"}, {"selection.init": "evaluate"}]
)
def test_fedlecc_may_not_ask_for_losses(settings):
    with pytest.raises(RecipeError, match="losses on training examples"):
        Strategy("fedlecc", settings=settings)


def test_claimed_labels_cannot_be_probed_by_somebody_elses_training():
    with pytest.raises(RecipeError, match=r"trust\.probe = false"):
        Strategy("fedlecc", settings={"trust.on": True})
    Strategy("fedlecc", settings={"trust.on": True, "trust.probe": False})


@pytest.mark.parametrize("recipe", ["bacsa", "balanced_chains", "hics", "krum", "fedseq", "divfl"])
def test_secure_aggregation_leaves_no_rule_that_looks_at_single_models(recipe):
    with pytest.raises(RecipeError, match="secure aggregation hides"):
        Strategy(recipe, secure_aggregation=True)


def test_secure_aggregation_leaves_means_and_disclosed_labels():
    for recipe in ("fedavg", "fedadam", "fedlecc", "fed_cbs", "oort"):
        Strategy(recipe, secure_aggregation=True)


def test_a_wrapper_is_told_why_not():
    from flwr.serverapp.strategy import DifferentialPrivacyServerSideFixedClipping

    wrapped = DifferentialPrivacyServerSideFixedClipping(Strategy("fedavg"), 1.0, 1.0, 4)
    with pytest.raises(RecipeError, match="cannot be wrapped"):
        start(grid_of(), wrapped, rounds=1)


# ---------------------------------------------------------------- the node's own policy


def policy_file(tmp_path, text):
    path = tmp_path / "policy.toml"
    path.write_text(text)
    return str(path)


def disclosing():
    return echo_app([disclose(labels)])


def test_a_node_without_a_policy_says_nothing_of_its_labels():
    with pytest.raises(RunError, match="none of 8 clients gives its label counts") as error:
        start(grid_of(disclosing(), policy=""), Strategy("fedlecc"), rounds=1)
    assert "FEDSKEW_POLICY=open" in str(error.value)


def test_who_withholds_its_labels_is_passed_over_and_the_run_goes_on(tmp_path):
    grid = grid_of(disclosing(), clients=5)
    grid.join(5, policy=policy_file(tmp_path, "signals = []"))
    strategy = Strategy("fedlecc", settings={"run.clients_per_round": 6})
    start(grid, strategy, rounds=2)
    assert all(5 not in clients for round in chains(strategy) for clients in round)
    assert "does not give 'exact' label counts" in strategy.tally.withheld[5]


def test_noised_counts_are_paid_for_out_of_the_nodes_own_budget(tmp_path):
    pytest.importorskip("opendp")
    ledger = new_ledger(tmp_path / "ledger.jsonl")
    text = f'signals = ["private"]\nepsilon = 1.0\nledger = "{ledger}"\n'
    grid = grid_of(disclosing(), clients=4)
    grid.join(4, policy=policy_file(tmp_path, text))
    settings = {"signal.use": "private", "signal.epsilon": 0.75, "run.clients_per_round": 5}
    start(grid, Strategy("fedlecc", settings=settings), rounds=1)
    assert spent(ledger) == 0.75
    start(grid, Strategy("fedlecc", settings=settings), rounds=1)  # the same Flower run: as before
    assert spent(ledger) == 0.75
    for node in list(grid.nodes):
        grid.nodes[node].run_id = 8
    greedy = Strategy("fedlecc", settings={**settings, "signal.epsilon": 1000.0})
    start(grid, greedy, rounds=1)
    assert spent(ledger) == 0.75
    assert "of 1 is left" in greedy.tally.withheld[4]


def test_a_policy_rounds_refuses_tests_and_counts_rounds(tmp_path):
    text = 'round_examples_to = 50\nscores = false\nmax_rounds = 1\nledger = "ledger.jsonl"\n'
    new_ledger(tmp_path / "ledger.jsonl")
    grid = grid_of(disclosing(), clients=3)
    grid.join(3, policy=policy_file(tmp_path, text))
    sizes = {}

    def watch(node, question, reply):
        if question.metadata.message_type == "train" and reply.has_content():
            sizes[node] = reply.content["metrics"]["num-examples"]
        return reply

    grid.tamper = watch
    strategy = Strategy("fedavg", fraction_train=1.0)
    start(grid, strategy, rounds=2)
    assert sizes[NODE + 3] % 50 == 0 != sizes[NODE + 2] % 50
    assert list(strategy.run.rounds[1].failures) == []
    assert "its policy allows 1" in strategy.run.rounds[2].failures[3]


def test_a_policy_can_refuse_to_be_estimated(tmp_path):
    """A probe is a train message with server-round 0."""
    grid = grid_of(disclosing(), clients=5)
    grid.join(5, policy=policy_file(tmp_path, 'signals = ["exact"]'))
    strategy = Strategy("bacsa")
    start(grid, strategy, rounds=1)
    assert list(strategy.run.rounds[0].failures) == [5]


@pytest.mark.parametrize("wrong", [[0.5, 1.0], [0, 10], [-1]])
def test_labels_that_are_none_are_named(wrong):
    app = echo_app([disclose(lambda context: np.array(wrong))])
    with pytest.raises(RunError, match="disclose: labels"):
        start(grid_of(app), Strategy("fedlecc"), rounds=1)


# ---------------------------------------------------------------- Flower's own mods


def test_local_differential_privacy_on_training():
    quiet = LocalDpMod(clipping_norm=1e6, sensitivity=1e-9, epsilon=1.0, delta=0.1)
    app = make_client_app([disclose(labels)], train_mods=[quiet])
    noised = main(grid_of(app), Strategy("fedlecc"), rounds=1)
    plain = main(grid_of(make_client_app([disclose(labels)])), Strategy("fedlecc"), rounds=1)
    gap = np.abs(numbers(noised.arrays) - numbers(plain.arrays)).max()
    assert 0 < gap < 1e-3
    loud = LocalDpMod(clipping_norm=0.1, sensitivity=0.1, epsilon=1.0, delta=0.1)
    app = make_client_app([disclose(labels)], train_mods=[loud])
    noised = main(grid_of(app), Strategy("fedlecc"), rounds=1)
    assert np.abs(numbers(noised.arrays) - numbers(plain.arrays)).max() > 0.01


def test_clipping_at_the_client():
    """The norm comes with the configuration; noise at the server is Flower's wrapper's alone."""
    strategy = Strategy("fedavg", fraction_train=1.0)
    arrays = ArrayRecord(digits_app.first_model().state_dict())
    result = strategy.start(
        grid_of(make_client_app(train_mods=[fixedclipping_mod])),
        arrays,
        num_rounds=1,
        train_config=ConfigRecord({"lr": 0.05, "clipping_norm": 0.01}),
    )
    moved = {n: result.arrays[n].numpy() - arrays[n].numpy() for n in arrays if "num" not in n}
    length = np.sqrt(sum(np.square(part).sum() for part in moved.values()))
    assert 0 < length <= 0.0101


# ---------------------------------------------------------------- members that lie


def model_with(change):
    """A reply whose arrays are changed."""

    def poison(reply):
        arrays = {name: array.numpy() for name, array in reply.content["arrays"].items()}
        change(arrays)
        reply.content["arrays"] = ArrayRecord({n: Array(np.asarray(a)) for n, a in arrays.items()})
        return reply

    return poison


def metrics_with(**changed):
    def poison(reply):
        told = {
            **reply.content["metrics"],
            **{k.replace("_n", "-n"): v for k, v in changed.items()},
        }
        reply.content["metrics"] = MetricRecord(told)
        return reply

    return poison


def without(name):
    def poison(reply):
        del reply.content[name]
        return reply

    return poison


def forged(reply):
    """A header that claims more than there is."""
    arrays = dict(reply.content["arrays"].items())
    honest = arrays["fc2.bias"]
    data = honest.data.replace(b"(10,), }" + b" " * 17, b"(1152921504606846976,), }", 1)
    assert data != honest.data
    arrays["fc2.bias"] = Array(honest.dtype, honest.shape, honest.stype, data)
    reply.content["arrays"] = ArrayRecord(arrays)
    return reply


LIES = {
    "nan": (model_with(lambda a: a["fc2.weight"].fill(np.nan)), "non-finite parameters"),
    "huge": (model_with(lambda a: a["fc1.weight"].fill(1e30)), "too large"),
    "double": (
        model_with(lambda a: a.update({"fc1.bias": np.full(32, 1e300)})), "non-finite parameters"
    ),
    "variance": (model_with(lambda a: a["norm.running_var"].fill(-1)), "negative"),
    "shape": (model_with(lambda a: a.update({"fc1.bias": np.zeros(3)})), "wrong shape"),
    "missing": (model_with(lambda a: a.pop("fc1.bias")), "other arrays"),
    "more": (model_with(lambda a: a.update({"x": np.zeros(3)})), "other arrays"),
    "text": (model_with(lambda a: a.update({"fc1.bias": np.array(["a"] * 32)})), "type"),
    "header": (forged, "numbers in"),
    "loss": (metrics_with(train_loss=float("nan")), "non-finite loss"),
    "no size": (metrics_with(**{"num-examples": 0}), "not within 1"),
    "half": (metrics_with(**{"num-examples": 0.5}), "no whole number"),
    "list": (metrics_with(**{"num-examples": [1, 2]}), "no whole number"),
    "size": (metrics_with(**{"num-examples": 10**12}), "not within 1"),
    "no arrays": (without("arrays"), "0 ArrayRecords"),
    "no metrics": (without("metrics"), "0 MetricRecords"),
}  # fmt: skip


def lying(poison, node=NODE, kind="train"):
    def tamper(sender, question, reply):
        lies = sender == node and question.metadata.message_type == kind and reply.has_content()
        return poison(reply) if lies else reply

    return tamper


def quick():
    return Strategy("fedavg", fraction_train=1.0, fraction_evaluate=0.0)


@pytest.fixture(scope="module")
def honest_rest():
    """The model of clients 1, 2 and 3, whose app fails at client 0."""

    def broken(sender, question, reply):
        train = sender == NODE and question.metadata.message_type == "train"
        return (
            Message(Error(2, "<class 'OSError'>:<'disk'>"), reply_to=question) if train else reply
        )

    return numbers(start(grid_of(clients=4, tamper=broken), quick(), rounds=1).arrays)


@pytest.mark.parametrize("lie", sorted(LIES))
def test_a_member_that_lies_loses_its_update_only(lie, honest_rest):
    poison, why = LIES[lie]
    strategy = quick()
    result = start(grid_of(clients=4, tamper=lying(poison)), strategy, rounds=1)
    assert why in strategy.run.rounds[1].failures[0]
    np.testing.assert_array_equal(numbers(result.arrays), honest_rest)


def test_a_large_claim_is_believed_up_to_the_guards_share():
    poison = metrics_with(**{"num-examples": 10**9})
    strategy = quick()
    result = start(grid_of(clients=6, tamper=lying(poison)), strategy, rounds=1)
    assert "at most 0.85 of all" in strategy.run.rounds[1].notes[0]
    assert np.isfinite(numbers(result.arrays)).all()


@pytest.mark.parametrize(
    "poison",
    [
        metrics_with(eval_loss=float("nan")),
        metrics_with(eval_loss=[1.0, 2.0]),
        metrics_with(surprise=1.0),
        metrics_with(**{"num-examples": 10**12}),
        without("metrics"),
    ],
)
def test_a_member_that_lies_about_tests_has_no_say_in_their_mean(poison):
    fair = start(grid_of(clients=4), Strategy("fedavg", fraction_train=1.0), rounds=1)
    grid = grid_of(clients=4, tamper=lying(poison, NODE + 3, "evaluate"))
    result = start(grid, Strategy("fedavg", fraction_train=1.0), rounds=1)
    found = result.evaluate_metrics_clientapp[1]
    assert sorted(found) == ["eval_acc", "eval_loss"]
    assert np.isfinite(list(found.values())).all()
    assert found != fair.evaluate_metrics_clientapp[1]
    np.testing.assert_array_equal(numbers(result.arrays), numbers(fair.arrays))


def test_a_member_that_lies_about_its_labels_is_left_out():
    def poison(reply):
        if "fedskew" not in reply.content:
            return reply
        counts = reply.content["arrays"]["counts"].numpy()
        reply.content["arrays"] = ArrayRecord({"counts": Array(counts + np.uint32(5))})
        return reply

    strategy = Strategy("fedlecc", settings={"run.clients_per_round": 6})
    start(grid_of(disclosing(), clients=6, tamper=lying(poison)), strategy, rounds=1)
    assert sorted(c for (c,) in chains(strategy)[0]) == [1, 2, 3, 4, 5]


# ---------------------------------------------------------------- who comes and goes


def test_members_may_leave_and_join_and_come_back():
    grid = grid_of(disclosing(), clients=3)

    def change(server_round, arrays):
        if server_round == 1:
            grid.leave(NODE + 1)
            grid.join(6)
        if server_round == 2:
            grid.join(1, node=77)  # restarted: another node, the same client

    strategy = Strategy("fedlecc", settings={"run.clients_per_round": 9})
    start(grid, strategy, rounds=3, evaluate_fn=change)
    played = [sorted(c for (c,) in round) for round in chains(strategy)]
    assert played == [[0, 1, 2], [0, 2, 6], [0, 1, 2, 6]]


def test_newcomers_without_a_number_take_free_places():
    grid = grid_of(clients=2)

    def change(server_round, arrays):
        if server_round == 1:
            grid.join(2)

    strategy = Strategy("fedavg", settings={"run.clients_per_round": 9})
    start(grid, strategy, rounds=2, evaluate_fn=change)
    assert [len(round) for round in chains(strategy)] == [2, 3]


# ---------------------------------------------------------------- the model's arrays


def test_the_output_layer_is_found_or_named():
    arrays = ArrayRecord(digits_app.first_model().state_dict())
    form = AppArrays.of(arrays)
    head = form.layout.head(form.num_classes)
    assert [block.name for block in head] == ["fc2.weight", "fc2.bias"]
    named = AppArrays.of(arrays, "fc1")
    assert (named.num_classes, named.layout.head(32)[0].name) == (32, "fc1.weight")
    with pytest.raises(RecipeError, match=r"Name one of: fc1\.weight, fc2\.weight"):
        AppArrays.of(arrays, "fc3")
    with pytest.raises(RecipeError, match="has 10 rows for 7 labels"):
        start(grid_of(), Strategy("bacsa", num_classes=7), rounds=1)


def test_arrays_come_back_in_their_order_form_and_type():
    given = {
        "half": np.ones((2, 3, 4), np.float16),
        "steps": np.int64(7),
        "columns": np.asfortranarray(np.arange(6, dtype=np.float64).reshape(2, 3)),
        "flag": np.array([True, False]),
        "bn.running_var": np.ones(2, np.float32),
    }
    record = ArrayRecord({name: Array(np.asarray(value)) for name, value in given.items()})
    form = AppArrays.of(record, "columns")
    back = form.record(form.vector(record))
    assert list(back) == list(given)
    for name, value in given.items():
        found = back[name].numpy()
        assert (found.dtype, found.shape) == (np.asarray(value).dtype, np.shape(value)), name
        np.testing.assert_array_equal(found, value)


# ---------------------------------------------------------------- the account


def test_a_run_folder_keeps_the_account(tmp_path):
    strategy = Strategy("fedavg", settings={"run.clients_per_round": 2}, out=tmp_path / "run")
    result = main(grid_of(clients=3), strategy, rounds=2)
    read = fedskew.Run.read(tmp_path / "run")
    assert [record.round for record in read.rounds] == [0, 1, 2]
    central = result.evaluate_metrics_serverapp
    assert [r.accuracy for r in read.rounds] == [central[n]["accuracy"] for n in range(3)]
    size = sum(array.numpy().nbytes for array in result.arrays.values())
    assert read.summary()["bytes_up"] == 2 * 2 * size
    assert all(s > 0 for record in read.rounds[1:] for s in record.client_seconds.values())


def test_the_servers_own_tests_have_the_threads_they_had():
    def threads(*given):
        found = {one["prefix"]: one["num_threads"] for one in threadpool_info()}
        return MetricRecord({name: float(number) for name, number in found.items()})

    with threadpool_limits(2):
        before = threads()
        result = start(grid_of(clients=2), quick(), evaluate_fn=threads)
    assert max(before.values()) == 2.0
    assert result.evaluate_metrics_serverapp[1] == before


def test_importing_fedskew_does_not_import_flower():
    code = (
        "import fedskew, fedskew.flower, sys; assert not any(m.split('.')[0] == 'flwr' for m in "
        "sys.modules); fedskew.flower.disclose; assert 'torch' not in sys.modules"
    )
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    subprocess.run([sys.executable, "-c", code], check=True, env=environment)


# ---------------------------------------------------------------- Flower's own engine

SIMULATED = """
import json, logging, sys
from digits_app import make_client_app, make_server_app, training_part
from flwr.simulation import run_simulation
from fedskew.flower import Strategy, disclose

def labels(context):
    return training_part(int(context.node_config["partition-id"]))[1]

def done(result):
    chains = [[c.clients for c in r.chains] for r in strategy.run.rounds[1:]]
    counted = [len(training_part(c)[1]) for c in range(4)]
    told = [strategy.run.clients["examples"][c] for c in range(4)]
    found = {"chains": chains, "sizes": told == counted,
             "central": sorted(result.evaluate_metrics_serverapp)}
    print("FOUND", json.dumps(found))

strategy = Strategy("fedlecc", settings={"run.clients_per_round": 3})
run_simulation(
    server_app=make_server_app(lambda: strategy, done),
    client_app=make_client_app([disclose(labels)]),
    num_supernodes=4,
    backend_config={"client_resources": {"num_cpus": 1}, "init_args": {"num_cpus": 2}},
)
"""


def test_on_flowers_simulation_engine(tmp_path):
    pytest.importorskip("ray", reason="Flower's simulation engine is not installed")
    script = tmp_path / "simulate.py"
    script.write_text(SIMULATED)
    quiet = {"FLWR_TELEMETRY_ENABLED": "0", "RAY_USAGE_STATS_ENABLED": "0", "HOME": str(tmp_path)}
    quiet["RAY_worker_niceness"] = "0"  # else workers hardly start while others use the cores
    done = subprocess.run(
        [sys.executable, str(script)],
        env={
            **os.environ,
            **quiet,
            "FEDSKEW_POLICY": "open",
            "PYTHONPATH": f"{ROOT / 'src'}:{ROOT / 'tests' / 'flower'}",
        },
        capture_output=True,
        text=True,
        timeout=800,
    )
    line = next((x for x in done.stdout.splitlines() if x.startswith("FOUND")), None)
    assert line is not None, done.stdout[-3000:] + done.stderr[-3000:]
    found = json.loads(line.removeprefix("FOUND"))
    assert [len(round) for round in found["chains"]] == [3, 3]
    assert found["sizes"]
    assert found["central"] == [0, 1, 2]


def test_on_real_supernodes(tmp_path):
    """A SuperLink and two SuperNodes on loopback, an app without torch."""
    out = tmp_path / "found.json"
    fleet = local_fleet.up(tmp_path / "home", 2)
    try:
        app = str(ROOT / "tests" / "flower" / "numpy_app")
        call(fleet.flower_home, "run", app, CONNECTION, "--run-config", f'out="{out}"')
        wait_for(out.is_file)
    finally:
        local_fleet.down(tmp_path / "home")
    found = json.loads(out.read_text())
    assert [sorted(round) for round in found["chains"]] == [[[0], [1]]] * 2
    assert found["examples"] == [40, 41]
    assert found["messages"] == 2 * (1 + 2 * 2)  # labels once, then training and a test a round
    assert found["accuracy"]["2"] > found["accuracy"]["1"] > 0.5
