"""BatchNorm with the statistics of several processes: what mmcv's own layer, ``MMSyncBN``, calls.

The layer shares means and gradients between processes; here is what each computes by itself. Maps
are (N, C, L).
"""
from __future__ import annotations

from torch import Tensor


def sync_bn_forward_mean(input: Tensor, mean: Tensor) -> None:
    """Write the means (C,) of this process into ``mean``."""
    mean.copy_(input.float().mean((0, 2)))


def sync_bn_forward_var(input: Tensor, mean: Tensor, var: Tensor) -> None:
    """Write the mean squared distances (C,) from the shared means into ``var``."""
    var.copy_((input.float() - mean[:, None]).square().mean((0, 2)))


def sync_bn_forward_output(input: Tensor, mean: Tensor, var: Tensor, weight: Tensor, bias: Tensor,
                           running_mean: Tensor | None, running_var: Tensor | None, norm: Tensor,
                           std: Tensor, output: Tensor, eps: float, momentum: float | Tensor,
                           group_size: int) -> None:
    """The norm of Ioffe and Szegedy (2015), Algorithm 1, from the shared statistics.

    Args:
        input: (N, C, L).
        mean, var: (C,), shared by the processes.
        weight, bias: (C,).
        running_mean, running_var: (C,), moved in place; None where none are kept.
        norm, std, output: are filled: (N, C, L), (C,), (N, C, L).
        eps: added to the variance.
        momentum: share of the new statistics.
        group_size: processes, for the unbiased variance.
    """
    std.copy_((var + eps).sqrt())
    norm.copy_((input.float() - mean[:, None]) / std[:, None])
    output.copy_(norm * weight.float()[:, None] + bias.float()[:, None])
    if running_mean is None or running_var is None:
        return
    count = input.shape[0] * input.shape[2] * group_size
    running_mean.copy_(running_mean + momentum * (mean - running_mean))
    running_var.copy_(running_var + momentum * (var * (count / max(count - 1, 1)) - running_var))


def sync_bn_backward_param(grad_output: Tensor, norm: Tensor, grad_weight: Tensor,
                           grad_bias: Tensor) -> None:
    """The gradients (C,) of weight and bias in this process."""
    grad = grad_output.float()
    grad_weight.copy_((grad * norm).sum((0, 2)))
    grad_bias.copy_(grad.sum((0, 2)))


def sync_bn_backward_data(grad_output: Tensor, weight: Tensor, grad_weight: Tensor,
                          grad_bias: Tensor, norm: Tensor, std: Tensor, grad_input: Tensor) -> None:
    """The gradient (N, C, L) of the input, computed from the shared gradients of weight and bias.
    """
    count = grad_output.shape[0] * grad_output.shape[2]
    shared = (norm * grad_weight.float()[:, None] + grad_bias.float()[:, None]) / count
    grad_input.copy_((grad_output.float() - shared) * (weight.float() / std)[:, None])
