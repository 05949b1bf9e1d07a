"""Local objectives against a naive autograd loop written from the formula, on three models; and a
test per objective that fails if it quietly becomes cross-entropy.
"""

from __future__ import annotations

import copy

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402

from fedskew.errors import RecipeError  # noqa: E402
from fedskew.recipe import fingerprint, load, method_of, resolve  # noqa: E402
from fedskew.runtime.local.flat import FlatModule  # noqa: E402
from fedskew.runtime.local.runtime import LocalRuntime  # noqa: E402
from fedskew.runtime.local.step import AutogradStep, FusedMLPStep, step_for  # noqa: E402
from fedskew.runtime.local.store import Store  # noqa: E402
from fedskew.streams import stream  # noqa: E402
from fedskew.types import LocalJob, TrainOrder  # noqa: E402

CLASSES, WIDTH = 5, 8
OBJECTIVES = {
    "logit_adjusted": (("tau", 1.0), ("smoothing", 1e-3)),
    "fedrs": (("alpha", 0.5),),
}
MODELS = {
    "linear": lambda: nn.Sequential(nn.Linear(WIDTH, CLASSES)),
    "mlp": lambda: nn.Sequential(nn.Linear(WIDTH, 16), nn.ReLU(), nn.Linear(16, CLASSES)),
    "tanh": lambda: nn.Sequential(nn.Linear(WIDTH, 16), nn.Tanh(), nn.Linear(16, CLASSES)),
}


def examples(seed=0, n=80):
    """Class 4 is missing, class 0 is frequent."""
    rng = np.random.default_rng(seed)
    y = rng.choice([0, 0, 0, 1, 2, 3], n)
    x = rng.normal(size=(n, WIDTH)).astype(np.float32) + y[:, None].astype(np.float32) / 3
    return x, y.astype(np.int64)


def store_of(x, y):
    return Store(
        x=x,
        y=y,
        train_order=np.arange(len(y)),
        train_offsets=np.array([0, len(y)]),
        x_test=x[:4],
        y_test=y[:4],
        central_order=np.arange(4),
        test_order=np.arange(4),
        test_offsets=np.array([0, 4]),
        num_classes=CLASSES,
    )


def formula(name, logits, target, counts):
    """The loss of one batch, from the papers."""
    if name == "logit_adjusted":
        share = counts / counts.sum()
        shift = torch.log((share + 1e-3) / (1 / CLASSES + 1e-3))
        return nn.functional.cross_entropy(logits + shift, target)
    present = (counts > 0).float()
    return nn.functional.cross_entropy(logits * (present + 0.5 * (1 - present)), target)


def naive(module, name, x, y, job):
    module = copy.deepcopy(module)
    counts = torch.bincount(torch.from_numpy(y), minlength=CLASSES).float()
    optimizer = torch.optim.SGD(module.parameters(), lr=job.lr)
    rng = stream(0, "batch", 0, 1)
    rows = np.arange(len(y))
    for _ in range(job.epochs):
        order = rows[rng.permutation(len(rows))]
        for begin in range(0, len(order), job.batch):
            piece = order[begin : begin + job.batch]
            optimizer.zero_grad()
            loss = formula(
                name, module(torch.from_numpy(x[piece])), torch.from_numpy(y[piece]), counts
            )
            loss.backward()
            optimizer.step()
    return torch.cat([p.detach().reshape(-1) for p in module.parameters()]).numpy()


def job_of(name, options):
    """20 steps: 80 examples in batches of 16, four epochs."""
    return LocalJob(epochs=4, batch=16, lr=0.1, objective=name, objective_options=options)


def trained(module, x, y, job):
    factory = lambda: copy.deepcopy(module)  # noqa: E731
    with LocalRuntime(store_of(x, y), factory, workers=1) as runtime:
        first = runtime.initial(0)
        order = TrainOrder([0], first[None], [0], job, seed=0, round=1)
        replies = runtime.train(order)
    assert replies.ok.all(), replies.failures
    return replies.params[0]


@pytest.mark.parametrize("name", OBJECTIVES)
@pytest.mark.parametrize("model", MODELS)
def test_an_objective_is_its_formula(name, model):
    torch.manual_seed(3)
    module = MODELS[model]()
    x, y = examples()
    job = job_of(name, OBJECTIVES[name])
    expected, plain = naive(module, name, x, y, job), trained(module, x, y, LocalJob(4, 16, 0.1))
    result = trained(module, x, y, job)
    assert np.abs(result - expected).max() < 1e-5
    assert np.abs(result - plain).max() > 1e-3, "it has quietly become cross-entropy"


@pytest.mark.parametrize("name", OBJECTIVES)
def test_the_fused_step_computes_objectives_itself(name):
    model = FlatModule(MODELS["mlp"], 0)
    assert isinstance(step_for(model, job_of(name, OBJECTIVES[name])), FusedMLPStep)
    adam = LocalJob(optimizer="adam", objective=name, objective_options=OBJECTIVES[name])
    assert isinstance(step_for(model, adam), AutogradStep)


def test_a_recipe_says_it_in_a_table_of_its_own():
    resolved = resolve(load("logit_adjusted"))
    assert resolved["objective"] == {"use": "logit_adjusted", "tau": 1.0, "smoothing": 1e-3}
    assert "objective" not in resolved["local"]
    job = method_of(resolved).job
    assert (job.objective, dict(job.objective_options)["tau"]) == ("logit_adjusted", 1.0)
    with pytest.raises(RecipeError, match=r"objective\.alpha"):
        resolve({"objective": {"use": "fedrs", "alpha": 2.0}})
    with pytest.raises(RecipeError, match="Did you mean"):
        resolve({"objective": {"use": "logit_adjustd"}})


def test_plain_cross_entropy_keeps_the_fingerprint_of_recipes_from_before_the_stage():
    resolved = resolve(load("fedavg"))
    without = {key: value for key, value in resolved.items() if key != "objective"}
    assert fingerprint(resolved) == fingerprint(without)
    assert fingerprint(resolve(load("fedrs"))) != fingerprint(resolved)
