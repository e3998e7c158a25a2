"""A training step on another device than the CPU.

By default that is torch's ``meta`` device, which computes nothing: it raises where the host would
have to wait for a number, and here where tensors of two devices meet. With MMPOSENC_DEVICE=cuda the
same tests compare outputs and gradients with the CPU's (benchmarks/gpu.sh a).
"""
import copy
import os

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

DEVICE = os.environ.get('MMPOSENC_DEVICE', 'meta')


class OneDevice(TorchDispatchMode):
    """An error where tensors of two devices meet: products and look-ups of the meta device take
    those of a CPU in silence."""

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        devices = {x.device.type for x in tree_leaves((args, kwargs)) if isinstance(x, Tensor)
                   and x.dim()}
        assert len(devices) <= 1 or func is torch.ops.aten.copy_.default, (func, devices)
        return func(*args, **(kwargs or {}))


def step(model, call, inputs):
    """Outputs, and gradients of inputs and parameters by a weighted sum of the outputs."""
    leaves = [x.detach().requires_grad_(x.is_floating_point()) for x in inputs]
    outs = [x for x in tree_leaves(call(model, *leaves)) if isinstance(x, Tensor)]
    total = sum((x * torch.arange(x.numel(), device=x.device).cos().view(x.shape)).sum()
                for x in outs)
    trained = [x for x in (*leaves, *model.parameters()) if x.requires_grad]
    return outs, torch.autograd.grad(total, trained, materialize_grads=True)


def check(model, call, inputs):
    """A step runs on the device, and where that computes has the CPU's numbers."""
    moved, given = copy.deepcopy(model).to(DEVICE), [x.to(DEVICE) for x in inputs]
    # By default torch's convolutions, and they alone, round to TF32's 11 bits on a GPU.
    with torch.backends.cudnn.flags(enabled=True, allow_tf32=False), OneDevice():
        outs, grads = step(moved, call, given)
    assert {x.device.type for x in (*outs, *grads)} == {torch.device(DEVICE).type}
    if DEVICE == 'meta':
        return
    expected = step(model, call, inputs)
    exact = step(copy.deepcopy(model).double(), call,
                 [x.double() if x.is_floating_point() else x for x in inputs])
    largest, wrong = max(float(x.abs().max()) for x in exact[1]), []
    for number, (found, wanted, precise) in enumerate(zip(
            (*outs, *grads), (*expected[0], *expected[1]), (*exact[0], *exact[1]), strict=True)):
        span = float(precise.detach().abs().max())
        # A gradient that is zero, such as that of a bias before a BatchNorm or of a number that
        # all logits have in common, is a sum of large numbers: what remains is their rounding.
        atol = 1e-3 * max(span, 1e-3) if span > 1e-9 * largest else 1e-5 * max(largest, 1.0)
        try:
            torch.testing.assert_close(found.cpu(), wanted, atol=atol, rtol=1e-3)
        except AssertionError as error:  # The others say where the difference begins.
            wrong.append(f'tensor {number}, {tuple(wanted.shape)}: {error}')
    assert not wrong, '\n'.join(wrong)
