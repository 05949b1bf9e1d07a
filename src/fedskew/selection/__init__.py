"""Who trains in this round.

A plain function ``select(view, rng, *, options) -> client ids``, or a frozen dataclass that derives
from :class:`fedskew.types.SelectionRule`. A recipe may also name "module:function" or
"module:Class".

:mod:`groups` is what several rules share: clients by cluster. Label-balanced sets are found by
:mod:`fedskew.labels.balance`.
"""

from __future__ import annotations

from typing import Any

from fedskew.selection.bacsa import bacsa
from fedskew.selection.cba import CBA
from fedskew.selection.divfl import DivFL
from fedskew.selection.fed_cbs import fed_cbs
from fedskew.selection.fedcls import fedcls
from fedskew.selection.fedcor import FedCor
from fedskew.selection.fedlecc import fedlecc
from fedskew.selection.greedy_balance import greedy_balance
from fedskew.selection.haccs import haccs
from fedskew.selection.hics import HiCS
from fedskew.selection.one_per_cluster import OnePerCluster
from fedskew.selection.oort import Oort
from fedskew.selection.power_of_choice import power_of_choice
from fedskew.selection.psi_pfl import psi_pfl
from fedskew.selection.round_robin import RoundRobin
from fedskew.selection.stratified import stratified
from fedskew.selection.uniform import uniform

SELECTIONS: dict[str, Any] = {
    "uniform": uniform,
    "round_robin": RoundRobin,
    "power_of_choice": power_of_choice,
    "haccs": haccs,
    "fedcls": fedcls,
    "fedcor": FedCor,
    "fedlecc": fedlecc,
    "one_per_cluster": OnePerCluster,
    "stratified": stratified,
    "psi_pfl": psi_pfl,
    "bacsa": bacsa,
    "greedy_balance": greedy_balance,
    "cba": CBA,
    "fed_cbs": fed_cbs,
    "hics": HiCS,
    "oort": Oort,
    "divfl": DivFL,
}
