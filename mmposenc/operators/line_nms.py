"""Non-maximum suppression of lanes, each a number of x along fixed rows."""
import numpy as np
import torch
from torch import Tensor

from .nms import check_scores
from .precision import compute_dtype

OFFSETS = 72  # rows of a lane, as in the compiled kernel
FIRST = 5  # numbers before them: two scores, where it starts (y, x), and how many rows it has


def spans(lanes: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """First and last row of each lane (N, 77), whole numbers (N,)."""
    start = np.trunc(lanes[:, 2] * (OFFSETS - 1) + 0.5).astype(np.int64)
    end = start + np.trunc(lanes[:, 4]).astype(np.int64) - 1
    return start, end


def close_to(lane: int, lanes: np.ndarray, start: np.ndarray, end: np.ndarray, overlap: float
             ) -> np.ndarray:
    """Which lanes lie nearer to one, by the mean distance over the rows of both, than ``overlap``:
    bool (N,)."""
    first = np.maximum(start[lane], start)
    last = np.minimum(np.minimum(end[lane], end), OFFSETS - 1)
    rows = np.arange(OFFSETS)
    both = (rows >= first[:, None]) & (rows <= last[:, None])
    distance = (np.abs(lanes[lane, FIRST:] - lanes[:, FIRST:]) * both).sum(1)
    return (last >= first) & (first >= 0) & (distance < overlap * (last - first + 1))


def line_nms_forward(boxes: Tensor, scores: Tensor, overlap: float, top_k: int) -> list[Tensor]:
    """Keeps the best lane and drops those that lie near it, repeatedly.

    CLRNet (Zheng et al., CVPR 2022), section 3.4.

    Args:
        boxes: (N, 77): two scores, the y of the start in [0, 1], its x, the number of rows, and x
            in 72 rows.
        scores: (N,).
        overlap: lanes whose mean distance to a kept one is smaller are dropped.
        top_k: keeps this many at most.

    Returns:
        Indices of the kept lanes, best first, then zeros, long (N,); how many are kept, long ();
        for each lane the number (from 1) of the last kept one near it, 0 for none, long (N,).

    Raises:
        ValueError: for lanes of another size, and when a score is NaN.

    mmcv has a kernel for CUDA alone, and that of onedl-mmcv 2.3.6 compares lanes in their own order
    with lanes in order of their scores; here, as in CLRNet, both are in order of their scores.
    """
    if boxes.dim() != 2 or boxes.shape[1] != FIRST + OFFSETS:
        raise ValueError(f'boxes must have shape (N, {FIRST + OFFSETS}), got {tuple(boxes.shape)}')
    check_scores(scores)
    order = scores.sort(dim=0, descending=True, stable=True).indices.cpu().numpy()
    lanes = boxes.detach().cpu().to(compute_dtype(boxes)).numpy()[order]
    start, end = spans(lanes)
    alive, parent = np.ones(len(lanes), dtype=bool), np.zeros(len(lanes), dtype=np.int64)
    kept: list[int] = []
    for lane in range(len(lanes)):
        if not alive[lane] or len(kept) == top_k:
            continue
        near = close_to(lane, lanes, start, end, overlap)
        near[:lane], near[lane] = False, True
        kept.append(lane)
        parent[near], alive[near] = len(kept), False
    keep, parents = np.zeros_like(parent), np.zeros_like(parent)
    keep[:len(kept)], parents[order] = order[kept], parent
    return [torch.from_numpy(each).to(boxes.device)
            for each in (keep, np.array(len(kept)), parents)]
