"""``fedskew flower advise``: ask a fleet's clients for their labels, say what to switch on."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console

from fedskew.cli.advise import Budget
from fedskew.cli.flower.group import HOME, AsJson, Home, app, out_console, say_json
from fedskew.cli.flower.runs import play_on
from fedskew.deploy.fleet_sheet import read_fleet
from fedskew.deploy.flower_cli import check_reachable
from fedskew.errors import RecipeError, RunFolderError
from fedskew.foreign import read_toml
from fedskew.records import RESULT, read_state

if TYPE_CHECKING:
    from fedskew.advice.adviser import Advice
    from fedskew.advice.permits import Allowed
    from fedskew.runtime.flower.task import FleetSettings

err_console = Console(stderr=True)


@app.command()
def advise(
    folder: Annotated[
        Path, typer.Argument(metavar="DIR", help="The folder of an app: see fedskew flower new.")
    ],
    budget: Budget = None,
    allow: Annotated[
        str | None,
        typer.Option(
            help="What clients agree to, separated by commas: d2d, histograms, probe, personal, "
            "private=1.0 (default d2d,histograms,probe). They are asked for histograms if those "
            "are among it, else for private counts, else for a probe's update."
        ),
    ] = None,
    set_: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="TABLE.OPTION=VALUE", help="Change an option."),
    ] = None,
    again: Annotated[
        bool,
        typer.Option("--again", help="Ask the clients anew; private counts are paid for again."),
    ] = False,
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="Write the first choice as a recipe.")
    ] = None,
    home: Home = HOME,
    as_json: AsJson = False,
) -> None:
    """Ask clients what their policies let them say of their labels, and say what to switch on.

    No round is played. What they said is kept in DIR/measured and used the next time.
    """
    from fedskew.advice.adviser import advise as ask
    from fedskew.advice.permits import Allowed, read_allowed
    from fedskew.advice.subject import subject_of_fleet

    if not (folder / "pyproject.toml").is_file():
        raise RecipeError(str(folder), "is not a Flower app", "Write one: fedskew flower new DIR")
    allowed = Allowed() if allow is None else read_allowed(allow)
    wanted = _signal_settings(allowed)
    settings = _settings(folder, set_ or [])
    measured = (folder / "measured").resolve()
    if again and (measured / RESULT).is_file():
        shutil.rmtree(measured)
    if not (measured / RESULT).is_file():
        _measure(home, folder, settings, [*(set_ or []), *wanted], measured)
    _check_asked(measured, allowed)
    advice = ask(subject_of_fleet(measured, settings.recipe), budget=budget, allow=allowed)
    _show(advice, out, as_json)


def _signal_settings(allowed: Allowed) -> list[str]:
    """What to ask clients for: the best they agree to."""
    if allowed.histograms:
        return ["signal.use=histogram"]
    if allowed.private is not None:
        return ["signal.use=private", f"signal.epsilon={allowed.private}"]
    if allowed.probe:
        return ["signal.use=estimated"]
    what = "without a word on their labels nothing can be said of a fleet"
    raise RecipeError("--allow", what, "Allow histograms, private=EPSILON or probe")


def _check_asked(measured: Path, allowed: Allowed) -> None:
    """What an earlier call asked for may be more than is allowed now."""
    signal = read_state(measured).signal
    fits = {
        "disclosed": allowed.histograms,
        "private": allowed.private is not None or allowed.histograms,
        "estimated": allowed.probe,
    }
    if signal is not None and not fits[signal.source]:
        what = f"has {signal.source} label counts, which --allow {allowed.text} leaves out"
        raise RunFolderError(str(measured), what, "Use --again")


def _settings(folder: Path, changes: list[str]) -> FleetSettings:
    """What the app would train with."""
    from fedskew.experiment.fleet import read_settings

    config: dict[str, Any] = dict(_app_config(folder))
    config["set"] = ";".join([str(config.get("set", "")), *changes])
    settings = read_settings(config, folder)
    if "finish" in settings.recipe:
        what = "would be played too, though no round is"
        raise RecipeError("recipe.finish", what, "Leave [finish] out of the app's recipe.toml")
    return settings


def _app_config(folder: Path) -> dict[str, Any]:
    try:
        return dict(read_toml(folder / "pyproject.toml")["tool"]["flwr"]["app"]["config"])
    except (KeyError, TypeError, ValueError):
        remedy = "Write one: fedskew flower new DIR"
        raise RecipeError(str(folder), "has no [tool.flwr.app.config]", remedy) from None


def _measure(
    home: Path, folder: Path, settings: FleetSettings, changes: list[str], measured: Path
) -> None:
    """A run without rounds, which leaves what clients said in a checkpoint."""
    fleet = read_fleet(home.resolve())
    check_reachable(fleet.control, fleet.authority)
    own = str(_app_config(folder).get("set", ""))
    assignments = [part for part in (own, *changes, "run.rounds=0") if part.strip()]
    values = {"out": str(measured), "resume": measured.is_dir(), "seed": settings.seed}
    play_on(fleet, folder, values | {"set": ";".join(assignments)}, _say_aside)
    if not (measured / RESULT).is_file():
        what = "is not here: it was written on the SuperLink's machine"
        raise RunFolderError(str(measured), what, "Ask for advice there")


def _say_aside(text: str) -> None:
    err_console.print(text, markup=False, highlight=False, soft_wrap=True)


def _show(advice: Advice, out: Path | None, as_json: bool) -> None:
    from fedskew.advice.terminal import show_advice
    from fedskew.advice.written import write_recipe

    if out is not None:
        write_recipe(advice.recipe(), out)
    if as_json:
        say_json({**advice.payload(), "recipe": None if out is None else str(out)}, indent=2)
        return
    show_advice(advice, out_console)
    if out is not None:
        _say_aside(f"recipe of {advice.choices[0].method}: {out}")
