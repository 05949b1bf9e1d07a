"""The command line: ``fedskew run | list | data | measure | privacy | advise | compare | report
| export | reproduce | flower``.
"""

from __future__ import annotations

import inspect
import json
import os
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from fedskew import recipe as recipes
from fedskew.cli import advise as cli_advise
from fedskew.cli import compare as cli_compare
from fedskew.cli import flower as cli_flower
from fedskew.cli import measure as cli_measure
from fedskew.cli import reproduce as cli_reproduce
from fedskew.cli.own_rules import find_rules
from fedskew.cli.progress import RunProgress, summary_table
from fedskew.errors import FedskewError, RecipeError, RunError, did_you_mean, plain_warnings
from fedskew.experiment.run_folders import RUNS, check_resumable, run_folder
from fedskew.recipe.schema import options_of
from fedskew.records import RESULT, no_nan

# Help is plain text; typer 0.20, which Flower wants, would escape its brackets for rich all the
# same.
typer.core.HAS_RICH = False
app = typer.Typer(
    name="fedskew",
    help="Federated learning under label skew: "
    "measure it, decide who trains, train fast, keep an honest account.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
data_app = typer.Typer(
    help="Datasets: what there is, fetch one, look at one.",
    no_args_is_help=True,
    rich_markup_mode=None,
)
app.add_typer(data_app, name="data")
app.add_typer(cli_flower.app, name="flower")
app.command("measure")(cli_measure.measure)
app.command("privacy")(cli_measure.privacy)
app.command("advise")(cli_advise.advise)
app.command("compare")(cli_compare.compare)
app.command("report")(cli_compare.report)
app.command("export")(cli_compare.export)
app.command("reproduce")(cli_reproduce.reproduce)

out_console = Console()
err_console = Console(stderr=True)
JsonFlag = Annotated[bool, typer.Option("--json", help="Print one JSON object on standard output.")]
RunJob = tuple[Mapping[str, Any], int, Path]  # resolved recipe, seed, folder


# ---------------------------------------------------------------- run


@app.command()
def run(
    recipe: Annotated[
        str,
        typer.Argument(help="Name of a shipped recipe (see: fedskew list recipes) or a TOML file."),
    ],
    set_: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="TABLE.OPTION=VALUE", help="Change an option."),
    ] = None,
    data: Annotated[str | None, typer.Option(help="Shorthand for --set data.use=...")] = None,
    seed: Annotated[
        int | None, typer.Option(min=0, help="Root of every random stream (default 0).")
    ] = None,
    seeds: Annotated[str | None, typer.Option(help="Several runs: 0-4, or 1,5,9.")] = None,
    out: Annotated[
        Path | None, typer.Option(help="Run folder (default: runs/NAME-FINGERPRINT/seed-N).")
    ] = None,
    workers: Annotated[
        int, typer.Option(min=0, help="Processes; 0 = one per core, 1 = in this process.")
    ] = 0,
    resume: Annotated[
        bool, typer.Option("--resume", help="Go on with a run that was stopped.")
    ] = False,
    target: Annotated[
        float | None,
        typer.Option(help="Also say what it took to hold this accuracy, for example 0.9."),
    ] = None,
    as_json: JsonFlag = False,
    quiet: Annotated[bool, typer.Option("--quiet", help="No progress display.")] = False,
    live: Annotated[
        bool, typer.Option("--live", help="Serve the report on this machine while it runs.")
    ] = False,
) -> None:
    """Train a federation and keep its records."""
    raw = recipes.override(
        recipes.load(recipe),
        recipes.read_assignments(set_ or []) | ({"data.use": data} if data else {}),
    )
    find_rules([recipe], raw)
    variants = [recipes.resolve(r) for r in recipes.expand(raw)]
    if target is not None and not 0 <= target <= 1:
        raise RecipeError(
            "--target", f"{target} is no accuracy", "Give a number from 0 to 1, for example 0.9"
        )
    numbers, workers = _seeds(seed, seeds), cli_compare.capped(workers)
    jobs = [
        (variant, number, _folder(out, variant, number, len(variants), len(numbers)))
        for variant in variants
        for number in numbers
    ]
    if resume:
        check_resumable([folder for *_, folder in jobs])
    with _stoppable(), cli_compare.watching([folder for *_, folder in jobs], live):
        summaries = (
            [_run_one(jobs[0], workers, resume, target, quiet)]
            if len(jobs) == 1
            else _run_many(jobs, workers, resume, target, quiet)
        )
    if as_json:
        print(json.dumps(no_nan(summaries[0] if len(summaries) == 1 else summaries), indent=2))
    else:
        out_console.print(summary_table(summaries))
        if len(jobs) > 1:
            out_console.print(
                f"records in {os.path.commonpath([folder for *_, folder in jobs])}",
                markup=False,
                soft_wrap=True,
            )


