"""The valid tokens of a padded batch as one row, without padding."""
from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from .extents import valid_extents
from .tracing import uncompiled


# Not a NamedTuple: compiled code would read its numbers, and each batch of sizes would need a graph
# of its own.
@dataclass(frozen=True, eq=False)
class Packing:
    """Where images are in a row of tokens (1, N, C) ("Patch n' Pack": NaViT, Dehghani et al.,
    NeurIPS 2023, Sec. 2.1). The part of an image in the row is a view.

    Attributes:
        grids: (rows, columns) of each image.
        places: (N,) long, places of the tokens in the flattened padded batch.
        shape: (B, L) of that batch.
    """

    grids: tuple[tuple[int, int], ...]
    places: Tensor
    shape: tuple[int, int]

    @classmethod
    def of_batch(cls, padding_mask: Tensor, hw_shape: tuple[int, int] | None = None
                 ) -> Packing | None:
        """The packing of a padded batch's valid tokens, image by image, without images that have
        none; None if there are no valid tokens, or those of an image are no rectangle at the first
        cell.

        Args:
            padding_mask: (B, L) bool, True = padding.
            hw_shape: (H, W) with H * W = L; None if the images' own grids are not needed: the
                tokens of each then count as one row of cells.
        """
        valid = ~padding_mask
        if hw_shape is None:
            grids = [(1, count) for count in valid.sum(1).tolist() if count]
        else:
            try:
                grids = valid_extents(padding_mask[valid.any(1)].view(-1, *hw_shape))
            except ValueError:
                return None
        if not grids:
            return None
        return cls(tuple(grids), valid.flatten().nonzero()[:, 0],
                   (padding_mask.shape[0], padding_mask.shape[1]))

    def pack(self, x: Tensor) -> Tensor:
        """Pack the tokens (B, L, C) of a padded batch into a row (1, N, C)."""
        return x.flatten(0, 1).index_select(0, self.places)[None]

    def unpack_to_padded(self, x: Tensor) -> Tensor:
        """Unpack a row (1, N, C) into the tokens (B, L, C) of the padded batch, with zeros at the
        padding."""
        zeros = x.new_zeros(self.shape[0] * self.shape[1], x.shape[2])
        return zeros.index_copy(0, self.places, x[0]).view(*self.shape, -1)

    def parts(self, x: Tensor) -> list[Tensor]:
        """Split a row (1, N, ...) into the tokens (1, L, ...) of each image."""
        return list(x.split([rows * cols for rows, cols in self.grids], 1))

    # Not compiled; compiled code continues before and after it.
    @uncompiled
    def run_on_parts(self, run: Callable[..., Tensor], x: Tensor,
                     **others: Tensor | None) -> Tensor:
        """Run a module on the tokens of one image after the other.

        Args:
            run: takes tokens (1, L, ...), their grid (H, W), and ``others`` by name.
            x: the row.
            others: further rows, or None.

        Returns:
            The results as a row.
        """
        rows = {name: self.parts(row) for name, row in others.items() if row is not None}
        return torch.cat([
            run(part, grid, **{name: parts[index] for name, parts in rows.items()})
            for index, (part, grid) in enumerate(zip(self.parts(x), self.grids, strict=True))], 1)
