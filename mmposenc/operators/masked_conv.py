"""The two halves of mmcv's masked convolution: columns of the cells asked for, and back."""
import torch
import torch.nn.functional as F
from torch import Tensor


def masked_im2col_forward(features: Tensor, rows: Tensor, cols: Tensor, columns: Tensor,
                          kernel_h: int, kernel_w: int, pad_h: int, pad_w: int) -> None:
    """Writes what the taps of a convolution of stride 1 read at some cells into ``columns``.

    Args:
        features: (1, C, H, W).
        rows, cols: of the M cells, long (M,).
        columns: (C * kernel_h * kernel_w, M), overwritten.
    """
    below, right = max(kernel_h - 1 - pad_h, 0), max(kernel_w - 1 - pad_w, 0)
    padded = F.pad(features[0], (pad_w, right, pad_h, below))
    taps_h, taps_w = (torch.arange(taps, device=rows.device)[:, None]
                      for taps in (kernel_h, kernel_w))
    columns.copy_(padded[:, (rows + taps_h)[:, None], (cols + taps_w)[None]].view(columns.shape))


def masked_col2im_forward(columns: Tensor, rows: Tensor, cols: Tensor, output: Tensor,
                          height: int, width: int, channels: int) -> None:
    """Writes columns (C, M) to their cells of ``output`` (1, C, height, width)."""
    output[0, :, rows, cols] = columns
