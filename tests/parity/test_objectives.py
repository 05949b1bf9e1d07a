"""Local objectives against a naive autograd loop written from the formula, on three models; and a
test per objective that fails if it quietly becomes cross-entropy.
"""

from __future__ import annotations

import copy
from dataclasses import replace

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402
from torch.nn import functional as F  # noqa: E402

from fedskew.objective import OBJECTIVES, loss_for  # noqa: E402
from fedskew.runtime.local.criterion import Criterion  # noqa: E402
from fedskew.runtime.local.flat import FlatModule  # noqa: E402
from fedskew.runtime.local.linear import LinearTrainer  # noqa: E402
from fedskew.runtime.local.runtime import LocalRuntime  # noqa: E402
from fedskew.runtime.local.step import AutogradStep, FusedMLPStep, step_for  # noqa: E402
from fedskew.runtime.local.store import Store  # noqa: E402
from fedskew.streams import stream  # noqa: E402
from fedskew.types import LocalJob, TrainOrder  # noqa: E402

CLASSES, SIDE = 6, 4
MODELS = {
    "linear": lambda: nn.Sequential(nn.Flatten(), nn.Linear(SIDE**2, CLASSES)),
    "mlp": lambda: nn.Sequential(
        nn.Flatten(), nn.Linear(SIDE**2, 16), nn.ReLU(), nn.Linear(16, CLASSES)
    ),
    "cnn": lambda: nn.Sequential(
        nn.Unflatten(1, (1, SIDE)), nn.Conv2d(1, 4, 3), nn.ReLU(), nn.Flatten(),
        nn.Linear(16, CLASSES),
    ),
}  # fmt: skip
GLOBAL = (0.3, 0.3, 0.1, 0.1, 0.1, 0.1)


# ---------------------------------------------------------------- the formulas, as in the papers


def logit_adjusted(z, y, counts, teacher):
    share = counts / counts.sum()
    return F.cross_entropy(z + torch.log((share + 1e-3) / (1 / CLASSES + 1e-3)), y)


def logit_adjusted_global(z, y, counts, teacher):
    share = counts / counts.sum()
    return F.cross_entropy(z + 2 * torch.log((share + 0.01) / (torch.tensor(GLOBAL) + 0.01)), y)


def fedrs(z, y, counts, teacher):
    present = (counts > 0).float()
    return F.cross_entropy(z * (present + 0.5 * (1 - present)), y)


def margins(counts):
    return torch.where(counts > 0, counts, 1e-12).double().pow(-0.25).float()


def fedlc(z, y, counts, teacher):
    return F.cross_entropy(z - 2 * margins(counts), y)


def fedlc_as_printed(z, y, counts, teacher):
    """-log( e^{z'_y} / sum_{c != y} e^{z'_c} ), example by example."""
    z = z - margins(counts)
    losses = [
        torch.logsumexp(torch.cat([row[:label], row[label + 1 :]]), 0) - row[label]
        for row, label in zip(z, y, strict=True)
    ]
    return torch.stack(losses).mean()


def kl(theirs, own):
    """KL(p || q) of two rows of logits."""
    p, q = torch.softmax(theirs, 0), torch.softmax(own, 0)
    return (p * (p.log() - q.log())).sum()


def fedntd(z, y, counts, teacher):
    def without(row, label):
        return torch.cat([row[:label], row[label + 1 :]]) / 2.0

    pairs = zip(z, teacher, y, strict=True)
    taught = torch.stack([kl(without(t, label), without(own, label)) for own, t, label in pairs])
    return F.cross_entropy(z, y) + 0.7 * taught.mean()


def fedvls(z, y, counts, teacher, own_class=True):
    share = counts / counts.sum()
    prior = torch.log(share + 1e-9)
    vacant = counts == 0
    taught = torch.stack([kl(t[vacant], own[vacant]) for own, t in zip(z, teacher, strict=True)])
    pressed = []
    for c in range(CLASSES):
        others = torch.exp(z[y != c, c] + np.log(1 / CLASSES) - prior[c])
        entries = torch.cat([others, torch.ones(int((y == c).sum()))]) if own_class else others
        pressed.append(share[c] * torch.log(entries.mean()) if len(entries) else torch.zeros(()))
    return F.cross_entropy(z + prior, y) + 0.5 * taught.mean() + 0.1 * torch.stack(pressed).sum()


def fedvls_left_out(z, y, counts, teacher):
    return fedvls(z, y, counts, teacher, own_class=False)


