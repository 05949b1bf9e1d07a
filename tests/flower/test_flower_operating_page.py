"""What docs/operating.md says that can be checked without a fleet."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest
from command_lines import check_parses

from fedskew.deploy.metrics import exposition
from fedskew.deploy.run_watch import KINDS, OTHER, RunWatch

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "operating.md").read_text()
LINES = re.findall(r"^    (fedskew .*)$", PAGE, re.M)


@pytest.mark.parametrize("line", LINES)
def test_every_command_line_is_one_of_ours(line):
    check_parses(shlex.split(line))


def test_there_are_some():
    assert len(LINES) > 10


def test_the_table_has_every_metric_and_no_other(tmp_path):
    text = exposition({"x": RunWatch(tmp_path)}, {"superlink": True})
    assert re.findall(r"^# TYPE (\w+)", text, re.M) == re.findall(
        r"^\| `(fedskew_\w+)`", PAGE, re.M
    )
    labels = dict(re.findall(r"^\| `(fedskew_\w+)` \| ([^|]+?) \|", PAGE, re.M))
    for name, given in re.findall(r"^(fedskew_\w+)\{(.*)\}", text, re.M):
        assert re.findall(r'(\w+)="', given) == labels[name].split(", ")


def test_the_table_has_every_sort_of_reason():
    row = next(line for line in PAGE.splitlines() if "fedskew_failures_total" in line)
    assert re.findall(r"`([a-z_]+)`", row.partition("not used:")[2]) == [*KINDS, OTHER]


def test_the_files_it_names_exist():
    named = re.findall(r"`((?:docs|tests)/[\w/.]+)`", PAGE)
    assert named
    assert [name for name in named if not (ROOT / name).is_file()] == []
