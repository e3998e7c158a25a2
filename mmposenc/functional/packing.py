"""Images of several sizes as one row of tokens, without padding: a list of images, or the valid
tokens of a padded batch."""
from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from .convolutions import pair
from .grids import whole_cells
from .masking import pad_map, valid_extents


# Not a NamedTuple: compiled code would read its numbers, and each list of sizes would need a graph
# of its own.
@dataclass(frozen=True, eq=False)
class Packing:
    """Where images are in a row of tokens (1, N, C) ("Patch n' Pack": NaViT, Dehghani et al.,
    NeurIPS 2023, Sec. 2.1). Neighbours with one grid are a part of the row: a part is a batch, and
    a view.

    Attributes:
        counts: number of images in each part.
        grids: (rows, columns) of each part.
        prefix: tokens before those of the grid in each image.
        places: (N,) long, places of the tokens in a flattened padded batch; None for a list.
        shape: (B, L) of that batch.
    """

    counts: tuple[int, ...]
    grids: tuple[tuple[int, int], ...]
    prefix: int = 0
    places: Tensor | None = None
    shape: tuple[int, int] = (0, 0)

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
        return cls((1,) * len(grids), tuple(grids), places=valid.flatten().nonzero()[:, 0], shape=(
            padding_mask.shape[0], padding_mask.shape[1])) if grids else None

    def pack(self, x: Tensor) -> Tensor:
        """Pack the tokens (B, L, C) of a padded batch into a row (1, N, C)."""
        assert self.places is not None
        return x.flatten(0, 1).index_select(0, self.places)[None]

    def unpack_to_padded(self, x: Tensor) -> Tensor:
        """Unpack a row (1, N, C) into the tokens (B, L, C) of the padded batch, with zeros at the
        padding."""
        assert self.places is not None
        zeros = x.new_zeros(self.shape[0] * self.shape[1], x.shape[2])
        return zeros.index_copy(0, self.places, x[0]).view(*self.shape, -1)

    def parts(self, x: Tensor) -> list[Tensor]:
        """Split a row (1, N, ...) into batches (n, L, ...) of images with the same grid."""
        sizes = [n * (self.prefix + rows * cols)
                 for n, (rows, cols) in zip(self.counts, self.grids, strict=True)]
        return [part.view(n, -1, *x.shape[2:])
                for part, n in zip(torch.split(x, sizes, 1), self.counts, strict=True)]

    def with_changed_grids(self, change: Callable[[tuple[int, int]], tuple[int, int]]) -> Packing:
        """The same packing, with the grids that ``change`` returns for them."""
        return replace(self, grids=tuple(map(change, self.grids)))

    # Not compiled; compiled code continues before and after it.
    @torch.compiler.disable
    def run_on_parts(self, run: Callable[..., Tensor], x: Tensor,
                     **others: Tensor | None) -> Tensor:
        """Run a module on each part of a row.

        Args:
            run: takes tokens (n, L, ...), their grid (H, W), and ``others`` by name.
            x: the row.
            others: further rows, or None.

        Returns:
            The results as a row.
        """
        rows = {name: self.parts(row) for name, row in others.items() if row is not None}
        return join_batches_to_row([
            run(part, grid, **{name: parts[index] for name, parts in rows.items()})
            for index, (part, grid) in enumerate(zip(self.parts(x), self.grids, strict=True))])


def join_batches_to_row(parts: Sequence[Tensor]) -> Tensor:
    """Join batches (n, L, ...) to one row (1, N, ...)."""
    return torch.cat([part.flatten(0, 1) for part in parts])[None]


def batch_by_grid(images: Sequence[Tensor], channels: int,
                  cell: int | tuple[int, int]) -> tuple[list[Tensor], list[int]]:
    """Batches of the images that have the same grid.

    Args:
        images: each (channels, H, W), or several of one size as (n, channels, H, W).
        channels: what the model takes.
        cell: pixels of a side of a cell, or of its rows and columns. The last row and column of
            cells are filled with zeros.

    Returns:
        Batches (n, channels, H, W), and the place of each image in them.

    Raises:
        ValueError: there are no images, or they are no tensors or have other shapes, dtypes or
            devices.
    """
    if not len(images):
        raise ValueError('x is an empty list; it must hold at least one image')
    parts: dict[tuple[int, int], list[tuple[Tensor, range]]] = {}
    count, (rows, cols) = 0, pair(cell)
    for index, image in enumerate(images):
        if not isinstance(image, Tensor):
            raise ValueError(f'x[{index}] is a {type(image).__name__}; it must be a tensor')
        shape = tuple(image.shape)
        if len(shape) not in (3, 4) or shape[-3] != channels or 0 in shape:
            raise ValueError(f'x[{index}] has shape {shape}; ({channels}, H, W) or (n, {channels}, '
                             f'H, W) with at least one pixel is required')
        for name in ('dtype', 'device'):
            if getattr(image, name) != getattr(images[0], name):
                raise ValueError(f'x[{index}] has {name} {getattr(image, name)}, but x[0] '
                                 f'{getattr(images[0], name)}; they must be equal')
        sides = (whole_cells(shape[-2], rows) * rows, whole_cells(shape[-1], cols) * cols)
        batch = pad_map(image.reshape(-1, *shape[-3:]), sides)
        parts.setdefault(sides, []).append((batch, range(count, count + len(batch))))
        count += len(batch)
    in_row = [number for part in parts.values() for _, numbers in part for number in numbers]
    order = sorted(range(count), key=in_row.__getitem__)
    return [torch.cat([batch for batch, _ in part]) for part in parts.values()], order
