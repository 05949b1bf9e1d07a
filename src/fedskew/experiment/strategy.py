"""A recipe as a strategy in somebody's own Flower app: who trains, in what order and how models are
merged is ours; data, model and training stay the app's.

It is called like Flower's message-based strategies and gives back Flower's own Result. Unlike them
it plays :mod:`fedskew.loop.federation`, the loop of every other run.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any, NoReturn

from flwr.app import ArrayRecord, ConfigRecord, Message, MetricRecord, RecordDict
from flwr.serverapp import Grid
from flwr.serverapp.strategy import Result
from flwr.serverapp.strategy import Strategy as FlowerStrategy
from flwr.serverapp.strategy.strategy_utils import aggregate_metricrecords
from threadpoolctl import threadpool_info, threadpool_limits

from fedskew.errors import RecipeError, did_you_mean
from fedskew.experiment.app_recipe import app_recipe, check_secure, in_app
from fedskew.experiment.backend import Backend
from fedskew.experiment.driver import drive
from fedskew.experiment.run import Run
from fedskew.recipe import resolve, rule_of
from fedskew.runtime.flower.app_arrays import AppArrays
from fedskew.runtime.flower.app_letters import Names, Writer
from fedskew.runtime.flower.app_runtime import AppRuntime
from fedskew.runtime.flower.app_seats import Seats, wait_for_nodes
from fedskew.runtime.flower.app_terms import Evaluate, Terms
from fedskew.runtime.flower.tally import Tally
from fedskew.types import RoundRecord

logger = logging.getLogger("flwr")  # where Flower's own strategies say what they do
FEWEST_SPARE = 8  # places for clients that join later
ASKED_FOR = ("histogram", "private")  # signals that clients are asked for
RENAMED = ("loss", "seconds", "steps", "test_loss", "accuracy")

MergeMetrics = Callable[[list[RecordDict], str], MetricRecord]


class Strategy(FlowerStrategy):  # type: ignore[misc]
    """``Strategy("fedlecc")`` where an app has ``FedAvg()``.

    Parameters
    ----------
    recipe, settings
        Name of a shipped recipe, a path to a TOML file, or a dict; and changes to it, for example
        ``{"run.clients_per_round": 4}``. Of a recipe its stages count, never its data, model and
        local training.
    fraction_train, min_train_nodes
        Which share of the clients trains in a round, and how many at least; None: as many as
        ``run.clients_per_round`` says.
    fraction_evaluate, min_evaluate_nodes, min_available_nodes, weighted_by_key, arrayrecord_key,
    configrecord_key, train_metrics_aggr_fn, evaluate_metrics_aggr_fn
        As in Flower's FedAvg.
    clients
        How many clients there are; 0: as many as are connected when the run starts. More can only
        join later if there are places left.
    num_classes, output_layer
        Number of labels, and the name of the model's output layer; found in the arrays if left out.
    metrics
        What your app calls what rules look at: ``{"loss": "train_loss", "seconds": ..., "accuracy":
        ...}``.
    seed, out
        Root of every random choice of ours; a run folder that keeps the account (none if left
        out).
    secure_aggregation
        Say so if single replies mean nothing because they are masked: recipes that look at them are
        then refused. Flower's own SecAgg+ exists for its older API only, not for message apps.
    """

    def __init__(
        self,
        recipe: str | Path | Mapping[str, Any],
        *,
        settings: Mapping[str, Any] | None = None,
        fraction_train: float | None = None,
        fraction_evaluate: float = 1.0,
        min_train_nodes: int = 2,
        min_evaluate_nodes: int = 2,
        min_available_nodes: int = 2,
        weighted_by_key: str = "num-examples",
        arrayrecord_key: str = "arrays",
        configrecord_key: str = "config",
        train_metrics_aggr_fn: MergeMetrics | None = None,
        evaluate_metrics_aggr_fn: MergeMetrics | None = None,
        clients: int = 0,
        num_classes: int = 0,
        output_layer: str = "",
        metrics: Mapping[str, str] | None = None,
        seed: int = 0,
        out: str | Path | None = None,
        secure_aggregation: bool = False,
    ) -> None:
        self._raw = app_recipe(recipe, settings or {})
        self.recipe: Mapping[str, Any] = resolve(self._raw)
        if secure_aggregation:
            check_secure(self.recipe)
        self._fraction, self._min_train = fraction_train, min_train_nodes
        self._clients, self._num_classes, self._output = clients, num_classes, output_layer
        self._seed, self._out = seed, None if out is None else Path(out)
        self._names = _renamed(
            Names(arrayrecord_key, configrecord_key, weighted_by_key), metrics or {}
        )
        self._terms = Terms(
            merge_train=train_metrics_aggr_fn or aggregate_metricrecords,
            merge_evaluate=evaluate_metrics_aggr_fn or aggregate_metricrecords,
            fraction_evaluate=fraction_evaluate,
            min_evaluate_nodes=min_evaluate_nodes,
            min_available_nodes=max(1, min_available_nodes),
        )
        self.run: Run | None = None  # the account of the last run
        self.tally = Tally()  # and what went over the wire

    # ------------------------------------------------------------ Flower's way in

    def start(
        self,
        grid: Grid,
        initial_arrays: ArrayRecord,
        num_rounds: int = 3,
        timeout: float = 3600,
        train_config: ConfigRecord | None = None,
        evaluate_config: ConfigRecord | None = None,
        evaluate_fn: Callable[[int, ArrayRecord], MetricRecord | None] | None = None,
    ) -> Result:
        """Play so many rounds; ``timeout`` is for the replies to one batch of messages."""
        self.summary()
        self.tally = Tally()
        form = AppArrays.of(initial_arrays, self._output)
        seats = self._seats(grid, form, timeout)
        recipe = self._recipe_for(seats, num_rounds)
        terms = replace(
            self._terms,
            train_config=train_config or ConfigRecord(),
            evaluate_config=evaluate_config or ConfigRecord(),
            evaluate_fn=None if evaluate_fn is None else _with_all_cores(evaluate_fn),
        )
        writer = Writer(form, self._names, needs_loss=_needs_loss(recipe))
        model = form.vector(initial_arrays)
        runtime = AppRuntime(grid, seats, writer, model, terms, self._seed)
        backend = Backend(
            runtime,
            clients_have_tests=lambda: False,  # they were tested in every round
            labels=lambda: None,
            facts={"app": "training by an app of its own"},
            save_every_round=True,
        )
        self.run = drive(
            recipe, self._seed, lambda reached: nullcontext(backend), out=self._out, on_round=_tell
        )
        diary = runtime.diary
        return Result(form.record(self.run.models[0]), diary.train, diary.evaluate, diary.central)

    def summary(self) -> None:
        """Log what is played."""
        stages = ("signal", "clustering", "selection", "procedure", "aggregation")
        used = [f"{stage} {self.recipe[stage]['use']}" for stage in stages if stage in self.recipe]
        _say(f"recipe {self.recipe['name']}: {', '.join(used)}")

    # ------------------------------------------------------------ inside

    def _seats(self, grid: Grid, form: AppArrays, timeout: float) -> Seats:
        """Places for the clients that are there now, and for as many that may come later."""
        signal = self.recipe.get("signal")
        asked = signal if signal is not None and signal["use"] in ASKED_FOR else None
        there = wait_for_nodes(grid, self._terms.min_available_nodes, _say)
        places = self._clients or there + max(there, FEWEST_SPARE)
        return Seats(grid, places, self._classes(form), asked, timeout, _say, self.tally)

    def _classes(self, form: AppArrays) -> int:
        """How many labels there are, as far as any rule asks."""
        classes, rows = self._num_classes or form.num_classes, form.num_classes
        if _reads_output(self.recipe) and (not rows or rows != classes):
            what = (
                f"the last matrix of initial_arrays has {rows} rows for {classes} labels"
                if rows
                else "initial_arrays has no matrix that could be an output layer"
            )
            raise RecipeError("output_layer", what, "Name the output layer: output_layer=...")
        if not classes and "signal" in self.recipe:
            what = "nothing tells how many labels there are"
            raise RecipeError("num_classes", what, "Give num_classes=...")
        return classes or 2

    def _recipe_for(self, seats: Seats, rounds: int) -> Mapping[str, Any]:
        share, there = self._fraction, len(list(seats.grid.get_node_ids()))
        wanted = None if share is None else max(int(there * share), self._min_train, 1)
        return in_app(self._raw, clients=seats.clients, rounds=rounds, per_round=wanted)

    # ------------------------------------------------------------ what a wrapper would call

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """Not how this strategy is played."""
        _only_start()

    def aggregate_train(
        self, server_round: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        """Not how this strategy is played."""
        _only_start()

    def configure_evaluate(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """Not how this strategy is played."""
        _only_start()

    def aggregate_evaluate(
        self, server_round: int, replies: Iterable[Message]
    ) -> MetricRecord | None:
        """Not how this strategy is played."""
        _only_start()


def _only_start() -> NoReturn:
    what = "cannot be wrapped in another strategy: a round may be several waves of messages"
    remedy = "Call its start(); for differential privacy use Flower's mods in the ClientApp"
    raise RecipeError("fedskew.flower.Strategy", what, remedy)


def _with_all_cores(evaluate_fn: Evaluate) -> Evaluate:
    """The loop's own arithmetic has one thread; the app's has what it had before."""
    usual = threadpool_info()

    def evaluate(server_round: int, arrays: ArrayRecord) -> MetricRecord | None:
        with threadpool_limits(usual):
            return evaluate_fn(server_round, arrays)

    return evaluate


def _renamed(names: Names, metrics: Mapping[str, str]) -> Names:
    for key in metrics:
        if key not in RENAMED:
            raise RecipeError("metrics", f"unknown entry '{key}'", did_you_mean(key, RENAMED))
    said: dict[str, Any] = {key: (value,) for key, value in metrics.items()}
    return replace(names, **said)


def _needs_loss(recipe: Mapping[str, Any]) -> bool:
    stages = ("selection", "procedure")
    return any("loss" in rule_of(recipe, stage).rule.needs() for stage in stages)


def _reads_output(recipe: Mapping[str, Any]) -> bool:
    """Whether anything looks at updates of the output layer."""
    selection, server = rule_of(recipe, "selection").rule, rule_of(recipe, "aggregation").rule
    estimated = recipe.get("signal", {}).get("use") == "estimated"
    return bool(estimated or selection.learns_from == "last" or server.reads_head)


def _say(text: str) -> None:
    logger.info("fedskew: %s", text)


def _tell(record: RoundRecord) -> None:
    if record.round:
        chains = ", ".join("-".join(map(str, chain.clients)) for chain in record.chains)
        failed = f", {len(record.failures)} failed" if record.failures else ""
        _say(f"round {record.round}: clients {chains}{failed}")
