"""``fedskew compare | report | export``: several methods on one federation, and what to look at."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, get_args

import typer
from rich.console import Console
from rich.text import Text

from fedskew import recipe as recipes
from fedskew.cli.completing import recipe_names
from fedskew.cli.own_rules import find_rules
from fedskew.cli.progress import ManyRuns
from fedskew.compare.comparison import Comparison
from fedskew.compare.contenders import (
    Contender,
    add_references,
    command_of,
    is_personalised,
    line_up,
    shared_text,
    training_note,
)
from fedskew.compare.lineup import keep_lineup
from fedskew.errors import RecipeError, RunError, did_you_mean
from fedskew.experiment.figures import RESOURCES, Resource
from fedskew.experiment.run import Run
from fedskew.experiment.run_folders import RUNS, run_folder
from fedskew.records import COMPUTED, RESULT, RUN, no_nan, read_references

out_console = Console()
err_console = Console(stderr=True)
JsonFlag = Annotated[bool, typer.Option("--json", help="Print one JSON object on standard output.")]
ReferencesFlag = Annotated[
    bool | None,
    typer.Option(
        "--references/--no-references",
        help="Also show local_only, majority_class, fine_tuned and centralised; "
        "by default if a method is personalised.",
        show_default=False,
    ),
]
BaselineOption = Annotated[
    str | None,
    typer.Option(
        metavar="METHOD",
        help="Whom the others are compared with; by default the first that is found.",
    ),
]
Cell = tuple[Contender, int, Path]


# ---------------------------------------------------------------- compare


def compare(
    recipe: Annotated[
        list[str],
        typer.Argument(
            help="Shipped recipes or TOML files; the first one is the baseline.",
            autocompletion=recipe_names,
        ),
    ],
    data: Annotated[str | None, typer.Option(help="Shorthand for --set data.use=...")] = None,
    set_: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="[RECIPE:]TABLE.OPTION=VALUE",
            help="Change an option of all recipes, or of one.",
        ),
    ] = None,
    seeds: Annotated[str, typer.Option(help="0-4, or 1,5,9.")] = "0-4",
    budget: Annotated[
        str, typer.Option(help=f"Compare at equal {', '.join(get_args(Resource))}.")
    ] = "rounds",
    target: Annotated[
        float | None, typer.Option(help="Accuracy to reach, for example 0.9.")
    ] = None,
    out: Annotated[Path, typer.Option(help="Where cells are kept and looked for.")] = RUNS,
    report: Annotated[Path | None, typer.Option(help="Also write a report: one HTML file.")] = None,
    workers: Annotated[int, typer.Option(min=0, help="Runs at a time; 0 = one per core.")] = 0,
    live: Annotated[
        bool, typer.Option("--live", help="Serve the report on this machine while the runs go on.")
    ] = False,
    as_json: JsonFlag = False,
    references: ReferencesFlag = None,
    same_training: Annotated[
        bool,
        typer.Option(
            "--same-training",
            help="Clients train as the first recipe says: epochs, batch, lr, optimiser ...",
        ),
    ] = False,
    quiet: Annotated[bool, typer.Option("--quiet", help="No progress display.")] = False,
) -> None:
    """Run what is missing of several methods on one federation and print one table."""
    changes = recipes.read_assignments(set_ or []) | ({"data.use": data} if data else {})
    find_rules(recipe, changes, *(recipes.load(name) for name in recipe))
    resource, workers = _resource(budget), capped(workers)
    _check_target(target)
    contenders, numbers = line_up(recipe, changes, same_training=same_training), read_seeds(seeds)
    named, tuned = len(contenders), None
    if want_references(contenders, references):
        contenders, tuned = add_references(contenders)
    cells = [
        (one, seed, run_folder(out, one.recipe, seed, of_version=True))
        for one in contenders
        for seed in numbers
    ]
    err_console.print(
        Text(f"all methods on one federation: {shared_text(contenders[0].recipe)}"), soft_wrap=True
    )
    if note := training_note({one.label: one.recipe for one in contenders[:named]}):
        err_console.print(
            Text(f"{note}. --same-training makes it that of {contenders[0].label}"), soft_wrap=True
        )
    if len(contenders) > named:
        added = ", ".join(one.label for one in contenders[named:])
        err_console.print(
            Text(
                f"added for the reference rows: {added}; --no-references leaves them out",
                style="dim",
            ),
            soft_wrap=True,
        )
    keep_lineup(out, contenders)
    labels = {one.fingerprint: one.label for one in contenders}
    with watching([folder for *_, folder in cells], live, labels, resource, target, references):
        run_missing(cells, workers, quiet, tuned, contenders[named:])
    played = [Run.read(folder) for *_, folder in cells if (folder / RUN).is_file()]
    comparison = Comparison.of(played, labels, references=references)
    show(comparison, resource, target, as_json)
    if report is not None:
        write_report(comparison, report, resource, target, [command_of()])


def capped(workers: int) -> int:
    """No more processes than make sense, with a word if more were asked for."""
    from fedskew.runtime.local.tasks import most_workers, usable_cores

    most = most_workers()
    if workers > most:
        said = f"{workers} workers for {usable_cores()} cores: {most} are started"
        err_console.print(said, highlight=False)
    return min(workers, most)


@contextmanager
def watching(
    folders: Sequence[Path],
    live: bool,
    labels: Mapping[str, str] | None = None,
    budget: Resource = "rounds",
    target: float | None = None,
    references: bool | None = None,
) -> Iterator[None]:
    """Serve the page of these runs, if that is wanted, as long as the block runs."""
    if not live:
        yield
        return
    from fedskew.report.live import Watched, live_page

    watched = Watched(
        folders,
        labels,
        budget=budget,
        target=target,
        commands=[command_of()],
        references=references,
    )
    with live_page(
        watched,
        lambda address: err_console.print(Text(f"live: {address}", style="bold"), soft_wrap=True),
    ):
        yield


def want_references(contenders: Sequence[Contender], asked: bool | None) -> bool:
    """Whether reference rows are to be made: if asked for, or where a method is personalised."""
    tested = contenders[0].recipe["data"]["client_test"] != "none"
    if asked and not tested:
        raise RecipeError(
            "--references", "clients have no test sets", "Set data.client_test to split or matched"
        )
    return tested and (
        any(is_personalised(one.recipe) for one in contenders) if asked is None else asked
    )


def run_missing(
    cells: Sequence[Cell],
    workers: int,
    quiet: bool,
    tuned: Contender | None = None,
    optional: Sequence[Contender] = (),
) -> None:
    """Run cells that are not complete, over the cores; a cell that was killed goes on where it was.

    ``tuned`` is also to have its reference rows; what fails of those, or of ``optional`` methods,
    is said and does no harm.
    """
    reused = sum((folder / RESULT).is_file() for *_, folder in cells)
    missing = sorted((c for c in cells if not _complete(c, tuned)), key=lambda c: -_cost(c[0]))
    if reused:
        err_console.print(
            f"{reused} of {len(cells)} runs are there already", style="dim", highlight=False
        )
    if not missing:
        return
    from fedskew.experiment.schedule import Job, run_all
    from fedskew.runtime.local.tasks import usable_cores

    jobs = [
        Job(one.recipe, seed, str(folder), resume=True, references=one is tuned)
        for one, seed, folder in missing
    ]
    titles = [f"{one.label}, seed {seed}" for one, seed, _ in missing]
    with (
        _stoppable(),
        ManyRuns(
            titles, recipes.num_rounds(missing[0][0].recipe), err_console, quiet=quiet
        ) as progress,
    ):
        outcomes = run_all(jobs, workers or usable_cores(), progress.advance, progress.refer)
    _report_failures(
        cells,
        [(*c, o.error) for c, o in zip(missing, outcomes, strict=True) if o.summary is None],
        optional,
    )


def _complete(cell: Cell, tuned: Contender | None) -> bool:
    contender, _, folder = cell
    return (folder / RESULT).is_file() and (
        contender is not tuned or set(read_references(folder)) >= set(COMPUTED)
    )


def _report_failures(
    cells: Sequence[Cell],
    failed: Sequence[tuple[Contender, int, Path, str]],
    optional: Sequence[Contender],
) -> None:
    """Say what failed; stop unless it was only for reference rows."""
    fatal = [
        (one, folder)
        for one, _, folder, _ in failed
        if one not in optional and not (folder / RESULT).is_file()
    ]
    for one, _, folder, error in failed:
        word = "error" if (one, folder) in fatal else "no reference rows:"
        err_console.print(f"{word} {error}", markup=False, highlight=False, soft_wrap=True)
    if fatal:
        what = f"{len(fatal)} of {len(cells)} runs failed, {len(cells) - len(fatal)} are complete"
        raise RunError(
            "compare", what, "Correct it, then give the same command: complete runs are kept"
        )


def _cost(contender: Contender) -> float:
    """Expected work of a run up to a factor: the longest go first, so no core idles at the end."""
    local, run = contender.recipe["local"], contender.recipe["run"]
    steps = float(local["epochs"]) / min(float(local["batch"]), 256.0)
    return steps * float(run["rounds"]) * float(run["clients_per_round"])


@contextmanager
def _stoppable() -> Iterator[None]:
    try:
        yield
    except KeyboardInterrupt:
        err_console.print(
            "stopped; finished rounds are on disk, the same command goes on", highlight=False
        )
        raise SystemExit(130) from None


def show(comparison: Comparison, budget: Resource, target: float | None, as_json: bool) -> None:
    """Print the table and what it comes to, or all of it as JSON."""
    table = comparison.table(target=target, budget=budget)
    if as_json:
        facts = {
            "budget": budget,
            "budget_size": table.budget_size,
            "target": target,
            "verdict": comparison.verdict(target=target, budget=budget),
            "notes": list(table.notes),
        }
        runs = [str(run.folder) for _, run in comparison.runs]
        scores = {
            key: [r for r in table.as_rows() if r["reference"] == (key == "references")]
            for key in ("scores", "references")
        }
        print(json.dumps(no_nan({**facts, **scores, "runs": runs}), indent=2))
        return
    from fedskew.report.terminal.comparison import show_comparison

    show_comparison(table, out_console)
    out_console.print()
    out_console.print(Text(comparison.verdict(target=target, budget=budget)))


def read_seeds(text: str) -> list[int]:
    """Seeds behind ``--seeds``.

    >>> read_seeds("0-2,7")
    [0, 1, 2, 7]
    """
    numbers: list[int] = []
    try:
        for part in text.split(","):
            first, dash, last = part.partition("-")
            numbers += range(int(first), int(last) + 1) if dash else [int(first)]
    except ValueError:
        raise RecipeError(
            "--seeds", f"'{text}' is not a list of seeds", "Examples: 0-4, or 1,5,9"
        ) from None
    if not numbers or min(numbers) < 0:
        raise RecipeError("--seeds", f"'{text}' names no seeds", "Examples: 0-4, or 1,5,9")
    return list(dict.fromkeys(numbers))


def _resource(text: str) -> Resource:
    for resource in RESOURCES:
        if text == resource:
            return resource
    raise RecipeError("--budget", f"'{text}' is not a resource", did_you_mean(text, RESOURCES))


def _check_target(target: float | None) -> None:
    if target is not None and not 0 < target <= 1:
        raise RecipeError(
            "--target", f"{target} is not an accuracy", "Give a share, for example 0.9"
        )


# ---------------------------------------------------------------- report


def report(
    runs: Annotated[
        list[Path], typer.Argument(metavar="RUN...", help="Run folders, or folders that hold some.")
    ],
    out: Annotated[Path, typer.Option("-o", "--out", help="The HTML file to write.")] = Path(
        "report.html"
    ),
    budget: Annotated[
        str, typer.Option(help=f"Compare at equal {', '.join(get_args(Resource))}.")
    ] = "rounds",
    target: Annotated[
        float | None, typer.Option(help="Accuracy to reach, for example 0.9.")
    ] = None,
    baseline: BaselineOption = None,
    references: ReferencesFlag = None,
) -> None:
    """Write one HTML file that shows runs of one federation.

    Curves, who was chosen, plans, clients, bytes, failures.
    """
    resource = _resource(budget)
    _check_target(target)
    if out.is_dir():
        raise RecipeError(
            "--out", f"{out} is a folder", "Give the name of a file, for example report.html"
        )
    comparison = Comparison.read(*runs, references=references)
    write_report(
        comparison.against(baseline) if baseline else comparison,
        out,
        resource,
        target,
        [command_of()],
    )


def write_report(
    comparison: Comparison,
    path: Path,
    budget: Resource,
    target: float | None,
    commands: Sequence[str],
) -> None:
    """Write the page and say how to open it."""
    from fedskew.report.page import save_page

    save_page(comparison, path, budget=budget, target=target, commands=commands)
    size = path.stat().st_size / 1e6
    err_console.print(
        Text(f"report: {path} ({size:.1f} MB); open it in any browser, it needs no network"),
        soft_wrap=True,
    )


# ---------------------------------------------------------------- export


def export(
    runs: Annotated[
        list[Path], typer.Argument(metavar="RUN...", help="Run folders, or folders that hold some.")
    ],
    tables: Annotated[
        Path | None,
        typer.Option(help="Folder for tidy tables: rounds, choices, transfers, clients, scores."),
    ] = None,
    figures: Annotated[
        Path | None, typer.Option(help="Folder for figures for papers, PNG and SVG.")
    ] = None,
    mlflow: Annotated[
        str | None, typer.Option(metavar="URI", help="An MLflow tracking store.")
    ] = None,
    tensorboard: Annotated[
        Path | None, typer.Option(metavar="FOLDER", help="Folder for TensorBoard.")
    ] = None,
    baseline: BaselineOption = None,
) -> None:
    """Hand runs on: tidy Parquet tables, figures for papers, MLflow, TensorBoard."""
    if tables is None and figures is None and mlflow is None and tensorboard is None:
        raise RecipeError(
            "export", "nothing is asked for", "Give --tables, --figures, --mlflow or --tensorboard"
        )
    from fedskew.report.exports import check_ready, to_mlflow, to_parquet, to_tensorboard

    check_ready(
        {"tables": tables, "figures": figures, "mlflow": mlflow, "tensorboard": tensorboard}
    )
    comparison = Comparison.read(*runs)
    comparison = comparison.against(baseline) if baseline else comparison
    if tables is not None:
        _say(f"{len(to_parquet(comparison, tables))} tables in {tables}")
    if figures is not None:
        from fedskew.report.figures.paper import save_paper_figures

        _say(f"{len(save_paper_figures(comparison, figures))} files in {figures}")
    if mlflow is not None:
        _say(f"{to_mlflow(comparison, mlflow)} runs logged to {mlflow}")
    if tensorboard is not None:
        num_written = to_tensorboard(comparison, tensorboard)
        _say(f"{num_written} runs written; look: tensorboard --logdir {tensorboard}")


def _say(text: str) -> None:
    out_console.print(text, markup=False, highlight=False, soft_wrap=True)