@contextmanager
def _stoppable() -> Iterator[None]:
    """Ctrl-C ends a run with a word about what is left of it."""
    try:
        yield
    except KeyboardInterrupt:
        err_console.print("stopped; finished rounds are on disk, --resume goes on", highlight=False)
        raise SystemExit(130) from None


def _run_one(
    job: RunJob, workers: int, resume: bool, target: float | None, quiet: bool
) -> Mapping[str, Any]:
    from fedskew.experiment.local import run_resolved

    variant, seed, folder = job
    done = (folder / RESULT).is_file()
    if done:
        note = f"{folder} is complete: showing it. Remove it or choose another --out to run again."
        err_console.print(note, style="dim", markup=False, soft_wrap=True)
    with RunProgress(
        [_title(variant, seed)], recipes.num_rounds(variant), err_console, quiet=quiet or done
    ) as progress:
        result = run_resolved(
            variant,
            seed=seed,
            workers=workers,
            out=folder,
            resume=resume or done,
            on_round=lambda record: progress.advance(0, record),
        )
    for note in result.notes:
        err_console.print(f"note: {note}", markup=False, highlight=False, soft_wrap=True)
    return result.summary(target)


def _run_many(
    jobs: Sequence[RunJob], workers: int, resume: bool, target: float | None, quiet: bool
) -> list[Mapping[str, Any]]:
    from fedskew.experiment.schedule import Job, run_all
    from fedskew.runtime.local.tasks import usable_cores

    queue = [
        Job(variant, seed, str(folder), resume or (folder / RESULT).is_file(), target=target)
        for variant, seed, folder in jobs
    ]
    titles = [_title(variant, seed) for variant, seed, _ in jobs]
    with RunProgress(titles, recipes.num_rounds(jobs[0][0]), err_console, quiet=quiet) as progress:
        # a shared machine shares its power
        alone = any(variant["run"]["energy"] != "modelled" for variant, *_ in jobs)
        outcomes = run_all(queue, 1 if alone else workers or usable_cores(), progress.advance)
    failed = [outcome for outcome in outcomes if outcome.summary is None]
    for outcome in failed:
        err_console.print(f"error {outcome.error}", markup=False, highlight=False, soft_wrap=True)
    if failed:
        good = len(outcomes) - len(failed)
        raise RunError(
            "runs",
            f"{len(failed)} of {len(outcomes)} failed, {good} are complete",
            "Correct it, then use --resume",
        )
    return [outcome.summary for outcome in outcomes if outcome.summary is not None]


def _title(variant: Mapping[str, Any], seed: int) -> str:
    return escape(f"{variant['name']} on {variant['data']['use']}, seed {seed}")


def _seeds(seed: int | None, seeds: str | None) -> list[int]:
    if seeds is None:
        return [seed or 0]
    if seed is not None:
        raise RecipeError("--seeds", "given together with --seed", "Give one of them")
    return cli_compare.read_seeds(seeds)


def _folder(
    out: Path | None, variant: Mapping[str, Any], seed: int, num_variants: int, num_seeds: int
) -> Path:
    if out is None or num_variants > 1:
        return run_folder(out or RUNS, variant, seed)
    return out / f"seed-{seed}" if num_seeds > 1 else out


# ---------------------------------------------------------------- list


@app.command(name="list")
def list_(
    stage: Annotated[
        str | None, typer.Argument(help="One stage (selection, partition, ...) or 'recipes'.")
    ] = None,
    as_json: JsonFlag = False,
) -> None:
    """Every stage's entries with their options and defaults, generated from the signatures."""
    known = ["recipes", *recipes.PLAIN_TABLES, *recipes.REGISTRIES]
    if stage is not None and stage not in known:
        raise RecipeError("fedskew list", f"unknown stage '{stage}'", did_you_mean(stage, known))
    content = {name: _entries(name) for name in known if stage in (None, name)}
    if as_json:
        print(json.dumps(content, indent=2))
        return
    for name, entries in content.items():
        table = Table(
            title=name,
            title_justify="left",
            title_style="bold",
            show_edge=False,
            pad_edge=False,
            expand=True,
        )
        table.add_column("name", style="cyan", ratio=2)
        table.add_column("what it is", ratio=5)
        table.add_column("options", ratio=5)
        for entry, facts in entries.items():
            what = "\n".join(text for text in (facts["what"], facts.get("citation", "")) if text)
            table.add_row(entry, what, "\n".join(f"{k}: {v}" for k, v in facts["options"].items()))
        out_console.print(table)
        out_console.print()


