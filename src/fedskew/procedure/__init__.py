"""In what order the chosen clients train, and on which model.

A plain function ``procedure(ids, view, rng, *, options) -> Plan``, or a frozen dataclass that
derives from :class:`fedskew.types.ProcedureRule`. :mod:`groups` is what several procedures share:
clients cut into groups, and groups made into chains.
"""

from __future__ import annotations

from typing import Any

from fedskew.procedure.adaptive import Adaptive
from fedskew.procedure.baton import baton
from fedskew.procedure.cfl import CFL
from fedskew.procedure.chains import chains
from fedskew.procedure.fedsoft import FedSoft
from fedskew.procedure.ifca import IFCA
from fedskew.procedure.local_only import LocalOnly
from fedskew.procedure.parallel import parallel
from fedskew.procedure.per_cluster import per_cluster
from fedskew.procedure.sequential import sequential

PROCEDURES: dict[str, Any] = {
    "parallel": parallel,
    "sequential": sequential,
    "chains": chains,
    "baton": baton,
    "adaptive": Adaptive,
    "per_cluster": per_cluster,
    "cfl": CFL,
    "ifca": IFCA,
    "fedsoft": FedSoft,
    "local_only": LocalOnly,
}
