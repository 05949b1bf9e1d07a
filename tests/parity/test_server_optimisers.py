"""FedAvgM, FedAdagrad, FedAdam, FedYogi against Flower's strategies on one pseudo-gradient.

``GOLDEN`` was printed by Flower 1.41.0 (``flwr.serverapp.strategy``) through :func:`flower_path`
below::

    play = {"momentum": FedAvgM(server_learning_rate=0.9, server_momentum=0.7),
            "adagrad": FedAdagrad(eta=0.1, tau=0.01),
            "adam": FedAdam(eta=0.1, tau=0.01, beta_1=0.9, beta_2=0.99),
            "yogi": FedYogi(eta=0.1, tau=0.01, beta_1=0.9, beta_2=0.99)}
    print({name: flower_path(strategy) for name, strategy in play.items()})

Where Flower differs from Reddi et al. (and so from our defaults): V starts at 0, not tau^2 (``v0 =
"zero"``), and FedAdam's rate is multiplied by sqrt(1 - beta2^(t+1)) / (1 - beta1^(t+1)) in round t:
the exponent is one round ahead, and tau is not corrected with the rest. Our ``bias_correction`` is
Adam's own, with the steps taken.
"""

from __future__ import annotations

import numpy as np
import pytest

from fedskew.aggregation.adaptive import AdaptiveServer
from fedskew.aggregation.momentum import ServerMomentum
from fedskew.types import Ends, Layout

MODEL = np.array([0.5, -1.0, 2.0])
SHIFTS = np.array(
    [
        [[0.3, -0.2, 0.05], [-0.1, 0.4, 0.0]],
        [[0.2, 0.1, -0.3], [0.1, -0.1, 0.2]],
        [[-0.4, 0.0, 0.1], [0.3, 0.2, -0.6]],
    ]
)  # round, client, parameter
EXAMPLES = [30, 10]
ETA, TAU, BETAS = 0.1, 0.01, (0.9, 0.99)
LAYOUT = Layout.of([("w", (3,), "weight")])
GOLDEN = {
    "momentum": [
        [0.68, -1.045, 2.0337499999999995],
        [0.9635000000000002, -1.0314999999999999, 1.8998749999999993],
        [0.9594500000000002, -0.9770499999999998, 1.7386624999999991],
    ],
    "adagrad": [
        [0.5952380952380952, -1.0833333333333333, 2.0789473684210527],
        [0.6587005382451341, -1.0213836617836853, 1.9863414304264015],
        [0.5958881700576304, -0.969625188555007, 1.949586126641429],
    ],
    "adam": [
        [0.5494973192268979, -1.024748659613449, 2.0202489033200943],
        [0.611349032451813, -1.022884100804778, 1.9880453296637848],
        [0.6235621996739386, -1.005986502425399, 1.9482520086246922],
    ],
    "yogi": [
        [0.5666666666666667, -1.0333333333333332, 2.027272727272727],
        [0.6637265332036069, -1.0304044011451987, 1.976640544283349],
        [0.6848104139270652, -1.0011979391702062, 1.9079027449395498],
    ],
}


def our_path(name, **changes):
    """The model after each round; FedAdam's rate is Flower's, round by round."""
    model, memory, path = MODEL.astype(np.float32), {}, []
    for t, shifts in enumerate(SHIFTS, start=1):
        ends = Ends((model + shifts).astype(np.float32), EXAMPLES, [1, 1], LAYOUT, [0, 1], 2)
        if name == "momentum":
            model, memory = ServerMomentum(**{"beta": 0.7, "server_lr": 0.9, **changes}).merge(
                memory, model, ends
            )
        else:
            correction = (
                np.sqrt(1 - BETAS[1] ** (t + 1)) / (1 - BETAS[0] ** (t + 1))
                if name == "adam"
                else 1.0
            )
            options = {
                "server_lr": float(ETA * correction),
                "tau": TAU,
                "beta1": BETAS[0],
                "beta2": BETAS[1],
                "v0": "zero",
            }
            model, memory = AdaptiveServer(rule=name, **{**options, **changes}).merge(
                memory, model, ends
            )
        path.append(model.tolist())
    return np.array(path)


@pytest.mark.parametrize("name", sorted(GOLDEN))
def test_the_same_models_as_flower(name):
    assert np.allclose(our_path(name), GOLDEN[name], atol=1e-6)


@pytest.mark.parametrize(
    ("name", "changes"),
    [("adagrad", {"v0": "tau2"}), ("adam", {"server_lr": ETA}), ("yogi", {"v0": "tau2"})],
)
def test_the_papers_rules_are_not_flowers(name, changes):
    assert np.abs(our_path(name, **changes) - GOLDEN[name]).max() > 1e-4


def test_adams_own_bias_correction_is_torchs():
    """m / (1 - beta1^t) over sqrt(v / (1 - beta2^t)) + tau is what torch.optim.Adam does with
    eps = tau and gradient -D.
    """
    torch = pytest.importorskip("torch")
    weights = torch.nn.Parameter(torch.from_numpy(MODEL.astype(np.float32)))
    optimizer = torch.optim.Adam([weights], lr=ETA, betas=BETAS, eps=TAU)
    path = []
    for shifts in SHIFTS:
        weights.grad = -torch.from_numpy(
            np.average(shifts, axis=0, weights=EXAMPLES).astype(np.float32)
        )
        optimizer.step()
        path.append(weights.detach().tolist())
    assert np.allclose(our_path("adam", server_lr=ETA, bias_correction=True), path, atol=1e-6)


def flower_path(strategy):
    """The models of one of Flower's strategies on the same pseudo-gradients."""
    from flwr.common import Array, ArrayRecord, Message, MetricRecord, RecordDict
    from flwr.serverapp.strategy import FedAvgM
    from flwr.supercore.task_identity import TaskIdentity

    # messages want to know who sends them
    TaskIdentity.run_id, TaskIdentity.node_id, TaskIdentity.task_id = 1, 1, 1
    model, path = MODEL, []
    for t, shifts in enumerate(SHIFTS, start=1):
        strategy.current_arrays = (
            ArrayRecord({"w": Array(model.copy())})
            if isinstance(strategy, FedAvgM)
            else {"w": model.copy()}
        )
        replies = []
        for node, (shift, examples) in enumerate(zip(shifts, EXAMPLES, strict=True), start=1):
            records = {
                "arrays": ArrayRecord({"w": Array(model + shift)}),
                "metrics": MetricRecord({"num-examples": examples}),
            }
            asked = Message(RecordDict(), dst_node_id=node, message_type="train")
            replies.append(Message(RecordDict(records), reply_to=asked))
        arrays, _ = strategy.aggregate_train(t, replies)
        model = arrays["w"].numpy()
        path.append(model.tolist())
    return path


@pytest.mark.filterwarnings("ignore")
def test_flower_still_gives_the_golden_numbers():
    strategies = pytest.importorskip(
        "flwr.serverapp.strategy", reason="flwr is not installed: pip install 'fedskew[flower]'"
    )
    adaptive_options = {"eta": ETA, "tau": TAU, "beta_1": BETAS[0], "beta_2": BETAS[1]}
    made = {
        "momentum": strategies.FedAvgM(server_learning_rate=0.9, server_momentum=0.7),
        "adagrad": strategies.FedAdagrad(eta=ETA, tau=TAU),
        "adam": strategies.FedAdam(**adaptive_options),
        "yogi": strategies.FedYogi(**adaptive_options),
    }
    for name, strategy in made.items():
        assert np.allclose(flower_path(strategy), GOLDEN[name], atol=1e-12)
