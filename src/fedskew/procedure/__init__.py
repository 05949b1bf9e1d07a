"""In what order the chosen clients train, and on which model: ``procedure(ids, view, rng, *,
options) -> Plan``.

:mod:`groups` is what several procedures share: clients cut into groups, and groups made into
chains.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from fedskew.procedure.adaptive import adaptive
from fedskew.procedure.cfl import cfl
from fedskew.procedure.chains import chains
from fedskew.procedure.fedsoft import fedsoft
from fedskew.procedure.ifca import ifca
from fedskew.procedure.local_only import local_only
from fedskew.procedure.parallel import parallel
from fedskew.procedure.per_cluster import per_cluster
from fedskew.procedure.sequential import sequential
from fedskew.types import Stateful

PROCEDURES: dict[str, Callable[..., Any] | Stateful] = {
    "parallel": parallel,
    "sequential": sequential,
    "chains": chains,
    "adaptive": adaptive,
    "per_cluster": per_cluster,
    "cfl": cfl,
    "ifca": ifca,
    "fedsoft": fedsoft,
    "local_only": local_only,
}
# clients train on each other's models: no SCAFFOLD, no FedDyn
HANDING_ON = frozenset({"sequential", "chains", "adaptive"})
# one per group or client, no global one
SEVERAL_MODELS = frozenset({"per_cluster", "cfl", "ifca", "fedsoft", "local_only"})
