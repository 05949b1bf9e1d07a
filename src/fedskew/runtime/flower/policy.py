"""What a node gives away: a file of its own, which no message and no setting of a run can change.

Whoever starts a SuperNode names it: ``--node-config 'policy="/etc/fedskew/policy.toml"'``. Recipe
and run configuration come with the app, from whoever submits a run, so they can ask for less than
the policy allows and never get more. A node without a policy says nothing of its labels; ``open``
instead of a file is for fleets on one machine, where nobody has anything to hide.

What it cannot do: an app is code, and a SuperNode runs what it is sent. The policy binds fedskew's
own app, against every message and every run configuration; that no other app runs is the business
of ``apps``, a list that :mod:`fedskew.deploy.approval` enforces before an app gets here. And
whoever sees one client's update of a model can estimate its label mix
(:mod:`fedskew.signal.estimators`).
"""

from __future__ import annotations

import math
import os
from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Literal

from fedskew.errors import RunError, did_you_mean
from fedskew.foreign import read_toml
from fedskew.signal.private import SENSITIVITY, Neighbours
from fedskew.types import LocalJob

KEY = "policy"  # in --node-config
VARIABLE = "FEDSKEW_POLICY"  # where there is no --node-config: virtual nodes on Ray
OPEN = "open"
SIGNALS = ("exact", "private", "estimated")
FIRST_PROBE = 1 << 31  # rounds from here on are probes for estimated signals
LEFT_OUT = "a node without a policy says nothing of its labels"

SignalKind = Literal["exact", "private", "estimated"]


class Refused(RunError):
    """A question that the node's policy does not allow to answer."""


@dataclass(frozen=True)
class Policy:
    """What is allowed. The defaults are those of a node that was given no policy."""

    signals: tuple[str, ...] = ()  # what it may say of its label counts
    epsilon: float = 0.0  # of "private", in total over all runs
    neighbours: Neighbours = "add_remove"  # what epsilon is meant for
    ledger: Path | None = None  # where it is kept; None: nowhere, for open policies
    round_examples_to: int = 1  # sizes are told in multiples of this; 1: exactly
    scores: bool = True  # whether it says how well a model does on its data
    max_epochs: int = 0  # in one round; 0: any number
    max_rounds: int = 0  # in one run; 0: any number
    apps: Path | None = None  # list of apps that may run; None: any that the server sends

    # ------------------------------------------------------------ what may be asked

    def check_signal(self, kind: SignalKind, client: int) -> None:
        """Refuse a kind of signal that is not on the list."""
        if kind not in self.signals:
            allowed = ", ".join(self.signals) or "none"
            what = f"its policy does not give '{kind}' label counts (allowed: {allowed})"
            raise Refused(f"client {client}", what, "" if self.signals else LEFT_OUT)

    def check_job(self, job: LocalJob, round: int, client: int, examples: int) -> None:
        """Refuse too many passes over so many examples, and a probe where estimating labels is not
        allowed. A draw of more examples than there are passes over them several times.
        """
        if round >= FIRST_PROBE:
            self.check_signal("estimated", client)
        whole = all(type(number) is int for number in (job.epochs, job.max_examples))
        if self.max_epochs and not (
            whole
            and job.epochs <= self.max_epochs
            and job.epochs * job.max_examples <= self.max_epochs * max(examples, 1)
        ):
            drawn = f" of {job.max_examples} examples" if job.max_examples else ""
            what = f"{job.epochs} epochs{drawn} in one round, its policy allows {self.max_epochs}"
            raise Refused(f"client {client}", what, "Lower local.epochs, local.max_examples")

    def check_scores(self, client: int) -> None:
        """Refuse to say how well a model does."""
        if not self.scores:
            what = "its policy gives no scores of models on its data"
            raise Refused(f"client {client}", what, "Test on the server")

    # ------------------------------------------------------------ how much is said

    def told(self, examples: int) -> int:
        """A number of examples as it is told.

        >>> [Policy(round_examples_to=100).told(n) for n in (0, 3, 149, 151)]
        [0, 100, 100, 200]
        """
        step = self.round_examples_to
        return examples if step == 1 or not examples else max(step, round(examples / step) * step)

    def told_steps(self, steps: int, examples: int, job: LocalJob) -> int:
        """The steps that the told number of examples would have taken: the true ones tell the
        true number.
        """
        if self.round_examples_to == 1:
            return steps
        return job.epochs * math.ceil(self.told(examples) / job.batch)

    def told_share(self, share: float) -> float:
        """A share of the examples as it is told: the exact one is a fraction with their number
        below the line.

        >>> Policy(round_examples_to=100).told_share(121 / 362), Policy().told_share(0.125)
        (0.33, 0.125)
        """
        return share if self.round_examples_to == 1 else round(share, 2)

    def price(self, epsilon: float, neighbours: Neighbours) -> float:
        """What a release costs by this policy's notion of neighbours.

        >>> Policy(neighbours="replace_one").price(0.5, "add_remove")
        1.0
        """
        return epsilon * SENSITIVITY[self.neighbours] / SENSITIVITY[neighbours]


