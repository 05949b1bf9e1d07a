"""The received model teaches what it says of all classes but the true one (FedNTD).

Lee, Jeong, Shin, Bae, Yun: "Preservation of the Global Knowledge by Not-True Distillation in
Federated Learning", NeurIPS 2022:

    CE(z, y) + beta KL(softmax over c != y of received / T || softmax over c != y of z / T)

A client learns its own classes from its labels and keeps what the model knew of the others. beta =
1 and T = 1 stand in the authors' configuration. As in their code the term is not multiplied by T^2.

Differs from the paper: along a chain the received model is that of the client before, not the
server's.
"""

from __future__ import annotations

from fedskew.errors import RecipeError
from fedskew.objective.loss import Distillation, LocalLoss
from fedskew.types import Ints


def fedntd(counts: Ints, *, beta: float = 1.0, temperature: float = 1.0) -> LocalLoss:
    """Not-true distillation; the counts play no part.

    >>> import numpy as np
    >>> fedntd(np.array([3, 1])).distillation
    Distillation(weight=1.0, temperature=1.0, classes=None, not_true=True)
    """
    if beta < 0 or temperature <= 0:
        what = f"beta = {beta}, temperature = {temperature}"
        raise RecipeError("objective.fedntd", what, "Give beta >= 0 and temperature > 0")
    if not beta:
        return LocalLoss()
    return LocalLoss(distillation=Distillation(beta, temperature, not_true=True))
