"""``fedskew flower status | monitor``: what a fleet and its runs are doing."""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from fedskew.cli.flower.group import HOME, AsJson, Home, app, out_console, say, say_json
from fedskew.deploy.addresses import LOOPBACK
from fedskew.deploy.fleet_sheet import Fleet, read_fleet
from fedskew.deploy.flower_cli import list_runs
from fedskew.deploy.monitor import Monitor, server
from fedskew.deploy.run_list import run_folders
from fedskew.deploy.run_watch import progress_text

PORT = 9095


@app.command()
def status(
    home: Home = HOME,
    as_json: AsJson = False,
    watch: Annotated[
        bool, typer.Option("--watch", help="Again and again, until Ctrl-C; JSON: a line each time.")
    ] = False,
    every: Annotated[float, typer.Option(min=0.1, help="Seconds between two looks.")] = 5.0,
) -> None:
    """What runs, and which runs the SuperLink knows."""
    while True:
        found = _state_of(read_fleet(home.resolve()))
        if watch and not as_json and out_console.is_terminal:
            out_console.clear()
        if as_json:
            say_json(found, indent=None if watch else 2)
        else:
            _show(found)
        if not watch:
            return
        time.sleep(every)


def _state_of(fleet: Fleet) -> dict[str, Any]:
    processes = {p.name: {"pid": p.pid, "alive": p.alive, "log": p.log} for p in fleet.processes}
    up = "superlink" in processes and processes["superlink"]["alive"]
    folders = run_folders(fleet.folder)
    runs = [
        {**run, "folder": str(folders.get(str(run["run-id"]), "")) or None}
        for run in (list_runs(fleet.flower_home) if up else ())
    ]
    return {"address": fleet.address, "tls": fleet.tls, "processes": processes, "runs": runs}


def _show(found: Mapping[str, Any]) -> None:
    say(f"SuperLink at {found['address']}, {'TLS' if found['tls'] else 'no TLS'}")
    for name, facts in found["processes"].items():
        state = "running" if facts["alive"] else "STOPPED"
        say(f"  {name:10} {state}  process {facts['pid']}  {facts['log']}")
    for run in found["runs"]:
        down, up = (run["network-traffic"][f"{way}bound-bytes"] for way in ("out", "in"))
        progress = progress_text(Path(run["folder"])) if run["folder"] else ""
        far = f"; {progress}" if progress else ""
        say(f"  run {run['run-id']} {run['status']}: {down:,} bytes down, {up:,} up{far}")


@app.command()
def monitor(
    places: Annotated[
        list[Path] | None,
        typer.Argument(
            metavar="[DIR]...",
            help="Run folders, or folders of them (default: runs submitted to this fleet).",
        ),
    ] = None,
    host: Annotated[str, typer.Option(help="Address to listen on.")] = LOOPBACK,
    port: Annotated[int, typer.Option(min=0, max=65535, help="Its port; 0 = a free one.")] = PORT,
    stale_seconds: Annotated[
        float,
        typer.Option(min=0, help="No round for so long: /health fails; 0 = however long."),
    ] = 0.0,
    home: Home = HOME,
) -> None:
    """Serve /metrics (Prometheus) and /health, read from run folders.

    Whoever plays the runs does not notice. There is no password: beyond loopback whoever reaches
    the port can read.
    """
    with server(Monitor(home.resolve(), places or (), stale_seconds), host, port) as listening:
        say(f"http://{host}:{listening.server_address[1]}/metrics and /health")
        listening.serve_forever()
