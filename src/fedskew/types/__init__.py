"""The nouns of fedskew: frozen values that pass between the stages.

Arrays are read-only after construction.

Shapes in comments: K clients, C classes, D model parameters, S model slots, n clients of one call.
NaN has one meaning everywhere: not known yet.
"""

from fedskew.types.arrays import Bools, Floats, Ids, Ints, Memory, Params, frozen
from fedskew.types.clients import Clustering, Geometry, HeadUpdates, Population, Signal
from fedskew.types.layout import Block, Layout
from fedskew.types.plan import Chain, Ends, LocalJob, Plan, Replies, Scores, Wave
from fedskew.types.record import Cost, RoundRecord, Transfer
from fedskew.types.rules import (
    AggregationRule,
    Layer,
    LossReport,
    ProcedureRule,
    Rule,
    SelectionRule,
    bind,
    declares,
    needs,
)
from fedskew.types.runtime import (
    Auxiliary,
    Description,
    ReleasedCounts,
    Runtime,
    ScoreOrder,
    TrainOrder,
)
from fedskew.types.state import Aftermath, Feedback, State
from fedskew.types.view import Answer, Ask, AskLoss, AskShares, AskSlots, AskTrial, AskUpdates, View

__all__ = [
    "Aftermath",
    "AggregationRule",
    "Answer",
    "Ask",
    "AskLoss",
    "AskShares",
    "AskSlots",
    "AskTrial",
    "AskUpdates",
    "Auxiliary",
    "Block",
    "Bools",
    "Chain",
    "Clustering",
    "Cost",
    "Description",
    "Ends",
    "Feedback",
    "Floats",
    "Geometry",
    "HeadUpdates",
    "Ids",
    "Ints",
    "Layer",
    "Layout",
    "LocalJob",
    "LossReport",
    "Memory",
    "Params",
    "Plan",
    "Population",
    "ProcedureRule",
    "ReleasedCounts",
    "Replies",
    "RoundRecord",
    "Rule",
    "Runtime",
    "ScoreOrder",
    "Scores",
    "SelectionRule",
    "Signal",
    "State",
    "TrainOrder",
    "Transfer",
    "View",
    "Wave",
    "bind",
    "declares",
    "frozen",
    "needs",
]
