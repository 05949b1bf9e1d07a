"""What `pip install fedskew` alone must do, tried with everything hidden that it does not bring."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

EXTRAS = ("torch", "cloudpickle", "PIL", "pandas", "pyarrow", "opendp", "matplotlib", "flwr")
HIDE = """
import sys

class Without:
    def __init__(self, finder):
        self.finder = finder

    def __getattr__(self, name):
        return getattr(self.finder, name)

    def find_spec(self, name, path=None, target=None):
        hidden = name.split(".")[0] in {hidden!r}
        return None if hidden else self.finder.find_spec(name, path, target)

for name in {hidden!r}:
    sys.modules.pop(name, None)
sys.meta_path[:] = [Without(finder) for finder in sys.meta_path]
"""


def bare(code: str, cwd, hidden=EXTRAS) -> subprocess.CompletedProcess[str]:
    """Python code with modules hidden."""
    whole = HIDE.format(hidden=set(hidden)) + code
    return subprocess.run([sys.executable, "-c", whole], capture_output=True, text=True, cwd=cwd)


def command(*arguments: str, cwd, hidden=EXTRAS) -> subprocess.CompletedProcess[str]:
    sys_argv = ["fedskew", *arguments]
    code = f"sys.argv = {sys_argv!r}\nfrom fedskew.cli.main import main\nmain()"
    return bare(code, cwd, hidden)


@pytest.fixture
def counts(tmp_path):
    (tmp_path / "counts.csv").write_text("client,label,count\na,cat,30\na,dog,1\nb,dog,40\n")
    return tmp_path


def test_a_file_of_counts_is_measured(counts):
    done = command("measure", "counts.csv", "--json", cwd=counts)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["clients"]["examples"] == [31, 40]
    assert "strongly skewed" in command("measure", "counts.csv", cwd=counts).stdout


def test_a_dataset_is_measured(tmp_path):
    done = command("measure", "--data", "digits", "--clients", "5", "--json", cwd=tmp_path)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    ("arguments", "remedy"),
    [
        (("run", "fedavg", "--workers", "1"), "pip install 'fedskew[torch]'"),
        (("measure", "counts.csv", "--figures", "f"), "pip install 'fedskew[report]'"),
        (("privacy", "counts.csv"), "pip install 'fedskew[private]'"),
    ],
)
def test_what_is_missing_is_one_line_that_says_how_to_get_it(counts, arguments, remedy):
    done = command(*arguments, "--quiet", cwd=counts)
    assert done.returncode == 2, done.stderr
    assert remedy in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1
    assert [path.name for path in counts.iterdir()] == ["counts.csv"]
