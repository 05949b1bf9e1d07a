"""``fedskew flower new | up | run | status | admit | restart | down``, and at hospitals ``join |
approve``: a recipe on a fleet, from an empty folder to TLS.
"""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from fedskew import recipe as recipes
from fedskew.cli.own_rules import find_rules
from fedskew.deploy import approval, hospital, local_fleet, membership
from fedskew.deploy.addresses import LOOPBACK
from fedskew.deploy.app import write_app
from fedskew.deploy.fleet_sheet import Fleet, read_fleet
from fedskew.deploy.flower_cli import (
    CONNECTION,
    DEFAULT_SECONDS,
    SECONDS_VARIABLE,
    call,
    check_reachable,
    environment,
    list_runs,
    program,
    run_config,
)
from fedskew.deploy.flower_cli import write_connection as connect
from fedskew.deploy.keys import private_folder
from fedskew.deploy.traffic import FLEET, Direction, compare
from fedskew.errors import RecipeError, RunError
from fedskew.records import RESULT, read_json

app = typer.Typer(
    help="The same recipe on a real fleet, with Flower.",
    no_args_is_help=True,
    rich_markup_mode=None,
)
out_console = Console()
Home = Annotated[
    Path,
    typer.Option(
        "--home",
        envvar="FEDSKEW_FLEET",
        metavar="DIR",
        help="Folder of the fleet: logs, keys, what runs.",
    ),
]
HOME = Path(".fleet")


@app.callback()
def flower(
    flwr_seconds: Annotated[
        float,
        typer.Option(envvar=SECONDS_VARIABLE, min=1, help="How long Flower's commands may take."),
    ] = DEFAULT_SECONDS,
) -> None:
    """The same recipe on a real fleet, with Flower."""
    os.environ[SECONDS_VARIABLE] = str(flwr_seconds)


def _print(text: str) -> None:
    out_console.print(text, markup=False, highlight=False, soft_wrap=True)


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
        _print(str(path))


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
    fleet = local_fleet.up(home, nodes, tls=tls, host=host, port=port, simulation=simulation)
    kind = "virtual nodes" if simulation else "SuperNodes"
    where = "no TLS, this machine only"
    if tls:
        where = f"TLS; runs are submitted on this machine only, at {fleet.control}"
    _print(f"SuperLink at {fleet.address} ({where}), {nodes} {kind}")


@app.command()
def run(
    folder: Annotated[
        Path, typer.Argument(metavar="DIR", help="The folder of an app: see fedskew flower new.")
    ],
    out: Annotated[
        Path | None, typer.Option(help="Run folder, on the SuperLink's machine (default: DIR/run).")
    ] = None,
    seed: Annotated[
        int | None, typer.Option(min=0, help="Root of every random stream (default: the app's).")
    ] = None,
    set_: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="TABLE.OPTION=VALUE", help="Change an option."),
    ] = None,
    config: Annotated[
        list[str] | None,
        typer.Option("--config", metavar="KEY=VALUE", help="Change [tool.flwr.app.config]."),
    ] = None,
    resume: Annotated[
        bool, typer.Option("--resume", help="Go on with a run that was stopped.")
    ] = False,
    superlink: Annotated[
        str | None, typer.Option(metavar="HOST:PORT", help="A SuperLink that was not started here.")
    ] = None,
    root_certificates: Annotated[
        Path | None, typer.Option(help="Its ca.crt; without one no TLS is used.")
    ] = None,
    home: Home = HOME,
) -> None:
    """Run an app on the fleet and follow it.

    At the end its ledger is compared with the bytes Flower counted.
    """
    if not (folder / "pyproject.toml").is_file():
        raise RecipeError(str(folder), "is not a Flower app", "Write one: fedskew flower new DIR")
    fleet = (
        read_fleet(home.resolve())
        if superlink is None
        else _elsewhere(home, superlink, root_certificates)
    )
    authority = fleet.authority if superlink is None else root_certificates
    check_reachable(fleet.control, authority)
    target = (out or folder / "run").resolve()
    values: dict[str, Any] = {"out": str(target), "resume": resume} | (
        {} if seed is None else {"seed": seed}
    )
    values |= {"set": ";".join(set_)} if set_ else {}
    values |= {
        key: recipes.override({}, {f"x.{key}": value})["x"][key]
        for key, value in recipes.read_assignments(config or []).items()
    }
    engine = ["--federation-config", f"num-supernodes={fleet.simulated}"] if fleet.simulated else []
    answer = call(
        fleet.flower_home, "run", str(folder.resolve()), CONNECTION, *run_config(values), *engine
    )
    run_id = str(answer["run-id"])
    _print(f"Flower run {run_id}")
    final = _follow(fleet, run_id)
    if final["status"] != "finished:completed":
        why = str(final.get("status-details") or final["status"]).removeprefix(
            "ServerApp failed with exception: "
        )
        raise RunError(f"Flower run {run_id}", why, "Finished rounds are on disk: --resume goes on")
    _report(target, final, simulated=fleet.simulated > 0)


