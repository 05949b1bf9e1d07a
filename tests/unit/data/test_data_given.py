"""``data=`` takes what people have, in every mixture, or says in one line what it takes."""

from __future__ import annotations

import numpy as np
import pytest

from fedskew.data import from_arrays, from_given
from fedskew.errors import DataError

torch = pytest.importorskip("torch")
pd = pytest.importorskip("pandas")

N, M = 12, 6
X = np.random.default_rng(0).normal(size=(N + M, 4)).astype(np.float32)
Y = np.arange(N + M) % 3
EXPECTED = from_arrays(X[:N], Y[:N], X[N:], Y[N:])


class Feature:
    """A column of a Hugging Face dataset; class labels have names."""

    def __init__(self, names=None):
        if names is not None:
            self.names = names


class HubDataset:
    """Stands for datasets.Dataset: columns by name, rows by number, features that know names."""

    def __init__(self, columns, names=None):
        self._columns = columns
        self.column_names = list(columns)
        self.features = {
            key: Feature(names if key in ("label", "fine") else None) for key in columns
        }

    def __len__(self):
        return len(next(iter(self._columns.values())))

    def __getitem__(self, key):
        if isinstance(key, str):
            return self._columns[key]
        return {name: column[key] for name, column in self._columns.items()}


def arrays(x, y):
    return x, y


def tensors(x, y):
    return torch.tensor(x, requires_grad=True), torch.tensor(y)


def lists(x, y):
    return x.tolist(), y.tolist()


def frames(x, y):
    return pd.DataFrame(x), pd.Series(y)


def one_hot(x, y):
    return torch.tensor(x).to(torch.float32), np.eye(3)[y]


def columns(x, y):
    return x, y.reshape(-1, 1).astype(np.float64)


PAIRS = (arrays, tensors, lists, frames, one_hot, columns)


def pairs(x, y):
    return [(row, label) for row, label in zip(x, y, strict=True)]


def torch_set(x, y):
    return torch.utils.data.TensorDataset(torch.tensor(x), torch.tensor(y))


def subset(x, y):
    return torch.utils.data.Subset(torch_set(x, y), range(len(y)))


def loader(x, y):
    return torch.utils.data.DataLoader(torch_set(x, y), batch_size=4)


def frame(x, y):
    return pd.DataFrame(x, columns=list("abcd")).assign(label=y)


def hub(x, y):
    return HubDataset({"image": list(x), "idx": [0] * len(y), "label": y.tolist()}, list("012"))


def dicts(x, y):
    return [{"x": row, "y": int(label)} for row, label in zip(x, y, strict=True)]


def nested(x, y):
    return (x, torch.tensor(y))


SETS = (pairs, torch_set, subset, loader, frame, hub, dicts, nested)


def same(data, *, tested=True):
    assert np.allclose(data.x, EXPECTED.x)
    assert data.y.tolist() == EXPECTED.y.tolist()
    assert data.kind == "table"
    assert len(data.y_test) == (M if tested else 0)
    if tested:
        assert np.allclose(data.x_test, EXPECTED.x_test)
        assert data.y_test.tolist() == EXPECTED.y_test.tolist()


@pytest.mark.parametrize("test", PAIRS)
@pytest.mark.parametrize("train", PAIRS)
def test_x_and_y_in_any_form(train, test):
    given = (*train(X[:N], Y[:N]), *test(X[N:], Y[N:]))
    same(from_given(given))
    same(from_given(list(given)))
    same(from_given(train(X[:N], Y[:N])), tested=False)


@pytest.mark.parametrize("test", SETS)
@pytest.mark.parametrize("train", SETS)
def test_labelled_sets_in_any_mixture(train, test):
    one, other = train(X[:N], Y[:N]), test(X[N:], Y[N:])
    same(from_given((one, other)))
    same(from_given({"train": one, "test": other}))
    if train is not nested:
        same(from_given(one), tested=False)


@pytest.mark.parametrize("whole", SETS)
@pytest.mark.parametrize("pair", PAIRS)
def test_a_set_beside_x_and_y(whole, pair):
    if whole is nested:
        return
    same(from_given((whole(X[:N], Y[:N]), *pair(X[N:], Y[N:]))))
    same(from_given((*pair(X[:N], Y[:N]), whole(X[N:], Y[N:]))))


