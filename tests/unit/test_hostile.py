"""Hostile clients are data: who they are is fixed by the seed, what they send is what was asked
for, and nobody else's bytes change.
"""

from __future__ import annotations

import json
import tomllib

import numpy as np
import pytest

import fedskew
from fedskew.errors import RecipeError
from fedskew.recipe import fingerprint, load, override, resolve
from fedskew.runtime.faults import Faults
from fedskew.runtime.hostile import Hostile, HostileRuntime
from fedskew.runtime.scripted import ScriptedRuntime
from fedskew.types import LocalJob, Population, ScoreOrder, TrainOrder

K, C = 10, 4
COUNTS = np.arange(K * C).reshape(K, C)[:, ::-1]  # the last label is the rarest
ORDER = {"clients": range(K), "start": [0] * K, "job": LocalJob(), "seed": 0, "round": 3}


def replies_of(hostile: Hostile):
    """What everybody sends, honest and hostile, and the model they began with."""
    honest = ScriptedRuntime(COUNTS)
    model = honest.initial(0)[None]
    order = TrainOrder(models=model, **ORDER)
    return honest.train(order), HostileRuntime(honest, hostile, seed=5).train(order), model[0]


@pytest.mark.parametrize(("kind", "factor"), [("scale", 1000), ("flip", -10), ("collude", -1)])
def test_an_update_is_changed_as_its_kind_says(kind, factor):
    hostile = Hostile(clients=(2, 7), kind=kind)
    before, after, model = replies_of(hostile)
    honest = np.setdiff1d(range(K), [2, 7])
    assert after.params[honest].tobytes() == before.params[honest].tobytes()
    updates = before.params[[2, 7]].astype(float) - model
    wanted = updates.mean(axis=0) if kind == "collude" else updates
    np.testing.assert_allclose(after.params[[2, 7]] - model, factor * (wanted + 0 * updates), 1e-3)
    assert after.loss.tolist() == before.loss.tolist()


def test_colluders_send_one_and_the_same_update():
    _, after, _ = replies_of(Hostile(clients=(2, 5, 7), kind="collude"))
    assert len(np.unique(after.params[[2, 5, 7]], axis=0)) == 1


def test_noise_has_the_length_asked_for_and_a_direction_of_its_own():
    before, after, model = replies_of(Hostile(clients=(2, 7), kind="noise", factor=3.0))
    own, sent = before.params[[2, 7]] - model, after.params[[2, 7]] - model
    np.testing.assert_allclose(*(np.linalg.norm(u, axis=1) for u in (3 * own, sent)), rtol=1e-3)
    assert abs(np.corrcoef(own[0], sent[0])[0, 1]) < 0.99
    assert not np.allclose(sent[0], sent[1])


def test_lies_about_loss_and_size_leave_the_model_alone():
    before, after, _ = replies_of(Hostile(clients=(4,), kind=("lie_loss", "lie_size")))
    assert after.params.tobytes() == before.params.tobytes()
    assert after.loss[4] == pytest.approx(22.926, abs=1e-3)  # 10 ln 10 - 0.1
    assert after.examples[4] == 1000 * before.examples[4]
    others = np.arange(K) != 4
    assert after.loss[others].tolist() == before.loss[others].tolist()
    assert after.examples[others].tolist() == before.examples[others].tolist()


def test_a_size_is_claimed_at_the_hello_too_else_the_border_would_refuse_it():
    pace = Population(COUNTS.sum(axis=1), seconds_per_example=np.full(K, 0.5))
    honest = ScriptedRuntime(COUNTS, population=pace)
    liar = HostileRuntime(honest, Hostile(clients=(4,), kind="lie_size"), 0)
    said, true = liar.describe().population, honest.describe().population
    assert (
        said.num_examples.tolist()
        == (true.num_examples * np.where(np.arange(K) == 4, 1000, 1)).tolist()
    )
    spent = said.num_examples * said.seconds_per_example
    np.testing.assert_allclose(spent, true.num_examples * 0.5)  # nobody is slower for it
    model = honest.initial(0)[None]
    assert liar.train(TrainOrder(models=model, **ORDER)).ok.all()


def test_a_loss_that_is_asked_for_is_a_lie_too_but_test_scores_are_not():
    runtime = HostileRuntime(
        ScriptedRuntime(COUNTS), Hostile(clients=(4,), kind="lie_loss", loss=9.0), 0
    )
    model = runtime.initial(0)[None]
    asked = {which: ScoreOrder([3, 4], model, [0, 0], which) for which in ("train", "test")}
    assert runtime.score(asked["train"]).loss[1] == 9.0
    assert runtime.score(asked["train"]).loss[0] != 9.0
    assert runtime.score(asked["test"]).loss[1] != 9.0


