"""What a hostile node sends: replies of the right kind with something wrong in them.

``poisoned`` breaks a reply in a way that no server may accept; ``scrambled`` changes it at random,
so that now and then it is still a reply. Both start from what an honest client would say.
"""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from flwr.app import Array, ArrayRecord, ConfigRecord, Error, Message, MetricRecord, RecordDict

from fedskew.runtime.flower.records import Note, to_records

Random = np.random.Generator
CLASSES = 10
WIDTH = 32  # of what reaches the output layer

# ---------------------------------------------------------------- an honest reply


@dataclass(frozen=True)
class Client:
    """Whom a hostile node says it is."""

    number: int
    examples: int = 28
    tests: int = 5


def honest_note(question: Message, client: Client, rng: Random) -> Note:
    """What an honest client would say, without training anything."""
    head, kind = question.content["fedskew"], question.metadata.message_type
    asked = json.loads(head["values"])
    if kind == "query.hello":
        values = {"client": client.number, "num_examples": client.examples}
        counts = rng.multinomial(client.examples, np.full(CLASSES, 1 / CLASSES))
        arrays = {"counts": counts.astype(np.uint32)}
        return Note("hello", {**values, "num_test": client.tests}, arrays, head["layout"])
    if kind == "query.release":
        return Note("release", {}, {"counts": rng.normal(3, 2, CLASSES)}, head["layout"])
    given = question.content["arrays"]
    if kind == "train":
        model = given["model"].numpy()
        moved = model + 0.01 * rng.normal(size=len(model)).astype(np.float32)
        values = {"loss": 2.0, "seconds": 0.1, "steps": 1, "examples": client.examples}
        return Note("train", values, {"model": moved}, head["layout"])
    if kind == "query.moments":
        counts = rng.multinomial(client.examples, np.full(CLASSES, 1 / CLASSES))
        arrays = {
            "counts": counts.astype(np.uint32),
            "sums": np.ones((CLASSES, WIDTH), np.float32),
            "products": np.ones((CLASSES, WIDTH * (WIDTH + 1) // 2), np.float32),
        }
        return Note("moments", {}, arrays, head["layout"])
    models = len(given["models"].numpy())
    if kind == "evaluate":
        size = client.tests if asked["which"] == "test" else client.examples
        return Note("evaluate", {"scores": [[2.0, 0.1, size]] * models}, {}, head["layout"])
    votes = rng.multinomial(client.examples, np.full(models, 1 / models)).tolist()
    return Note("vote", {"votes": votes}, {}, head["layout"])


# ---------------------------------------------------------------- values no server may accept

NAN, INF = float("nan"), float("inf")
NO_NUMBERS = [None, True, "7", "x" * 5000, "\ud800\x1b[2J\n", [], {}, [[[1]]], {"a": [1]}]
NOWHERE = [NAN, INF, -INF, 10**400, -(10**400), -(10**30), *NO_NUMBERS]
NO_SIZE = [-1, 10**30, 1 << 63, 1 << 64, 1.5, 3e9, 10**10, *NOWHERE]
BAD = {
    "client": [64_000, *NO_SIZE],
    "num_examples": NO_SIZE,
    "num_test": NO_SIZE,
    "loss": [-5.0, 1e39, 10**60, *NOWHERE],
    "seconds": [-1e-3, 1e9, 10**30, *NOWHERE],
    "steps": [0, *NO_SIZE],
    "examples": [0, 29, *NO_SIZE],  # more than its hello said
    "scores": [7, [], [2.0], [[2.0, 0.1, 5], [1]], *NOWHERE],
    "votes": [7, [], [0], [1] * 999, [-1, 30], [10**30], [NAN], *NOWHERE],
}
BAD_SCORES = {
    0: [-5.0, 1e39, 10**60, 10**400, *NO_NUMBERS],  # a loss may be unknown
    1: [-0.1, 1.1, 10**30, -(10**400), *NO_NUMBERS],  # and so may an accuracy
    2: [29, *NO_SIZE],
}
TEXTS = [
    "",
    "{",
    "[1]",
    "7",
    "null",
    "{}",
    "\x00",
    '{"loss": 1',
    "[" * 100_000,
    '{"a":' * 100_000,
    '{"loss": ' + "[" * 5000 + "]" * 5000 + "}",
    '{"loss": ' + "9" * 5000 + "}",
    '{"loss": "' + '\\"' * 3000 + "[" * 20,
    " " * (2 << 20),
]


def bad_values(rng: Random, note: Note) -> dict[str, Any]:
    """The values of a note with one of them out of bounds, or gone."""
    values = dict(note.values)
    name = pick(rng, list(values))
    if rng.random() < 0.1:
        del values[name]
    elif name == "scores" and rng.random() < 0.7:
        rows = [list(row) for row in values[name]]
        column = int(rng.integers(3))
        rows[int(rng.integers(len(rows)))][column] = pick(rng, BAD_SCORES[column])
        values[name] = rows
    else:
        values[name] = pick(rng, BAD[name])
    return values


# ---------------------------------------------------------------- arrays no server may accept


def npy(array: np.ndarray) -> bytes:
    np.save(file := io.BytesIO(), array)
    return file.getvalue()


def claiming(rng: Random, array: np.ndarray) -> bytes:
    """A header that claims 2^33 to 2^60 numbers, in one or two dimensions."""
    size = 1 << int(rng.integers(33, 61))
    shape = pick(rng, [f"({size},)", f"({size}, 1)", f"(0, {size})", f"({size}, {size})"])
    header = f"{{'descr': '{array.dtype.str}', 'fortran_order': False, 'shape': {shape}, }}"
    padded = header.encode().ljust(117) + b"\n"
    return b"\x93NUMPY\x01\x00" + len(padded).to_bytes(2, "little") + padded + array.tobytes()


def nested_header(rng: Random, array: np.ndarray) -> bytes:
    padded = (b"(" * 4000 + b")" * 4000).ljust(8117) + b"\n"
    return b"\x93NUMPY\x01\x00" + len(padded).to_bytes(2, "little") + padded + array.tobytes()


def one_entry(value: float) -> Callable[[Random, np.ndarray], bytes]:
    def changed(rng: Random, array: np.ndarray) -> bytes:
        array = array.astype(np.float64 if array.dtype == np.uint32 else array.dtype)
        array[rng.integers(len(array))] = value
        return npy(array)

    return changed


BYTES: list[Callable[[Random, np.ndarray], bytes]] = [
    claiming,
    nested_header,
    one_entry(NAN),
    one_entry(-INF),
    one_entry(1e30),
    lambda rng, array: npy(np.full_like(array, 4e9 if array.dtype == np.uint32 else 1e17)),
    lambda rng, array: npy(array[:-1]),
    lambda rng, array: npy(np.append(array, array[:1])),
    lambda rng, array: npy(array[None]),
    lambda rng, array: npy(array.astype(pick(rng, ["<i8", ">f4", "<f2", "<c16", "<U5", "?"]))),
    lambda rng, array: npy(np.array(["text"])),
    lambda rng, array: npy(array)[: int(rng.integers(80))],
    lambda rng, array: npy(array)[: -int(rng.integers(1, 9))],
    lambda rng, array: npy(array) + rng.bytes(int(rng.integers(1, 9))),
    lambda rng, array: npy(array).replace(b"False", b"True ", 1),
    lambda rng, array: npy(array).replace(b"NUMPY\x01", b"NUMPY\x03", 1),
    lambda rng, array: rng.bytes(int(rng.integers(200))),
    lambda rng, array: b"",
]


def bad_arrays(rng: Random, note: Note) -> ArrayRecord:
    """The arrays of a note with one of them broken, misnamed or of a foreign kind."""
    name = pick(rng, list(note.arrays))
    array, others = note.arrays[name], {n: Array(a) for n, a in note.arrays.items() if n != name}
    way = rng.random()
    if way < 0.05:
        broken = {"else": Array(array)} if note.kind != "hello" else {name: text()}
    elif way < 0.1:
        broken = {name: Array("float32", array.shape, "pickle", npy(array))}
    else:
        data = pick(rng, BYTES)(rng, array)
        broken = {name: Array(array.dtype.str, array.shape, "numpy.ndarray", data)}
    return ArrayRecord({**others, **broken})


def text() -> Array:
    return Array(np.array(["text"]))


# ---------------------------------------------------------------- messages


def poisoned(rng: Random, question: Message, client: Client) -> Message | None:
    """A reply that cannot be accepted, or none."""
    note = honest_note(question, client, rng)
    way = rng.random()
    if way < 0.02:
        return None
    if way < 0.06:
        words = pick(rng, ["", "x" * 10_000, "\x1b[2J\n\n", "<class 'A'>:<'" + "y" * 5000])
        return Message(Error(int(rng.integers(-9, 9)), words), reply_to=question)
    content = to_records(note)
    if way < 0.2:
        bad_head(rng, content)
    elif way < 0.3:
        content["fedskew"]["values"] = pick(rng, [t for t in TEXTS if note.values or t != "{}"])
    elif (way < 0.65 and note.values) or not note.arrays:
        content["fedskew"]["values"] = json.dumps(bad_values(rng, note))
    else:
        content["arrays"] = bad_arrays(rng, note)
    return Message(content, reply_to=question)


def bad_head(rng: Random, content: RecordDict) -> None:
    """Something that is not ours, or not for this question."""
    head = content["fedskew"]
    marked = ["layout"] if head["layout"] else []  # what holds no model has no mark, and needs none
    name = pick(rng, ["format", "kind", "values", "head", *marked])
    if name == "head":
        del content["fedskew"]
        if rng.random() < 0.5:
            content["fedskew"] = pick(rng, [MetricRecord({"a": 1.0}), ConfigRecord({"a": "b"})])
    elif rng.random() < 0.3 and name != "layout":  # a hello that built no model has none
        del head[name]
    else:
        words = ["x" * 5000, 7, 0.5, True, b"\xff", [1, 2], ["a"], "\x1b[2J"]
        head[name] = pick(rng, words if name == "layout" else ["", *words])


def scrambled(rng: Random, question: Message, client: Client) -> Message:
    """An honest reply with a few random changes: bytes, values, letters."""
    note = honest_note(question, client, rng)
    values = dict(note.values)
    for name in values:
        if rng.random() < 0.3:
            values[name] = pick(rng, [0, 1, -1, 0.5, 28, 1e20, 1e-20, *BAD[name]])
    content = to_records(Note(note.kind, values, note.arrays, note.layout))
    letters = list(content["fedskew"]["values"])
    for _ in range(int(rng.integers(3))):
        letters[int(rng.integers(len(letters)))] = pick(rng, list('0123456789[]{},:"eE.-N\\ '))
    content["fedskew"]["values"] = "".join(letters)
    changed = {}
    for name, array in note.arrays.items():
        data = bytearray(npy(array))
        for _ in range(int(rng.integers(4))):
            data[int(rng.integers(len(data)))] = int(rng.integers(256))
        changed[name] = Array(array.dtype.str, array.shape, "numpy.ndarray", bytes(data))
    if changed:
        content["arrays"] = ArrayRecord(changed)
    return Message(content, reply_to=question)


def pick(rng: Random, choices: list[Any]) -> Any:
    return choices[int(rng.integers(len(choices)))]
