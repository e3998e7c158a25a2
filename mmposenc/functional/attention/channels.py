"""Terms as further channels of queries and keys, for fused attention."""
from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

from .axis_terms import AxisHalves
from .terms import Term


def add_channels(terms: Sequence[Term], q: Tensor, k: Tensor, v: Tensor, scale: float
                 ) -> tuple[Tensor, Tensor, Tensor]:
    """Further channels: queries hold their products with rows and columns of keys, and keys the
    one-hot number of their row and of their column; or a one and a number of the key. Padded to a
    multiple of 8, without which SDPA has no fast kernel on a GPU.

    Args:
        terms: :class:`AxisHalves` and :class:`QueryVector`.
        q: (B, heads, Lq, head_dims), not scaled; k, v: (B, heads, Lk, head_dims).
        scale: of the queries.

    Returns:
        Queries, scaled, keys and values; of the output the first head_dims channels count.
    """
    queries, keys = [q * scale], [k]
    for term in terms:
        if isinstance(term, AxisHalves):
            rows, cols, _ = term.products(q, scale)
            hk, wk = rows.shape[-1], cols.shape[-1]
            cell = torch.arange(hk * wk, device=q.device)
            one_hot = torch.cat((cell[:, None] // wk == torch.arange(hk, device=q.device),
                                 cell[:, None] % wk == torch.arange(wk, device=q.device)), 1)
            one_hot = F.pad(one_hot.to(q.dtype), (0, 0, term.prefix, 0))
            queries += [rows, cols]
            keys.append(one_hot.expand(*k.shape[:2], -1, -1))
        else:
            queries.append(q.new_ones(*q.shape[:3], 1))
            keys.append(term.dense(q, k).transpose(-2, -1))
    width = sum(x.shape[-1] for x in queries)
    fill = -width % 8
    # Values of the same width keep SDPA on its fast path, which wants equal head_dims; not on a GPU
    # in float32 or beyond 256 channels, where its only fast kernel takes any, and outputs are as
    # large as queries.
    if q.device.type == 'cpu' or (q.dtype != torch.float32 and width + fill <= 256):
        v = F.pad(v, (0, width + fill - v.shape[-1]))
    return F.pad(torch.cat(queries, -1), (0, fill)), F.pad(torch.cat(keys, -1), (0, fill)), v
