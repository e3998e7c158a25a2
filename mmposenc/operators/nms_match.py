"""Groups boxes by the box that suppresses them."""
import numpy as np
import torch
from torch import Tensor

from .nms import check_scores
from .soft_nms import iou_with


def nms_match(dets: Tensor, iou_threshold: float) -> list[list[int]]:
    """Runs greedy suppression and remembers who suppressed whom.

    Args:
        dets: (N, 5) as x1, y1, x2, y2, score; pixels.
        iou_threshold: a box joins the group of the first kept box it overlaps by at least this.

    Returns:
        One list of indices per kept box, best first: the kept box, then those it suppressed, by
        falling score.

    Raises:
        ValueError: when a score is NaN.

    The same as mmcv's CPU kernel for float32; float64 is computed in float64.
    """
    if len(dets) == 0:
        return []
    check_scores(dets[:, 4])
    dtype = torch.float64 if dets.dtype == torch.float64 else torch.float32
    dets = dets.detach().cpu().to(dtype)
    order = dets[:, 4].sort(dim=0, descending=True, stable=True).indices.numpy()
    boxes = dets[:, :4].numpy().T[:, order]
    areas = (boxes[2] - boxes[0]) * (boxes[3] - boxes[1])
    threshold = areas.dtype.type(iou_threshold)
    groups = []
    with np.errstate(divide='ignore', invalid='ignore'):
        while len(order):
            best, order, rest = int(order[0]), order[1:], boxes[:, 1:]
            joins = iou_with(boxes[:, 0], areas[0], rest, areas[1:], 0) >= threshold
            groups.append([best, *order[joins].tolist()])
            order, boxes, areas = order[~joins], rest[:, ~joins], areas[1:][~joins]
    return groups
