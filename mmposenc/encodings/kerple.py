"""KERPLE: a learned kernel of the distance, a logarithm or a power."""
from __future__ import annotations

import torch
from torch import Tensor, nn

from ..functional.grids import Grid
from .base import refuse_zeros
from .checks import check_choices
from .offset_bias import OffsetBiasEncoding, euclidean_distances


class KERPLE(OffsetBiasEncoding):
    """logit[i, j] -= r1 log(1 + r2 d_ij), or r1 d_ij^r2 with 0 < r2 <= 2; each head learns its
    r1, r2 > 0 (Chi et al., NeurIPS 2022, Sec. 4).

    On a grid d is the Euclidean distance of two cells. Both kernels are conditionally positive
    definite for it, as the paper requires.

    Args:
        num_heads: attention heads.
        method: 'log' (the paper's best) or 'power'.
        num_prefix_tokens: tokens in front of the grid; see :class:`OffsetBiasEncoding`.

    Parameters: ``r1`` and ``r2`` (num_heads,), whose exponentials are used (for r2 of 'power' twice
    its sigmoid), and ``prefix_bias``.

    Raises:
        ValueError: for an unknown method.

    Differs from the release, which clamps r1 and r2 to at least 0.01 in each call.
    """

    variants = {'kerple': ('KERPLE, logarithmic', {}),
                'kerple-power': ('KERPLE, power', dict(method='power'))}
    cellwise = True

    def __init__(self, num_heads: int, *, method: str = 'log', num_prefix_tokens: int = 0) -> None:
        super().__init__()
        self._set_heads(num_heads, num_prefix_tokens)
        check_choices(method=(method, ('log', 'power')))
        self.method = method
        self.r1 = nn.Parameter(torch.empty(num_heads))
        self.r2 = nn.Parameter(torch.empty(num_heads))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw r1 and r2 uniformly, as the release does: for 'log' r1 up to 2 and r2 up to 1, for
        'power' the reverse."""
        super().reset_parameters()
        log = self.method == 'log'
        first, second = (torch.rand_like(r).clamp(0.01, 0.99) for r in (self.r1, self.r2))
        with torch.no_grad():
            self.r1.copy_((2 * first if log else first).log())
            self.r2.copy_(second.log() if log else second.logit())

    def start_at_zero(self) -> None:
        """Refuse: the kernel depends on the distance whatever its weights are.

        Raises:
            ValueError: always.
        """
        refuse_zeros(self)

    def offset_table(self, row_offsets: Tensor, col_offsets: Tensor, q_grid: Grid) -> Tensor:
        """The kernel of the distances; see :class:`OffsetBiasEncoding`."""
        distance = euclidean_distances(row_offsets, col_offsets)
        r1, r2 = self.r1.exp()[:, None, None], self.r2[:, None, None]
        if self.method == 'log':
            return -r1 * (r2.exp() * distance).log1p()
        # A power has no second derivative at 0, where the kernel is 0 for every exponent.
        power = torch.where(distance > 0, distance, 1.0) ** (2 * r2.sigmoid())
        return -r1 * torch.where(distance > 0, power, 0.0)
