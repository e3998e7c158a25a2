"""Absolute encodings that are added to the tokens: learned tables, or sines and cosines."""
from __future__ import annotations

from abc import abstractmethod

import torch
from torch import Tensor, nn

from ..functional.extents import extents_of
from ..functional.grids import GridLike, as_grid, check_tokens, stored
from ..functional.masking import are_known_equal, join_prefix, split_prefix
from ..functional.position_tables import (
    INTERPOLATIONS,
    at_least_float32,
    resampling_weights,
    resize_position_table,
    sincos_2d,
    whole_extents,
)
from ..functional.tracing import full_precision
from .base import TokenEncoding, set_zeros
from .checks import check_at_least, check_choices, check_positive
from .saved_grid import SavesGrid


class AddedTable(TokenEncoding):
    """x + table(grid), where each image of a padded batch gets the table of its own extent."""

    default_positions = (-1,)

    def __init__(self, embed_dims: int, apply_to: str) -> None:
        super().__init__()
        check_at_least(1, embed_dims=embed_dims)
        check_choices(apply_to=(apply_to, ('qkv', 'qk')))
        self.apply_to = apply_to

    def start_at_zero(self) -> None:
        """Set the tables to zero, so that the encoding adds nothing."""
        set_zeros(self)

    def forward(self, x: Tensor, hw_shape: tuple[int, int], *, num_prefix_tokens: int = 0,
                padding_mask: Tensor | None = None) -> Tensor:
        """Add the encoding of each cell; prefix tokens are returned unchanged.

        Args, Returns, Raises: as TokenEncoding.
        """
        grid = check_tokens(x, hw_shape, num_prefix_tokens)
        prefix, tokens = split_prefix(x, num_prefix_tokens)
        # A table resized to the padded grid would give an image other positions in every batch.
        extents = None if padding_mask is None else extents_of(padding_mask)
        table = self.grid_table(grid.hw, extents, tokens)
        if padding_mask is not None:
            table = table.masked_fill(padding_mask.flatten(1)[..., None], 0)
        return join_prefix(prefix, tokens + table.to(tokens.dtype))

    @abstractmethod
    def grid_table(self, hw_shape: tuple[int, int], extents: Tensor | None, like: Tensor) -> Tensor:
        """The table (1, H*W, C) of a grid, or (B, H*W, C) for images whose valid rows and columns
        are ``extents`` (B, 2); of the device of ``like``."""


