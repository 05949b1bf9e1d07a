"""Who trains in this round: ``select(view, rng, *, options) -> client ids``. A recipe may also name
"module:function".

:mod:`groups` is what several rules share: clients by cluster. Label-balanced sets are found by
:mod:`fedskew.labels.balance`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from fedskew.selection.bacsa import bacsa
from fedskew.selection.cba import cba
from fedskew.selection.divfl import divfl
from fedskew.selection.fed_cbs import fed_cbs
from fedskew.selection.fedcls import fedcls
from fedskew.selection.fedcor import fedcor
from fedskew.selection.fedlecc import fedlecc
from fedskew.selection.greedy_balance import greedy_balance
from fedskew.selection.haccs import haccs
from fedskew.selection.hics import hics
from fedskew.selection.one_per_cluster import one_per_cluster
from fedskew.selection.oort import oort
from fedskew.selection.power_of_choice import power_of_choice
from fedskew.selection.psi_pfl import psi_pfl
from fedskew.selection.round_robin import round_robin
from fedskew.selection.stratified import stratified
from fedskew.selection.uniform import uniform
from fedskew.types import Stateful

SELECTIONS: dict[str, Callable[..., Any] | Stateful] = {
    "uniform": uniform,
    "round_robin": round_robin,
    "power_of_choice": power_of_choice,
    "haccs": haccs,
    "fedcls": fedcls,
    "fedcor": fedcor,
    "fedlecc": fedlecc,
    "one_per_cluster": one_per_cluster,
    "stratified": stratified,
    "psi_pfl": psi_pfl,
    "bacsa": bacsa,
    "greedy_balance": greedy_balance,
    "cba": cba,
    "fed_cbs": fed_cbs,
    "hics": hics,
    "oort": oort,
    "divfl": divfl,
}