CASES = {
    "logit_adjusted": ("logit_adjusted", {}, logit_adjusted),
    "logit_adjusted, global": (
        "logit_adjusted",
        {"reference": "global", "tau": 2.0, "smoothing": 0.01},
        logit_adjusted_global,
    ),
    "fedrs": ("fedrs", {"alpha": 0.5}, fedrs),
    "fedlc": ("fedlc", {"tau": 2.0}, fedlc),
    "fedlc as printed": ("fedlc", {"denominator": "others"}, fedlc_as_printed),
    "fedntd": ("fedntd", {"beta": 0.7, "temperature": 2.0}, fedntd),
    "fedvls": ("fedvls", {"distillation": 0.5, "suppression": 0.1}, fedvls),
    "fedvls, left out": (
        "fedvls",
        {"distillation": 0.5, "suppression": 0.1, "own": "left_out"},
        fedvls_left_out,
    ),
}


# ---------------------------------------------------------------- twenty steps, naively and ours


def examples(seed=0, n=75):
    """Classes 4 and 5 are missing, class 0 is frequent."""
    rng = np.random.default_rng(seed)
    y = rng.choice([0, 0, 0, 1, 2, 3], n)
    x = rng.normal(size=(n, SIDE, SIDE)) + y[:, None, None] / 3
    return x.astype(np.float32), y.astype(np.int64)


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


def job_of(name, options=(), **changes):
    """20 steps: 75 examples in batches of 16, the last of 11; four epochs."""
    shares = GLOBAL if dict(options).get("reference") == "global" else ()
    job = LocalJob(epochs=4, batch=16, lr=0.1, objective=name, label_shares=shares, **changes)
    return replace(job, objective_options=tuple(dict(options).items()))


def naive(module, formula, x, y, job):
    module, teacher = copy.deepcopy(module), copy.deepcopy(module)
    counts = torch.bincount(torch.from_numpy(y), minlength=CLASSES).float()
    optimizer = torch.optim.SGD(module.parameters(), lr=job.lr, momentum=job.momentum)
    rng, losses = stream(0, "batch", 0, 1), []
    for _ in range(job.epochs):
        order = rng.permutation(len(y))
        for begin in range(0, len(order), job.batch):
            piece = order[begin : begin + job.batch]
            images, labels = torch.from_numpy(x[piece]), torch.from_numpy(y[piece])
            with torch.no_grad():
                told = teacher(images)
            optimizer.zero_grad()
            loss = formula(module(images), labels, counts, told)
            loss.backward()
            optimizer.step()
            losses.append(loss.item() * len(piece))
    flat = torch.cat([p.detach().reshape(-1) for p in module.parameters()]).numpy()
    return flat, sum(losses) / (len(y) * job.epochs)


def trained(module, x, y, job, workers=1):
    factory = lambda: copy.deepcopy(module)  # noqa: E731
    with LocalRuntime(store_of(x, y), factory, workers=workers) as runtime:
        first = runtime.initial(0)
        order = TrainOrder([0], first[None], [0], job, seed=0, round=1)
        replies = runtime.train(order)
    assert replies.ok.all(), replies.failures
    return replies.params[0], replies.loss[0]


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("momentum", [0.0, 0.5])
def test_an_objective_is_its_formula(case, model, momentum):
    """Momentum takes the MLP from the fused step to autograd."""
    name, options, formula = CASES[case]
    torch.manual_seed(3)
    module = MODELS[model]()
    x, y = examples()
    job = job_of(name, options, momentum=momentum)
    expected, told = naive(module, formula, x, y, job)
    result, loss = trained(module, x, y, job)
    assert np.abs(result - expected).max() < 1e-5
    assert loss == pytest.approx(told, abs=1e-5)
    plain, _ = trained(module, x, y, job_of("cross_entropy", momentum=momentum))
    assert np.abs(result - plain).max() > 1e-3, "it has quietly become cross-entropy"


def test_every_registered_objective_has_its_formula():
    assert {name for name, _, _ in CASES.values()} == set(OBJECTIVES) - {"cross_entropy"}


@pytest.mark.parametrize(
    ("name", "options", "without"),
    [
        ("fedntd", {}, {"beta": 0.0}),
        ("fedvls", {}, {"distillation": 0.0}),
        ("fedvls", {}, {"suppression": 0.0}),
        ("fedvls", {"suppression": 0.1}, {"suppression": 0.1, "own": "left_out"}),
    ],
)
def test_every_term_moves_the_model(name, options, without):
    torch.manual_seed(3)
    module, (x, y) = MODELS["mlp"](), examples()
    whole, _ = trained(module, x, y, job_of(name, options))
    part, _ = trained(module, x, y, job_of(name, without))
    assert np.abs(whole - part).max() > 1e-4


def test_a_client_of_one_class_and_a_batch_of_one_class():
    """Nothing divides by nothing: every objective gives numbers."""
    torch.manual_seed(3)
    module, (x, _) = MODELS["mlp"](), examples()
    for name, options, _ in CASES.values():
        result, loss = trained(module, x, np.zeros(len(x), np.int64), job_of(name, options))
        assert np.isfinite(result).all(), name
        assert np.isfinite(loss), name


