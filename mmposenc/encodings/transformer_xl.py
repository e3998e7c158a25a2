"""Relative encoding of Transformer-XL: projected sines and cosines, and two global biases."""
from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..attention.terms import Term
from ..attention.vector_terms import AxisHalves, VectorAddedToQueries, pick_entries
from ..functional.grids import Grid, grid_offsets
from ..functional.tracing import are_plain, layer_dtype
from .base import RelativeEncoding
from .checks import check_choices, check_positive
from .sequence_table import sequence_terms


class TransformerXLRPE(RelativeEncoding):
    """Terms (b), (c) and (d) of Transformer-XL's attention (Dai et al., ACL 2019, Sec. 3.3):
    q_i . W R[i - j] + u . k_j + v . W R[i - j], scaled like term (a), q_i . k_j.

    R has the sines, then the cosines, of the offset query minus key. With 'axes' its first half is
    for the row offset and its second half for the column offset. With 'sequence' it is for the
    offset in the flattened grid with its prefix tokens, as the paper.

    Args:
        head_dims: channels of a head.
        num_heads: attention heads; head_dims * num_heads must be a multiple of 4.
        method: 'axes' or 'sequence'.
        temperature: base of the wavelengths.
        num_prefix_tokens: tokens in front of the grid. With 'axes' pairs with one of them have
            only term (c).

    Parameters: ``pos_proj`` (W), ``content_bias`` (u) and ``position_bias`` (v), the last two
    (num_heads, head_dims). The scale of terms (c) and (d) is head_dims ** -0.5.

    Offsets of keys on a coarser grid need not be whole numbers.

    Raises:
        ValueError: for sizes that do not divide, or an unknown method.
    """

    variants = {'transformer-xl': ('Transformer-XL', {})}
    decaying_layers = ('pos_proj',)

    def __init__(self, head_dims: int, num_heads: int, *, method: str = 'axes',
                 temperature: float = 10000.0, num_prefix_tokens: int = 0) -> None:
        super().__init__()
        self._set_sizes(head_dims, num_heads, num_prefix_tokens)
        check_choices(method=(method, ('axes', 'sequence')))
        check_positive(temperature=temperature)
        self.embed_dims = head_dims * num_heads
        if self.embed_dims % 4:
            raise ValueError(f'head_dims={head_dims} * num_heads={num_heads} must be a multiple of '
                             f'4: sine and cosine of rows and columns')
        self.method = method
        self.cellwise = method == 'axes'
        self.temperature = temperature
        self.pos_proj = nn.Linear(self.embed_dims, self.embed_dims, bias=False)
        self.content_bias = nn.Parameter(torch.empty(num_heads, head_dims))
        self.position_bias = nn.Parameter(torch.empty(num_heads, head_dims))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw all weights from a normal distribution with standard deviation 0.02, as the release
        does."""
        for parameter in self.parameters():
            nn.init.normal_(parameter, std=0.02)

    def terms(self, q_grid: Grid, k_grid: Grid, tokens: Tensor | None = None) -> list[Term]:
        """One term for (b) and (d), which use the same vectors, and one for (c); see
        :class:`RelativeEncoding`."""
        scale = self.head_dims ** -0.5
        content = VectorAddedToQueries(self.content_bias * scale)
        v = self.position_bias * scale
        if self.method == 'sequence':
            # Rows of the table are ordered by key minus query, but R by query minus key.
            length = self.num_prefix_tokens + q_grid.num_cells
            offsets = torch.arange(length - 1, -length, -1, device=v.device)
            table = self._projected_sines(offsets, 0, self.embed_dims)
            bias = (table @ v[..., None]).squeeze(-1)
            return [*sequence_terms(table, bias, q_grid, k_grid, self.num_prefix_tokens), content]
        rows, row_index, cols, col_index = grid_offsets(q_grid, k_grid, v.device)
        half = self.embed_dims // 2
        by_row = pick_entries(self._projected_sines(rows, 0, half), row_index)
        by_col = pick_entries(self._projected_sines(cols, half, half), col_index)
        row_bias, col_bias = ((x @ v[:, None, :, None]).squeeze(-1) for x in (by_row, by_col))
        return [AxisHalves(by_row, by_col, self.num_prefix_tokens, row_bias=row_bias,
                           col_bias=col_bias), content]

    def _projected_sines(self, offsets: Tensor, start: int, width: int) -> Tensor:
        """The projection W R (heads, n, d) for offsets (n,), where R fills the channels from
        ``start`` on. The other channels of R are not built, because the projection is linear: each
        axis is projected separately.
        """
        own_dtype = layer_dtype(self.pos_proj)
        dtype = torch.promote_types(own_dtype, torch.float32)
        exponent = torch.arange(0, width, 2, device=offsets.device, dtype=dtype) / width
        angle = offsets.to(dtype)[:, None] * self.temperature ** -exponent
        encoded: Tensor = torch.cat((angle.sin(), angle.cos()), -1).to(own_dtype)
        if are_plain(self.pos_proj):
            projected = encoded @ self.pos_proj.weight[:, start:start + width].t()
        else:
            # A last row of zeros gives the constant of the projection (an adapter's bias), which
            # must count only once.
            after = self.embed_dims - start - width
            outputs = self.pos_proj(F.pad(encoded, (start, after, 0, 1)))
            projected = outputs[:-1] - outputs[-1:] if start else outputs[:-1]
        return projected.view(-1, self.num_heads, self.head_dims).transpose(0, 1)
