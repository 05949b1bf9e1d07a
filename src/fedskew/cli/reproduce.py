"""``fedskew reproduce``: the studies of evidence/, made again cell by cell."""

from __future__ import annotations

import math
import os
import sys
from pathlib import Path
from typing import Annotated

import typer


def reproduce(
    study: Annotated[
        str | None, typer.Argument(help="Name of a study; without it all are listed.")
    ] = None,
    scale: Annotated[
        str | None, typer.Option(help="full, reduced or smoke; by default that of its page.")
    ] = None,
    studies: Annotated[Path, typer.Option(help="Folder of the studies.")] = Path("evidence"),
    data_folder: Annotated[
        Path | None, typer.Option(help="Where the data lie that cannot be fetched.")
    ] = None,
    workers: Annotated[int, typer.Option(min=0, help="Cells at a time; 0 = one per core.")] = 0,
    again: Annotated[
        bool, typer.Option("--again", help="Play every cell again, also those that are up to date.")
    ] = False,
    minutes: Annotated[
        float,
        typer.Option(min=0, help="After so long no other cell begins; what there is is written."),
    ] = math.inf,
    page: Annotated[
        bool,
        typer.Option("--page", help="Play nothing: write pages and figures from the results."),
    ] = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print one JSON object on standard output.")
    ] = False,
    quiet: Annotated[bool, typer.Option("--quiet", help="No progress display.")] = False,
) -> None:
    """Make a study of evidence/ again: results, figures, page. What is there already is kept."""
    sys.path.append(os.getcwd())
    from fedskew.cli import studies as work  # a fifth of a second that other commands do not need

    if study is None:
        work.all_studies(studies, as_json=as_json, pages=page)
    elif page:
        work.write_again(studies / study, scale, as_json=as_json)
    else:
        folder = "" if data_folder is None else str(data_folder.resolve())
        work.make_study(
            studies / study,
            scale,
            data_folder=folder,
            workers=workers,
            again=again,
            minutes=minutes,
            as_json=as_json,
            quiet=quiet,
        )
