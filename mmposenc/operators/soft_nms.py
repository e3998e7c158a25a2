"""Soft non-maximum suppression: overlapping boxes lose score instead of being dropped."""
import numpy as np
import torch
from torch import Tensor

from .nms import check_scores

METHODS = ('naive', 'linear', 'gaussian')


def iou_with(box: np.ndarray, area: np.floating, others: np.ndarray, areas: np.ndarray,
             offset: int) -> np.ndarray:
    """IoU of one box (4,) with others, given as rows x1, y1, x2, y2: (4, N)."""
    size = np.minimum(box[2:, None], others[2:])
    size -= np.maximum(box[:2, None], others[:2])
    if offset:
        size += offset
    np.maximum(size, 0, out=size)
    inter = size[0] * size[1]
    return inter / (area + areas - inter)


def decay(iou: np.ndarray, method: int, iou_threshold: float, sigma: float) -> np.ndarray:
    """The factor of each score: 0 or 1 (naive), 1 - IoU (linear), exp(-IoU^2 / sigma)."""
    if method == 2:
        return np.exp(-(iou * iou) / iou.dtype.type(sigma))
    over = iou >= iou.dtype.type(iou_threshold)
    return np.where(over, 1 - iou if method == 1 else 0, 1).astype(iou.dtype)


def close_gaps(table: np.ndarray, stays: np.ndarray) -> np.ndarray:
    """Fills the columns that go with the last ones that stay, from the right; (rows, M).

    The compiled kernel replaces a dropped box by the last box, over and over; the order that
    leaves behind decides between equal scores later, so it is kept.
    """
    count = int(np.count_nonzero(stays))
    gaps = np.flatnonzero(~stays[:count])
    movers = count + np.flatnonzero(stays[count:])[::-1]
    table[:, gaps] = table[:, movers]
    return table[:, :count]


def first_best(scores: np.ndarray) -> int:
    """Index of the first largest score, found by ``<`` as in the compiled kernel.

    A NaN (two empty boxes under the gaussian method) never exceeds and is never exceeded.
    """
    best = int(scores.argmax())
    if np.isnan(scores[best]):
        best = 0 if np.isnan(scores[0]) else int(np.nanargmax(scores))
    return best


def softnms(boxes: Tensor, scores: Tensor, dets: Tensor, iou_threshold: float, sigma: float,
            min_score: float, method: int, offset: int) -> Tensor:
    """Picks the best box and lowers the scores of those that overlap it, repeatedly.

    Soft-NMS (ICCV 2017), equations 2 and 3.

    Args:
        boxes: (N, 4) as x1, y1, x2, y2, in pixels, on the CPU.
        scores: (N,).
        dets: (N, 5), overwritten: the first M rows become the picked boxes and their scores at
            that time.
        iou_threshold: overlap from which methods 0 and 1 act (greater or equal).
        sigma: width of method 2.
        min_score: a box whose score falls below this is dropped.
        method: 0 naive, 1 linear, 2 gaussian.
        offset: 0 or 1, added to widths and heights.

    Returns:
        Indices of the picked boxes, in the order of picking, long (M,).

    Raises:
        ValueError: when a score is NaN or the method is unknown.

    The same as mmcv's CPU kernel, ties and order included; float64 is computed in float64.
    """
    if method not in range(len(METHODS)):
        raise ValueError(f'method must be 0, 1 or 2 ({", ".join(METHODS)}), got {method}')
    if boxes.numel() == 0:
        return torch.empty(0, dtype=torch.long)
    check_scores(scores)
    dtype = torch.float64 if boxes.dtype == torch.float64 else torch.float32
    x1, y1, x2, y2 = boxes.detach().cpu().to(dtype).numpy().T
    areas = (x2 - x1 + offset) * (y2 - y1 + offset)
    table = np.stack([x1, y1, x2, y2, areas, scores.detach().cpu().to(dtype).numpy()])
    table = np.concatenate([table, np.arange(len(x1), dtype=table.dtype)[None]])
    picked = []
    with np.errstate(divide='ignore', invalid='ignore'):
        while table.shape[1]:
            best = first_best(table[5])
            if best:
                table[:, [0, best]] = table[:, [best, 0]]
            head, rest = table[:, 0], table[:, 1:]
            picked.append(head)
            iou = iou_with(head[:4], head[4], rest[:4], rest[4], offset)
            rest[5] *= decay(iou, method, iou_threshold, sigma)
            stays = ~(rest[5] < rest.dtype.type(min_score))
            table = rest if stays.all() else close_gaps(rest, stays)
    result = np.stack(picked)
    dets[:len(result)] = torch.from_numpy(result[:, [0, 1, 2, 3, 5]]).to(dets)
    return torch.from_numpy(result[:, 6].astype(np.int64))
