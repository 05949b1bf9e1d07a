"""Parameter counts of docs/methods.md 10, shapes, the head of docs/methods.md 8.1, what
factories refuse.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedskew.errors import DataError, RecipeError
from fedskew.models import MODELS, bacsa_constant, build, find_head

torch = pytest.importorskip("torch")
torch.set_num_threads(1)
nn, functional = torch.nn, torch.nn.functional

NATURAL: dict[str, tuple[tuple[int, ...], int]] = {
    "tiny_mlp": ((8, 8), 10),
    "mlp": ((28, 28), 10),
    "mlp500": ((10,), 13),
    "logistic": ((10,), 2),
    "cnn_bacsa": ((32, 32, 3), 10),
    "cnn_lenet": ((32, 32, 3), 10),
    "cnn_similarity": ((28, 28), 10),
    "cnn_mcmahan": ((28, 28), 10),
    "cnn_fmnist": ((28, 28), 10),
    "cnn_cifar_bn": ((32, 32, 3), 10),
    "cnn_small": ((64, 64), 14),
    "embedding": ((100,), 6),
    "lstm": ((30,), 2),
    "resnet8": ((32, 32, 3), 10),
    "resnet18": ((32, 32, 3), 10),
    "transformer": ((30,), 6),
}
IMAGE_MODELS = [name for name in MODELS if name.startswith(("cnn", "resnet"))]
TEXT_MODELS = ["embedding", "lstm", "transformer"]


def count(model: Any) -> int:
    return sum(weight.numel() for weight in model.parameters() if weight.requires_grad)


def batch(name: str, size: int = 4) -> Any:
    """Random examples as the engine hands them over."""
    shape, _ = NATURAL[name]
    if name in TEXT_MODELS:
        return torch.randint(1, 10_000, (size, *shape))
    if len(shape) == 1:
        return torch.randn(size, *shape)
    return torch.randn(size, shape[2] if len(shape) == 3 else 1, *shape[:2])


@pytest.fixture(autouse=True)
def _seed() -> None:
    torch.manual_seed(0)


@pytest.mark.parametrize(
    ("name", "shape", "num_classes", "options", "weights"),
    [
        ("tiny_mlp", (8, 8), 10, {}, 64 * 32 + 32 + 32 * 10 + 10),
        ("mlp", (28, 28), 10, {}, 199_210),
        ("mlp", (28, 28), 10, {"hidden": (100, 100)}, 89_610),
        ("mlp500", (10,), 13, {}, 513_013),
        ("mlp500", (24,), 13, {}, 508_013 + 500 * 24),
        ("logistic", (10,), 2, {}, 22),
        ("cnn_bacsa", (32, 32, 3), 10, {}, 797_962),
        ("cnn_lenet", (32, 32, 3), 10, {}, 62_006),
        ("cnn_lenet", (28, 28), 10, {}, 44_426),
        ("cnn_similarity", (28, 28), 10, {}, 21_840),
        ("cnn_similarity", (28, 28), 10, {"pool": "last"}, 105_840),
        ("cnn_mcmahan", (28, 28), 10, {}, 1_663_370),
        ("cnn_fmnist", (28, 28), 10, {}, 93_962),
        ("cnn_fmnist", (28, 28), 10, {"padding": "same"}, 618_250),
        ("cnn_cifar_bn", (32, 32, 3), 10, {}, 551_722),
        ("cnn_small", (64, 64), 14, {}, 137_934),
        ("embedding", (100,), 6, {}, 172_862),
        ("resnet8", (32, 32, 3), 10, {}, 432 + 32 + 4_672 + 14_528 + 57_728 + 650),
        ("resnet18", (32, 32, 3), 10, {}, 11_173_962),
        ("transformer", (100,), 6, {}, 640_000 + 6_400 + 2 * 33_472 + 128 + 390),
        ("lstm", (30,), 2, {}, 12_480 + 22),
        ("lstm", (30,), 3, {}, 12_480 + 33),
        ("lstm", (30,), 2, {"embedding": "trainable"}, 10_000 * 32 + 4 * 10 * (32 + 10) + 80 + 22),
    ],
)
def test_trained_weights(
    name: str, shape: tuple[int, ...], num_classes: int, options: dict[str, Any], weights: int
) -> None:
    assert count(build(name, shape, num_classes, **options)) == weights


def test_cifar_bn_buffers() -> None:
    buffers = list(build("cnn_cifar_bn", (32, 32, 3), 10).buffers())
    assert sum(b.numel() for b in buffers if b.is_floating_point()) == 1_152
    assert sum(b.numel() for b in buffers if not b.is_floating_point()) == 7


@pytest.mark.parametrize("name", MODELS)
def test_forward_and_backward(name: str) -> None:
    shape, num_classes = NATURAL[name]
    model = build(name, shape, num_classes)
    logits = model(batch(name))
    assert (logits.shape, logits.dtype) == ((4, num_classes), torch.float32)
    functional.cross_entropy(logits, torch.arange(4) % num_classes).backward()
    for weight in model.parameters():
        assert (
            weight.grad is not None and bool(weight.grad.isfinite().all())
        ) == weight.requires_grad
    # still in training mode: a batch of one is no error
    assert model(batch(name, 1)).isfinite().all()


@pytest.mark.parametrize("name", ["resnet8", "transformer"])
def test_an_example_is_seen_alike_in_any_company(name: str) -> None:
    model, examples = build(name, *NATURAL[name]), batch(name)
    torch.testing.assert_close(model(examples)[:1], model(examples[:1]), atol=1e-5, rtol=1e-4)


def test_a_residual_network_without_its_blocks_paths_is_its_shortcuts() -> None:
    """With the last norm of each block at 0, only what came in goes out."""
    model = build("resnet8", (32, 32, 3), 10).eval()
    images = batch("resnet8")
    blocks = [part for part in model if hasattr(part, "shortcut")]
    for block in blocks:
        nn.init.zeros_(block.second_norm.weight)
        nn.init.zeros_(block.second_norm.bias)
    seen = model[:4](images)
    for block in blocks:
        seen = torch.relu(block.shortcut(seen))
    torch.testing.assert_close(model(images), model[-1](seen.mean(dim=(2, 3))))


def test_a_transformer_does_not_see_padding() -> None:
    model = build("transformer", (6,), 3, vocab=20).eval()
    ids = torch.tensor([[3, 4, 5, 0, 0, 0], [0, 0, 0, 0, 0, 0]])
    before = model(ids)
    with torch.no_grad():
        model.words.weight[0] += 1.0
    after = model(ids)
    torch.testing.assert_close(before[0], after[0])
    assert before.isfinite().all()
    assert not torch.allclose(model(ids[:1].flip(1)), model(ids[:1])), "places do not count"


def test_attention_is_that_of_torch() -> None:
    from fedskew.models._residual import AttentionBlock

    block, theirs = AttentionBlock(8, 2, 16), nn.MultiheadAttention(8, 2, batch_first=True)
    with torch.no_grad():
        theirs.in_proj_weight.copy_(block.looks.weight)
        theirs.in_proj_bias.copy_(block.looks.bias)
        theirs.out_proj.weight.copy_(block.mixed.weight)
        theirs.out_proj.bias.copy_(block.mixed.bias)
    tokens, real = torch.randn(3, 5, 8), torch.rand(3, 5) > 0.3
    real[:, 0] = True
    expected, _ = theirs(tokens, tokens, tokens, key_padding_mask=~real)
    torch.testing.assert_close(block._looked(tokens, real), expected, atol=1e-5, rtol=1e-4)


def test_heads_must_share_the_width() -> None:
    with pytest.raises(RecipeError, match="cannot be shared by 3 heads"):
        build("transformer", (6,), 3, heads=3)


def test_lone_example_leaves_the_dense_norm_alone() -> None:
    model = build("cnn_cifar_bn", (32, 32, 3), 10)
    norm = next(part for part in model.modules() if isinstance(part, nn.BatchNorm1d))
    model(batch("cnn_cifar_bn", 1))
    assert norm.num_batches_tracked == 0
    model(batch("cnn_cifar_bn", 2))
    assert norm.num_batches_tracked == 1


@pytest.mark.parametrize("name", MODELS)
def test_torch_seed_decides_the_start(name: str) -> None:
    first = build(name, *NATURAL[name]).state_dict()
    torch.manual_seed(0)
    again = build(name, *NATURAL[name]).state_dict()
    other = build(name, *NATURAL[name]).state_dict()
    assert all(torch.equal(first[key], again[key]) for key in first)
    assert any(not torch.equal(first[key], other[key]) for key in first)


@pytest.mark.parametrize("name", ["mlp", "tiny_mlp", "mlp500"])
def test_mlp_is_a_plain_sequential(name: str) -> None:
    model = build(name, *NATURAL[name])
    kinds = [type(part) for part in model]
    assert type(model) is nn.Sequential
    assert kinds[0] is nn.Flatten
    assert kinds[-1] is nn.Linear
    assert kinds[1:-1] == [nn.Linear, nn.ReLU] * ((len(kinds) - 2) // 2)


# --------------------------------------------- the order and layout of the CNNs change no number


def test_pool_before_relu_is_relu_before_pool() -> None:
    model = build("cnn_similarity", (28, 28), 10)
    images = batch("cnn_similarity", 16)
    images[:, :, :6] = images[:, :, -6:] = -0.42  # blank borders: ties inside the pools
    weights = list(model.parameters())
    w1, b1, w2, b2, w3, b3, w4, b4 = weights
    hidden = functional.max_pool2d(functional.relu(functional.conv2d(images, w1, b1)), 2)
    hidden = functional.max_pool2d(functional.relu(functional.conv2d(hidden, w2, b2)), 2)
    reference = functional.linear(
        functional.relu(functional.linear(hidden.flatten(1), w3, b3)), w4, b4
    )
    logits = model(images)
    torch.testing.assert_close(logits, reference, rtol=1e-5, atol=1e-6)
    labels = torch.arange(16) % 10
    ours = torch.autograd.grad(functional.cross_entropy(logits, labels), weights)
    theirs = torch.autograd.grad(functional.cross_entropy(reference, labels), weights)
    torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("name", IMAGE_MODELS)
def test_convolutions_run_channels_last(name: str) -> None:
    model = build(name, *NATURAL[name])
    seen = model[:2](batch(name))
    assert isinstance(model[1], nn.Conv2d)
    assert seen.is_contiguous(memory_format=torch.channels_last)
    assert not seen.is_contiguous()


@pytest.mark.parametrize("name", IMAGE_MODELS)
@pytest.mark.parametrize("shape", [(22, 29), (33, 23, 3), (40, 24, 1)])
def test_cnn_follows_the_image(name: str, shape: tuple[int, ...]) -> None:
    model = build(name, shape, 3)
    assert model(torch.randn(2, shape[2] if len(shape) == 3 else 1, *shape[:2])).shape == (2, 3)


@pytest.mark.parametrize(
    ("name", "smallest"),
    [
        ("cnn_bacsa", 16),
        ("cnn_similarity", 16),
        ("cnn_mcmahan", 4),
        ("cnn_fmnist", 22),
        ("cnn_cifar_bn", 8),
        ("cnn_small", 8),
    ],
)
def test_smallest_image(name: str, smallest: int) -> None:
    assert build(name, (smallest, smallest), 2)(torch.randn(2, 1, smallest, smallest)).shape == (
        2,
        2,
    )
    with pytest.raises(
        RecipeError, match=rf"model {name}: .* too small .*at least {smallest}x{smallest}"
    ):
        build(name, (smallest - 1, 64), 2)


# ---------------------------------------------------------------- the head of docs/methods.md 8.1


@pytest.mark.parametrize("name", MODELS)
def test_bacsa_head_starts_uniform(name: str) -> None:
    shape, num_classes = NATURAL[name]
    model = build(name, shape, num_classes, head_init="bacsa").eval()
    head = find_head(model)
    value = (1 / (np.prod(shape) * head.in_features * num_classes)) ** 0.5
    assert bacsa_constant(int(np.prod(shape)), head.in_features, num_classes) == pytest.approx(
        value
    )
    assert head.out_features == num_classes
    assert torch.equal(head.weight, torch.full_like(head.weight, value))
    assert not head.bias.any()
    guesses = model(batch(name)).softmax(1)
    torch.testing.assert_close(
        guesses, torch.full_like(guesses, 1 / num_classes), rtol=1e-6, atol=0
    )


@pytest.mark.parametrize("name", ["mlp", "cnn_lenet", "lstm"])
def test_head_choice_leaves_the_rest(name: str) -> None:
    default = build(name, *NATURAL[name])
    torch.manual_seed(0)
    bacsa = build(name, *NATURAL[name], head_init="bacsa")
    pairs = list(zip(default.parameters(), bacsa.parameters(), strict=True))
    assert all(torch.equal(a, b) for a, b in pairs[:-2])
    assert not any(torch.equal(a, b) for a, b in pairs[-2:])


def test_frozen_vectors_depend_on_their_seed_only() -> None:
    tables = [
        build("lstm", (5,), 2, vocab=50, vectors_seed=seed).embedding.weight for seed in (0, 0, 1)
    ]
    assert torch.equal(tables[0], tables[1])
    assert not torch.equal(tables[0], tables[2])
    assert not tables[0].requires_grad
    assert not tables[0][0].any()
    assert float(tables[0][1:].std()) == pytest.approx(0.4, rel=0.05)


def test_lstm_reads_the_last_real_token() -> None:
    model = build("lstm", (6,), 2, vocab=50).eval()
    short, padded = torch.tensor([[3, 7, 9]]), torch.tensor([[3, 7, 9, 0, 0, 0]])
    torch.testing.assert_close(model(short), model(padded))
    assert not torch.allclose(model(short), model(torch.tensor([[3, 7, 8, 0, 0, 0]])))
    assert model(torch.zeros(1, 6, dtype=torch.int64)).isfinite().all()


@pytest.mark.parametrize("word", ["", "word "])
def test_vectors_from_a_file(tmp_path: Path, word: str) -> None:
    file = tmp_path / "vectors.txt"
    file.write_text("".join(f"{word}{row} {row}.5 -1e-1\n" for row in range(4)))
    for choice in ("frozen_file", "trainable"):
        weight = build(
            "lstm", (5,), 2, embedding=choice, vectors=str(file), vocab=3, width=3
        ).embedding.weight
        assert weight.tolist() == pytest.approx(np.array([[r, r + 0.5, -0.1] for r in range(3)]))
        assert weight.requires_grad == (choice == "trainable")


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"vocab": 5, "width": 2}, "holds 3 vectors, fewer than vocab = 5"),
        ({"vocab": 3, "width": 4}, "line 1 .* 4 numbers"),
    ],
)
def test_vector_files_are_checked(tmp_path: Path, options: dict[str, int], says: str) -> None:
    file = tmp_path / "vectors.txt"
    file.write_text("1 2\n3 4\n5 6\n")
    with pytest.raises(DataError, match=says):
        build("lstm", (5,), 2, embedding="frozen_file", vectors=str(file), **options)
    with pytest.raises(DataError, match="no file of vectors"):
        build("lstm", (5,), 2, embedding="frozen_file", vectors=str(tmp_path / "none"), **options)


# --------------------------------------------- what is refused, and without torch


@pytest.mark.parametrize("name", IMAGE_MODELS + TEXT_MODELS)
def test_wrong_kind_of_example(name: str) -> None:
    shape, says = ((28, 28), "rows of token ids") if name in TEXT_MODELS else ((100,), "images")
    with pytest.raises(RecipeError, match=f"model {name}: wants {says}"):
        build(name, shape, 2)


@pytest.mark.parametrize(
    ("name", "shape", "num_classes", "options", "says"),
    [
        ("cnn_lennet", (28, 28), 10, {}, "Did you mean 'cnn_lenet'"),
        ("mlp", (28, 28), 10, {"hiden": (3,)}, "no option 'hiden'. Did you mean 'hidden'"),
        ("mlp", (28, 28), 10, {"hidden": (3, 0)}, "below 1"),
        ("mlp", (28, 28), 1, {}, "num_classes is 1"),
        ("mlp", (28, 0), 10, {}, "shape"),
        ("mlp", (28, 28), 10, {"head_init": "basca"}, "head_init is 'basca'"),
        ("cnn_lenet", (3, 32, 32), 10, {}, r"32 channels.*\(H, W, C\)"),
        ("cnn_fmnist", (28, 28), 10, {"padding": "full"}, "padding is 'full'"),
        ("cnn_similarity", (28, 28), 10, {"pool": "none"}, "pool is 'none'"),
        ("cnn_cifar_bn", (32, 32, 3), 10, {"dropout": (0.1, 0.1)}, "2 rates"),
        ("cnn_cifar_bn", (32, 32, 3), 10, {"dropout": (0.1, 0.1, 0.1, 1.0)}, "outside"),
        ("lstm", (30,), 2, {"embedding": "glove"}, "embedding is 'glove'"),
        ("lstm", (30,), 2, {"embedding": "frozen_file"}, "needs a file"),
        ("lstm", (30,), 2, {"vectors": "x.txt"}, "vectors are named but"),
    ],
)
def test_refused(
    name: str, shape: tuple[int, ...], num_classes: int, options: dict[str, Any], says: str
) -> None:
    with pytest.raises(RecipeError, match=says):
        build(name, shape, num_classes, **options)


def test_a_factory_of_your_own() -> None:
    def flat(shape: tuple[int, ...], num_classes: int, *, bias: bool = True) -> Any:
        return nn.Sequential(nn.Flatten(), nn.Linear(int(np.prod(shape)), num_classes, bias=bias))

    assert count(build(flat, (4, 4), 3, bias=False, head_init="bacsa")) == 48
    with pytest.raises(RecipeError, match="no linear output layer"):
        build(lambda shape, num_classes: nn.Flatten(), (4,), 3, head_init="bacsa")


def test_schema_can_be_read_without_torch() -> None:
    program = """
import sys, typing
sys.modules["torch"] = None  # any import of torch now fails
from fedskew.models import MODELS, build
hints = {name: typing.get_type_hints(factory) for name, factory in MODELS.items()}
assert hints["cnn_fmnist"]["padding"] == typing.Literal["valid", "same"], hints
assert typing.get_type_hints(build)["head_init"] == typing.Literal["default", "bacsa"]
"""
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