@pytest.mark.parametrize("mix", ["uniform", "rare"])
def test_a_claimed_histogram_keeps_its_size(mix):
    runtime = HostileRuntime(
        ScriptedRuntime(COUNTS), Hostile(clients=(4,), kind="lie_histogram", mix=mix), 0
    )
    claimed, others = runtime.label_counts(), np.arange(K) != 4
    assert claimed[4].sum() == COUNTS[4].sum()
    assert (claimed[others] == COUNTS[others]).all()
    if mix == "rare":
        assert claimed[4].tolist() == [0, 0, 0, COUNTS[4].sum()]
    else:
        assert np.ptp(claimed[4]) <= 1


def test_who_is_hostile_depends_on_the_seed_alone():
    share = Hostile(share=0.3)
    assert share.who(20, 1).tolist() == share.who(20, 1).tolist()
    assert share.who(20, 1).tolist() != share.who(20, 2).tolist()
    assert [len(Hostile(share=s).who(20, 0)) for s in (0, 0.01, 0.3, 1)] == [0, 1, 6, 20]


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"share": 1.5}, r"faults\.hostile\.share: 1\.5 is not a share"),
        ({"shares": 0.5}, r"faults\.hostile: unknown option 'shares'"),
        ({"share": 0.5, "kind": "steal"}, r"faults\.hostile\.kind: 'steal' is not"),
        ({"share": 0.5, "kind": ["flip", "scale"]}, "two updates of one client"),
        ({"share": 0.5, "clients": [1]}, "gives a share and names clients"),
        (0.5, r"faults\.hostile: is 0\.5, not a table"),
    ],
)
def test_a_wrong_table_is_refused(given, message):
    with pytest.raises(RecipeError, match=message):
        resolve({"faults": {"hostile": given}})


def test_clients_that_do_not_exist_and_flips_without_examples_are_refused():
    with pytest.raises(RecipeError, match=r"names clients outside 0\.\.9"):
        HostileRuntime(ScriptedRuntime(COUNTS), Hostile(clients=(10,)), 0)
    with pytest.raises(RecipeError, match="label_flip needs clients whose examples are here"):
        HostileRuntime(ScriptedRuntime(COUNTS), Hostile(clients=(1,), kind="label_flip"), 0)


def test_the_three_ways_to_say_it_are_one():
    text = '[faults.hostile]\nshare = 0.2\nkind = "flip"\n'
    settings = {"faults.hostile.share": "0.2", "faults.hostile.kind": "flip"}
    table = {"faults.hostile": '{share = 0.2, kind = "flip"}'}
    wanted = resolve(tomllib.loads(text))
    assert resolve(override({}, settings)) == wanted == resolve(override({}, table))
    assert Faults(**json.loads(json.dumps(wanted["faults"]))).hostile == Hostile(0.2, "flip")


def test_recipes_without_hostile_clients_keep_their_fingerprint():
    resolved = resolve(load("fedavg"))
    older = {k: v for k, v in resolved["faults"].items() if k != "hostile"}
    assert fingerprint({**resolved, "faults": older}) == fingerprint(resolved)
    hostile = resolve(override(load("fedavg"), {"faults.hostile.share": 0.2}))
    assert fingerprint(hostile) != fingerprint(resolved)


# ---------------------------------------------------------------- on this machine

SMALL = {"run.rounds": 2, "data.clients": 6, "run.clients_per_round": 6}


def played(out=None, workers=1, **hostile):
    settings = {f"faults.hostile.{key}": value for key, value in hostile.items()}
    return fedskew.run("fedavg", settings={**SMALL, **settings}, workers=workers, out=out)


def test_the_run_says_who_was_hostile(tmp_path):
    run = played(share=0.3, kind="flip", out=tmp_path / "run")
    facts = json.loads((tmp_path / "run" / "run.json").read_text())["hostile"]
    assert facts == run.facts["hostile"]
    assert facts == {"kinds": ["flip"], "clients": Hostile(0.3).who(6, 0).tolist()}


def test_label_flippers_really_train_on_flipped_labels():
    """The same bytes as honest clients whose examples have label C - 1 - c; honest clients' losses
    of the first round, before anybody's model was mixed with theirs, are the same.
    """
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(240, 5)).astype(np.float32), np.arange(240) % 4
    owner = np.arange(240) // 60
    turned = np.where(owner == 2, 3 - y, y)
    options = {"clients": owner, "workers": 1}
    settings = {"run.rounds": 2, "data.client_test": "none"}
    flip = {"faults.hostile.clients": [2], "faults.hostile.kind": "label_flip"}

    def run(labels, **more):
        given = (x, labels, x[:40], y[:40])
        return fedskew.run("fedavg", data=given, settings={**settings, **more}, **options)

    honest, flipped, wanted = run(y), run(y, **flip), run(turned)
    assert flipped.models.tobytes() == wanted.models.tobytes() != honest.models.tobytes()
    first = [dict(r.rounds[1].loss) for r in (honest, flipped)]
    assert first[0].pop(2) != first[1].pop(2)
    assert first[0] == first[1]
    assert flipped.labels.counts.tolist() == honest.labels.counts.tolist()  # the records' truth


def test_two_workers_give_the_same_bytes():
    one, two = (played(share=0.4, kind=["noise", "lie_size"], workers=w) for w in (1, 2))
    assert one.models.tobytes() == two.models.tobytes()