EVERYTHING = Policy(signals=SIGNALS, epsilon=math.inf)


# ---------------------------------------------------------------- reading


def policy_of(node_config: Mapping[str, Any]) -> Policy:
    """The policy of this node, from its own configuration or environment, never from a run's.

    >>> policy_of({"partition-id": 0, "policy": "open"}) == EVERYTHING
    True
    """
    named = node_config.get(KEY) or os.environ.get(VARIABLE, "")
    if not named:
        return Policy()
    if named == OPEN:
        return EVERYTHING
    return read_policy(Path(str(named)))


def read_policy(path: Path) -> Policy:
    """A policy file, checked: whatever is wrong with it, nothing is given."""
    try:
        raw = read_toml(path)
    except (OSError, ValueError) as error:
        raise _wrong(path, f"cannot be read ({error})", "Correct the file") from None
    known = {field.name: field.default for field in fields(Policy)}
    for name, value in raw.items():
        if name not in known:
            raise _wrong(path, f"unknown key '{name}'", did_you_mean(name, known))
        raw[name] = _checked(path, name, value)
    for name in ("ledger", "apps"):
        if name in raw:
            raw[name] = path.parent / raw[name]
    return _consistent(path, Policy(**raw))


def _checked(path: Path, name: str, value: Any) -> Any:
    """One value of the file, of the right kind."""
    number = isinstance(value, (int, float)) and not isinstance(value, bool)
    right = {
        "signals": isinstance(value, list) and all(item in SIGNALS for item in value),
        "epsilon": number and 0 < value < math.inf,
        "neighbours": value in SENSITIVITY if isinstance(value, str) else False,
        "ledger": isinstance(value, str) and bool(value),
        "apps": isinstance(value, str) and bool(value),
        "round_examples_to": isinstance(value, int) and number and value >= 1,
        "scores": isinstance(value, bool),
        "max_epochs": isinstance(value, int) and number and value >= 0,
        "max_rounds": isinstance(value, int) and number and value >= 0,
    }
    if not right[name]:
        raise _wrong(path, f"{name} = {value!r}", f"Give {MEANT[name]}")
    return tuple(value) if name == "signals" else value


MEANT = {
    "signals": f"a list of {', '.join(SIGNALS)}",
    "epsilon": "a number above 0",
    "neighbours": " or ".join(SENSITIVITY),
    "ledger": "a file name",
    "apps": "a file name",
    "round_examples_to": "a whole number from 1",
    "scores": "true or false",
    "max_epochs": "a whole number, 0 = no limit",
    "max_rounds": "a whole number, 0 = no limit",
}


def _consistent(path: Path, policy: Policy) -> Policy:
    if "private" in policy.signals and not policy.epsilon:
        raise _wrong(path, "'private' without epsilon", "Give what may be spent in total")
    if policy.ledger is None and ("private" in policy.signals or policy.max_rounds):
        raise _wrong(path, "no ledger", "Name a file that keeps what was spent: ledger = '...'")
    if "exact" in policy.signals and policy.round_examples_to > 1:
        what = "exact label counts tell the number of examples, which is to be rounded"
        raise _wrong(path, what, "Allow one of them")
    return policy


def _wrong(path: Path, what: str, remedy: str) -> Refused:
    return Refused(f"policy {path.name}", what, remedy)
