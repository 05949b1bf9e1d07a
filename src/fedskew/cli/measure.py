"""``fedskew measure`` and ``fedskew privacy``: label skew of a dataset, a file or runs."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from fedskew import recipe as recipes
from fedskew.cli.own_rules import find_rules
from fedskew.cli.progress import fetch_progress, steps
from fedskew.data import DATASETS
from fedskew.errors import DataError, RecipeError, did_you_mean
from fedskew.foreign import printable
from fedskew.measure.counts import Counts
from fedskew.measure.layout import Form

out_console = Console()
err_console = Console(stderr=True)
TABLES = ("data", "partition", "signal", "distance", "clustering")  # what --set may change here

Source = Annotated[
    str | None,
    typer.Argument(
        help="A CSV or Parquet file of label counts, a run folder, or a folder that holds some."
    ),
]
Data = Annotated[
    str | None,
    typer.Option(help="A dataset to divide instead (default digits; see: fedskew data list)."),
]
PartitionName = Annotated[
    str | None,
    typer.Option(help="How to divide it (default dirichlet; see: fedskew list partition)."),
]
Clients = Annotated[int | None, typer.Option(min=0, help="How many clients (default 20).")]
Set = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="TABLE.OPTION=VALUE", help="For example partition.alpha=0.055."),
]
Folder = Annotated[
    str | None, typer.Option(help="Folder that holds the files of datasets that cannot be fetched.")
]
Seed = Annotated[
    int | None, typer.Option(min=0, help="Root of every random stream (default 0, or the run's).")
]
CountsFile = Annotated[
    str | None,
    typer.Option("--counts", metavar="FILE", help="The same as giving a file as SOURCE."),
]
FormOption = Annotated[
    str,
    typer.Option(
        "--format", help="auto, long (client, label, count) or wide (a column per label)."
    ),
]
ClientColumn = Annotated[
    str | None, typer.Option(help="Column that names the client; 'none': number the rows.")
]
LabelColumn = Annotated[str | None, typer.Option(help="Column that names the label (long).")]
CountColumn = Annotated[str | None, typer.Option(help="Column that holds the count (long).")]
Distance = Annotated[
    str | None,
    typer.Option(help="Distance of the grouping that sorts the figures (default hellinger)."),
]
Clustering = Annotated[
    str | None, typer.Option(help="Clustering of that grouping (default optics).")
]
JsonFlag = Annotated[bool, typer.Option("--json", help="Print one JSON object on standard output.")]
Quiet = Annotated[bool, typer.Option("--quiet", help="No progress display.")]
Trust = Annotated[
    bool,
    typer.Option("--trust", help="Import code that the recipe of a run folder names."),
]


def measure(
    source: Source = None,
    data: Data = None,
    partition: PartitionName = None,
    clients: Clients = None,
    set_: Set = None,
    folder: Folder = None,
    seed: Seed = None,
    counts_file: CountsFile = None,
    form: FormOption = "auto",
    client_column: ClientColumn = None,
    label_column: LabelColumn = None,
    count_column: CountColumn = None,
    figures: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Save figures here (PNG and SVG).")
    ] = None,
    signal: Annotated[
        str | None, typer.Option(help="What rules look at: histogram, or private (noisy counts).")
    ] = None,
    epsilon: Annotated[
        float | None, typer.Option(help="Privacy budget; implies --signal private.")
    ] = None,
    distance: Distance = None,
    clustering: Clustering = None,
    as_json: JsonFlag = False,
    quiet: Quiet = False,
    trust: Trust = False,
) -> None:
    """Say how skewed a federation is, who groups with whom, and what each paper's rule would do."""
    from fedskew.measure import measurement
    from fedskew.measure.payload import measurement_payload
    from fedskew.report.terminal.measurement import show_measurement, show_measurements

    changes = recipes.read_assignments(set_ or [])
    given = _settings(
        data, partition, clients, folder, changes, signal, epsilon, distance, clustering
    )
    columns = {
        "client_column": client_column,
        "label_column": label_column,
        "count_column": count_column,
    }
    found = _federations(source, counts_file, given, seed, _form(form), columns, quiet, trust)
    use, options = _stages(recipes.resolve(given))
    _check_signal(use["signal"])
    near, how = use["distance"], use["clustering"]
    free = (
        distance is None
        and clustering is None
        and not any(key.startswith(("distance.", "clustering.")) for key in changes)
    )
    if figures is not None:
        _only(found, source)
    total = len(found) * measurement.num_steps(near, how) + (0 if figures is None else 5)
    with steps(total, err_console, quiet=quiet) as step:
        measured = [
            measurement.measure(
                counts,
                signal=use["signal"],
                distance=None if free else near,
                clustering=None if free else how,
                options=options,
                seed=root,
                on_step=step,
            )
            for counts, root in found
        ]
        saved = _save_figures(measured[0], figures, step)
    if as_json:
        payloads = [measurement_payload(one) for one in measured]
        files = {"files": [str(path) for path in saved]}
        print(
            _one_key_per_line(
                payloads[0] | files if len(payloads) == 1 else {"federations": payloads}
            )
        )
    elif len(measured) == 1:
        show_measurement(measured[0], saved, out_console)
    else:
        show_measurements(measured, out_console)


