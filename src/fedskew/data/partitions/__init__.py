"""Ways to divide a dataset among clients.

A partition rule is ``rule(pool, clients, rng, *, options) -> Partition``.
"""

from __future__ import annotations

from collections.abc import Callable

from .class_limited import class_limited
from .dirichlet import dirichlet
from .dirichlet_client import dirichlet_client
from .dirichlet_plain import dirichlet_plain
from .equal_classes import equal_classes
from .iid import iid, iid_stratified
from .natural import natural
from .partition import Partition, Pool, Report, from_client_ids
from .quantity import quantity
from .similarity import similarity

__all__ = ["PARTITIONS", "Partition", "Pool", "Report", "from_client_ids"]

PARTITIONS: dict[str, Callable[..., Partition]] = {
    "iid": iid,
    "iid_stratified": iid_stratified,
    "dirichlet": dirichlet,
    "dirichlet_client": dirichlet_client,
    "dirichlet_plain": dirichlet_plain,
    "similarity": similarity,
    "class_limited": class_limited,
    "equal_classes": equal_classes,
    "quantity": quantity,
    "natural": natural,
}