class LearnedPositionEmbedding(SavesGrid, AddedTable):
    """A learned vector for each cell of a training grid, resized to any other grid (ViT, Sec. 3.1).

    Args:
        embed_dims: C.
        grid_shape: (H, W) of the table.
        interpolation: for grids other than the table's: 'bicubic', 'bilinear',
            'bicubic_antialias' (as timm), 'bilinear_antialias' (SigLIP 2) or 'bilinear_corners'
            (RADIO). 'cut' numbers the cells row by row and takes the first vectors of the table
            (AI Summer: ``pos_emb1D[:current_seq_tokens]``). 'tile' repeats the table (SAM 3).
        interpolation_offset: added to both sides of the grid where the step from cell to cell is
            computed. DINOv2 without registers was trained with 0.1 and needs it.
        keep_aspect: resize to a square of the longer side and crop it, so that cells stay square
            (NaFlexViT in timm); a grid of the table's own size uses the table as it is.
        num_prefix_embeds: number of prefix tokens with a learned vector (1 for the class token of
            DeiT). Their vectors come first in the table. Calls need at least as many prefix tokens.
        drop: dropout rate after the sum.
        apply_to: 'qkv' adds the encoding to the tokens. 'qk' adds it only to the input of the
            queries and keys of the next attention (CPVT's first version, App. D.2).

    Raises:
        ValueError: for a bad grid, interpolation, offset, rate or ``apply_to``.

    Differs from mmdet's AbsolutePositionEmbedding: a table of the same size is not resampled, and
    an image in a padded batch gets the table of its own size, not of the batch's.
    """

    variants = {'learned': ('learned table', {})}
    grid_name = 'grid_shape'

    def __init__(self, embed_dims: int, grid_shape: GridLike, *, interpolation: str = 'bicubic',
                 interpolation_offset: float = 0.0, keep_aspect: bool = False,
                 num_prefix_embeds: int = 0, drop: float = 0.0, apply_to: str = 'qkv') -> None:
        super().__init__(embed_dims, apply_to)
        check_choices(interpolation=(interpolation, INTERPOLATIONS))
        check_at_least(0, num_prefix_embeds=num_prefix_embeds)
        if not 0.0 <= interpolation_offset < 1.0:
            raise ValueError(f'interpolation_offset={interpolation_offset} must be from 0 to below '
                             f'1')
        if not 0.0 <= drop <= 1.0:
            raise ValueError(f'drop={drop} must be from 0 to 1')
        self._set_sides(as_grid(grid_shape, 'grid_shape').hw)
        self.interpolation, self.interpolation_offset = interpolation, interpolation_offset
        self.keep_aspect, self.num_prefix_embeds = keep_aspect, num_prefix_embeds
        cells = self.sides[0] * self.sides[1]
        self.pos_embed = nn.Parameter(torch.empty(1, num_prefix_embeds + cells, embed_dims))
        self.drop = nn.Dropout(drop)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw the table from a truncated normal distribution with standard deviation 0.02, as DeiT
        and PVT do."""
        nn.init.trunc_normal_(self.pos_embed, std=0.02)

    def grid_table(self, hw_shape: tuple[int, int], extents: Tensor | None, like: Tensor) -> Tensor:
        cells = self.pos_embed[:, self.num_prefix_embeds:]
        if self.keep_aspect and not (
                extents is None and are_known_equal(hw_shape, self.sides)):
            sides = whole_extents(hw_shape, cells.device) if extents is None else extents
            same_size = sides == whole_extents(self.sides, cells.device)
            same_size = same_size.all(1, keepdim=True)
            extents = torch.where(same_size, sides, sides.amax(1, keepdim=True))
        return resize_position_table(cells, self.sides, hw_shape, self.interpolation,
                                     self.interpolation_offset, extents)

    def forward(self, x: Tensor, hw_shape: tuple[int, int], *, num_prefix_tokens: int = 0,
                padding_mask: Tensor | None = None) -> Tensor:
        """Add the table; prefix tokens change only if they have a learned vector.

        Args, Returns, Raises: as TokenEncoding.
        """
        out = super().forward(x, hw_shape, num_prefix_tokens=num_prefix_tokens,
                              padding_mask=padding_mask)
        if self.num_prefix_embeds:
            if num_prefix_tokens < self.num_prefix_embeds:
                raise ValueError(f'num_prefix_tokens={num_prefix_tokens} must be at least '
                                 f'num_prefix_embeds={self.num_prefix_embeds}')
            added = self.pos_embed[:, :self.num_prefix_embeds].to(out.dtype)
            out = torch.cat((out[:, :self.num_prefix_embeds] + added,
                             out[:, self.num_prefix_embeds:]), dim=1)
        return self.drop(out)

    def extra_repr(self) -> str:
        return (f'grid_shape={self.sides}, interpolation={self.interpolation!r}, '
                f'apply_to={self.apply_to!r}')


class FactorizedPositionEmbedding(AddedTable):
    """x + row_table[r] + column_table[c]: positions are trained for images of any aspect ratio
    (NaViT, Dehghani et al., NeurIPS 2023, Sec. 2.1; NaFlexViT in timm).

    Args:
        embed_dims: C.
        grid_shape: (H, W), lengths of the two tables.
        coordinates: 'fractional' resizes each table linearly to its side. 'aspect' resizes both to
            the longer side, so that cells stay square (``pos_embed_ar_preserving`` in timm).
            'absolute' takes the first vectors of the tables.
        apply_to: as for :class:`LearnedPositionEmbedding`.

    Parameters: ``pos_embed_y`` (1, H, C) and ``pos_embed_x`` (1, W, C), named as in timm.

    Raises:
        ValueError: for a bad grid or an unknown option, and for a grid larger than the tables with
            'absolute'.

    Differs from NaViT: the two vectors are added, as in timm; the paper also tries their product
    and concatenation.
    """

    variants = {'factorized': ('tables of rows and columns (NaViT)', {})}

    def __init__(self, embed_dims: int, grid_shape: GridLike, *, coordinates: str = 'fractional',
                 apply_to: str = 'qkv') -> None:
        super().__init__(embed_dims, apply_to)
        check_choices(coordinates=(coordinates, ('fractional', 'aspect', 'absolute')))
        self.grid_shape = as_grid(grid_shape, 'grid_shape').hw
        self.coordinates = coordinates
        self.pos_embed_y, self.pos_embed_x = (
            nn.Parameter(torch.empty(1, side, embed_dims)) for side in self.grid_shape)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw the table from a normal distribution with standard deviation 0.02, as timm does."""
        for table in self.parameters():
            nn.init.normal_(table, std=0.02)

    def grid_table(self, hw_shape: tuple[int, int], extents: Tensor | None, like: Tensor) -> Tensor:
        if like.is_meta:
            return like.new_empty(1, hw_shape[0] * hw_shape[1], like.shape[-1])
        sides = whole_extents(hw_shape, like.device) if extents is None else extents
        if self.coordinates == 'aspect':
            sides = sides.amax(1, keepdim=True).expand(-1, 2)
        parts = []
        for axis, rounded in enumerate((self.pos_embed_y, self.pos_embed_x)):
            length, table = hw_shape[axis], at_least_float32(rounded)
            if self.coordinates == 'absolute':
                if length > table.shape[1]:
                    raise ValueError(f'hw_shape={hw_shape} must fit into grid_shape='
                                     f'{self.grid_shape}; set that to the largest grid, or give '
                                     f'coordinates')
                parts.append(table[:, :length])
                continue
            weights = resampling_weights(table.shape[1], sides[:, axis].double(), length,
                                         'bilinear', table.dtype)
            with full_precision(table):
                parts.append(weights @ table)
        return (parts[0][:, :, None] + parts[1][:, None]).flatten(1, 2)