def test_names_in_a_dict():
    same(from_given({"X_train": X[:N], "y_train": Y[:N], "X_test": X[N:], "y_test": Y[N:]}))
    same(from_given({"x": X[:N], "y": Y[:N]}), tested=False)


def test_class_names_come_along():
    whole = HubDataset({"img": list(X), "fine": Y.tolist()}, ["cat", "dog", "owl"])
    assert from_given(whole).class_names == ("cat", "dog", "owl")
    named = torch_set(X, Y)
    named.classes = ["cat", "dog", "owl"]
    assert from_given(named).class_names == ("cat", "dog", "owl")
    assert from_given((X, np.array(["b", "a", "c"])[Y])).class_names == ("a", "b", "c")
    texts = pd.Series(["b", "a", "c"] * 6, dtype=object)
    assert from_given((X, texts)).class_names == ("a", "b", "c")


def test_whole_numbers_are_pixels_or_numbers_and_never_words_by_chance():
    pixels = np.random.default_rng(0).integers(0, 256, (5, 8, 8))
    assert from_given((pixels, np.arange(5) % 2)).x.dtype == np.uint8
    table = pd.DataFrame({"age": [30, 40, 50], "children": [0, 1, 2]})
    assert from_given((table, [0, 1, 0])).kind == "table"


def test_sparse_and_half_precision():
    from scipy.sparse import csr_matrix

    assert np.allclose(from_given((csr_matrix(X), Y)).x, X)
    assert from_given((torch.tensor(X).to(torch.bfloat16), Y)).x.dtype == np.float32


# ---------------------------------------------------------------- images


COLOUR = np.random.default_rng(0).random((6, 3, 8, 9)).astype(np.float32)
LABELS = np.arange(6) % 2


@pytest.mark.parametrize("kind", [np.asarray, torch.tensor, list])
def test_channels_are_found_first_or_last(kind):
    for images in (COLOUR, np.moveaxis(COLOUR, 1, 3).copy()):
        assert from_given((kind(images), LABELS)).x.shape == (6, 8, 9, 3)
    assert from_given((kind(COLOUR[:, :1]), LABELS)).x.shape == (6, 8, 9, 1)
    pixels = (255 * COLOUR[:, :1]).astype(np.uint8)
    assert from_given((kind(pixels), LABELS)).x.shape == (6, 8, 9)


def test_two_equal_sides_are_height_and_width():
    for shape, wanted in (((1, 4, 4), (4, 4, 1)), ((9, 8, 8), (8, 8, 9)), ((4, 4, 3), (4, 4, 3))):
        images = np.zeros((6, *shape), np.float32)
        assert from_given((images, LABELS)).x.shape[1:] == wanted


def test_the_model_says_which_axis_it_takes():
    bands = np.zeros((6, 7, 8, 9), np.float32)
    assert from_given((bands, LABELS), channels_taken=7).x.shape == (6, 8, 9, 7)
    assert from_given((bands, LABELS), channels_taken=9).x.shape == (6, 7, 8, 9)
    with pytest.raises(DataError, match="the model takes 5 channels"):
        from_given((bands, LABELS), channels_taken=5)


@pytest.mark.parametrize("shape", [(7, 8, 9), (3, 8, 3)])
def test_what_is_not_certain_is_asked(shape):
    images = np.zeros((6, *shape), np.float32)
    with pytest.raises(DataError, match=r"first or last\. Say which: .*channels='first'"):
        from_given((images, LABELS))
    answered = from_given(from_arrays(images, LABELS, channels="first"))
    assert answered.x.shape == (6, shape[1], shape[2], shape[0])


def convolution(channels, rows, columns):
    """A model that fails unless it is given (channels, rows, columns)."""
    layers = torch.nn
    return lambda: layers.Sequential(
        layers.MaxPool2d(1),
        layers.Conv2d(channels, 2, (rows, columns)),
        layers.Flatten(),
        layers.Linear(2, 2),
    )


