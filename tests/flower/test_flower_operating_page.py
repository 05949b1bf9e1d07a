"""What docs/operating.md says that can be checked without a fleet."""

from __future__ import annotations

import re
import shlex
import subprocess
from pathlib import Path

import numpy as np
import pytest
from command_lines import check_parses

from fedskew.deploy.hospital import prepare
from fedskew.deploy.metrics import exposition
from fedskew.deploy.run_watch import KINDS, OTHER, RunWatch
from fedskew.runtime.flower.ledger import release_once
from fedskew.runtime.flower.policy import Refused, read_policy

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


def test_policy_list_and_ledger_go_to_a_new_key_as_the_page_says(tmp_path):
    """What was spent under the old name is spent under the new one."""
    pytest.importorskip("flwr", reason="keys are made by Flower")
    old = prepare(tmp_path, "hospital-a")
    text = old.policy.read_text().replace("signals = []", 'signals = ["private"]')
    old.policy.write_text(text.replace("# epsilon", "epsilon"))
    old.apps.write_text("0" * 64 + "\n")
    release_once(read_policy(old.policy), "run 1", 0.7, 0, lambda: np.ones(3))
    new = prepare(tmp_path, "hospital-a-2026")
    lines = re.findall(r"^    ((?:for part in|sed -i) .*)$", PAGE, re.M)
    assert len(lines) == 2
    subprocess.run(["sh", "-ec", "\n".join(lines)], cwd=tmp_path, check=True)
    policy = read_policy(new.policy)
    assert (policy.ledger, policy.apps) == (new.ledger, new.apps)
    assert new.apps.read_text() == "0" * 64 + "\n"
    with pytest.raises(Refused, match=r"epsilon 0\.4 asked, 0\.3 of 1 is left"):
        release_once(policy, "run 2", 0.4, 0, lambda: np.ones(3))
    assert not list(tmp_path.glob("hospital-a.[tal]*"))
