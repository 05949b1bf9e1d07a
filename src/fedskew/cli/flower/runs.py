"""``fedskew flower run | stop | log``: a run on the fleet, followed, ended, read again."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from fedskew import recipe as recipes
from fedskew.cli.flower.group import HOME, AsJson, Home, app, say, say_json
from fedskew.cli.flower.outcome import report
from fedskew.deploy.fleet_sheet import Fleet, read_fleet
from fedskew.deploy.flower_cli import (
    CONNECTION,
    call,
    check_reachable,
    list_runs,
    log_lines,
    run_config,
    write_connection,
)
from fedskew.deploy.keys import private_folder
from fedskew.deploy.processes import log_end
from fedskew.deploy.run_list import chosen_run, is_going, note_run, why_ended
from fedskew.errors import RecipeError, RunError
from fedskew.records import check_free


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
    target = (out or folder / "run").resolve()
    if superlink is None:  # else it is a folder of another machine
        check_free(target, resume=resume)
    check_reachable(fleet.control, authority)
    values: dict[str, Any] = {"out": str(target), "resume": resume} | (
        {} if seed is None else {"seed": seed}
    )
    values |= {"set": ";".join(set_)} if set_ else {}
    values |= {
        key: recipes.override({}, {f"x.{key}": value})["x"][key]
        for key, value in recipes.read_assignments(config or []).items()
    }
    final = play_on(fleet, folder, values)
    report(target, final, simulated=fleet.simulated > 0)


def play_on(
    fleet: Fleet, folder: Path, values: Mapping[str, Any], tell: Callable[[str], None] = say
) -> Mapping[str, Any]:
    """Submit an app, follow it to its end; what Flower knows of it then. A run that did not come to
    its end is an error.
    """
    engine = ["--federation-config", f"num-supernodes={fleet.simulated}"] if fleet.simulated else []
    answer = call(
        fleet.flower_home, "run", str(folder.resolve()), CONNECTION, *run_config(values), *engine
    )
    run_id = str(answer["run-id"])
    note_run(fleet.folder, run_id, Path(values["out"]))
    tell(f"Flower run {run_id}")
    final = _follow(fleet, run_id, tell)
    if final["status"] != "finished:completed":
        remedy = "Finished rounds are on disk: --resume goes on"
        raise RunError(f"Flower run {run_id}", why_ended(final), remedy)
    return final


def _elsewhere(home: Path, address: str, authority: Path | None) -> Fleet:
    """A SuperLink that somebody else has started."""
    fleet = Fleet(str(private_folder(home.resolve())), address, False, control=address)
    write_connection(fleet.flower_home, address, None if authority is None else authority.resolve())
    return fleet


def _follow(fleet: Fleet, run_id: str, tell: Callable[[str], None]) -> Mapping[str, Any]:
    """Show our own lines of the ServerApp's log until the run has ended; what Flower knows of it
    then.
    """
    seen: set[str] = set()
    while True:
        for line in log_lines(fleet.flower_home, run_id, follow=True):
            text = line.partition("fedskew: ")[2]
            if text and text not in seen:
                seen.add(text)
                tell(text)
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


RunId = Annotated[
    str | None,
    typer.Argument(metavar="[RUN]", help="Flower's number of it (default: what is going on)."),
]


@app.command()
def stop(run_id: RunId = None, home: Home = HOME, as_json: AsJson = False) -> None:
    """End a run; the fleet stays up. Finished rounds are on disk: run with --resume goes on."""
    fleet = read_fleet(home.resolve())
    found = chosen_run(fleet.flower_home, run_id)
    number = str(found["run-id"])
    if not is_going(found):
        raise RunError(f"run {number}", f"has ended ({found['status']})", "Nothing to stop")
    call(fleet.flower_home, "stop", number, CONNECTION)
    if as_json:
        return say_json({"run-id": number, "stopped": True})
    say(f"stopped run {number}; finished rounds are on disk: fedskew flower run DIR --resume")


@app.command()
def log(
    what: Annotated[
        str | None,
        typer.Argument(
            metavar="[RUN|PROCESS]",
            help="A run by Flower's number, or superlink, gate, node-N (default: the run that is "
            "going on, else the newest).",
        ),
    ] = None,
    follow: Annotated[
        bool, typer.Option("--follow", help="Of a run: go on until it has ended.")
    ] = False,
    everything: Annotated[
        bool, typer.Option("--all", help="Of a run: Flower's own lines too.")
    ] = False,
    lines: Annotated[int, typer.Option(min=1, help="Of a process: how many, from its end.")] = 50,
    home: Home = HOME,
    as_json: AsJson = False,
) -> None:
    """What a run or a process of the fleet has said; JSON: an object for every line."""
    fleet = read_fleet(home.resolve())
    process = next((p for p in fleet.processes if p.name == what), None)
    if process is not None:
        name: str = process.name
        found: Iterable[str] = log_end(process.log, lines)
    else:
        name = str(chosen_run(fleet.flower_home, what)["run-id"])
        found = _run_lines(fleet, name, follow=follow, everything=everything)
    for line in found:
        if as_json:
            say_json({"of": name, "line": line})
        else:
            say(line)


def _run_lines(fleet: Fleet, run_id: str, *, follow: bool, everything: bool) -> Iterator[str]:
    for line in log_lines(fleet.flower_home, run_id, follow=follow):
        own = line.partition("fedskew: ")[2]
        if everything or own:
            yield line if everything else own
