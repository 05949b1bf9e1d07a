"""Where mutants are made, and which tests play them: the likely and the quick first."""

from __future__ import annotations

from pathlib import Path

ROOT = Path(__file__).parents[1]
WIDE = ["tests/unit", "tests/golden", "tests/contract", "tests/parity", "tests/recipes"]
NAMED = ("tests/unit", "tests/golden", "tests/contract", "tests/parity")
REFERENCE = "tests/parity/test_reference_loop.py"
FEDERATION = "tests/unit/test_federation.py"
# Room -> its tests after those named after the module: about 30 s of processor time at most, which
# only survivors need whole.
ROOMS: dict[str, list[str]] = {
    "selection": [
        "tests/golden/test_selection_a_oracles.py",
        "tests/golden/test_selection_b_oracles.py",
        "tests/unit/selection/test_selection_a_recipes.py",
        FEDERATION,
        "tests/contract/test_selection_contract.py",
    ],
    "procedure": [
        "tests/unit/test_procedure_chains.py",
        "tests/unit/test_procedure_adaptive.py",
        "tests/unit/test_sequential.py",
        "tests/unit/personal/test_methods.py",
        "tests/contract/test_procedure_contract.py",
        REFERENCE,
    ],
    "objective": [
        "tests/parity/test_objectives.py",
        "tests/unit/test_objective_recipes.py",
        "tests/unit/test_recipe.py",
    ],
    "aggregation": [
        "tests/unit/test_aggregation.py",
        "tests/unit/test_robust_rules.py",
        "tests/parity/test_server_optimisers.py",
        REFERENCE,
    ],
    "finish": ["tests/unit/test_finish.py", "tests/unit/test_recipe.py"],
    "accounting": [
        "tests/golden/test_accounting_oracles.py",
        "tests/unit/test_clock.py",
        "tests/unit/test_costs.py",
        "tests/unit/test_participation.py",
        "tests/unit/test_targets.py",
        "tests/unit/personal/test_fairness.py",
        FEDERATION,
        REFERENCE,
    ],
    "loop": [
        FEDERATION,
        "tests/unit/test_asking.py",
        "tests/unit/test_combinations.py",
        "tests/unit/test_costs.py",
        "tests/unit/test_probe.py",
        "tests/unit/test_late_clients.py",
        "tests/unit/test_batch_norm.py",
        "tests/unit/personal/test_slots.py",
        "tests/unit/personal/test_methods.py",
        REFERENCE,
    ],
    "labels": [
        "tests/golden/test_selection_b_oracles.py",
        "tests/unit/selection/test_selection_balance.py",
        "tests/unit/selection/test_selection_bacsa.py",
        "tests/unit/test_procedure_chains.py",
        "tests/unit/test_procedure_adaptive.py",
        "tests/unit/test_skew.py",
    ],
    "signal": [
        "tests/unit/test_signal_counts.py",
        "tests/unit/test_signal_estimated.py",
        "tests/unit/test_signal_quality.py",
        "tests/unit/test_probe.py",
    ],
    "clustering": [
        "tests/unit/test_clustering_labels.py",
        "tests/unit/test_clustering_silhouette.py",
        "tests/unit/test_clustering_count.py",
        "tests/unit/test_clustering_density.py",
        "tests/unit/test_clustering_algorithms.py",
        "tests/unit/test_clustering_scale.py",
        "tests/contract/test_clustering_contract.py",
    ],
    "distance": [
        "tests/golden/test_distance_oracles.py",
        "tests/unit/test_distance.py",
        "tests/unit/test_skew.py",
        "tests/contract/test_distance_contract.py",
    ],
    "runtime/local/step.py": [
        "tests/parity/test_fast_paths.py",
        "tests/parity/test_objectives.py",
        "tests/unit/test_batch_norm.py",
        "tests/parity/test_unusual_models.py",
        "tests/parity/test_whole_client.py",
        "tests/parity/test_local_engine.py",
    ],
}
METHODS = "tests/unit/personal/test_methods.py"
# modules whose tests have another name
FIRST: dict[str, list[str]] = {
    "selection/groups.py": ["tests/unit/selection/test_selection_fedlecc.py"],
    "selection/loss_process.py": ["tests/unit/selection/test_selection_fedcor.py"],
    "procedure/cfl.py": [METHODS],
    "procedure/fedsoft.py": [METHODS],
    "procedure/ifca.py": [METHODS],
    "procedure/groups.py": ["tests/unit/test_procedure_chains.py"],
    "loop/training.py": ["tests/unit/test_sequential.py"],
    "loop/finishing.py": ["tests/unit/test_finish.py"],
    "loop/costs.py": ["tests/unit/test_finish.py"],
    "loop/serving.py": ["tests/unit/test_serving.py"],
    "loop/label_shares.py": ["tests/unit/test_objective_recipes.py"],
    "aggregation/disco.py": ["tests/unit/test_feddisco.py"],
    "loop/slots.py": ["tests/unit/personal/test_slots.py"],
    "loop/timing.py": ["tests/unit/test_costs.py"],
    "clustering/space.py": ["tests/unit/test_clustering_algorithms.py"],
    "clustering/lloyd.py": ["tests/unit/test_clustering_algorithms.py"],
    "clustering/kmeans.py": ["tests/unit/test_clustering_algorithms.py"],
    "clustering/kmedoids.py": ["tests/unit/test_clustering_algorithms.py"],
    "clustering/optics.py": ["tests/unit/test_clustering_density.py"],
    "labels/omega.py": ["tests/unit/test_procedure_adaptive.py"],
    **{
        f"loop/trust/{name}.py": ["tests/unit/test_trust.py"]
        for name in ("book", "cap", "losses", "mixes", "options", "rounds")
    },
}


def files() -> list[Path]:
    """The files in which mutants are made."""
    places = [ROOT / "src" / "fedskew" / room for room in ROOMS]
    found = [[place] if place.is_file() else sorted(place.rglob("*.py")) for place in places]
    return [file for some in found for file in some]


def played_by(file: str, *, wide: bool = False) -> list[str]:
    """The examples in the file itself, the tests named after it, those of its room.

    >>> played_by("src/fedskew/selection/haccs.py")[:2]
    ['src/fedskew/selection/haccs.py', 'tests/unit/selection/test_selection_haccs.py']
    """
    inside = file.removeprefix("src/fedskew/")
    room = next(room for room in ROOMS if inside.startswith(room))
    rest = WIDE if wide else [*FIRST.get(inside, []), *ROOMS[room]]
    found = [file, *_named_after(Path(file).stem), *rest]
    return [test for test in dict.fromkeys(found) if (ROOT / test).exists()]


def _named_after(stem: str) -> list[str]:
    """Test files that have the name of a module as a word in theirs."""
    every = [file for folder in NAMED for file in sorted((ROOT / folder).rglob("test_*.py"))]
    return [str(file.relative_to(ROOT)) for file in every if f"_{stem}_" in f"_{file.stem}_"]