# ---------------------------------------------------------------- who computes it


@pytest.mark.parametrize("name", OBJECTIVES)
def test_the_fused_step_computes_every_objective_itself(name):
    model = FlatModule(MODELS["mlp"], 0)
    assert isinstance(step_for(model, job_of(name)), FusedMLPStep)
    assert isinstance(step_for(model, job_of(name, optimizer="adam")), AutogradStep)


@pytest.mark.parametrize("name", OBJECTIVES)
def test_the_linear_engine_computes_those_that_shift_and_scale(name, monkeypatch):
    used = []
    train = LinearTrainer.train

    def noted(self, members, job):
        used.append(job.objective)
        return train(self, members, job)

    monkeypatch.setattr(LinearTrainer, "train", noted)
    torch.manual_seed(3)
    x, y = examples()
    trained(MODELS["linear"](), x, y, job_of(name))
    assert bool(used) == (name not in ("fedntd", "fedvls"))


@pytest.mark.parametrize("workers", [1, 2])
def test_many_linear_clients_at_once_each_with_its_own_counts(workers):
    """The same bits alone and in a crowd, and everybody's own margins."""
    torch.manual_seed(3)
    module, (x, y) = MODELS["linear"](), examples()
    order = np.argsort(y, kind="stable")
    store = replace(store_of(x, y), train_order=order, train_offsets=np.array([0, 20, 50, 75]))
    store = replace(store, test_offsets=np.array([0, 2, 3, 4]))
    for name, options, formula in list(CASES.values())[:5]:
        job = job_of(name, options)
        with LocalRuntime(store, lambda: copy.deepcopy(module), workers=workers) as runtime:
            sent = TrainOrder(range(3), runtime.initial(0)[None], [0] * 3, job, seed=0, round=1)
            crowd = runtime.train(sent)
            alone = [runtime.train(sent.only([c])).params[0].tobytes() for c in range(3)]
        assert [row.tobytes() for row in crowd.params] == alone
        rows = order[:20]  # client 0's batches have the stream of the naive loop
        expected, _ = naive(module, formula, x[rows], y[rows], job)
        assert np.abs(crowd.params[0] - expected).max() < 1e-5, name


def test_outputs_beyond_the_classes_have_no_part_in_an_objective():
    """The gradient at the logits, against autograd on the formula."""
    torch.manual_seed(0)
    z, teacher, y = torch.randn(9, CLASSES + 2), torch.randn(9, CLASSES + 2), torch.arange(9) % 4
    counts = np.array([5, 2, 1, 1, 0, 0])
    for name, options, _ in CASES.values():
        loss = loss_for(job_of(name, options), counts)
        criterion = Criterion(loss)
        lesson = criterion.lesson(teacher, y)
        value, gradient = criterion(z, y, lesson)
        step = 1e-3
        for place in ((0, 0), (3, 4), (8, 7)):
            moved = z.clone()
            moved[place] += step
            slope = (criterion(moved, y, lesson)[0] - value) / (9 * step)
            assert float(gradient[place]) == pytest.approx(float(slope), abs=3e-3), name
    vacant = loss_for(job_of("fedvls", {"suppression": 0.0}), counts)
    plain = loss_for(job_of("fedvls", {"suppression": 0.0, "distillation": 0.0}), counts)
    _, with_teacher = Criterion(vacant)(z, y, Criterion(vacant).lesson(teacher, y))
    _, without = Criterion(plain)(z, y, None)
    assert (with_teacher - without)[:, 6:].abs().max() == 0


def test_the_teacher_is_asked_once_a_client_and_forgets_it(monkeypatch):
    """BatchNorm statistics and dropout masks are those of training alone."""
    torch.manual_seed(3)
    x, y = examples()
    module = nn.Sequential(
        nn.Flatten(), nn.Linear(16, 8), nn.BatchNorm1d(8), nn.Dropout(0.5), nn.Linear(8, CLASSES)
    )
    asked = []
    forward = nn.BatchNorm1d.forward

    def noted(self, given):
        if not self.training:
            asked.append(len(given))
        return forward(self, given)

    monkeypatch.setattr(nn.BatchNorm1d, "forward", noted)
    silent, _ = trained(module, x, y, job_of("fedntd", {"beta": 1e-30}))
    assert asked == [75]
    plain, _ = trained(module, x, y, job_of("cross_entropy"))
    assert np.abs(silent - plain).max() < 1e-6
    taught, _ = trained(module, x, y, job_of("fedntd"))
    assert np.abs(taught - plain).max() > 1e-4
