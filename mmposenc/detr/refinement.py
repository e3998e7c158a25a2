"""Boxes as distributions over bins, which layers refine (D-FINE, Peng et al., ICLR 2025); it needs
only torch."""
from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..config_types import ConfigType
from ..encodings.checks import check_positive
from .building import build_activation


def linear_layers(channels: Sequence[int], act_cfg: ConfigType) -> nn.Sequential:
    """Linear layers with these channels, and an activation between two of them."""
    layers: list[nn.Module] = []
    for inputs, outputs in zip(channels, channels[1:], strict=False):
        layers += [build_activation(act_cfg), nn.Linear(inputs, outputs)]
    return nn.Sequential(*layers[1:])


class BoxBins(nn.Module):
    """The bins over which each side of a box is distributed (D-FINE, Sec. 4.1): fine around the
    side of the box that is refined, coarse far from it.

    Args:
        reg_max: number of bins - 1, even and at least 4.
        reg_scale: how many bins lie close to the box: the larger, the more.
        up: half of the largest move of a side, as a share of the box's width or height.

    Buffers ``up`` and ``reg_scale`` have the release's names and shapes; files of weights hold
    them.

    Raises:
        ValueError: a number is out of range.
    """

    up: Tensor
    reg_scale: Tensor

    def __init__(self, reg_max: int = 32, reg_scale: float = 4.0, up: float = 0.5) -> None:
        super().__init__()
        if reg_max < 4 or reg_max % 2:
            raise ValueError(f'reg_max={reg_max} must be even and at least 4')
        check_positive(reg_scale=reg_scale, up=up)
        self.reg_max = reg_max
        self.register_buffer('up', torch.tensor([float(up)]))
        self.register_buffer('reg_scale', torch.tensor([float(reg_scale)]))

    def values(self) -> Tensor:
        """How far a side moves outwards in each bin, (reg_max + 1,), as a share of the box's width
        or height times ``1 / reg_scale``: W(n)."""
        bound = (self.up * self.reg_scale).abs()
        powers = torch.arange(1, self.reg_max // 2, device=bound.device, dtype=bound.dtype)
        grown = (bound + 1) ** (powers * (2 / (self.reg_max - 2))) - 1
        return torch.cat((-2 * bound, -grown.flip(0), torch.zeros_like(bound), grown, 2 * bound))

    def boxes(self, start: Tensor, corners: Tensor) -> Tensor:
        """Move the sides of boxes by the means of their distributions.

        Args:
            start: (..., 4), centre, width and height.
            corners: (..., 4 * (reg_max + 1)), distributions of left, top, right and bottom before
                the softmax.

        Returns:
            (..., 4), as ``start``.
        """
        moves = (corners.unflatten(-1, (4, -1)).softmax(-1) * self.values()).sum(-1)
        scale = self.reg_scale.abs()
        centre, size = start.split(2, -1)
        first, last = ((0.5 * scale + each) * (size / scale) for each in moves.split(2, -1))
        return torch.cat((centre + (last - first) / 2, first + last), -1)

    def targets(self, start: Tensor, boxes: Tensor) -> tuple[Tensor, Tensor]:
        """The bins between which the sides of objects lie.

        Args:
            start: (n, 4), centre, width and height of the boxes that are refined.
            boxes: (n, 4), objects: x1, y1, x2, y2.

        Returns:
            The left one of two bins (n, 4), at most ``reg_max - 1``; and the share of the right one
            (n, 4). Outside of all bins, it is 0 or 1.
        """
        scale, values = self.reg_scale.abs(), self.values()
        away = torch.cat((start[:, :2] - boxes[:, :2], boxes[:, 2:] - start[:, :2]), 1)
        away = away / (start[:, 2:].repeat(1, 2) / scale + 1e-16) - 0.5 * scale
        left = (torch.searchsorted(values, away, right=True) - 1).clamp(0, self.reg_max - 1)
        share = (away - values[left]) / (values[left + 1] - values[left])
        return left, share.clamp(0, 1)


class LocationQuality(nn.Module):
    """How well a box is known, from the peaks of the distributions of its sides (D-FINE, App.; LQE
    in the release), which is added to its scores.

    Args:
        act_cfg: activation.
        num_peaks: largest probabilities of each side.
        hidden_dims: width of the hidden layer.
    """

    def __init__(self, act_cfg: ConfigType, num_peaks: int = 4, hidden_dims: int = 64) -> None:
        super().__init__()
        self.num_peaks = num_peaks
        self.reg_conf = linear_layers((4 * (num_peaks + 1), hidden_dims, 1), act_cfg)

    def forward(self, corners: Tensor) -> Tensor:
        """(..., 4 * bins), before the softmax -> (..., 1)."""
        peaks = corners.unflatten(-1, (4, -1)).softmax(-1).topk(self.num_peaks, -1)[0]
        return self.reg_conf(torch.cat((peaks, peaks.mean(-1, keepdim=True)), -1).flatten(-2))


class Gate(nn.Module):
    """The norm of a weighted sum of two kinds of tokens, whose weights are computed from both
    (D-FINE's target gating layer).

    Args:
        embed_dims: channels.
    """

    def __init__(self, embed_dims: int) -> None:
        super().__init__()
        self.gate = nn.Linear(2 * embed_dims, 2 * embed_dims)
        self.norm = nn.LayerNorm(embed_dims)

    def forward(self, x: Tensor, other: Tensor) -> Tensor:
        """Two tensors (..., C) -> (..., C)."""
        of_x, of_other = self.gate(torch.cat((x, other), -1)).sigmoid().chunk(2, -1)
        return self.norm(of_x * x + of_other * other)


def localization_loss(corners: Tensor, left: Tensor, share: Tensor) -> Tensor:
    """Fine-grained localization loss (D-FINE, Sec. 4.1) of each side: the cross-entropy with the
    two bins between which the object's side lies.

    Args:
        corners: (n, 4 * bins), before the softmax.
        left, share: (n, 4), of :meth:`BoxBins.targets`.

    Returns:
        (n, 4).
    """
    logs = corners.unflatten(-1, (4, -1)).log_softmax(-1)
    below, above = (logs.gather(-1, (left + more)[..., None])[..., 0] for more in (0, 1))
    return -(below * (1 - share) + above * share)


def distillation_loss(corners: Tensor, teacher: Tensor, temperature: float = 5.0) -> Tensor:
    """Self-distillation (D-FINE, Sec. 4.2) of each side: the Kullback-Leibler divergence from the
    distributions of the last layer, which get no gradient.

    Args:
        corners: (..., 4 * bins), of a layer, before the softmax.
        teacher: the same of the last layer.
        temperature: by which both are divided.

    Returns:
        (..., 4).
    """
    ours, theirs = ((each.unflatten(-1, (4, -1)) / temperature).log_softmax(-1)
                    for each in (corners, teacher.detach()))
    return temperature ** 2 * F.kl_div(ours, theirs, reduction='none', log_target=True).sum(-1)
