"""What ``study.toml`` says: which cells there are, and what the page shows of them.

docs/evidence.md describes every entry.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedskew.errors import StudyError, did_you_mean
from fedskew.evidence.grids import Grid, at_scale, check_keys, read_grid
from fedskew.foreign import read_toml

FILE = "study.toml"
SCALES = ("full", "reduced", "smoke")
STUDY_KEYS = ("title", "summary", "publish", "set", "axes", "grid", "scale", "page")
SCALE_KEYS = ("note", "seeds", "set", "only")
PART_KEYS = ("text", "table", "figure", "section")


@dataclass(frozen=True)
class Study:
    """Everything ``study.toml`` says, at one scale."""

    name: str
    folder: Path
    title: str
    summary: str
    scale: str
    scale_note: str
    grids: tuple[Grid, ...]
    parts: tuple[Mapping[str, Any], ...]
    published: str  # the scale of the committed page

    @property
    def is_published(self) -> bool:
        """Whether this is the scale of the page in the study's own folder."""
        return self.scale == self.published


def find_studies(folder: Path) -> list[str]:
    """Names of the studies in a folder."""
    return sorted(path.parent.name for path in folder.glob(f"*/{FILE}"))


def read_study(folder: Path, scale: str | None = None) -> Study:
    """The study in a folder, at a scale (by default the one its page is published at)."""
    path = folder / FILE
    raw = _read(path)
    check_keys(str(path), raw, STUDY_KEYS)
    published = str(raw.get("publish", "full"))
    chosen = scale or published
    change = _scale(str(path), raw, chosen)
    grids = [read_grid(f"{path}, grid", grid, raw) for grid in _required(path, raw, "grid")]
    return Study(
        name=folder.name,
        folder=folder,
        title=str(_required(path, raw, "title")),
        summary=str(_required(path, raw, "summary")),
        scale=chosen,
        scale_note=str(change.get("note", "")),
        grids=at_scale(str(path), grids, change),
        parts=tuple(_part(str(path), part) for part in raw.get("page", ())),
        published=published,
    )


def _read(path: Path) -> dict[str, Any]:
    try:
        return read_toml(path)
    except FileNotFoundError:
        known = find_studies(path.parent.parent)
        raise StudyError(
            str(path.parent),
            "is not a study" if path.parent.is_dir() else "does not exist",
            did_you_mean(path.parent.name, known) if known else f"A study is a folder with {FILE}",
        ) from None
    except (ValueError, OSError) as error:
        raise StudyError(str(path), f"cannot be read as TOML: {error}", "Correct it") from None


def _required(path: Path, raw: Mapping[str, Any], key: str) -> Any:
    if not raw.get(key):
        raise StudyError(str(path), f"has no {key}", f"Add {key}")
    return raw[key]


def _scale(where: str, raw: Mapping[str, Any], scale: str) -> Mapping[str, Any]:
    if scale not in SCALES:
        raise StudyError("--scale", f"'{scale}' is no scale", did_you_mean(scale, SCALES))
    given = raw.get("scale", {})
    check_keys(f"{where}, scale", given, SCALES)
    if scale not in given and scale != "full":
        has = ", ".join(["full", *(name for name in given if name != "full")])
        raise StudyError(where, f"has no scale '{scale}'", f"It has: {has}")
    change: Mapping[str, Any] = given.get(scale, {})
    check_keys(f"{where}, scale {scale}", change, SCALE_KEYS)
    return change


def _part(where: str, raw: Mapping[str, Any]) -> Mapping[str, Any]:
    check_keys(f"{where}, page", raw, PART_KEYS)
    if len(raw) != 1:
        raise StudyError(f"{where}, page", f"an entry has {sorted(raw)}", "Give it exactly one")
    return raw
