"""``run.device``: the passes through a model on a graphics processor.

Parameters stay where everything else expects them, in this process's memory; each pass takes a copy
of them and of its batch to the device, and gradients come back the same way. So every method works
unchanged, and a small model gains nothing by it. Nothing here was ever measured on such a device:
the project's machines have none.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from fedskew.errors import RunError

if TYPE_CHECKING:
    from torch import Tensor, nn


def check_device(device: str) -> None:
    """Whether this machine's PyTorch has it."""
    if device == "cpu":
        return
    import torch

    there = torch.cuda if device == "cuda" else torch.backends.mps
    if not there.is_available():
        what = f"this PyTorch ({torch.__version__}) has no {device} here"
        raise RunError("run.device", what, "Use cpu, or install a PyTorch made for your device")


def on_device(factory: Callable[[], nn.Module], device: str) -> Callable[[], nn.Module]:
    """The same models, whose passes go over the device."""
    return factory if device == "cpu" else lambda: _moved(factory(), device)


def _moved(module: nn.Module, device: str) -> nn.Module:
    """The module with another ``forward``; as a class of its own, so that nobody takes it for a
    plain network and computes its passes by formula, here.
    """
    kind = type(module)
    inside = False

    def forward(self: nn.Module, *given: Any) -> Any:
        nonlocal inside
        if inside or _is_watched(self):
            return kind.forward(self, *given)
        inside = True
        try:
            return _pass(self, given, device)
        finally:
            inside = False

    module.__class__ = type(f"{kind.__name__}On{device.title()}", (kind,), {"forward": forward})
    return module


def _is_watched(module: nn.Module) -> bool:
    """Whether somebody looks at what reaches a layer: they expect it in this memory."""
    return any(part._forward_pre_hooks or part._forward_hooks for part in module.modules())


def _pass(module: nn.Module, given: tuple[Any, ...], device: str) -> Any:
    from torch.func import functional_call

    buffers = dict(module.named_buffers())
    there = {name: _to(tensor, device) for name, tensor in module.named_parameters()}
    moved = {name: _to(buffer, device) for name, buffer in buffers.items()}
    answer = functional_call(module, {**there, **moved}, tuple(_to(x, device) for x in given))
    if module.training:
        for name, buffer in buffers.items():  # running statistics
            buffer.copy_(moved[name].detach())
    return answer.to("cpu")


def _to(tensor: Tensor, device: str) -> Tensor:
    return tensor.to(device)
