"""What a newcomer types first: help, version, lists that fit 80 columns, completion, show; and none
of it waits for what it does not need.
"""

from __future__ import annotations

import inspect
import json
import os
import resource
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest
import typer
from played import write_run
from typer.testing import CliRunner

import fedskew
from fedskew.cli import main as cli
from fedskew.data import DATASETS
from fedskew.errors import FedskewError
from fedskew.recipe import REGISTRIES, shipped_recipes
from fedskew.version import __version__

runner = CliRunner()
HEAVY = ("torch", "sklearn", "matplotlib", "pyarrow", "pandas", "flwr", "fedskew.runtime.local")
SCIPY = ("scipy.stats", "scipy.spatial", "scipy.special", "scipy.optimize", "scipy.linalg")


def shown(*arguments: object) -> str:
    done = runner.invoke(cli.app, [str(argument) for argument in arguments])
    assert done.exit_code == 0, (done.output, done.exception)
    return done.stdout


def refused(*arguments: object) -> str:
    done = runner.invoke(cli.app, [str(argument) for argument in arguments])
    assert isinstance(done.exception, FedskewError), (done.output, done.exception)
    return str(done.exception)


# ---------------------------------------------------------------- the start


def modules_after(*arguments: str) -> set[str]:
    """What a command has imported when it is done."""
    code = (
        "import sys\nfrom fedskew.cli.main import app\n"
        f"try:\n    app({list(arguments)!r})\nexcept SystemExit:\n    pass\n"
        "print('\\n'.join(sys.modules), file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return set(done.stderr.split())


def test_help_imports_neither_numpy_nor_any_command():
    loaded = modules_after("--help")
    commands = {where.partition(":")[0] for where, _ in cli.COMMANDS.values()}
    assert loaded & {"numpy", "scipy", "rich.console", *HEAVY, *commands} == set()


@pytest.mark.parametrize(
    "arguments", [("list",), ("list", "selection", "fedlecc"), ("data", "list")]
)
def test_lists_import_nothing_heavy(arguments):
    assert modules_after(*arguments) & {*HEAVY, *SCIPY} == set()


def cpu_seconds(tmp_path: Path, *arguments: str) -> float:
    """The least CPU time of three starts, with modules compiled before."""
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
    # threads of numpy's library spin for a while or not, as it happens
    environment |= {"PYTHONPYCACHEPREFIX": str(tmp_path), "OPENBLAS_NUM_THREADS": "1"}
    took = []
    for _ in range(4):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        command = [sys.executable, *arguments]
        subprocess.run(command, env=environment, check=True, stdout=subprocess.DEVNULL)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        took.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    return min(took[1:])


def test_help_costs_little_more_than_typer_and_a_list_a_few_imports_of_numpy(tmp_path):
    """Ratios: at rest `import typer` takes 0.08 s here and `import numpy` 0.1 s."""
    typer_alone = cpu_seconds(tmp_path, "-c", "import typer")
    assert cpu_seconds(tmp_path, "-m", "fedskew", "--help") < 2.5 * typer_alone
    numpy_alone = cpu_seconds(tmp_path, "-c", "import numpy")
    assert cpu_seconds(tmp_path, "-m", "fedskew", "list") < 6 * numpy_alone


def test_every_line_of_the_help_is_that_of_its_command():
    """The lines stand beside the names so that help need not import the commands."""
    for name, (where, line) in cli.COMMANDS.items():
        module, _, inside = where.partition(":")
        target = getattr(import_module(module), inside)
        text = target.info.help if isinstance(target, typer.Typer) else inspect.getdoc(target)
        assert " ".join(text.split("\n\n")[0].split()) == line, name
        assert name in shown("--help")


@pytest.mark.parametrize("name", cli.COMMANDS)
def test_every_command_has_a_help_of_its_own(name):
    assert f"Usage: fedskew {name}" in shown(name, "--help")


def test_version():
    assert shown("--version") == f"fedskew {__version__}\n"


def test_a_misspelt_command_names_the_right_one():
    done = runner.invoke(cli.app, ["mesure"])
    assert done.exit_code == 2
    assert "Did you mean 'measure'?" in done.output


# ---------------------------------------------------------------- completion


def completed(words: str, monkeypatch) -> list[str]:
    """What bash would be offered."""
    monkeypatch.setenv("COMP_WORDS", words)
    monkeypatch.setenv("COMP_CWORD", str(len(words.split(" ")) - 1))
    monkeypatch.setenv("_FEDSKEW_COMPLETE", "complete_bash")
    done = runner.invoke(cli.app, [], prog_name="fedskew")
    return done.stdout.split()


@pytest.mark.parametrize(
    ("words", "offered"),
    [
        ("fedskew pri", ["privacy"]),
        ("fedskew run fedlec", ["fedlecc"]),
        ("fedskew compare fedavg fedlec", ["fedlecc"]),
        ("fedskew list selec", ["selection"]),
        ("fedskew list selection bac", ["bacsa"]),
        ("fedskew data get fmn", ["fmnist"]),
        ("fedskew data sh", ["show"]),
    ],
)
def test_the_shell_completes(words, offered, monkeypatch):
    assert completed(words, monkeypatch) == offered


def test_completion_can_be_installed():
    assert "--install-completion" in shown("--help")


# ---------------------------------------------------------------- lists


@pytest.mark.parametrize(
    "arguments",
    [("list",), ("list", "selection"), ("list", "run"), ("list", "recipes"), ("data", "list")],
)
def test_lists_fit_80_columns(arguments, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    assert max(map(len, shown(*arguments).splitlines())) <= 80


def test_no_name_is_cut(monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    words = set(shown("list").split())
    for registry in (*REGISTRIES.values(), shipped_recipes()):
        assert set(registry) <= words
    assert set(DATASETS) <= set(shown("data", "list").split())


def test_one_entry_with_all_that_is_known_of_it(monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    text = shown("list", "selection", "fedlecc")
    assert "top_clusters: int = 5" in text
    assert "Algorithm 1" in text
    assert json.loads(shown("list", "selection", "fedlecc", "--json")).keys() == {"selection"}
    assert "Did you mean 'fedlecc'?" in refused("list", "selection", "fedleck")
    assert "Say fedskew list selection fedlecc" in refused("list", "fedlecc")


def test_a_dataset_with_its_licence():
    assert "CC BY-SA" in shown("data", "list", "mnist")
    assert list(json.loads(shown("data", "list", "mnist", "--json"))) == ["mnist"]
    assert "Did you mean 'mnist'?" in refused("data", "list", "mnst")


# ---------------------------------------------------------------- show


def test_show_a_run(tmp_path):
    write_run(tmp_path / "a")
    text = shown("show", tmp_path / "a")
    assert "final accuracy" in text
    assert "dirichlet (alpha 0.3), K = 12" in text
    facts = json.loads(shown("show", tmp_path / "a", "--json", "--target", "0.01"))
    assert (facts["name"], facts["finished"], facts["to_target"]["target"]) == (
        "fedavg",
        True,
        0.01,
    )


def test_show_several_runs_with_names_uncut(tmp_path):
    for name in ("balanced_chains", "fedavg"):
        for seed in (0, 1):
            write_run(tmp_path / f"{name}-{seed}", name, seed)
    lines = shown("show", tmp_path).splitlines()
    assert [line.split()[:2] for line in lines[1:]] == [
        ["balanced_chains", "0"], ["balanced_chains", "1"], ["fedavg", "0"], ["fedavg", "1"],
    ]  # fmt: skip
    assert max(map(len, lines)) <= 80
    assert len(json.loads(shown("show", tmp_path, "--json"))) == 4


def test_show_says_how_far_an_unfinished_run_is(tmp_path):
    write_run(tmp_path / "a", until=4)
    assert "not finished, round 4 of 6" in shown("show", tmp_path / "a")
    assert json.loads(shown("show", tmp_path / "a", "--json"))["finished"] is False
    assert "does not exist" in refused("show", tmp_path / "b")


# ---------------------------------------------------------------- measure a folder of runs


def test_methods_on_the_same_clients_are_one_federation(tmp_path):
    for name in ("fedavg", "fedlecc"):
        write_run(tmp_path / name, name, 3)
    found = json.loads(shown("measure", tmp_path, "--json"))
    assert "the same clients in 2 runs" in found["notes"]
    assert found["seed"] == 3


def test_a_line_for_each_federation(tmp_path):
    for seed in (0, 1):
        write_run(tmp_path / f"seed-{seed}", "fedavg", seed)
    lines = shown("measure", tmp_path).splitlines()
    assert "HD" in lines[0]
    found = json.loads(shown("measure", tmp_path, "--json"))["federations"]
    alone = json.loads(shown("measure", tmp_path / "seed-1", "--json"))
    assert found[1]["figures"] == alone["figures"]
    assert "runs of 2 federations" in refused("privacy", tmp_path)
    assert "runs of 2 federations" in refused("measure", tmp_path, "--figures", tmp_path / "f")


# ---------------------------------------------------------------- dir


def test_dir_shows_what_there_is():
    assert {"run", "Run", "Comparison", "data", "measure", "recipe", "stream"} <= set(dir(fedskew))
    assert not {"sys", "import_module", "Any", "TYPE_CHECKING"} & set(dir(fedskew))
    assert all(getattr(fedskew, name) is not None for name in dir(fedskew))
    code = "import fedskew; print(fedskew.measure.read_counts.__name__, fedskew.data.load.__name__)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stdout.split() == ["read_counts", "load"]
