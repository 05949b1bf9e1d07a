"""What the papers claim, what we found, and a verdict by a rule that was written down before.

``evidence/claims.toml`` lists the claims; each names the rows of a study that speak about it. The
rule, with the 95 % interval over paired seeds of what a claim is about, taken in its direction:

- **holds**: the interval leaves 0 outside and reaches the claimed amount (a plain value: the
  claimed one lies in the interval, or within the paper's own tolerance of our mean);
- **holds in direction**: it leaves 0 outside, but all of it lies below the claimed amount;
- **not reproduced**: it holds 0, or lies on the other side (then the page says *the opposite*);
- **too few seeds**: fewer than three;
- **cannot be derived**: the claim follows from nothing the paper states; the reason is given;
- **not made yet**: its study has no results.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from fedskew.compare.estimates import Estimate, mean_interval
from fedskew.errors import StudyError
from fedskew.evidence.fields import check_entries
from fedskew.evidence.observations import Observation, Where, by_seed, observations, select
from fedskew.evidence.results import FILE, read_results
from fedskew.foreign import read_toml

CLAIMS = "claims.toml"
FEWEST_SEEDS = 3
PAPERS = {
    "000": "FedLECC",
    "001": "BACSA",
    "002": "similarity metrics",
    "003": "AFLS",
    "004": "Clust-PSI-PFL",
}


@dataclass(frozen=True)
class Claim:
    """One claim of a paper, and where it is looked at."""

    paper: str
    says: str
    study: str = ""
    figure: str = "final"
    of: Where = field(default_factory=dict)  # the rows it is about
    against: Where = field(default_factory=dict)  # and what they are compared with, seed by seed
    claimed: float = 0.0  # the least amount it claims, or the value
    less: bool = False  # it claims less, not more
    ratio: bool = False  # of the other, minus 1, instead of a difference
    tolerance: float = 0.0  # of a value, as the paper states it
    scale: str = ""  # "reduced", where the study is smaller than the paper's experiment
    format: str = "+.3f"
    cannot: str = ""  # why nothing can be said
    why: str = ""  # the most likely reason for what we found


def read_claims(folder: Path) -> list[Claim]:
    """The claims of ``evidence/claims.toml``, in its order; none without that file."""
    path = folder / CLAIMS
    if not path.is_file():
        return []
    claims = []
    for raw in read_toml(path).get("claim", []):
        check_entries(f"{path}, claim", raw, Claim)
        claim = Claim(**raw)
        if claim.paper not in PAPERS or not (claim.study or claim.cannot):
            what = f"'{claim.says}' names no paper of the five, or neither study nor cannot"
            raise StudyError(str(path), what, "Correct it")
        claims.append(claim)
    return claims


def found(claim: Claim, rows: Sequence[Observation]) -> Estimate:
    """What the rows say about it, over paired seeds."""
    ours = by_seed(_some(claim, rows, claim.of), claim.figure)
    if not claim.against:
        return mean_interval(list(ours.values()))
    theirs = by_seed(_some(claim, rows, claim.against), claim.figure)
    pairs = [(ours[seed], theirs[seed]) for seed in ours if seed in theirs]
    return mean_interval([a / b - 1 if claim.ratio else a - b for a, b in pairs])


def _some(claim: Claim, rows: Sequence[Observation], where: Where) -> list[Observation]:
    mine = select(rows, where)
    if not mine:
        raise StudyError(CLAIMS, f"'{claim.says}': {dict(where)} is no row", f"See {claim.study}")
    return mine


def verdict(claim: Claim, what: Estimate) -> str:
    """The rule above.

    >>> more = Claim("000", "more by a tenth", "s", against={"method": "x"}, claimed=0.1)
    >>> verdict(more, Estimate(0.12, 0.09, 0.15, 5)), verdict(more, Estimate(0.05, 0.01, 0.09, 5))
    ('holds', 'holds in direction')
    >>> verdict(more, Estimate(0.05, -0.01, 0.2, 5)), verdict(more, Estimate(-0.2, -0.3, -0.1, 5))
    ('not reproduced', 'not reproduced: the opposite')
    """
    if what.n < FEWEST_SEEDS or math.isnan(what.low):
        return "too few seeds"
    if not claim.against:
        near = abs(what.mean - claim.claimed) <= claim.tolerance
        return "holds" if near or what.low <= claim.claimed <= what.high else "not reproduced"
    sign = -1.0 if claim.less else 1.0
    low, high = sorted((sign * what.low, sign * what.high))
    if high < 0:
        return "not reproduced: the opposite"
    if low <= 0:
        return "not reproduced"
    return "holds" if high >= abs(claim.claimed) else "holds in direction"


def claims_text(folder: Path) -> str:
    """The table of all claims; nothing where there are none."""
    claims = read_claims(folder)
    if not claims:
        return ""
    made = {name: _rows(folder / name) for name in {claim.study for claim in claims} if name}
    lines = [_line(claim, made.get(claim.study)) for claim in claims]
    return HEAD + "\n".join(lines) + "\n"


def _rows(folder: Path) -> list[Observation] | None:
    results = read_results(folder / FILE)
    return None if results is None else observations(results)


def _line(claim: Claim, rows: Sequence[Observation] | None) -> str:
    says, paper = claim.says, f"{claim.paper} ({PAPERS[claim.paper]})"
    link = f"[{claim.study}]({claim.study}/README.md)"
    if claim.cannot:
        return f"| {says} | {paper} |  | cannot be derived | {claim.cannot} |"
    if rows is None:
        return f"| {says} | {paper} |  | not made yet ({claim.study}) | {claim.why} |"
    what = found(claim, rows)
    scale = f", {claim.scale}" if claim.scale else ""
    ours = f"{_text(what, claim.format)} (n = {what.n}{scale}; {link})"
    return f"| {says} | {paper} | {ours} | **{verdict(claim, what)}** | {claim.why} |"


def _text(what: Estimate, spec: str) -> str:
    if math.isnan(what.low):
        return format(what.mean, spec)
    return f"{what.mean:{spec}} ± {what.half_width:{spec.removeprefix('+')}}"


HEAD = """
## Every claim, and what we found

Verdicts are given by a rule (`fedskew.evidence.claims`), not by taste. *Holds*: over paired seeds
the 95 % interval of what is claimed leaves 0 outside and reaches the claimed amount; *in
direction*: it leaves 0 outside and does not reach it; *not reproduced*: it does not leave 0
outside, or lies on the other side. Three seeds are the fewest. Ours is a mean and half its
interval; reduced experiments are marked.

| claim | paper | ours | verdict | most likely reason |
|---|---|---|---|---|
"""
