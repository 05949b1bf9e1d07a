"""A torch module whose parameters and buffers live in one flat float32 vector: the form in which
models cross every border.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from fedskew.errors import RunError
from fedskew.streams import seed_for
from fedskew.types import Layout, Params


@contextmanager
def seeded(seed: int) -> Iterator[None]:
    """Draw from torch's generator as if freshly seeded, and put it back afterwards (dropout and
    initialisers know no other).
    """
    before = torch.get_rng_state()
    torch.default_generator.manual_seed(seed)
    try:
        yield
    finally:
        torch.set_rng_state(before)


def layout_of(module: nn.Module) -> Layout:
    """Trainable parameters, float buffers and integer counters.

    Frozen parameters, integer tables such as position ids and buffers a module marks as not
    persistent stay where they are: they are built alike everywhere and never travel. Whatever
    ``forward`` does to them lasts until the next client, who finds them as they were built.
    Anything a model keeps elsewhere, in plain attributes, is beyond our reach.
    """
    tensors = [
        (name, tuple(p.shape), "weight") for name, p in module.named_parameters() if p.requires_grad
    ]
    persistent = module.state_dict(keep_vars=True)
    for name, buffer in module.named_buffers():
        if name in persistent and (buffer.is_floating_point() or buffer.ndim == 0):
            tensors.append(
                (name, tuple(buffer.shape), "buffer" if buffer.is_floating_point() else "counter")
            )
    return Layout.of(tensors)


class FlatModule:
    """A module and the vector its weights and float buffers are views of. Same seed, same bits."""

    def __init__(self, factory: Callable[[], nn.Module], seed: int) -> None:
        with seeded(seed_for(seed, "init")):
            self.module = factory()
        self.layout = layout_of(self.module)
        self.vector = torch.empty(self.layout.size)
        self._counters: list[tuple[Tensor, int]] = []
        self._views: list[tuple[str, Tensor, Tensor]] = []  # name, tensor, its part of the vector
        self.weights: list[Tensor] = []
        named = {**dict(self.module.named_parameters()), **dict(self.module.named_buffers())}
        for block in self.layout.blocks:
            tensor = named.pop(block.name)
            view = self.vector[block.offset : block.stop].view(block.shape)
            view.copy_(tensor.detach())
            if block.kind == "counter":
                self._counters.append((tensor, block.offset))
            else:
                tensor.data = view
                self._views.append((block.name, tensor, view))
            if block.kind == "weight":
                self.weights.append(tensor)
        self.trained = self.vector[: self.layout.num_weights]  # (D without buffers), shares memory
        outside = {name: (tensor, tensor.detach().clone()) for name, tensor in named.items()}
        self._outside = list(outside.values())
        parameters = dict(self.module.named_parameters())
        self._frozen = {name: built for name, (_, built) in outside.items() if name in parameters}
        self._buffers = [
            (part._buffers, key, tensor)
            for part in self.module.modules()
            for key, tensor in part._buffers.items()
            if tensor is not None
        ]
        self.has_batch_norm = any(
            isinstance(m, nn.modules.batchnorm._BatchNorm) for m in self.module.modules()
        )

    def frozen(self) -> dict[str, Params]:
        """Parameters that are never trained, as they were built."""
        return {name: built.float().numpy() for name, built in self._frozen.items()}

    def read(self, params: Params) -> None:
        """Take over a flat vector; what lies outside of it is again as it was built."""
        for home, key, tensor in self._buffers:
            home[key] = tensor
        for _, tensor, view in self._views:
            if tensor.data_ptr() != view.data_ptr():
                tensor.data = view
        for tensor, built in self._outside:
            tensor.data.copy_(built)
        self.vector.copy_(torch.from_numpy(params))
        for tensor, offset in self._counters:
            tensor.fill_(int(self.vector[offset]))

    def write(self, params: Params) -> None:
        """Copy the present state into a flat vector, also where forward has made new buffers."""
        for home, key, tensor in self._buffers:
            present = home[key]
            if present is not tensor and present is not None:
                tensor.data.copy_(present.detach())
        for name, tensor, view in self._views:
            if tensor.data_ptr() != view.data_ptr():
                _check_buffer(name, tensor)
                view.copy_(tensor.detach())
        for tensor, offset in self._counters:
            self.vector[offset] = float(tensor)
        params[:] = self.vector.detach().numpy()


def _check_buffer(name: str, tensor: Tensor) -> None:
    """A weight that forward moves elsewhere has left the vector that is trained."""
    if tensor.requires_grad:
        raise RunError(
            f"model weight {name}",
            "forward replaces its memory, so that it is not trained",
            "Change it in place: weight.data.copy_(...) instead of weight.data = ...",
        )
