"""``fedskew run``: one recipe, or several seeds and variants of it."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from fedskew import recipe as recipes
from fedskew.cli import compare as cli_compare
from fedskew.cli.completing import recipe_names
from fedskew.cli.own_rules import find_rules
from fedskew.cli.progress import RunProgress
from fedskew.cli.summaries import summary_table
from fedskew.errors import RecipeError, RunError
from fedskew.experiment.run_folders import RUNS, check_resumable, run_folder
from fedskew.records import RESULT, no_nan

out_console = Console()
err_console = Console(stderr=True)
JsonFlag = Annotated[bool, typer.Option("--json", help="Print one JSON object on standard output.")]
RunJob = tuple[Mapping[str, Any], int, Path]  # resolved recipe, seed, folder


def run(
    recipe: Annotated[
        str,
        typer.Argument(
            help="Name of a shipped recipe (see: fedskew list recipes) or a TOML file.",
            autocompletion=recipe_names,
        ),
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
    if done:
        note = f"{folder} is complete: showing it. Remove it or choose another --out to run again."
        err_console.print(note, style="dim", markup=False, soft_wrap=True)
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
    return f"{variant['name']} on {variant['data']['use']}, seed {seed}"


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
