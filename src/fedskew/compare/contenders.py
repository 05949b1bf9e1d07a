"""Several recipes put on one federation, so that only the method differs.

Data, partition, devices, faults, the model, K, m, rounds and evaluations are the first recipe's (or
what the user sets) for everybody. What a client does locally and every stage stay the recipe's own;
with ``same_training`` only the stages do. Of the model, ``head_init`` stays the recipe's own too:
it belongs to methods that read labels off the output layer.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedskew.errors import RecipeError
from fedskew.recipe import Table, expand, fingerprint, load, override, resolve, rule_of

SHARED = ("data", "partition", "devices", "faults")
SHARED_RUN = ("rounds", "clients_per_round", "evaluate_every")
OWN_MODEL = ("head_init",)
# of [local]: what belongs to a method, not to the training they may share
METHODS_OWN = ("report_loss", "prox_mu", "bn")


@dataclass(frozen=True)
class Contender:
    """One method of a comparison."""

    label: str
    recipe: Mapping[str, Any]  # resolved

    @property
    def fingerprint(self) -> str:
        """What decides its numbers."""
        return fingerprint(self.recipe)


def line_up(
    sources: Sequence[str | Path | Mapping[str, Any]],
    settings: Mapping[str, Any] | None = None,
    *,
    same_training: bool = False,
    twins: bool = False,
) -> list[Contender]:
    """Resolved recipes on the federation of the first one; with ``same_training`` clients also
    train as the first recipe says. A method that is there twice is refused, or with ``twins`` one.

    ``settings`` hold for all recipes, or for one of them if the key begins with its name:
    ``{"fedlecc:selection.top_clusters": 3}``. Recipes with a ``[sweep]`` enter once per
    combination, named after what varies.

    >>> first, second = (one.recipe for one in line_up(["fedavg", "fedlecc"], {"run.rounds": 3}))
    >>> first["data"] == second["data"], second["run"]["rounds"], second["local"]["epochs"]
    (True, 3, 5)
    """
    loaded = [load(source) for source in sources]
    if not loaded:
        raise RecipeError(
            "compare", "no recipe is given", "Name at least one: fedskew list recipes"
        )
    names = [raw["name"] for raw in loaded]
    changes = [_settings_of(raw, settings or {}, names) for raw in loaded]
    lead = resolve(next(expand(override(loaded[0], changes[0]))))
    contenders = [
        # a first recipe that varies nothing is the lead itself
        Contender(label, lead)
        if recipe is loaded[0] and "sweep" not in recipe
        else Contender(
            label,
            resolve(_join(raw, lead, changed, _training(lead, recipe) if same_training else {})),
        )
        for recipe, changed in zip(loaded, changes, strict=True)
        for label, raw in _variants(recipe)
    ]
    if not twins:
        _check_distinct(contenders)
    return list({one.fingerprint: one for one in reversed(contenders)}.values())[::-1]


def _check_distinct(contenders: Sequence[Contender]) -> None:
    """Refuse a method that is there twice: it would be one row, and nobody would know why."""
    seen: dict[str, str] = {}
    for one in contenders:
        twin = seen.get(one.fingerprint)
        if twin is not None:
            twice = f"'{twin}' is given twice"
            what = twice if twin == one.label else f"'{twin}' and '{one.label}' are the same method"
            raise RecipeError("compare", what, "Give each method once")
        seen[one.fingerprint] = one.label


def _settings_of(raw: Table, settings: Mapping[str, Any], names: Sequence[str]) -> Table:
    """The settings that hold for this recipe."""
    changes: Table = {}
    for key, value in settings.items():
        name, colon, rest = key.rpartition(":")
        if colon and name not in names:
            raise RecipeError(
                f"--set {key}", f"'{name}' is not in this comparison", f"It has: {', '.join(names)}"
            )
        if not colon or name == raw["name"]:
            changes[rest] = value
    return changes


def _variants(raw: Table) -> Iterator[tuple[str, Table]]:
    axes = list(raw.get("sweep", {}))
    for variant in expand(raw):
        settings = ", ".join(
            f"{axis}={variant[axis.partition('.')[0]][axis.partition('.')[2]]}" for axis in axes
        )
        yield (f"{raw['name']} {settings}" if axes else str(raw["name"])), variant


def _training(lead: Table, recipe: Table) -> Table:
    """How clients of the first recipe train, without what is a method's own or varies here."""
    return {
        k: v
        for k, v in lead["local"].items()
        if k not in METHODS_OWN and f"local.{k}" not in recipe.get("sweep", {})
    }


