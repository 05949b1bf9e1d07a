"""Output layers that are not trained (docs/methods.md 10.1): the simplex, what travels, what is
refused, and that training is what torch.optim does with the same module.
"""

from __future__ import annotations

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402

from fedskew.errors import RecipeError  # noqa: E402
from fedskew.experiment.local import run  # noqa: E402
from fedskew.models import MODELS, build, find_head  # noqa: E402
from fedskew.models._layers import simplex_corners  # noqa: E402
from fedskew.recipe import fingerprint, load, override, resolve  # noqa: E402
from fedskew.runtime.local.flat import FlatModule, layout_of, seeded  # noqa: E402
from fedskew.runtime.local.step import step_for  # noqa: E402
from fedskew.types import LocalJob  # noqa: E402

TEXT = ("lstm", "embedding", "transformer")
SMALL = {"run.rounds": 2, "data.clients": 6, "run.clients_per_round": 3}


@pytest.mark.parametrize("num_classes", [2, 3, 10])
def test_corners_are_a_regular_simplex(num_classes):
    corners = simplex_corners(num_classes).double()
    wanted = torch.full((num_classes, num_classes), -1 / (num_classes - 1), dtype=torch.float64)
    wanted.fill_diagonal_(1.0)
    torch.testing.assert_close(corners @ corners.t(), wanted, atol=1e-6, rtol=0)
    assert float(corners.sum(0).abs().max()) < 1e-6


def test_logits_are_the_temperature_times_cosines():
    model = build("tiny_mlp", (4, 4), 3, head="etf")
    head = model[-1]
    with torch.no_grad():
        head.temperature.fill_(2.5)
        hidden = model[:-1](torch.randn(7, 4, 4))
        placed = head.projection(hidden)
        logits = head(hidden)
    for row, given in zip(placed, logits, strict=True):
        cosines = [torch.cosine_similarity(row, corner, dim=0) for corner in head.corners]
        torch.testing.assert_close(given, 2.5 * torch.stack(cosines), atol=1e-5, rtol=0)


@pytest.mark.parametrize("head", ["frozen", "etf"])
def test_what_is_not_trained_does_not_travel(head):
    names = {block.name for block in layout_of(build("mlp", (8, 8), 10, head=head)).blocks}
    assert not names & {"5.weight", "5.bias"}
    assert "5.corners" not in names
    plain = build("mlp", (8, 8), 10)
    kept = layout_of(plain).size - (find_head(plain).weight.numel() + 10)
    extra = {"frozen": 0, "etf": 200 * 10 + 10 + 1}[head]
    assert layout_of(build("mlp", (8, 8), 10, head=head)).size == kept + extra


@pytest.mark.parametrize("name", sorted(set(MODELS) - {"logistic"}))
@pytest.mark.parametrize("head", ["frozen", "etf"])
def test_every_model_can_have_it(name, head):
    shape = (12,) if name in TEXT else (32, 32, 3)
    options = {"vocab": 30} if name in TEXT else {}
    if name == "cnn_similarity" or name == "cnn_fmnist":
        shape = (28, 28)
    with seeded(0):
        plain = build(name, shape, 5, **options)
    with seeded(0):
        model = build(name, shape, 5, head=head, **options).eval()
    batch = torch.ones((2, *shape), dtype=torch.int64)
    if len(shape) > 1:
        batch = torch.rand((2, shape[2] if len(shape) == 3 else 1, *shape[:2]))
    assert model(batch).shape == (2, 5)
    layer = find_head(model)
    assert torch.equal(layer.weight, find_head(plain).weight), "the body's draws have moved"
    assert layer.weight.requires_grad == (head == "etf")


@pytest.mark.parametrize("head", ["frozen", "etf"])
def test_training_is_what_torch_optim_does(head):
    def factory():
        return build("mlp", (6,), 4, hidden=(16,), head=head)

    model, job = FlatModule(factory, 3), LocalJob(lr=0.1, momentum=0.9)
    rng = np.random.default_rng(0)
    x = torch.from_numpy(rng.normal(size=(60, 6)).astype(np.float32))
    y = torch.from_numpy(rng.integers(0, 4, 60))
    with seeded(0):
        naive = factory()
    naive.load_state_dict(
        {name: value.clone() for name, value in model.module.state_dict().items()}
    )
    optimizer = torch.optim.SGD([p for p in naive.parameters() if p.requires_grad], 0.1, 0.9)
    step = step_for(model, job)
    for begin in [*range(0, 60, 3)]:  # 20 steps
        step(x[begin : begin + 3], y[begin : begin + 3])
        optimizer.zero_grad()
        nn.functional.cross_entropy(naive(x[begin : begin + 3]), y[begin : begin + 3]).backward()
        optimizer.step()
    for name, value in naive.state_dict().items():
        torch.testing.assert_close(model.module.state_dict()[name], value, atol=1e-5, rtol=0)


@pytest.mark.parametrize(("name", "numbers"), [("fedbabu", 2080), ("fedetf", 2411)])
def test_frozen_numbers_are_not_charged(name, numbers):
    result = run(name, settings=SMALL, workers=1)
    down = [
        t.bytes for t in result.rounds[1].transfers if (t.direction, t.kind) == ("down", "model")
    ]
    assert sum(down) == 3 * 4 * numbers
    assert result.models.shape == (1, numbers)


def test_a_frozen_head_learns_all_the_same_and_is_not_fedavg():
    settings = {"run.rounds": 15, "local.lr": 0.5, "partition.use": "iid"}
    frozen = run("fedbabu", settings=settings, workers=1)
    assert frozen.summary()["final_accuracy"] > 0.6
    assert frozen.models.shape != run("fedavg", settings=settings, workers=1).models.shape


@pytest.mark.parametrize(
    ("recipe", "settings", "reader"),
    [
        ("bacsa", {}, "model.head_init = 'bacsa'"),
        ("bacsa", {"model.head_init": "default"}, "signal estimated"),
        ("hics", {}, "selection hics"),
        ("cba", {}, "selection cba"),
        ("divfl", {"selection.layer": "last"}, "selection divfl"),
        ("cfl", {"procedure.cache": "last"}, "procedure.cache = 'last'"),
    ],
)
@pytest.mark.parametrize("head", ["frozen", "etf"])
def test_readers_of_the_output_layer_are_refused(recipe, settings, reader, head):
    with pytest.raises(RecipeError, match="does not train") as refused:
        resolve(override(load(recipe), {"model.head": head, **settings}))
    assert refused.value.where == reader


def test_nothing_left_to_train_is_refused():
    with pytest.raises(RecipeError, match="nothing is left to train"):
        build("logistic", (4,), 3, head="frozen")


def test_an_unknown_head_is_refused():
    with pytest.raises(RecipeError, match="head is 'eft'"):
        build("tiny_mlp", (4,), 3, head="eft")


def test_recipes_that_say_nothing_of_it_keep_their_name():
    plain = resolve(load("fedavg"))
    before = {**plain, "model": {k: v for k, v in plain["model"].items() if k != "head"}}
    assert fingerprint(plain) == fingerprint(before)
    assert fingerprint(resolve(override(load("fedavg"), {"model.head": "etf"}))) != fingerprint(
        plain
    )
