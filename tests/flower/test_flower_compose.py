"""The compose file. Docker does not run here: what can be known without it is checked."""

from __future__ import annotations

import re
import shlex
import string
import subprocess
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

pytest.importorskip("yaml", reason="PyYAML comes with Flower: make test-flower has it")
import yaml
from command_lines import check_parses

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "docs" / "compose"
TEXT = (FOLDER / "compose.yaml").read_text()
COMPOSE = yaml.safe_load(TEXT)
SERVICES = COMPOSE["services"]
HOSPITALS = [name for name in SERVICES if name.startswith("hospital-")]


def script_of(service: str) -> str:
    """What the shell of a container gets: compose writes $$ for $."""
    shell, flags, script = SERVICES[service]["command"]
    assert (shell, flags) == ("sh", "-ec")
    assert not re.search(r"(?<!\$)\$(?!\$)", script), "compose would put in a variable of its own"
    return script.replace("$$", "$")


def fedskew_lines(script: str) -> Iterator[str]:
    """The command lines of ours in a script, also behind exec, trap and &."""
    for line in script.splitlines():
        yield from re.findall(r"\bfedskew flower [^'&;|]+", line)


LINES = [
    string.Template(line).substitute(SERVICES[service].get("environment", {}))
    for service in SERVICES
    for line in fedskew_lines(script_of(service))
]
TYPED = re.findall(r"docker compose exec [\w-]+ (fedskew .*?)(?:  +#.*)?$", TEXT, re.M)


@pytest.mark.parametrize("line", [*LINES, *TYPED])
def test_every_command_line_is_one_of_ours(line):
    check_parses(shlex.split(line))


def test_there_are_some():
    assert len(LINES) == 3 + 2 * len(HOSPITALS)
    assert len(TYPED) == 3


def test_the_check_can_fail():
    for line in ("fedskew flower upp", "fedskew flower up --port x", "fedskew flower join"):
        with pytest.raises(click.UsageError):
            check_parses(shlex.split(line))


@pytest.mark.parametrize("service", SERVICES)
def test_a_shell_can_read_the_scripts(service):
    subprocess.run(["sh", "-n"], input=script_of(service), text=True, check=True)


def test_a_server_and_three_hospitals():
    assert list(SERVICES) == ["server", "hospital-a", "hospital-b", "hospital-c"]
    clients = [SERVICES[name]["environment"]["CLIENT"] for name in HOSPITALS]
    assert clients == ["0", "1", "2"]
    for name in HOSPITALS:
        assert SERVICES[name]["environment"]["NAME"] == name
        assert "--superlink server:9092" in script_of(name)
    assert "--port 9092" in script_of("server")
    assert SERVICES["server"]["hostname"] == "server"


def test_hospitals_reach_the_server_and_nobody_else():
    networks = {name: set(service["networks"]) for name, service in SERVICES.items()}
    for name in HOSPITALS:
        others = set().union(*(networks[other] for other in HOSPITALS if other != name))
        assert not networks[name] & others
        assert networks[name] <= networks["server"]
    assert networks["server"] == set(COMPOSE["networks"])


def test_no_two_containers_share_what_is_secret():
    """Only the folder of public keys, and apps that nobody can change."""
    mounts = [
        (name, *mount.split(":")) for name, service in SERVICES.items()
        for mount in service["volumes"]
    ]  # fmt: skip
    for name, source, *_ in mounts:
        if source in COMPOSE["volumes"]:
            assert source == name
    shared = {tuple(rest) for _, source, *rest in mounts if source not in COMPOSE["volumes"]}
    assert shared == {("/exchange",), ("/apps", "ro")}


def test_nothing_is_open_to_the_outside():
    for service in SERVICES.values():
        assert "ports" not in service
        assert service["cap_drop"] == ["ALL"]
        assert "privileged" not in service
    assert "monitor /srv/fleet/runs" in script_of("server")  # on loopback: no --host
    assert "127.0.0.1:9095/health" in SERVICES["server"]["healthcheck"]["test"][-1]


def test_what_is_copied_into_the_image_exists():
    build = SERVICES["server"]["build"]
    context = (FOLDER / build["context"]).resolve()
    assert context == ROOT
    assert context / build["dockerfile"] == FOLDER / "Dockerfile"
    for line in (FOLDER / "Dockerfile").read_text().splitlines():
        if line.startswith("COPY "):
            for source in line.split()[1:-1]:
                assert (context / source).exists(), source
