"""Focal loss of sigmoids, as mmcv's operators compute it."""
import torch
import torch.nn.functional as F
from torch import Tensor

from .missing import build_command_text


def one_hot_target(input: Tensor, target: Tensor) -> Tensor:
    """Whether each class is the target, bool (N, C); a target out of range means background."""
    classes = torch.arange(input.size(1), device=input.device)
    return target[:, None] == classes


def sigmoid_focal_loss_forward(input: Tensor, target: Tensor, weight: Tensor, output: Tensor,
                               gamma: float, alpha: float) -> None:
    """Writes the loss of every class of every row into ``output``.

    Focal loss (ICCV 2017), equation 5: -alpha (1 - p)^gamma log p for the target class,
    -(1 - alpha) p^gamma log(1 - p) for the others, p = sigmoid(input).

    Args:
        input: logits (N, C).
        target: class of each row, long (N,); C, or anything outside, is background.
        weight: empty.
        output: (N, C), overwritten.

    Raises:
        NotImplementedError: ``weight`` has weights of classes, which no model of mmdet gives.

    Logarithms are taken of the logits, so they do not saturate at log(FLT_MIN) as in the
    compiled kernel.
    """
    if weight.numel():
        raise NotImplementedError('weights of classes in the focal loss need an mmcv with compiled '
                                  f'operators: {build_command_text()}')
    p = input.sigmoid()
    positive = -alpha * (1 - p).pow(gamma) * F.logsigmoid(input)
    negative = -(1 - alpha) * p.pow(gamma) * F.logsigmoid(-input)
    output.copy_(torch.where(one_hot_target(input, target), positive, negative))


def sigmoid_focal_loss_backward(input: Tensor, target: Tensor, weight: Tensor,
                                grad_input: Tensor, gamma: float, alpha: float) -> None:
    """Write the derivative of every loss by its logit into ``grad_input`` (N, C)."""
    p = input.sigmoid()
    positive = -alpha * (1 - p).pow(gamma) * (1 - p - gamma * p * F.logsigmoid(input))
    negative = (1 - alpha) * p.pow(gamma) * (p - gamma * (1 - p) * F.logsigmoid(-input))
    grad_input.copy_(torch.where(one_hot_target(input, target), positive, negative))