def privacy(
    source: Source = None,
    data: Data = None,
    partition: PartitionName = None,
    clients: Clients = None,
    set_: Set = None,
    folder: Folder = None,
    seed: Seed = None,
    counts_file: CountsFile = None,
    form: FormOption = "auto",
    client_column: ClientColumn = None,
    label_column: LabelColumn = None,
    count_column: CountColumn = None,
    epsilons: Annotated[
        str, typer.Option(help="Privacy budgets, separated by commas.")
    ] = "0.1,0.3,1,3,10",
    repeats: Annotated[int, typer.Option(min=1, help="Releases per budget.")] = 3,
    distance: Distance = None,
    clustering: Clustering = None,
    as_json: JsonFlag = False,
    quiet: Quiet = False,
    trust: Trust = False,
) -> None:
    """Say how wrong label mixes and groups become when clients add noise, budget by budget."""
    from fedskew.measure import privacy as noise
    from fedskew.measure.payload import privacy_payload
    from fedskew.report.terminal.measurement import show_privacy

    given = _settings(
        data,
        partition,
        clients,
        folder,
        recipes.read_assignments(set_ or []),
        "private",
        None,
        distance,
        clustering,
    )
    budgets = _budgets(epsilons)
    columns = {
        "client_column": client_column,
        "label_column": label_column,
        "count_column": count_column,
    }
    counts, root = _only(
        _federations(source, counts_file, given, seed, _form(form), columns, quiet, trust), source
    )
    use, options = _stages(recipes.resolve(given))
    number = noise.num_steps(len(budgets), repeats)
    with steps(number, err_console, quiet=quiet) as step:
        table = noise.privacy_table(
            counts,
            epsilons=budgets,
            repeats=repeats,
            distance=use["distance"],
            clustering=use["clustering"],
            options=options,
            seed=root,
            on_step=step,
        )
    if as_json:
        print(_one_key_per_line(privacy_payload(table)))
    else:
        show_privacy(table, out_console)


# ---------------------------------------------------------------- what is asked for


def _settings(
    data: str | None,
    partition: str | None,
    clients: int | None,
    folder: str | None,
    assignments: Mapping[str, Any],
    signal: str | None,
    epsilon: float | None,
    distance: str | None,
    clustering: str | None,
) -> dict[str, Any]:
    """The options as tables of a recipe; only what was given stands in [data] and [partition]."""
    for key in assignments:
        table = key.partition(".")[0]
        if table not in TABLES:
            raise RecipeError(
                f"--set {key}", f"there is no [{table}] to measure", did_you_mean(table, TABLES)
            )
    if epsilon is not None and signal == "histogram":
        raise RecipeError(
            "--epsilon", "has no meaning for --signal histogram", "Leave one of them out"
        )
    use = signal or ("histogram" if epsilon is None else "private")
    raw = {
        "data": {
            key: value
            for key, value in (("use", data), ("clients", clients), ("folder", folder))
            if value is not None
        },
        "partition": {} if partition is None else {"use": partition},
        "signal": {"use": use} | ({} if epsilon is None else {"epsilon": epsilon}),
        "distance": {"use": distance or "hellinger"},
        "clustering": {"use": clustering or "optics"},
        # nothing is trained, and datasets of labels alone have no model
        "model": {"use": "custom"},
    }
    given = recipes.override(raw, assignments)
    find_rules([], given)
    return given


