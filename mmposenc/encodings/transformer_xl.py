"""Transformer-XL's relative encoding: projected sines and cosines and two global biases."""
from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor, nn

from ..functional.grids import Grid, GridLike, as_grid, key_grid
from ..functional.offset_terms import axis_terms, sequence_logits
from ..functional.offsets import axis_offsets
from .axis_encoding import AxisEncoding, check_sizes

_METHODS = ('axes', 'sequence')


class TransformerXLRPE(AxisEncoding):
    """Terms (b), (c) and (d) of Transformer-XL's attention (Dai et al., ACL 2019, Sec. 3.3):
    q_i . W R[i - j] + u . k_j + v . W R[i - j], scaled like q_i . k_j itself, which is term (a).

    R holds sines, then cosines, of the offset of query minus key. On a grid
    ('axes') its first half encodes the row offset and its second half the column offset; 'sequence'
    is the paper's own form on the flattened grid, prefix tokens included, where the place of a key
    depends on the width of the grid and padding changes the result.

    Args:
        head_dims: channels of a head.
        num_heads: attention heads; head_dims * num_heads must be a multiple of 4.
        method: 'axes' or 'sequence'.
        temperature: base of the wavelengths.
        num_prefix_tokens: tokens in front of the grid. With 'axes' pairs with one of them have
            term (c) alone.

    Parameters: ``pos_proj`` (W), ``content_bias`` (u) and ``position_bias`` (v), the last two
    (num_heads, head_dims). The scale of terms (c) and (d) is head_dims ** -0.5.

    Keys on a coarser grid have real offsets, and sines and cosines of those.

    Raises:
        ValueError: for sizes that do not divide, or an unknown method.
    """

    def __init__(self, head_dims: int, num_heads: int, *, method: str = 'axes',
                 temperature: float = 10000.0, num_prefix_tokens: int = 0) -> None:
        super().__init__()
        check_sizes(head_dims, num_heads, num_prefix_tokens)
        if method not in _METHODS:
            raise ValueError(f"method={method!r} must be 'axes' or 'sequence'")
        if temperature <= 0:
            raise ValueError(f'temperature={temperature} must be positive')
        self.embed_dims = head_dims * num_heads
        if self.embed_dims % 4:
            raise ValueError(f'head_dims={head_dims} * num_heads={num_heads} must be a multiple of '
                             f'4: sine and cosine of rows and columns')
        self.head_dims, self.num_heads, self.method = head_dims, num_heads, method
        self.cellwise = method == 'axes'
        if method == 'sequence':
            self.forms = ()
        self.temperature = temperature
        self.num_prefix_tokens = num_prefix_tokens
        self.pos_proj = nn.Linear(self.embed_dims, self.embed_dims, bias=False)
        self.content_bias = nn.Parameter(torch.empty(num_heads, head_dims))
        self.position_bias = nn.Parameter(torch.empty(num_heads, head_dims))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Normal, standard deviation 0.02, as the release."""
        for parameter in self.parameters():
            nn.init.normal_(parameter, std=0.02)

    def position_tables(self) -> Iterator[tuple[str, nn.Parameter]]:
        """The two biases; ``pos_proj`` is a projection like any other."""
        return iter((name, parameter) for name, parameter in self.named_parameters()
                    if name.endswith('_bias'))

    def logits(self, q: Tensor, k: Tensor, q_grid: GridLike, k_grid: GridLike | None = None
               ) -> Tensor:
        """The term (B, heads, Lq, Lk); shapes as :class:`RelativeEncoding`."""
        if self.method == 'axes':
            return super().logits(q, k, q_grid, k_grid)
        query, key = as_grid(q_grid, 'q_grid'), key_grid(q_grid, k_grid)
        length = self.num_prefix_tokens + query.num_cells
        # Rows of the table are by key minus query, R by query minus key.
        offsets = torch.arange(length - 1, -length, -1, device=q.device)
        table = self._project(offsets, 0, self.embed_dims)
        term = sequence_logits(self._position_query(q), table, query, key, self.num_prefix_tokens)
        return term + self._key_term(k)[:, :, None, :]

    def choose_form(self, q: Tensor, k: Tensor, q_grid: GridLike, k_grid: GridLike | None = None
                    ) -> str:
        """As :class:`AxisEncoding`, where the method has forms."""
        if self.method != 'axes':
            return 'definition'
        return super().choose_form(q, k, q_grid, k_grid)

    def _terms(self, q: Tensor, query: Grid, key: Grid) -> tuple[Tensor, Tensor]:
        rows, row_index = axis_offsets(query.height, key.height, query.stride_h, key.stride_h,
                                       q.device)
        cols, col_index = axis_offsets(query.width, key.width, query.stride_w, key.stride_w,
                                       q.device)
        half = self.embed_dims // 2
        return axis_terms(self._position_query(q), self._project(rows, 0, half),
                          self._project(cols, half, half), row_index, col_index)

    def _position_query(self, q: Tensor) -> Tensor:
        """q_i + v: terms (b) and (d) are one product."""
        scaled: Tensor = self.position_bias * self.head_dims ** -0.5
        return q + scaled[:, None].to(q.dtype)

    def _key_term(self, k: Tensor) -> Tensor:
        """Term (c), u . k_j: (B, heads, Lk)."""
        u: Tensor = self.content_bias * self.head_dims ** -0.5
        return (k @ u[:, :, None].to(k.dtype)).squeeze(-1)

    def _project(self, offsets: Tensor, start: int, width: int) -> Tensor:
        """W R of offsets (n,), where R fills channels start .. start + width: (heads, n, d).

        The other channels of R are not built: the projection is linear, so the two axes are
        projected each for itself.
        """
        dtype = torch.promote_types(self.pos_proj.weight.dtype, torch.float32)
        exponent = torch.arange(0, width, 2, device=offsets.device, dtype=dtype) / width
        angle = offsets.to(dtype)[:, None] * self.temperature ** -exponent
        encoded: Tensor = torch.cat((angle.sin(), angle.cos()), -1).to(self.pos_proj.weight.dtype)
        projected = encoded @ self.pos_proj.weight[:, start:start + width].t()
        return projected.view(-1, self.num_heads, self.head_dims).transpose(0, 1)
