"""The figures in plain words: how skewed a federation is, and what each paper's rule would do.

The word for the skew comes from where HD lies between dealing at random (0 %) and one class per
client (100 %, the ceiling of docs/methods.md 1.7 for this many clients and classes). MNIST, 100
clients, label-Dirichlet: alpha = 50 gives 2 %, 0.7 gives 61 %, 0.3 gives 74 %, 0.1 gives 90 %,
0.055 gives 94 %. Without the chance value clients of six examples would all look skewed.
"""

from __future__ import annotations

from fedskew.measure.counts import plural
from fedskew.measure.groups import Grouping
from fedskew.measure.measurement import Measurement

# share of the way from chance to ceiling below this: the word
SKEW_WORDS: tuple[tuple[float, str], ...] = (
    (0.10, "hardly skewed"),
    (0.40, "mildly skewed"),
    (0.70, "moderately skewed"),
    (0.90, "strongly skewed"),
    (float("inf"), "extremely skewed"),
)
LEAST_ROOM = 0.02  # between chance and ceiling; below, clients are too small to show skew
# silhouette below this; the bands of Kaufman & Rousseeuw 1990
GROUP_WORDS: tuple[tuple[float, str], ...] = (
    (0.25, "no real groups"),
    (0.50, "weak groups"),
    (0.70, "reasonable groups"),
    (float("inf"), "clear groups"),
)


def thresholds_text() -> str:
    """The thresholds behind the words, in one line.

    >>> start, limits = thresholds_text().split(": ")
    >>> start
    'HD between chance and ceiling'
    >>> limits
    'below 10 % hardly, 40 % mildly, 70 % moderately, 90 % strongly, above extremely skewed'
    """
    words = [
        f"{100 * limit:.0f} % {word.removesuffix(' skewed')}" for limit, word in SKEW_WORDS[:-1]
    ]
    return f"HD between chance and ceiling: below {', '.join(words)}, above {SKEW_WORDS[-1][1]}"


def skew_share(hd: float, ceiling: float, chance: float) -> float | None:
    """Where HD lies between chance (0) and ceiling (1); None if these two are the same to the eye.

    >>> round(skew_share(0.9, 0.95, 0.05), 3), skew_share(0.95, 0.95, 0.94)
    (0.944, None)
    """
    room = ceiling - chance
    return None if room < LEAST_ROOM else min(1.0, max(0.0, (hd - chance) / room))


def skew_word(share: float | None) -> str:
    """One word or two for the skew of a federation.

    >>> skew_word(0.95), skew_word(0.3), skew_word(0.0)
    ('extremely skewed', 'mildly skewed', 'hardly skewed')
    """
    if share is None:
        return "too thinly spread to tell skew from chance"
    return next(word for limit, word in SKEW_WORDS if share < limit)


def group_word(silhouette: float | None) -> str:
    """What a silhouette says about groups.

    >>> group_word(0.18), group_word(0.99)
    ('no real groups', 'clear groups')
    """
    return (
        "one group"
        if silhouette is None
        else next(word for limit, word in GROUP_WORDS if silhouette < limit)
    )


def verdict(measurement: Measurement) -> str:
    """Two sentences: how skewed, and what each paper's rule would do."""
    if measurement.num_active < 2:
        return (
            "There is one client with examples: no federation, and nothing to compare or to group."
        )
    if measurement.figures.num_classes < 2:
        return "All examples have the same label: there is no label skew, and nothing to group."
    rules = (
        _afls(measurement),
        _clust_psi(measurement),
        _fedlecc(measurement),
        _similarity(measurement),
    )
    return f"{_how_skewed(measurement)} {'; '.join(rules)}."


def _how_skewed(measurement: Measurement) -> str:
    figures = measurement.figures
    share = skew_share(figures.hd, measurement.hd_ceiling, measurement.hd_chance)
    size = f"{plural(measurement.num_active, 'client')} and {plural(figures.num_classes, 'class')}"
    chance = f"dealing at random ({measurement.hd_chance:.3f})"
    ceiling = f"one class per client ({measurement.hd_ceiling:.3f}, the ceiling for {size})"
    place = "with no room" if share is None else f"{100 * share:.0f} % of the way"
    return (
        f"This federation is {skew_word(share)}: "
        f"HD {figures.hd:.3f} lies {place} from {chance} to {ceiling}."
    )


def _afls(measurement: Measurement) -> str:
    classes = plural(measurement.omega_classes, "class")
    sign, does, why = (
        (">=", "sequentially", "reaches")
        if measurement.sequential
        else ("<", "in parallel", "stays below")
    )
    return (
        f"AFLS would train {does}, because omega {why} that of clients with {classes} each "
        f"({measurement.seen.omega:.3f} {sign} {measurement.omega_threshold:.3f})"
    )


def _clust_psi(measurement: Measurement) -> str:
    grouping = measurement.grouping("clust_psi_pfl")
    if grouping.clustering.k == 1:
        return "Clust-PSI-PFL would keep one model for all (τ = 1)"
    tau = grouping.clustering.k
    does = f"would train {tau:,} models (τ = {tau:,} by PSI{_quality(grouping)})"
    return _with_doubt("Clust-PSI-PFL", does, grouping)


def _fedlecc(measurement: Measurement) -> str:
    grouping = measurement.grouping("fedlecc")
    if grouping.clustering.k == 1:
        return "FedLECC would see one cluster and choose clients by loss alone (J = 1)"
    noise = (
        f", {grouping.num_noise:,} of {measurement.num_active:,} clients being noise"
        if grouping.num_noise
        else ""
    )
    how = (
        "OPTICS"
        if grouping.fallback is None
        else f"{grouping.fallback}, as OPTICS found nothing acceptable"
    )
    facts = f"{_quality(grouping)}{noise}".removeprefix(", ")
    does = f"would choose from J <= {grouping.clustering.k:,} clusters by {how}"
    return _with_doubt("FedLECC", f"{does} ({facts})" if facts else does, grouping)


def _similarity(measurement: Measurement) -> str:
    grouping = measurement.grouping("similarity")
    if grouping.clustering.k == 1:
        return "the similarity study would train one client a round (c = 1)"
    does = (
        f"would train c = {grouping.clustering.k:,} clients a round, one of each k-medoids cluster"
    )
    facts = _quality(grouping).removeprefix(", ")
    return _with_doubt("the similarity study", f"{does} ({facts})" if facts else does, grouping)


def _with_doubt(who: str, does: str, grouping: Grouping) -> str:
    """A rule always answers with a number; where nothing stands out, that is said first."""
    if not _is_doubtful(grouping):
        return f"{who} {does}"
    return (
        f"{who} finds no clear groups "
        f"(silhouette {grouping.clarity:.2f}, below {GROUP_WORDS[0][0]:g}): "
        f"it {does}, but that number means little"
    )


def _is_doubtful(grouping: Grouping) -> bool:
    return grouping.clarity is not None and grouping.clarity < GROUP_WORDS[0][0]


def _quality(grouping: Grouping) -> str:
    """ ", clear groups, silhouette 0.81"; nothing where the doubt says it."""
    if grouping.clarity is None or _is_doubtful(grouping):
        return ""
    score = f"silhouette {grouping.clustering.silhouette:.2f}"
    if grouping.clarity < (grouping.clustering.silhouette or 0.0):
        score += f" without noise, {grouping.clarity:.2f} with it"
    return f", {group_word(grouping.clarity)}, {score}"
