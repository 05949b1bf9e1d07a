"""What clients agree to, what a recipe asks of them, and how one is made to fit the other."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from fedskew.compare.contenders import is_personalised
from fedskew.errors import RecipeError, did_you_mean
from fedskew.recipe import rule_of

FLAGS = {
    "d2d": "clients hand models to each other",
    "histograms": "clients disclose exact label counts",
    "probe": "every client trains one step before the first round, and its label mix is read off",
    "personal": "several models, one per group of clients",
}
PRIVATE = "private"
SAYS = {
    "histogram": "exact label counts, once",
    "estimated": "the update of one step on all it has, from which its label mix is read",
}


@dataclass(frozen=True)
class Allowed:
    """What may be switched on. By default all that leads to one model."""

    d2d: bool = True
    histograms: bool = True
    probe: bool = True
    personal: bool = False
    private: float | None = None  # epsilon of noisy label counts

    def toggled(self, flag: str) -> Allowed:
        """The same but for one flag."""
        return replace(self, **{flag: not getattr(self, flag)})

    @property
    def text(self) -> str:
        """As behind ``--allow``.

        >>> Allowed(probe=False, private=1.0).text
        'd2d,histograms,private=1'
        """
        flags = [flag for flag in FLAGS if getattr(self, flag)]
        noisy = [] if self.private is None else [f"{PRIVATE}={self.private:g}"]
        return ",".join(flags + noisy) or "none"


def read_allowed(text: str) -> Allowed:
    """``d2d,histograms,private=1.0``: these and nothing else; ``none``: nothing.

    >>> read_allowed("histograms,private=0.5")
    Allowed(d2d=False, histograms=True, probe=False, personal=False, private=0.5)
    """
    names = [part.strip() for part in text.split(",") if part.strip() not in ("", "none")]
    known = [*FLAGS, f"{PRIVATE}=1.0"]
    given: dict[str, Any] = dict.fromkeys(FLAGS, False)
    for name in names:
        flag, equals, value = name.partition("=")
        if flag in FLAGS and not equals:
            given[flag] = True
        elif flag == PRIVATE:
            given[PRIVATE] = _epsilon(value)
        else:
            raise RecipeError("--allow", f"'{name}' is unknown", did_you_mean(name, known))
    return Allowed(**given)


def _epsilon(text: str) -> float:
    try:
        value = float(text or 1.0)
    except ValueError:
        value = 0.0
    if not 0 < value < float("inf"):
        raise RecipeError("--allow", f"private={text} is no epsilon", "Example: private=1.0")
    return value


def wanted_by(recipe: Mapping[str, Any]) -> set[str]:
    """The flags that a resolved recipe cannot do without.

    >>> from fedskew.recipe import load, resolve
    >>> names = ("fedavg", "fed_cbs", "balanced_chains", "clust_psi_pfl")
    >>> [sorted(wanted_by(resolve(load(name)))) for name in names]
    [[], ['histograms'], ['d2d', 'probe'], ['histograms', 'personal']]
    """
    signal = recipe.get("signal", {}).get("use", "")
    wanted = {
        "d2d": recipe["procedure"].get("relay") == "d2d",
        "histograms": signal == "histogram",
        "probe": signal == "estimated",
        "personal": is_personalised(recipe),
    }
    return {flag for flag, needed in wanted.items() if needed}


def changes_for(wanted: Iterable[str], allowed: Allowed) -> dict[str, Any] | None:
    """Settings with which a recipe that wants these flags keeps to what is allowed, or None.

    Over the server instead of from device to device; noisy counts instead of exact ones.

    >>> changes_for({"d2d", "probe"}, Allowed(d2d=False))
    {'procedure.relay': 'server'}
    >>> changes_for({"histograms"}, Allowed(histograms=False)) is None
    True
    """
    missing = {flag for flag in wanted if not getattr(allowed, flag)}
    changes: dict[str, Any] = {}
    if "d2d" in missing:
        changes["procedure.relay"] = "server"
    if "histograms" in missing and allowed.private is not None:
        changes |= {"signal.use": PRIVATE, "signal.epsilon": allowed.private}
        missing.discard("histograms")
    return changes if missing <= {"d2d"} else None


def disclosed_by(recipe: Mapping[str, Any]) -> list[str]:
    """What each client gives away under a resolved recipe, besides that it takes part.

    >>> from fedskew.recipe import load, resolve
    >>> disclosed_by(resolve(load("fed_cbs")))
    ['its updates, to the server', 'exact label counts, once']
    """
    to = "the server and other clients" if "d2d" in wanted_by(recipe) else "the server"
    said = [f"its updates, to {to}"]
    signal = recipe.get("signal", {})
    if signal.get("use") == PRIVATE:
        said.append(f"label counts with noise, once (epsilon {signal['epsilon']:g})")
    elif signal.get("use") in SAYS:
        said.append(SAYS[signal["use"]])
    return said + [f"its {need}" for need in ("loss", "latency", "snr") if need in _reports(recipe)]


def _reports(recipe: Mapping[str, Any]) -> set[str]:
    """What rules are told besides models; those with a ``loss_source`` ask before they choose."""
    stages = ("selection", "procedure")
    needs = {need for stage in stages for need in rule_of(recipe, stage).rule.needs()}
    return needs | ({"loss"} if "loss_source" in recipe["selection"] else set())
