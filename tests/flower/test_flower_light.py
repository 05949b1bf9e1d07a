"""What a message loads. Flower starts a process for every message at every client, so an import
more is paid for hundreds of times.
"""

from __future__ import annotations

import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

pytest.importorskip("flwr", reason="Flower is not installed: make test-flower has it")

# one client in a process of its own answers one message; which of these modules are loaded then
ANSWER = """
import sys
sys.path.insert(0, {here!r})
from fake_grid import FakeGrid
from fedskew.runtime.flower.exchange import Letter, exchange
from fedskew.runtime.flower.records import Note

grid = FakeGrid({config!r})
grid.join(0)
letter = Letter(1000, {kind!r}, Note({name!r}, {values!r}))
found = exchange(grid, [letter], deadline_seconds=1.0, poll_seconds=0.0)[0]
assert found.status == "ok", found.why
heavy = ("torch", "pandas", "fedskew.loop.federation", "fedskew.runtime.flower.server")
print([name for name in heavy if name in sys.modules])
"""


def loaded(kind: str, values: dict[str, object], **config: object) -> str:
    known = {"recipe": "fedavg", "set": "data.clients=4", "seed": 3, **config}
    code = textwrap.dedent(ANSWER).format(
        here=str(Path(__file__).parent),
        config=known,
        kind=kind,
        name=kind.removeprefix("query."),
        values=values,
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


@pytest.mark.parametrize("signal", ["none", "histogram"])
def test_a_hello_loads_neither_torch_nor_the_loop(signal):
    recipe = "fedavg" if signal == "none" else "fedlecc"
    assert loaded("query.hello", {}, recipe=recipe) == "[]"


def test_noised_label_counts_load_neither_torch_nor_the_loop():
    pytest.importorskip("opendp")
    changes = "data.clients=4; signal.use=private"
    said = loaded("query.release", {"client": 0}, recipe="fedlecc", set=changes)
    assert said == "[]"


def test_a_hello_that_asks_for_the_model_builds_it():
    """So the test above can fail."""
    assert "'torch'" in loaded("query.hello", {"model": True})
