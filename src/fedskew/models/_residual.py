"""Residual blocks for images and attention blocks for tokens.

Imports torch, so only the factories import this, when they are called.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

GROUPS = 8  # of a group norm, where the channels allow it


def group_norm(channels: int) -> nn.GroupNorm:
    """A norm that knows nothing of other examples: no statistics to average between clients."""
    groups = next(g for g in range(min(GROUPS, channels), 0, -1) if channels % g == 0)
    return nn.GroupNorm(groups, channels)


class ResidualBlock(nn.Module):
    """Two 3x3 convolutions, each with its norm, and what came in added to what goes out."""

    def __init__(self, before: int, after: int, stride: int) -> None:
        super().__init__()
        self.first = nn.Conv2d(before, after, 3, stride, padding=1, bias=False)
        self.first_norm = group_norm(after)
        self.second = nn.Conv2d(after, after, 3, padding=1, bias=False)
        self.second_norm = group_norm(after)
        self.shortcut: nn.Module = nn.Identity()
        if stride != 1 or before != after:
            projection = nn.Conv2d(before, after, 1, stride, bias=False)
            self.shortcut = nn.Sequential(projection, group_norm(after))

    def forward(self, images: Tensor) -> Tensor:
        """(N, before, H, W) in, (N, after, H / stride, W / stride) out."""
        inner = functional.relu(self.first_norm(self.first(images)))
        added: Tensor = self.second_norm(self.second(inner)) + self.shortcut(images)
        return functional.relu(added)


class AttentionBlock(nn.Module):
    """Every token looks at every real one, then a small network at each; norms come first."""

    def __init__(self, width: int, heads: int, hidden: int) -> None:
        super().__init__()
        self.heads = heads
        self.attention_norm, self.dense_norm = nn.LayerNorm(width), nn.LayerNorm(width)
        self.looks = nn.Linear(width, 3 * width)
        self.mixed = nn.Linear(width, width)
        self.dense = nn.Sequential(nn.Linear(width, hidden), nn.GELU(), nn.Linear(hidden, width))

    def forward(self, tokens: Tensor, real: Tensor) -> Tensor:
        """(N, L, width) in and out; ``real`` (N, L) is False for padding."""
        tokens = tokens + self._looked(self.attention_norm(tokens), real)
        out: Tensor = tokens + self.dense(self.dense_norm(tokens))
        return out

    def _looked(self, tokens: Tensor, real: Tensor) -> Tensor:
        size, length, width = tokens.shape
        parts = self.looks(tokens).view(size, length, 3, self.heads, width // self.heads)
        query, key, value = parts.permute(2, 0, 3, 1, 4)
        mask = real[:, None, None, :]
        seen = functional.scaled_dot_product_attention(query, key, value, attn_mask=mask)
        out: Tensor = self.mixed(seen.transpose(1, 2).reshape(size, length, width))
        return out


class TokenTransformer(nn.Module):
    """Embedding and place, attention blocks, the mean over real tokens, linear.

    Token id 0 is padding. A text of padding alone is seen as one token of padding.
    """

    def __init__(
        self,
        length: int,
        num_classes: int,
        vocab: int,
        width: int,
        blocks: int,
        heads: int,
        hidden: int,
    ) -> None:
        super().__init__()
        self.words = nn.Embedding(vocab, width, padding_idx=0)
        self.places = nn.Parameter(torch.empty(length, width))
        nn.init.normal_(self.words.weight, std=0.02)
        nn.init.normal_(self.places, std=0.02)
        self.blocks = nn.ModuleList(AttentionBlock(width, heads, hidden) for _ in range(blocks))
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, num_classes)

    def forward(self, ids: Tensor) -> Tensor:
        """(N, L) token ids in, logits (N, C) out."""
        real = ids != 0
        real[:, 0] |= ~real.any(dim=1)
        tokens = self.words(ids) + self.places
        for block in self.blocks:
            tokens = block(tokens, real)
        weight = real.unsqueeze(2).to(tokens.dtype)
        logits: Tensor = self.head(self.norm((tokens * weight).sum(1) / weight.sum(1)))
        return logits
