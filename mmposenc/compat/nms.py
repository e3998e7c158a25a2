"""Greedy non-maximum suppression."""
import numpy as np
import torch
from torch import Tensor

from .torchvision_ops import has_kernel

BLOCK = 256  # boxes decided at once; small enough that a block against all stays in cache


def check_scores(scores: Tensor) -> None:
    """Raises a ValueError where a score is NaN: sorting would put it anywhere."""
    nans = int(torch.isnan(scores).sum())
    if nans:
        raise ValueError(f'scores must not be NaN, got {nans} NaN of {scores.numel()} scores '
                         '(has the training diverged?)')


def pairwise_iou(boxes: Tensor, areas: Tensor, others: Tensor, other_areas: Tensor,
                 offset: int) -> Tensor:
    """IoU (N, M), in the order of operations of mmcv's kernel: NaN for two empty boxes."""
    low = torch.maximum(boxes[:, None, :2], others[None, :, :2])
    size = torch.minimum(boxes[:, None, 2:], others[None, :, 2:]).sub_(low)
    if offset:
        size.add_(offset)
    size.clamp_(min=0)
    inter = size[..., 0] * size[..., 1]
    union = (areas[:, None] + other_areas[None]).sub_(inter)
    return inter.div_(union)


def keep_greedily(overlap: np.ndarray) -> np.ndarray:
    """Which of n boxes, best first, stay when each kept one drops what it overlaps: bool (n,)."""
    alive = np.ones(len(overlap), dtype=bool)
    for i in range(len(overlap) - 1):
        if alive[i]:
            alive[i + 1:] &= ~overlap[i, i + 1:]
    return alive


def nms(boxes: Tensor, scores: Tensor, iou_threshold: float, offset: int) -> Tensor:
    """Keeps the best box and drops those that overlap it by more than a threshold, repeatedly.

    Sorted boxes are decided in blocks: within a block one by one, then the kept ones of the
    block drop all later boxes at once, so that n boxes take n / 256 steps.

    Args:
        boxes: (N, 4) as x1, y1, x2, y2, in pixels.
        scores: (N,).
        iou_threshold: boxes whose IoU with a kept one is strictly greater are dropped.
        offset: 0 or 1, added to widths and heights.

    Returns:
        Indices of kept boxes, best first, long (M,); equal scores keep their order.

    Raises:
        ValueError: when a score is NaN.

    The same as mmcv's CPU kernel for float32; half precision is computed in float32, and
    float64, which that kernel refuses, in float64. On an accelerator torchvision's kernel is taken
    where there is one, which waits once; it does not look for NaN.
    """
    if boxes.numel() == 0:
        return torch.empty(0, dtype=torch.long, device=boxes.device)
    if offset == 0 and has_kernel('nms', boxes):
        kept: Tensor = torch.ops.torchvision.nms(boxes.float(), scores.float(), iou_threshold)
        return kept
    check_scores(scores)
    order = scores.sort(dim=0, descending=True, stable=True).indices
    if boxes.dtype in (torch.float16, torch.bfloat16):
        boxes = boxes.float()
    left = boxes[order]
    areas = (left[:, 2] - left[:, 0] + offset) * (left[:, 3] - left[:, 1] + offset)
    parts = []
    while len(order):
        head, head_areas = left[:BLOCK], areas[:BLOCK]
        within = pairwise_iou(head, head_areas, head, head_areas, offset) > iou_threshold
        stays = torch.from_numpy(keep_greedily(within.cpu().numpy())).to(boxes.device)
        parts.append(order[:BLOCK][stays])
        order, left, areas = order[BLOCK:], left[BLOCK:], areas[BLOCK:]
        if len(order):
            dropped = pairwise_iou(head[stays], head_areas[stays], left, areas, offset)
            alive = ~(dropped > iou_threshold).any(0)
            order, left, areas = order[alive], left[alive], areas[alive]
    return torch.cat(parts)