def _join(raw: Table, lead: Table, changes: Table, training: Table) -> Table:
    """A recipe on the federation of ``lead`` and with this local training, the settings that hold
    for it on top.
    """
    model = {
        **lead["model"],
        **{key: raw["model"][key] for key in OWN_MODEL if key in raw.get("model", {})},
    }
    run = {**raw.get("run", {}), **{key: lead["run"][key] for key in SHARED_RUN}}
    local = {**raw.get("local", {}), **training}
    moved: Table = {
        **raw,
        **{key: lead[key] for key in SHARED},
        "model": model,
        "run": run,
        "local": local,
    }
    moved.pop("sweep", None)
    return override(
        moved, {key: value for key, value in changes.items() if key.partition(".")[0] not in SHARED}
    )


def is_personalised(recipe: Mapping[str, Any]) -> bool:
    """Whether a recipe keeps several models.

    >>> from fedskew.recipe import load, resolve
    >>> names = ("fedavg", "balanced_chains", "clust_psi_pfl", "local_only")
    >>> [is_personalised(resolve(load(name))) for name in names]
    [False, False, True, True]
    """
    return bool(rule_of(recipe, "procedure").rule.several_models)


def add_references(contenders: Sequence[Contender]) -> tuple[list[Contender], Contender]:
    """(Contenders with what reference rows need, the one whose global model is tuned).

    They need ``local_only``, and a method with one global model: FedAvg, or else the first there
    is. What is missing is added at the end, and trains locally as the first personalised method
    does.

    >>> more, tuned = add_references(line_up(["clust_psi_pfl"]))
    >>> [one.label for one in more], tuned.label, tuned.recipe["local"]["lr"]
    (['clust_psi_pfl', 'local_only', 'fedavg'], 'fedavg', 0.001)
    """
    alone = [one for one in contenders if one.recipe["procedure"]["use"] == "local_only"]
    personal = [one for one in contenders if is_personalised(one.recipe)]
    single = sorted(
        (one for one in contenders if one not in personal),
        key=lambda one: not _is_fedavg(one.recipe),
    )
    like = next((one for one in personal if one not in alone), contenders[0])
    added = [
        _reference(name, contenders[0], like)
        for name, present in (("local_only", alone), ("fedavg", single))
        if not present
    ]
    return [*contenders, *added], (single or added[-1:])[0]


def _is_fedavg(recipe: Mapping[str, Any]) -> bool:
    uses = [recipe[stage]["use"] for stage in ("selection", "procedure", "aggregation")]
    return uses == ["uniform", "parallel", "mean"] and not recipe["local"]["prox_mu"]


def _reference(name: str, lead: Contender, like: Contender) -> Contender:
    local = {key: value for key, value in like.recipe["local"].items() if key not in METHODS_OWN}
    return Contender(
        name, resolve(_join({**load(name), "local": local}, dict(lead.recipe), {}, {}))
    )


def shared_text(lead: Mapping[str, Any]) -> str:
    """One sentence: what all methods of a comparison have in common."""
    telling = ("alpha", "similarity", "classes_per_client", "column")
    inside = ", ".join(
        f"{key} {lead['partition'][key]}"
        for key in telling
        if lead["partition"].get(key) is not None
    )
    return (
        f"{lead['data']['use']}, {lead['partition']['use']}{f' ({inside})' if inside else ''}, "
        f"K = {lead['data']['clients']}, m = {lead['run']['clients_per_round']}, "
        f"{lead['run']['rounds']} rounds, model {lead['model']['use']}"
    )


def training_note(recipes: Mapping[str, Mapping[str, Any]]) -> str:
    """What differs in the local training of these methods (label -> recipe), "" if nothing does.

    >>> recipes = {one.label: one.recipe for one in line_up(["fedavgm", "fedcor"])}
    >>> training_note(recipes)
    "clients' own training differs, so accuracy may too: epochs 1 (fedavgm), 3 (fedcor); ..."
    """
    tables = {label: recipe.get("local", {}) for label, recipe in recipes.items()}
    parts = []
    for key in next(iter(tables.values()), {}):
        values: dict[str, list[str]] = {}
        for label, table in tables.items():
            values.setdefault(str(table.get(key)), []).append(label)
        if len(values) > 1 and key not in METHODS_OWN:
            parts.append(
                f"{key} "
                + ", ".join(f"{value} ({', '.join(labels)})" for value, labels in values.items())
            )
    return (
        f"clients' own training differs, so accuracy may too: {'; '.join(parts)}" if parts else ""
    )


def command_of(arguments: Sequence[str] | None = None) -> str:
    """The command that was given, as a person would type it again."""
    from shlex import join

    return join(["fedskew", *(sys.argv[1:] if arguments is None else arguments)])
