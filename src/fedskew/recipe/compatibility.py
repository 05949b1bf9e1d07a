"""Tables that only make sense together, checked before anything runs."""

from __future__ import annotations

from fedskew import procedure
from fedskew.errors import RecipeError
from fedskew.recipe.building import job_of, options_in, stage_of
from fedskew.recipe.catalogue import OPTIONAL_STAGES, REPORTED_LOSS, Table, find
from fedskew.recipe.dry_run import rehearse
from fedskew.types import Stateful, needs_of


def check_neighbours(resolved: Table) -> None:
    """Tables that only make sense together."""
    order = [name for name in OPTIONAL_STAGES if name in resolved]
    if order != list(OPTIONAL_STAGES[: len(order)]):
        missing = next(name for name in OPTIONAL_STAGES if name not in resolved)
        raise RecipeError(
            "recipe",
            f"[{order[-1]}] needs [{missing}] before it",
            f"Add [{missing}] or remove [{order[-1]}]",
        )
    for stage in ("selection", "procedure"):
        use = resolved[stage]["use"]
        for missing in sorted(
            (needs_of(find(stage, use), options_in(resolved, stage)) & set(OPTIONAL_STAGES))
            - set(resolved)
        ):
            remedy = f"Add [{missing}] to the recipe, or choose another {stage}"
            raise RecipeError(f"{stage} {use}", f"needs a [{missing}]", remedy)
    _check_order(resolved)
    _check_means(resolved)
    chosen = stage_of(resolved, "selection")
    if chosen is not None:
        rehearse(chosen, resolved["run"]["clients_per_round"])
    if resolved["local"]["optimizer"] == "adam" and resolved["local"]["momentum"]:
        raise RecipeError(
            "local.momentum", "has no meaning for adam", "Set it to 0 or use optimizer = 'sgd'"
        )
    job_of(resolved)  # a server rule refuses local steps that its mathematics does not allow


def _check_order(resolved: Table) -> None:
    """What the order of training makes impossible."""
    use, server = resolved["procedure"]["use"], resolved["aggregation"]["use"]
    rule = find("aggregation", server)
    if use in procedure.HANDING_ON and isinstance(rule, Stateful) and rule.corrections is not None:
        what = f"has no meaning where clients train on each other's models (procedure {use})"
        raise RecipeError(f"aggregation {server}", what, "Use procedure.use = 'parallel'")
    most = min(resolved["run"]["clients_per_round"], resolved["data"]["clients"])
    if use == "chains" and resolved["procedure"]["chains"] > most:
        what = f"{resolved['procedure']['chains']} chains for {most} clients a round"
        raise RecipeError(
            "procedure.chains", what, f"Give at most {most}, or let more clients train"
        )
    told = REPORTED_LOSS.get(
        resolved["selection"].get("loss_source", ""), resolved["local"]["report_loss"]
    )
    if (
        "loss" in needs_of(find("procedure", use), options_in(resolved, "procedure"))
        and told != "start"
    ):
        what = "needs the loss of the model a client receives"
        raise RecipeError(f"procedure {use}", what, "Set local.report_loss = 'start'")


def _check_means(resolved: Table) -> None:
    """A rule that looks at latencies or SNRs needs devices that have them."""
    rule, where = (
        find("selection", resolved["selection"]["use"]),
        f"selection {resolved['selection']['use']}",
    )
    wanted = needs_of(rule, resolved["selection"])
    if "latency" in wanted and resolved["devices"]["classes"] == "none":
        raise RecipeError(where, "needs to know latencies", "Set devices.classes = 'haccs'")
    if "snr" in wanted and not resolved["devices"]["snr_db"]:
        raise RecipeError(
            where, "needs to know signal-to-noise ratios", "Set devices.snr_db = [0, 30]"
        )
    if isinstance(rule, Stateful) and rule.auxiliary and not resolved["data"]["auxiliary"]:
        raise RecipeError(
            where,
            "needs examples that the server itself holds",
            "Set data.auxiliary, for example to 100",
        )
