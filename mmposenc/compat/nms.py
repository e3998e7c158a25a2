"""Greedy non-maximum suppression."""
import numpy as np
import torch
from torch import Tensor

from .torchvision_ops import has_kernel

# The number of boxes that are decided at once; small enough that their comparison with all boxes
# stays in the cache.
BLOCK = 128


def ious(boxes: np.ndarray, others: np.ndarray, offset: int) -> np.ndarray:
    """The IoU of boxes and others (N, M), NaN for two empty boxes. It is computed in place, because
    new arrays for each step take ten times as long.

    Args:
        boxes, others: rows x1, y1, x2, y2 and area, (5, N) and (5, M).
    """
    inter = np.minimum(boxes[2][:, None], others[2])
    inter -= np.maximum(boxes[0][:, None], others[0])
    height = np.minimum(boxes[3][:, None], others[3])
    height -= np.maximum(boxes[1][:, None], others[1])
    if offset:
        inter += offset
        height += offset
    np.maximum(inter, 0, out=inter)
    np.maximum(height, 0, out=height)
    inter *= height
    union = np.add(boxes[4][:, None], others[4], out=height)
    union -= inter
    inter /= union
    return inter


def keep_greedily(overlap: np.ndarray) -> np.ndarray:
    """Which of n boxes, sorted by score, are kept if each kept box removes those that it overlaps:
    bool (n,)."""
    stays = np.ones(len(overlap), dtype=bool)
    for i, row in enumerate(overlap):
        if stays[i]:
            stays[i + 1:] &= ~row[i + 1:]
    return stays


def nms(boxes: Tensor, scores: Tensor, iou_threshold: float, offset: int) -> Tensor:
    """Keeps the best box and drops those that overlap it by more than a threshold, repeatedly.

    Sorted boxes are decided in blocks: within a block one by one, then the kept ones of the
    block drop all later boxes at once, so that n boxes take n / 128 steps.

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
    where there is one, which waits once; it does not look for NaN. Without one the boxes are
    decided on the CPU.
    """
    if boxes.numel() == 0:
        return torch.empty(0, dtype=torch.long, device=boxes.device)
    if offset == 0 and has_kernel('nms', boxes):
        indices: Tensor = torch.ops.torchvision.nms(boxes.float(), scores.float(), iou_threshold)
        return indices
    dtype = torch.promote_types(boxes.dtype, torch.float32)
    scores = scores.detach().to('cpu', torch.promote_types(scores.dtype, torch.float32))
    nans = int(torch.isnan(scores).sum())
    if nans:  # Sorting would put them anywhere.
        raise ValueError(f'scores must not be NaN, got {nans} NaN of {scores.numel()} scores '
                         '(has the training diverged?)')
    corners = boxes.detach().to('cpu', dtype).numpy()
    order = np.argsort(-scores.numpy(), kind='stable')
    left = np.empty((5, len(order)), dtype=corners.dtype)
    left[:4] = corners[order].T
    np.multiply(left[2] - left[0] + offset, left[3] - left[1] + offset, out=left[4])
    threshold, parts = left.dtype.type(iou_threshold), []
    with np.errstate(divide='ignore', invalid='ignore', over='ignore'):
        while len(order):
            head = left[:, :BLOCK]
            stays = keep_greedily(ious(head, head, offset) > threshold)
            parts.append(order[:BLOCK][stays])
            order, left = order[BLOCK:], left[:, BLOCK:]
            if len(order):
                alive = ~(ious(head[:, stays], left, offset) > threshold).any(0)
                order, left = order[alive], left[:, alive]
    return torch.from_numpy(np.concatenate(parts)).to(boxes.device)
