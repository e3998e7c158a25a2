"""Forms of contextual iRPE on a GPU: FlexAttention, fused attention with a mask, and the release's
gather. Table 'forms' of relative.py:

    python benchmarks/relative.py forms --device cuda --dtype bfloat16
    python benchmarks/relative.py forms --device cuda --dtype float32
    python benchmarks/relative.py forms --smoke          # no GPU: small, not compiled, checked only

FlexAttention reads the look-up of each query inside its kernel: 'ids' by an index of all pairs,
'offsets' by a table of the few distinct offsets. Values have no such form: score_mod can't return
sums of weights by bucket.
"""
from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.nn.attention.flex_attention import flex_attention

from mmposenc.attention import attend
from mmposenc.encodings import IRPE
from mmposenc.functional.buckets import offset_buckets
from mmposenc.functional.offsets import axis_offsets

Attention = Callable[[Tensor, Tensor, Tensor], Tensor]
Grid = tuple[int, int]


def flex_forms(encoding: IRPE, grid: Grid, device: str, compiled: bool) -> dict[str, Attention]:
    """Attention with a table on keys ('product', 'euclidean' or 'quantization')."""
    flex = torch.compile(flex_attention, dynamic=False) if compiled else flex_attention
    ids = encoding.bucket_ids(grid, device=device)[0]
    height, width = grid
    prefix, extra = encoding.num_prefix_tokens, encoding.num_buckets
    rows, _ = axis_offsets(height, height, device=device)
    cols, _ = axis_offsets(width, width, device=device)
    by_offset = offset_buckets(encoding.method, rows, cols, encoding.params)

    def by_ids(i: Tensor, j: Tensor) -> Tensor:
        return ids[i, j]

    def by_offsets(i: Tensor, j: Tensor) -> Tensor:
        # Prefix tokens get some cell's offset, and then the bucket of their own.
        a, b = (i - prefix).clamp(min=0), (j - prefix).clamp(min=0)
        bucket = by_offset[a // width - b // width + height - 1, a % width - b % width + width - 1]
        return torch.where((i < prefix) | (j < prefix), extra, bucket) if prefix else bucket

    def make(bucket: Callable[[Tensor, Tensor], Tensor]) -> Attention:
        def run(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
            lookup = (q * q.shape[-1] ** -0.5) @ encoding.tables('k')[0]

            def score_mod(score: Tensor, b: Tensor, h: Tensor, i: Tensor, j: Tensor) -> Tensor:
                return score + lookup[b, h, i, bucket(i, j)]
            if q.device.type == 'cpu':  # it refuses what could need a gradient there
                q, k, v, lookup = (x.detach() for x in (q, k, v, lookup))
            return flex(q, k, v, score_mod=score_mod)
        return run
    return {'Flex, ids': make(by_ids), 'Flex, offsets': make(by_offsets)}


def all_forms(encoding: IRPE, grid: Grid, device: str, compiled: bool, release: Attention
              ) -> dict[str, Attention]:
    """Every form by name, the release's first."""
    forms: dict[str, Attention] = {
        'release': release,
        'SDPA + look-up': lambda q, k, v: attend(q, k, v, encoding, grid, form='definition')[0],
        'default': lambda q, k, v: attend(q, k, v, encoding, grid)[0],
        'none, SDPA': F.scaled_dot_product_attention}
    if encoding.rpe_on == 'k' and encoding.method != 'cross':
        forms.update(flex_forms(encoding, grid, device, compiled))
    if compiled:
        forms['SDPA + look-up, compiled'] = torch.compile(forms['SDPA + look-up'], dynamic=False)
    return forms


def check(forms: dict[str, Attention], q: Tensor, k: Tensor, v: Tensor) -> dict[str, float]:
    """Largest difference of each form from the release's, relative to the largest output.

    Raises:
        AssertionError: for more than 2e-2 in half precision, 1e-4 in float32.
    """
    with torch.no_grad():
        expected = forms['release'](q, k, v).float()
        found = {name: float((run(q, k, v).float() - expected).abs().max() / expected.abs().max())
                 for name, run in forms.items() if not name.startswith('none')}
    most = 1e-4 if q.dtype == torch.float32 else 2e-2
    wrong = {name: value for name, value in found.items() if value > most}
    assert not wrong, f'forms that differ from the release by more than {most}: {wrong}'
    return found