def _elsewhere(home: Path, address: str, authority: Path | None) -> Fleet:
    """A SuperLink that somebody else has started."""
    fleet = Fleet(str(private_folder(home.resolve())), address, False, control=address)
    connect(fleet.flower_home, address, None if authority is None else authority.resolve())
    return fleet


def _follow(fleet: Fleet, run_id: str) -> Mapping[str, Any]:
    """Show our own lines of the ServerApp's log until the run has ended; what Flower knows of it
    then.
    """
    command = [program("flwr"), "log", run_id, CONNECTION, "--stream"]
    seen: set[str] = set()
    while True:
        with subprocess.Popen(
            command,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env=environment(fleet.flower_home),
        ) as log:
            for line in log.stdout or ():
                text = line.partition("fedskew: ")[2].rstrip()
                if text and text not in seen:
                    seen.add(text)
                    _print(text)
        try:
            found = list_runs(fleet.flower_home, run_id)[0]
        except RunError:
            remedy = "Start it again (fedskew flower restart superlink), then run with --resume"
            raise RunError(
                f"SuperLink {fleet.address}", "does not answer any more", remedy
            ) from None
        if str(found["status"]).startswith("finished"):
            return found
        time.sleep(1.0)


def _report(folder: Path, run: Mapping[str, Any], *, simulated: bool) -> None:
    if not (folder / FLEET).is_file() or not (folder / RESULT).is_file():
        _print(f"records are on the SuperLink's machine in {folder}")
        return
    result = read_json(folder / RESULT)
    _print(f"{_accuracy_text(result)}, {result['rounds']} rounds, records in {folder}")
    if str(read_json(folder / FLEET)["runs"][-1]["flower_run"]) != str(run["run-id"]):
        _print("all rounds were there already: nothing was left to do")
    elif simulated:
        _print("Flower counts no bytes in a simulation")
    else:
        out_console.print(traffic_table(compare(folder, [run])))


def _accuracy_text(result: Mapping[str, Any]) -> str:
    """How good the models are: the one global model, or else the clients' own."""
    if result["final_accuracy"] is not None:
        return f"final accuracy {result['final_accuracy']:.4f}"
    at_clients = (result["client_accuracy"] or {}).get("weighted")
    return "not tested" if at_clients is None else f"accuracy at clients {at_clients:.4f}"


def traffic_table(found: Mapping[str, Direction]) -> Table:
    """Our bytes and Flower's, side by side."""
    table = Table("bytes", show_edge=False, pad_edge=False, box=None)
    columns = {
        "ledger": "ledger",
        "uncharged": "tests + d2d",
        "unsent": "not sent",
        "messages": "messages",
        "overhead": "stated overhead",
        "flower": "Flower",
    }
    if not any(row.unsent for row in found.values()):
        del columns["unsent"]
    for title in (*columns.values(), "difference"):
        table.add_column(title)
    for way, row in found.items():
        cells = [f"{getattr(row, name):,}" for name in columns]
        table.add_row(way, *cells, f"{100 * row.difference:+.1f} %")
    return table