class WindowedPositionEmbedding(AddedTable):
    """x + image_table[cell] + window_table[cell in its window] ("Window Attention is Bugged",
    Bolya et al., ICLR 2024, Eq. 3; Hiera, SAM 2). The table of the image is resized to each grid;
    that of the window is repeated without resizing, as in pretraining.

    Args:
        embed_dims: C.
        grid_shape: (H, W) of the table of the image; 7 x 7 in Hiera, 14 x 14 in Hiera-B+.
        window_shape: (Wh, Ww) of the table of a window; 8 x 8 in Hiera. Windows start at the first
            cell; the last ones may be cut off.
        interpolation: 'bicubic' (release of SAM 2), 'bilinear' or 'bicubic_antialias' (release of
            Hiera, and timm).
        apply_to: as for :class:`LearnedPositionEmbedding`.

    Parameters: ``pos_embed`` (1, C, H, W) and ``pos_embed_win`` (1, C, Wh, Ww), named as in timm.

    Raises:
        ValueError: for bad sizes or an unknown option.
    """

    variants = {'windowed-table': ('tables of the image and of windows (Hiera)', {})}

    def __init__(self, embed_dims: int, grid_shape: GridLike, *, window_shape: GridLike = (8, 8),
                 interpolation: str = 'bicubic', apply_to: str = 'qkv') -> None:
        super().__init__(embed_dims, apply_to)
        check_choices(interpolation=(interpolation, INTERPOLATIONS))
        self.grid_shape = as_grid(grid_shape, 'grid_shape').hw
        self.window_shape = as_grid(window_shape, 'window_shape').hw
        self.interpolation = interpolation
        self.pos_embed, self.pos_embed_win = (
            nn.Parameter(torch.empty(1, embed_dims, *sides))
            for sides in (self.grid_shape, self.window_shape))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw the tables from a truncated normal distribution with standard deviation 0.02."""
        for table in self.parameters():
            nn.init.trunc_normal_(table, std=0.02)

    def grid_table(self, hw_shape: tuple[int, int], extents: Tensor | None, like: Tensor) -> Tensor:
        cells = at_least_float32(self.pos_embed).flatten(2).transpose(1, 2)
        image = resize_position_table(cells, self.grid_shape, hw_shape, self.interpolation,
                                      extents=extents)
        window = self.pos_embed_win.flatten(2).transpose(1, 2)
        return image + resize_position_table(window, self.window_shape, hw_shape, 'tile')


class SinCosPositionEncoding(AddedTable):
    """Fixed 2-D sines and cosines (Vaswani et al. 2017, Sec. 3.5, on rows and columns).

    The table is computed for each grid and not stored in the state dict.

    Args:
        embed_dims: C, a multiple of 4.
        temperature: base of the wavelengths.
        normalize: positions relative to the size of the image (DETR) instead of in cells.
        layout: order of the channels. 'split' has the sines and cosines of columns, then those of
            rows (MoCo v3). 'interleaved' has rows first and alternates sine and cosine (DETR).
            ``build_sincos2d_pos_embed`` of timm has neither: sines of both axes, then cosines.
        apply_to: as for :class:`LearnedPositionEmbedding`.
    """

    variants = {'sincos': ('sines and cosines', {})}

    def __init__(self, embed_dims: int, *, temperature: float = 10000.0, normalize: bool = False,
                 layout: str = 'split', apply_to: str = 'qkv') -> None:
        super().__init__(embed_dims, apply_to)
        check_positive(temperature=temperature)
        sincos_2d((1, 1), embed_dims, layout=layout)  # Called only because it checks the arguments.
        self.embed_dims = embed_dims
        self.temperature = temperature
        self.normalize = normalize
        self.layout = layout

    def grid_table(self, hw_shape: tuple[int, int], extents: Tensor | None, like: Tensor) -> Tensor:
        dtype = like.dtype if like.dtype.is_floating_point else torch.float32

        def make() -> Tensor:
            return sincos_2d(hw_shape, self.embed_dims, temperature=self.temperature,
                             normalize=self.normalize, layout=self.layout, device=like.device,
                             dtype=dtype, extents=extents)
        if extents is not None:
            return make()
        return stored(('sines', hw_shape, self.embed_dims, self.temperature, self.normalize,
                       self.layout, dtype), make, like.device)

    def extra_repr(self) -> str:
        return (f'{self.embed_dims}, temperature={self.temperature}, normalize={self.normalize}, '
                f'layout={self.layout!r}, apply_to={self.apply_to!r}')
