"""Fourier features of the position, with learned frequencies."""
from __future__ import annotations

import torch
from torch import Tensor, nn

from ..functional.tracing import full_precision
from .absolute import AddedTable
from .checks import check_at_least, check_positive


class LearnableFourierFeatures(AddedTable):
    """x + MLP([cos(W p), sin(W p)] / sqrt(F)) of the row and column p of a cell, with learned
    frequencies W (Li et al., NeurIPS 2021, Algorithm 1, one group).

    p counts cells from the first one. At the start of training the product of the features of two
    cells at distance d is exp(-d^2 / (2 gamma^2)), on images of any size.

    Args:
        embed_dims: C.
        fourier_dims: F, cosines and sines together; None is C.
        hidden_dims: hidden channels of the MLP, which has a GELU.
        gamma: in cells; frequencies start normal with standard deviation 1 / gamma.
        apply_to: as for :class:`.LearnedPositionEmbedding`.

    Parameters: ``frequencies`` (F / 2, 2) and ``mlp``.

    Raises:
        ValueError: for sizes below 1, an odd F, or gamma not above 0.
    """

    variants = {'fourier': ('learned Fourier features', {})}

    def __init__(self, embed_dims: int, *, fourier_dims: int | None = None, hidden_dims: int = 32,
                 gamma: float = 10.0, apply_to: str = 'qkv') -> None:
        super().__init__(embed_dims, apply_to)
        features = embed_dims if fourier_dims is None else fourier_dims
        check_at_least(1, hidden_dims=hidden_dims)
        check_positive(gamma=gamma)
        if features < 2 or features % 2:
            raise ValueError(f'fourier_dims={features} must be even: cosines and sines')
        self.gamma = gamma
        self.frequencies = nn.Parameter(torch.empty(features // 2, 2))
        self.mlp = nn.Sequential(nn.Linear(features, hidden_dims), nn.GELU(),
                                 nn.Linear(hidden_dims, embed_dims))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw the frequencies as in the paper, and the MLP as PyTorch does."""
        nn.init.normal_(self.frequencies, std=1 / self.gamma)
        super().reset_parameters()

    def start_at_zero(self) -> None:
        """Set the last layer of the MLP to zero, so that nothing is added."""
        for name, parameter in self.mlp.named_parameters():
            if name.startswith('2.'):
                nn.init.zeros_(parameter)

    def grid_table(self, hw_shape: tuple[int, int], extents: Tensor | None, like: Tensor) -> Tensor:
        weights = self.frequencies.to(torch.promote_types(self.frequencies.dtype, torch.float32))
        rows, cols = (torch.arange(side, device=like.device, dtype=weights.dtype)
                      for side in hw_shape)
        with full_precision(like):
            angles = (rows[:, None, None] * weights[:, 0] + cols[:, None] * weights[:, 1])
            features = torch.cat((angles.cos(), angles.sin()), -1).flatten(0, 1)
            features = features / features.shape[-1] ** 0.5
            table: Tensor = self.mlp(features.to(self.frequencies.dtype))[None]
        return table if extents is None else table.expand(len(extents), -1, -1)