def _entries(name: str) -> dict[str, Any]:
    if name == "recipes":
        loaded = {key: recipes.load(key) for key in recipes.shipped_recipes()}
        return {
            key: {
                "what": r.get("description", ""),
                "citation": r.get("citation", ""),
                "options": {},
            }
            for key, r in loaded.items()
        }
    if name in recipes.PLAIN_TABLES:
        schema = recipes.PLAIN_TABLES[name]
        return {
            f"[{name}]": {
                "what": _what(schema),
                "options": {k: o.text for k, o in options_of(schema).items()},
            }
        }
    return {
        key: {
            "what": _what(function),
            "citation": _citation(function),
            "options": {k: o.text for k, o in recipes.stage_options(name, function).items()},
        }
        for key, function in recipes.REGISTRIES[name].items()
    }


def _citation(function: Any) -> str:
    """The sentence of the module's docstring that names a paper: authors and title, or "Paper
    00x", up to its first stop.
    """
    module = inspect.getmodule(function)
    for paragraph in (inspect.getdoc(module) or "").split("\n\n")[1:3]:
        text = " ".join(paragraph.split())
        if found := re.match(
            r'([^"]*: "[^"]+".*?|.*?\b[Pp]aper 00\d.*?|A baseline without.*?)(?=[;:.](\s|$)|$)',
            text,
        ):
            cited = found[1].strip()
            return cited if cited.count("(") == cited.count(")") else cited.rpartition(" (")[0]
    return ""


def _what(thing: Any) -> str:
    """The first paragraph of the module that holds one method, or of the function itself."""
    return " ".join((inspect.getdoc(thing) or "").split("\n\n")[0].split())


# ---------------------------------------------------------------- data


@data_app.command("list")
def data_list(as_json: JsonFlag = False) -> None:
    """Every dataset fedskew knows."""
    from fedskew import data as datasets

    facts = {
        name: asdict(info) | {"cached": datasets.is_cached(name)}
        for name, info in datasets.DATASETS.items()
    }
    if as_json:
        print(json.dumps(facts, indent=2))
        return
    keys = (
        "title",
        "examples",
        "test_examples",
        "classes",
        "size_mb",
        "cached",
        "origin",
        "license",
    )
    table = Table("name", *(key.replace("_", " ") for key in keys), show_edge=False, pad_edge=False)
    for name, f in facts.items():
        table.add_row(name, *(str(f[key]) for key in keys))
    out_console.print(table)


@data_app.command("get")
def data_get(
    name: Annotated[str, typer.Argument(help="See: fedskew data list")],
    folder: Annotated[
        str | None,
        typer.Option(help="Folder that holds the files, for datasets that cannot be fetched."),
    ] = None,
) -> None:
    """Fetch a dataset into the cache, or check that it is there."""
    from fedskew import data as datasets
    from fedskew.cli.progress import fetch_progress

    with fetch_progress(err_console) as progress:
        path = datasets.fetch(name, folder=folder, progress=progress)
    out_console.print(f"{name}: ready in {path}", markup=False, soft_wrap=True)


@data_app.command("show")
def data_show(
    name: Annotated[str, typer.Argument(help="See: fedskew data list")],
    folder: Annotated[
        str | None,
        typer.Option(help="Folder that holds the files, for datasets that cannot be fetched."),
    ] = None,
    as_json: JsonFlag = False,
) -> None:
    """Shapes, classes and sizes of a dataset."""
    from fedskew import data as datasets
    from fedskew.cli.progress import fetch_progress

    with fetch_progress(err_console) as progress:
        facts = datasets.describe(datasets.load(name, folder=folder, progress=progress))
    if as_json:
        print(json.dumps(facts, indent=2))
        return
    table = Table(show_header=False, show_edge=False, pad_edge=False)
    for key, value in facts.items():
        table.add_row(key, escape(str(value)))
    out_console.print(table)


def main() -> None:
    """Entry point: an error made on purpose is one line and exit code 2."""
    plain_warnings()
    try:
        app(standalone_mode=True)
    except FedskewError as error:
        err_console.print(f"[red]error[/] {type(error).__name__}: ", end="", highlight=False)
        err_console.print(str(error), markup=False, highlight=False, soft_wrap=True)
        sys.exit(2)


if __name__ == "__main__":
    main()