@pytest.mark.parametrize("turn", ["first", "last"])
@pytest.mark.parametrize("dtype", [np.float32, np.uint8])
@pytest.mark.parametrize("channels", [1, 3, 5])
def test_a_convolution_of_ones_own_gets_the_axis_it_wants(turn, dtype, channels):
    import fedskew

    images = np.random.default_rng(0).integers(0, 255, (24, channels, 6, 7)).astype(dtype)
    given = images if turn == "first" else np.moveaxis(images, 1, 3)
    played = fedskew.run(
        {"run": {"rounds": 1}, "data": {"clients": 2}},
        data=(given, np.arange(24) % 2), model=convolution(channels, 6, 7), workers=1,
    )  # fmt: skip
    grey = channels == 1 and dtype == np.uint8
    assert played.facts["data"]["shape"] == ([6, 7] if grey else [6, 7, channels])


def test_float_images_and_pixels_train_the_same_model():
    """The engine turns uint8 images, and we turn float ones: they must arrive alike."""
    import fedskew

    pixels = np.random.default_rng(0).integers(0, 256, (40, 6, 7, 3)).astype(np.uint8)
    ends = [
        fedskew.run(
            {"run": {"rounds": 2}, "data": {"clients": 2, "client_test": "none"}},
            data=(x, np.arange(40) % 2), model=convolution(3, 6, 7), workers=1,
        ).models
        for x in (pixels, pixels.astype(np.float32))
    ]  # fmt: skip
    assert np.allclose(ends[0], ends[1], atol=1e-5)


def test_grey_floats_reach_a_shipped_convolution_and_series_stay_series():
    import fedskew

    x, y = np.random.default_rng(0).random((40, 28, 28)).astype(np.float32), np.arange(40) % 2
    raw = {"run": {"rounds": 1}, "data": {"clients": 2}, "model": {"use": "cnn_small"}}
    assert fedskew.run(raw, data=(x, y), workers=1).facts["data"]["shape"] == [28, 28, 1]
    model = lambda: torch.nn.Sequential(  # noqa: E731
        torch.nn.Conv1d(28, 2, 28), torch.nn.Flatten(), torch.nn.Linear(2, 2)
    )
    raw = {"run": {"rounds": 1}, "data": {"clients": 2}}
    played = fedskew.run(raw, data=(x, y), model=model, workers=1)
    assert played.facts["data"]["shape"] == [28, 28]


# ---------------------------------------------------------------- what is refused


class Endless:
    def __iter__(self):
        return iter(())


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (5, "of type int"),
        ("mnist", "of type str"),
        (X, "of type ndarray"),
        ((X, Y, X), "3 things: ndarray, ndarray, ndarray"),
        ((X, Y, X, Y, X), "5 things"),
        ((X, X), "y has shape"),
        ((Y, X), "y has shape"),
        ((X, X[:, 0]), "y holds fractions"),
        ((X[:5], Y[:7]), "5 training rows but labels of shape"),
        (["a", "b"], "x holds texts"),
        ((np.array(["good day", "bad day"]), [0, 1]), "x holds texts"),
        (pd.DataFrame({"a": [1, 2], "b": [3, 4]}), "which of 'a', 'b' holds the labels"),
        (pd.DataFrame({"a": ["u", "v"], "label": [0, 1]}), "'a' hold no numbers"),
        (HubDataset({"a": [1], "b": [2], "label": [0]}), "holds the examples is not clear"),
        (Endless(), "has no length"),
        ([], "of type|0 things|empty"),
        ([(X[0], 1, 2), (X[1], 0, 2)], r"an item is 3 things"),
        ([(X[0], 1), (X[1][:2], 0)], "differ in shape"),
        ({"a": X, "b": Y}, "holds the labels"),
        ({}, "holds the labels"),
        (object(), "of type object"),
    ],
)  # fmt: skip
def test_anything_else_is_one_line_that_says_what_is_taken(given, message):
    with pytest.raises(DataError, match=message) as caught:
        from_given(given)
    assert "\n" not in str(caught.value)
    assert "cannot be read" not in str(caught.value)
