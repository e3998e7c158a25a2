"""Token encodings between encoder layers, on one or several feature levels."""
from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from ..encodings.placement import EncodingConfigs, PlacedEncodings
from ..functional.grids import as_grid

HWShapes = Sequence[tuple[int, int]]


class LevelEncodings(nn.ModuleList):
    """The encodings of an encoder whose tokens are those of all levels, one after the other.

    Every level is encoded on its own grid with its own padding, so nothing passes between levels.

    Args:
        pos_encoding, positions: as of a backbone, see :class:`PlacedEncodings`.
        num_layers: encoder layers.
        num_levels: feature levels.
        shared: one set of encodings for all levels instead of one each.
        embed_dims: channels.

    Raises:
        ValueError: as PlacedEncodings; for an encoding that changes the grid, or a module for
            several levels.
    """

    def __init__(self, pos_encoding: EncodingConfigs, positions: Sequence[int] | None,
                 num_layers: int, num_levels: int, shared: bool, embed_dims: int) -> None:
        count = 1 if shared else num_levels
        if isinstance(pos_encoding, nn.Module) and count > 1:
            raise ValueError(f'pos_encoding is a module, but there are {count} levels; give a '
                             f'config dict, or pos_encoding_shared=True')
        super().__init__(PlacedEncodings(pos_encoding, positions, num_layers,
                                         embed_dims=embed_dims) for _ in range(count))
        self.num_levels = num_levels
        self[0].refuse(other_grid='a DETR encoder must keep it: the decoder reads the memory by it')

    def at(self, position: int) -> bool:
        """Whether anything stands at a position."""
        return bool(self[0].encodings(position))

    def forward(self, x: Tensor, hw_shapes: HWShapes | None, position: int,
                padding_mask: Tensor | None = None) -> Tensor:
        """Encode tokens (B, L, C) with the encodings at ``position`` that replace them."""
        if not self.at(position):
            return x
        parts = [placed(part, hw, position, padding_mask=mask)[0]
                 for placed, part, hw, mask in self._split(x, hw_shapes, padding_mask)]
        return parts[0] if len(parts) == 1 else torch.cat(parts, 1)

    def query_key_tokens(self, x: Tensor, hw_shapes: HWShapes | None, position: int,
                         padding_mask: Tensor | None = None) -> Tensor | None:
        """Tokens for the queries and keys of the next layer, or None where they are x."""
        if not any(e.apply_to == 'qk' for e in self[0].encodings(position)):
            return None
        parts = [placed.query_key_tokens(part, hw, position, padding_mask=mask)
                 for placed, part, hw, mask in self._split(x, hw_shapes, padding_mask)]
        return parts[0] if len(parts) == 1 else torch.cat(parts, 1)

    def _split(self, x: Tensor, hw_shapes: HWShapes | None, padding_mask: Tensor | None
               ) -> list[tuple[PlacedEncodings, Tensor, tuple[int, int], Tensor | None]]:
        """For each level its encodings, tokens, grid and mask (B, H, W)."""
        shapes = check_levels(x, hw_shapes, self.num_levels)
        sizes = [height * width for height, width in shapes]
        masks: list[Tensor | None] = [None] * len(shapes)
        if padding_mask is not None:
            masks = [mask.unflatten(1, hw) for mask, hw in
                     zip(padding_mask.split(sizes, 1), shapes, strict=True)]
        return [(self[index if len(self) > 1 else 0], part, hw, mask) for index, (part, hw, mask)
                in enumerate(zip(x.split(sizes, 1), shapes, masks, strict=True))]


def check_levels(x: Tensor, hw_shapes: HWShapes | None, num_levels: int) -> list[tuple[int, int]]:
    """The grids of the levels, after checking that they hold the tokens x (B, L, C).

    Raises:
        ValueError: naming grids and tokens where they disagree.
    """
    if hw_shapes is None:
        raise ValueError('spatial_shapes=None, but the encoder has encodings that need the grid '
                         '(H, W) of every level')
    shapes = [as_grid(hw, 'spatial_shapes').hw for hw in hw_shapes]
    if len(shapes) != num_levels:
        raise ValueError(f'spatial_shapes={shapes} has {len(shapes)} levels, but the encoder has '
                         f'num_levels={num_levels}')
    cells = sum(height * width for height, width in shapes)
    if cells != x.shape[1]:
        raise ValueError(f'query has {x.shape[1]} tokens, but spatial_shapes={shapes} has {cells} '
                         f'cells')
    return shapes
