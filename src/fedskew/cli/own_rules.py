"""Where rules of the user's own are found, and when they are looked for at all."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from fedskew import recipe as recipes


def find_rules(files: Sequence[str], *tables: Mapping[str, Any]) -> None:
    """Make modules importable that lie here or beside the recipes, behind everything installed.

    Only if a recipe or a setting that the user named uses some: nothing that happens to lie in a
    folder is imported by chance.
    """
    if any(recipes.names_code(table) for table in tables):
        sys.path += [os.getcwd(), *(str(Path(name).resolve().parent) for name in files)]
