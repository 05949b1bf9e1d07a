"""The parts of the report page as its scripts describe them, read without a browser."""

from __future__ import annotations

import re

from fedskew.report.page.html import _file, scripts

DESCRIBED = re.compile(r"^const (\w+(?:Figure|Section)) = \{\n(.*?)^\};", re.S | re.M)


def program() -> str:
    return "\n".join(_file(name) for name in scripts())


def listed() -> list[str]:
    """The names in the array FIGURES, in order."""
    array = re.search(r"^const FIGURES = \[\n(.*?)^\];", program(), re.S | re.M)
    return [name.strip() for name in array[1].split(",") if name.strip()]


def described() -> dict[str, str]:
    """Name -> the inside of the object that describes a part."""
    return dict(DESCRIBED.findall(program()))


def keys_of(inside: str) -> set[str]:
    return set(re.findall(r"^  (\w+)(?::|\(|,$)", inside, re.M))


def text_of(inside: str, key: str) -> str:
    return re.search(rf'^  {key}: "([^"]+)",$', inside, re.M)[1]


def needs_of(inside: str) -> list[str]:
    return re.findall(r'"([^"]+)"', re.search(r"^  needs: \[(.*?)\],$", inside, re.S | re.M)[1])


def ids_of_drawings() -> list[str]:
    parts = described()
    return [text_of(parts[name], "id") for name in listed() if "draw" in keys_of(parts[name])]