@app.command()
def status(
    home: Home = HOME,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print one JSON object on standard output.")
    ] = False,
) -> None:
    """What runs, and which runs the SuperLink knows."""
    fleet = read_fleet(home.resolve())
    processes = {p.name: {"pid": p.pid, "alive": p.alive, "log": p.log} for p in fleet.processes}
    runs = list_runs(fleet.flower_home) if processes["superlink"]["alive"] else []
    if as_json:
        print(
            json.dumps(
                {"address": fleet.address, "tls": fleet.tls, "processes": processes, "runs": runs},
                indent=2,
            )
        )
        return
    _print(f"SuperLink at {fleet.address}, {'TLS' if fleet.tls else 'no TLS'}")
    for name, facts in processes.items():
        state = "running" if facts["alive"] else "STOPPED"
        _print(f"  {name:10} {state}  process {facts['pid']}  {facts['log']}")
    for found in runs:
        down, up = (found["network-traffic"][f"{way}bound-bytes"] for way in ("out", "in"))
        _print(f"  run {found['run-id']} {found['status']}: {down:,} bytes down, {up:,} up")


@app.command()
def join(
    name: Annotated[str, typer.Argument(help="A name for this node; its files are called so.")],
    superlink: Annotated[
        str | None,
        typer.Option(metavar="HOST:PORT", help="Where to, once admitted: the node is started."),
    ] = None,
    client: Annotated[
        int | None, typer.Option(min=0, help="The number it was admitted with.")
    ] = None,
    root_certificates: Annotated[Path, typer.Option(help="The server's certificate.")] = Path(
        "ca.crt"
    ),
    port: Annotated[int, typer.Option(min=0, max=65535, help="Its own port; 0 = a free one.")] = 0,
    folder: Annotated[Path, typer.Option(metavar="DIR", help="Where its files lie.")] = Path("."),
) -> None:
    """At a hospital: make a key and a policy; once admitted, run the node.

    The private key never leaves this machine. Without --superlink the files are made and the public
    key is shown.
    """
    papers = hospital.prepare(folder, name)
    if superlink is None:
        _print(f"{papers.policy} says what this node gives away: read it, change it")
        _print(f"{papers.public} goes to whoever runs the server, for: fedskew flower admit")
        _print(papers.public.read_text().strip())
        return
    if client is None:
        raise RecipeError(
            "--client", "is missing", "Give the number that fedskew flower admit told"
        )
    policy = hospital.check(papers, superlink, root_certificates)
    _print(f"client {client} of {superlink}; {hospital.describe(policy)}")
    home = folder / f"{name}.flwr"
    if policy.apps is None:
        command = hospital.node_command(papers, superlink, root_certificates, client, port)
        hospital.become(command, home)
    code = hospital.run_behind_gate(papers, superlink, root_certificates, client, port, home)
    raise typer.Exit(code)


@app.command()
def approve(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="The app, as it was sent to you.")],
    name: Annotated[str, typer.Argument(help="The node: NAME of fedskew flower join NAME.")],
) -> None:
    """At a hospital: let an app run on this node, after you have read it."""
    found, apps = approval.approve(Path(f"{name}.toml"), folder)
    _print(f"{found} is on the list {apps}")


@app.command()
def admit(
    public_key: Annotated[
        Path, typer.Argument(metavar="KEY.pub", help="What fedskew flower join has made.")
    ],
    client: Annotated[
        int | None, typer.Option(min=0, help="Its client number (default: the lowest free one).")
    ] = None,
    home: Home = HOME,
) -> None:
    """At the server: let a node of another machine take part, as one client and no other."""
    found = membership.admit(home, public_key, client)
    member = found.member
    _print(f"{member.name} is client {member.client} ({member.key})")
    _print(
        f"send it {found.authority}; in the folder of its key, with that file beside it, it starts:"
    )
    _print(shlex.join(found.command))


@app.command()
def restart(
    name: Annotated[str, typer.Argument(help="superlink, or node-N")],
    home: Home = HOME,
) -> None:
    """Start a process of the fleet again that has died."""
    local_fleet.restart(home, name)
    _print(f"{name} is running again")


@app.command()
def down(home: Home = HOME) -> None:
    """Stop exactly what `up` has started."""
    stopped = local_fleet.down(home)
    _print(f"stopped {', '.join(stopped)}" if stopped else "nothing was running any more")
