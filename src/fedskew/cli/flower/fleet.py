"""``fedskew flower new | up | restart | down``: an app from a recipe, a fleet on this machine."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fedskew import recipe as recipes
from fedskew.cli.flower.group import HOME, Home, app, say
from fedskew.cli.own_rules import find_rules
from fedskew.deploy import local_fleet
from fedskew.deploy.addresses import LOOPBACK
from fedskew.deploy.app import write_app
from fedskew.errors import RecipeError


@app.command()
def new(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="A new folder for the app.")],
    recipe: Annotated[
        str, typer.Option(help="Name of a shipped recipe, or a TOML file.")
    ] = "fedavg",
    set_: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="TABLE.OPTION=VALUE", help="Change an option."),
    ] = None,
    seed: Annotated[int, typer.Option(min=0, help="Root of every random stream.")] = 0,
) -> None:
    """Write a Flower app from a recipe: five short files."""
    raw = recipes.override(recipes.load(recipe), recipes.read_assignments(set_ or []))
    find_rules([recipe], raw)
    for path in write_app(folder, recipes.resolve(raw), seed=seed):
        say(str(path))


@app.command()
def up(
    nodes: Annotated[
        int, typer.Option(min=0, help="SuperNodes on this machine: clients 0 to N-1.")
    ] = 4,
    tls: Annotated[
        bool, typer.Option("--tls", help="Encrypt, and admit registered nodes only.")
    ] = False,
    host: Annotated[str, typer.Option(help="Address the SuperLink listens on.")] = LOOPBACK,
    simulation: Annotated[
        bool, typer.Option("--simulation", help="Virtual nodes on Ray instead of SuperNodes.")
    ] = False,
    port: Annotated[int, typer.Option(min=0, max=65535, help="Its port; 0 = a free one.")] = 0,
    home: Home = HOME,
) -> None:
    """Start a SuperLink and some SuperNodes on this machine."""
    if host != LOOPBACK and not tls:
        raise RecipeError("--host", f"{host} is open to others without protection", "Add --tls")
    if simulation and (tls or not nodes):
        raise RecipeError(
            "--simulation", "has one machine and at least one node", "Leave --tls out, give --nodes"
        )
    before = _authority(home)
    fleet = local_fleet.up(home, nodes, tls=tls, host=host, port=port, simulation=simulation)
    kind = "virtual nodes" if simulation else "SuperNodes"
    where = "no TLS, this machine only"
    if tls:
        where = f"TLS; runs are submitted on this machine only, at {fleet.control}"
    say(f"SuperLink at {fleet.address} ({where}), {nodes} {kind}")
    if tls and before not in (None, _authority(home)):
        say(f"new certificates were made: every member needs {fleet.authority} again")


def _authority(home: Path) -> bytes | None:
    """The certificate that members have."""
    path = home / "keys" / "ca.crt"
    return path.read_bytes() if path.is_file() else None


@app.command()
def restart(
    name: Annotated[str, typer.Argument(help="superlink, or node-N")],
    home: Home = HOME,
) -> None:
    """Start a process of the fleet again that has died."""
    local_fleet.restart(home, name)
    say(f"{name} is running again")


@app.command()
def down(home: Home = HOME) -> None:
    """Stop exactly what `up` has started."""
    stopped = local_fleet.down(home)
    say(f"stopped {', '.join(stopped)}" if stopped else "nothing was running any more")