def _federations(
    source: str | None,
    counts_file: str | None,
    given: dict[str, Any],
    seed: int | None,
    form: Form,
    columns: Mapping[str, str | None],
    quiet: bool,
    trust: bool,
) -> list[tuple[Counts, int]]:
    """The counts and the seed to go on with, of each federation that is asked for."""
    from fedskew.measure.sources import counts_of_data, counts_of_runs
    from fedskew.measure.tables import read_counts

    if source is not None and counts_file is not None:
        raise RecipeError("--counts", "given together with a source", "Give one of them")
    asked = source if counts_file is None else counts_file
    if asked is None:
        if form != "auto" or any(columns.values()):
            raise RecipeError(
                "--format", "is about a file of label counts, and none is given", "Give a file"
            )
        given["data"] = {"use": "digits", "clients": 20, "client_test": "none"} | given["data"]
        given["partition"] = {"use": "dirichlet"} | given["partition"]
        with fetch_progress(err_console, quiet=quiet) as progress:
            dealt = counts_of_data(recipes.resolve(given), seed=seed or 0, progress=progress)
        return [(dealt, seed or 0)]
    if given["data"] or given["partition"]:
        raise RecipeError(
            asked,
            "given together with --data, --partition, --clients, --folder or --set",
            "Give one of them",
        )
    if Path(asked).is_dir() and counts_file is None:
        with fetch_progress(err_console, quiet=quiet) as progress:
            found = counts_of_runs(asked, progress=progress, trust=trust)
        return [(counts, root if seed is None else seed) for counts, root in found]
    if not Path(asked).exists() and asked in DATASETS:
        raise DataError(
            asked, "there is no such file or run folder", f"Did you mean --data {asked}?"
        )
    with steps(1, err_console, quiet=quiet) as step:
        step(f"reading {printable(asked)}")
        return [(read_counts(asked, form=form, **columns), seed or 0)]


def _only(found: list[tuple[Counts, int]], source: str | None) -> tuple[Counts, int]:
    """The one federation of a folder, or an error that says how many there are."""
    if len(found) > 1:
        raise RecipeError(
            str(source), f"holds runs of {len(found)} federations", "Give the folder of one run"
        )
    return found[0]


def _stages(resolved: Mapping[str, Any]) -> tuple[dict[str, str], dict[str, dict[str, Any]]]:
    """(stage -> its entry, stage -> its options)."""
    names = ("signal", "distance", "clustering")
    options = {
        name: {key: value for key, value in resolved[name].items() if key != "use"}
        for name in names
    }
    return {name: resolved[name]["use"] for name in names}, options


def _check_signal(use: str) -> None:
    if use not in ("histogram", "private"):
        raise RecipeError(
            "--signal", f"'{use}' cannot be made from counts alone", "Use histogram or private"
        )


def _form(text: str) -> Form:
    if text not in ("auto", "long", "wide"):
        raise RecipeError(
            "--format", f"'{text}' is unknown", did_you_mean(text, ("auto", "long", "wide"))
        )
    return text  # type: ignore[return-value]


def _budgets(text: str) -> list[float]:
    try:
        return [float(part) for part in text.split(",")]
    except ValueError:
        raise RecipeError(
            "--epsilons", f"'{text}' is not a list of numbers", "Example: 0.1,1,10"
        ) from None


def _save_figures(
    measurement_result: Any, folder: Path | None, step: Callable[[str], None]
) -> list[Path]:
    if folder is None:
        return []
    from fedskew.report.figures.measurement import save_figures

    return save_figures(measurement_result, folder, on_step=step)


def _one_key_per_line(content: Mapping[str, Any]) -> str:
    """JSON a person can skim: one line per top-level key, however many clients."""
    lines = (f"  {json.dumps(key)}: {json.dumps(value)}" for key, value in content.items())
    return "{\n" + ",\n".join(lines) + "\n}"
