"""Layers torch does not have.

Imports torch, so only the factories import this, when they are called.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional


class ChannelsLast(nn.Module):
    """Hand the batch on with its channels innermost in memory.

    The same numbers, faster convolutions and pools on a CPU.
    """

    def forward(self, images: Tensor) -> Tensor:
        """(N, C, H, W) in, the same out."""
        return images.to(memory_format=torch.channels_last)


class LoneBatchNorm(nn.Module):
    """Batch normalisation that lets a batch of one example pass, on the running statistics.

    torch refuses such a batch while training, yet every client whose size leaves a remainder of one
    has it.
    """

    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm = nn.BatchNorm1d(width)

    def forward(self, rows: Tensor) -> Tensor:
        """(N, width) in and out."""
        if len(rows) > 1 or not self.training:
            out: Tensor = self.norm(rows)
            return out
        norm = self.norm
        return functional.batch_norm(
            rows, norm.running_mean, norm.running_var, norm.weight, norm.bias, eps=norm.eps
        )


class TokenLSTM(nn.Module):
    """Embedding, dropout, one LSTM layer, its state at the last real token, dropout, linear.

    Token id 0 is padding.
    """

    def __init__(
        self,
        embedding: nn.Embedding,
        units: int,
        num_classes: int,
        dropout_in: float,
        dropout_out: float,
    ) -> None:
        super().__init__()
        self.embedding = embedding
        self.dropout_in = nn.Dropout(dropout_in)
        self.lstm = nn.LSTM(embedding.embedding_dim, units, batch_first=True)
        self.dropout_out = nn.Dropout(dropout_out)
        self.head = nn.Linear(units, num_classes)

    def forward(self, tokens: Tensor) -> Tensor:
        """(N, L) token ids in, (N, C) logits out."""
        states, _ = self.lstm(self.dropout_in(self.embedding(tokens)))
        places = torch.arange(tokens.shape[1], device=tokens.device)
        last = ((tokens != 0) * places).amax(1)  # right or left padding: the last id that is not 0
        logits: Tensor = self.head(
            self.dropout_out(states[torch.arange(len(tokens), device=tokens.device), last])
        )
        return logits


class SimplexHead(nn.Module):
    """A trained projection, features of length 1, and classes at the corners of a regular simplex
    that nobody trains; a temperature is trained.
    """

    def __init__(self, projection: nn.Linear) -> None:
        super().__init__()
        self.projection = projection
        self.temperature = nn.Parameter(torch.ones(()))
        corners = simplex_corners(projection.out_features)
        self.corners = nn.Parameter(corners, requires_grad=False)

    def forward(self, features: Tensor) -> Tensor:
        """(N, width) in, logits (N, C) out."""
        placed = functional.normalize(self.projection(features), dim=1)
        logits: Tensor = self.temperature * (placed @ self.corners.t())
        return logits


def simplex_corners(num_classes: int) -> Tensor:
    """(C, C) a row per class, each of length 1; any two have the cosine -1 / (C - 1)."""
    centred = torch.eye(num_classes) - 1 / num_classes
    return centred * float((num_classes / (num_classes - 1)) ** 0.5)
