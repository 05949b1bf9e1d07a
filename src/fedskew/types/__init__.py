"""The nouns of fedskew: frozen values that pass between the stages.

Arrays are read-only after construction.

Shapes in comments: K clients, C classes, D model parameters, S model slots, n clients of one call.
NaN has one meaning everywhere: not known yet.
"""

from fedskew.types.arrays import Bools, Floats, Ids, Ints, Memory, Params, frozen
from fedskew.types.clients import Clustering, Geometry, HeadUpdates, Population, Signal
from fedskew.types.layout import Block, Layout
from fedskew.types.plan import (
    WHOLE_BATCH,
    Chain,
    Ends,
    LocalJob,
    Plan,
    Replies,
    Scores,
    Wave,
)
from fedskew.types.record import Cost, RoundRecord, Transfer, Unscored
from fedskew.types.rules import (
    AggregationRule,
    CalibrationRule,
    FinishRule,
    Layer,
    LossReport,
    ProcedureRule,
    Rule,
    SecondActRule,
    SelectionRule,
    bind,
    declares,
    needs,
    needs_of,
)
from fedskew.types.runtime import (
    Auxiliary,
    Description,
    Moments,
    ReleasedCounts,
    Runtime,
    ScoreOrder,
    TrainOrder,
)
from fedskew.types.state import Aftermath, Feedback, State
from fedskew.types.view import (
    Answer,
    Ask,
    AskLoss,
    AskShares,
    AskSlots,
    AskTrial,
    AskUpdates,
    Pace,
    View,
    loss_limit,
)

__all__ = [
    "WHOLE_BATCH",
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
    "CalibrationRule",
    "Chain",
    "Clustering",
    "Cost",
    "Description",
    "Ends",
    "Feedback",
    "FinishRule",
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
    "Moments",
    "Pace",
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
    "SecondActRule",
    "SelectionRule",
    "Signal",
    "State",
    "TrainOrder",
    "Transfer",
    "Unscored",
    "View",
    "Wave",
    "bind",
    "declares",
    "frozen",
    "loss_limit",
    "needs",
    "needs_of",
]
