"""Graph features of a PyTorch module, from one run on example inputs.

Fused kernels hide their products from the counter (recurrent layers, attention on a CPU, whole encoder layers), so
for this run they are switched off: everything becomes plain matrix products.
"""

from __future__ import annotations

import warnings
from contextlib import ExitStack
from importlib import import_module
from typing import Any

from cotenant.beliefs.predictor.graph import PASSES, GraphFeatures
from cotenant.core.errors import InputError

_PARTS = ("torch.nn.attention", "torch.utils.flop_counter", "torch.utils._python_dispatch")


def of_torch(module: Any, *inputs: Any) -> GraphFeatures:
    """Features of a PyTorch module, run once on example inputs whose first dimension is the batch."""
    try:
        torch: Any = import_module("torch")
        attention, counters, dispatch = map(import_module, _PARTS)
    except ImportError:
        raise InputError(
            "looking into PyTorch modules needs the package torch: pip install 'cotenant[torch]'"
        ) from None

    counted = {"operators": 0, "inside": 0}

    def count(mode: Any, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func._overloadpacket in counters.flop_registry and not counted["inside"]:
            counted["operators"] += 1
        return func(*args, **(kwargs or {}))

    def enter(layer: Any, _: Any) -> None:
        counted["inside"] += 1
        counted["operators"] += 2 * layer.num_layers * (2 if layer.bidirectional else 1)

    def leave(layer: Any, _: Any, __: Any) -> None:
        counted["inside"] -= 1

    with ExitStack() as stack:
        stack.enter_context(warnings.catch_warnings())
        warnings.simplefilter("ignore", UserWarning)  # of switches that this build of torch does not have
        for layer in module.modules():
            if isinstance(layer, torch.nn.RNNBase):
                stack.callback(layer.register_forward_pre_hook(enter).remove)
                stack.callback(layer.register_forward_hook(leave).remove)
        stack.callback(torch.backends.mha.set_fastpath_enabled, torch.backends.mha.get_fastpath_enabled())
        torch.backends.mha.set_fastpath_enabled(False)
        stack.enter_context(attention.sdpa_kernel(attention.SDPBackend.MATH))
        stack.enter_context(torch.backends.mkldnn.flags(enabled=False))
        stack.enter_context(torch.backends.cudnn.flags(enabled=False))
        stack.enter_context(torch.no_grad())
        counter = stack.enter_context(counters.FlopCounterMode(display=False))
        stack.enter_context(type("Calls", (dispatch.TorchDispatchMode,), {"__torch_dispatch__": count})())
        module(*inputs)
    parameters = float(sum(weight.numel() for weight in module.parameters()))
    batch = int(inputs[0].shape[0]) if inputs and inputs[0].dim() else 1
    return GraphFeatures(PASSES * float(counter.get_total_flops()), parameters, batch, counted["operators"])
