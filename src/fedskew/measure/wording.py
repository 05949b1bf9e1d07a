"""The figures in plain words: how skewed this federation is, and what each paper's rule would do with it.

The word for the skew comes from HD as a share of its ceiling for this many clients and classes (METHODS 1.7). For 10 classes
and 100 clients under label-Dirichlet: alpha = 50 gives 0.08, 0.7 gives 0.63, 0.3 gives 0.77, 0.1 gives 0.91, 0.05 gives 0.95.
A federation whose HD is below 1.25 times the chance value is called no more skewed than chance, whatever its HD.
"""

from __future__ import annotations

from fedskew.measure.counts import plural
from fedskew.measure.groups import Grouping
from fedskew.measure.measurement import Measurement

SKEW_WORDS: tuple[tuple[float, str], ...] = (  # HD / ceiling below this: the word
    (0.15, "almost IID"),
    (0.40, "mildly skewed"),
    (0.70, "moderately skewed"),
    (0.90, "strongly skewed"),
    (float("inf"), "extremely skewed"),
)
CHANCE_FACTOR = 1.25
GROUP_WORDS: tuple[tuple[float, str], ...] = (  # silhouette below this; the bands of Kaufman & Rousseeuw 1990
    (0.25, "no real groups"),
    (0.50, "weak groups"),
    (0.70, "reasonable groups"),
    (float("inf"), "clear groups"),
)


def thresholds_text() -> str:
    """The thresholds behind the words, in one line.

    >>> thresholds_text()
    'HD / ceiling: below 0.15 almost IID, 0.40 mildly, 0.70 moderately, 0.90 strongly, above extremely skewed'
    """
    words = [f"{limit:.2f} {word.removesuffix(' skewed')}" for limit, word in SKEW_WORDS[:-1]]
    return f"HD / ceiling: below {', '.join(words)}, above {SKEW_WORDS[-1][1]}"


def skew_word(hd: float, ceiling: float, chance: float) -> str:
    """One word or two for the skew of a federation.

    >>> skew_word(0.9, 0.953, 0.05), skew_word(0.3, 0.953, 0.05), skew_word(0.5, 0.953, 0.49)
    ('extremely skewed', 'mildly skewed', 'no more skewed than chance')
    """
    share = hd / ceiling if ceiling > 0 else 0.0
    if share >= SKEW_WORDS[0][0] and hd < CHANCE_FACTOR * chance:
        return "no more skewed than chance"
    return next(word for limit, word in SKEW_WORDS if share < limit)


def group_word(silhouette: float | None) -> str:
    """What a silhouette says about groups.

    >>> group_word(0.18), group_word(0.99)
    ('no real groups', 'clear groups')
    """
    return "one group" if silhouette is None else next(word for limit, word in GROUP_WORDS if silhouette < limit)


def verdict(found: Measurement) -> str:
    """Two sentences: how skewed, and what each paper's rule would do."""
    if found.num_active < 2:
        return "There is one client with examples: no federation, and nothing to compare or to group."
    if found.figures.num_classes < 2:
        return "All examples have the same label: there is no label skew, and nothing to group."
    rules = (_afls(found), _clust_psi(found), _fedlecc(found), _similarity(found))
    return f"{_how_skewed(found)} {'; '.join(rules)}."


def _how_skewed(found: Measurement) -> str:
    figures = found.figures
    word = skew_word(figures.hd, found.hd_ceiling, found.hd_chance)
    yardstick = f"{plural(found.num_active, 'client')} and {plural(figures.num_classes, 'class')}"
    return (
        f"This federation is {word}: HD {figures.hd:.3f} is {100 * figures.hd / found.hd_ceiling:.0f} % of its ceiling "
        f"{found.hd_ceiling:.3f} for {yardstick}, and dealing the same examples at random would give {found.hd_chance:.3f}."
    )


def _afls(found: Measurement) -> str:
    held = plural(found.omega_classes, "class")
    sign, does, why = (">=", "sequentially", "reaches") if found.sequential else ("<", "in parallel", "stays below")
    return (
        f"AFLS would train {does}, because omega {why} that of clients with {held} each "
        f"({found.seen.omega:.3f} {sign} {found.omega_threshold:.3f})"
    )


def _clust_psi(found: Measurement) -> str:
    grouping = found.grouping("clust_psi_pfl")
    if grouping.clustering.k == 1:
        return "Clust-PSI-PFL would keep one model for all (τ = 1)"
    return (
        f"Clust-PSI-PFL would train {grouping.clustering.k} models (τ = {grouping.clustering.k} by PSI, {_quality(grouping)})"
    )


def _fedlecc(found: Measurement) -> str:
    grouping = found.grouping("fedlecc")
    noise = f", {grouping.num_noise:,} of {found.num_active:,} clients being noise" if grouping.num_noise else ""
    how = "OPTICS" if grouping.fallback is None else f"{grouping.fallback}, as OPTICS found nothing acceptable"
    if grouping.clustering.k == 1:
        return "FedLECC would see one cluster and choose clients by loss alone (J = 1)"
    return f"FedLECC would choose from J <= {grouping.clustering.k} clusters by {how} ({_quality(grouping)}{noise})"


def _similarity(found: Measurement) -> str:
    grouping = found.grouping("similarity")
    if grouping.clustering.k == 1:
        return "the similarity study would train one client a round (c = 1)"
    return (
        f"the similarity study would train c = {grouping.clustering.k} clients a round, one of each k-medoids cluster "
        f"({_quality(grouping)})"
    )


def _quality(grouping: Grouping) -> str:
    score = grouping.clustering.silhouette
    return group_word(score) if score is None else f"{group_word(score)}, silhouette {score:.2f}"
