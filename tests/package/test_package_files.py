"""A built wheel and a source archive hold what they need, and nothing else."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from importlib.util import find_spec
from pathlib import Path

import pytest
from try_out import EXTRAS, RESOLVED

from fedskew import __version__

ROOT = Path(__file__).resolve().parents[2]
TOP = {"CHANGELOG.md", "CITATION.cff", "LICENSE", "MANIFEST.in", "README.md", "pyproject.toml"}
BUILD = (
    "import setuptools.build_meta as b, sys; out = sys.argv[1]; "
    "b.build_wheel(out); b.build_sdist(out)"
)


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Both archives, built in a copy of what setuptools looks at."""
    if find_spec("setuptools") is None:
        pytest.skip(
            "setuptools is not installed (make package builds in an environment of its own)"
        )
    tree, out = tmp_path_factory.mktemp("tree"), tmp_path_factory.mktemp("dist")
    ignore = shutil.ignore_patterns("__pycache__", "*.egg-info")
    for name in ("src", "tests", "docs"):
        shutil.copytree(ROOT / name, tree / name, ignore=ignore)
    for name in TOP:
        shutil.copy(ROOT / name, tree)
    done = subprocess.run(
        [sys.executable, "-c", BUILD, str(out)], cwd=tree, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    return out


def source_files() -> set[str]:
    """Every file of the package."""
    found = (ROOT / "src" / "fedskew").rglob("*")
    return {
        path.relative_to(ROOT / "src").as_posix()
        for path in found
        if path.is_file() and "__pycache__" not in path.parts
    }


def test_the_wheel_holds_the_package_and_its_own_records(built: Path) -> None:
    (wheel,) = built.glob("*.whl")
    names = set(zipfile.ZipFile(wheel).namelist())
    info = f"fedskew-{__version__}.dist-info"
    assert {name for name in names if not name.startswith(f"{info}/")} == source_files()
    assert {Path(name).name for name in names if name.startswith(f"{info}/")} == {
        "METADATA", "WHEEL", "RECORD", "LICENSE", "entry_points.txt", "top_level.txt",
    }  # fmt: skip


def test_the_source_archive_holds_what_builds_the_wheel(built: Path) -> None:
    (archive,) = built.glob("*.tar.gz")
    with tarfile.open(archive) as found:
        names = {m.name.partition("/")[2] for m in found.getmembers() if m.isfile()}
    written = {"PKG-INFO", "setup.cfg"}
    inside = {name for name in names if not name.startswith("src/fedskew.egg-info/")}
    assert inside == TOP | written | {f"src/{name}" for name in source_files()}


def test_what_is_written_on_it(built: Path) -> None:
    (wheel,) = built.glob("*.whl")
    archive = zipfile.ZipFile(wheel)
    lines = archive.read(f"fedskew-{__version__}.dist-info/METADATA").decode().splitlines()
    head = lines[: lines.index("")]
    assert f"Version: {__version__}" in head
    assert "Requires-Python: >=3.11" in head
    assert "License-Expression: Apache-2.0" in head
    needed = [line for line in head if line.startswith("Requires-Dist") and "extra ==" not in line]
    heavy = ("torch", "pandas", "pyarrow", "matplotlib", "flwr", "sphinx")
    assert not [line for line in needed if any(name in line for name in heavy)]


def test_version_and_date_are_the_same_everywhere() -> None:
    changelog = (ROOT / "CHANGELOG.md").read_text()
    cited = (ROOT / "CITATION.cff").read_text()
    assert f"\nversion: {__version__}\n" in cited
    newest = next(line for line in changelog.splitlines() if line.startswith("## "))
    assert newest.split()[1] == __version__
    released = cited.partition("date-released: ")[2].splitlines()[0].strip("'\"")
    assert newest.endswith(f"({released})")


def test_every_extra_is_tried() -> None:
    """`make package` installs or resolves each one."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert set(EXTRAS) | set(RESOLVED) == set(project["optional-dependencies"])
