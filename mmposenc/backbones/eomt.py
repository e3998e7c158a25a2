"""EoMT: a plain vision transformer that segments by itself."""
from __future__ import annotations

from collections.abc import Sequence
from math import log2
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..encodings.base import reset_layers
from ..encodings.checks import check_at_least
from ..functional.extents import MaskLike, cells_of, read_extents
from ..functional.grids import pair
from ..functional.image_sizes import ImgShapes, checked_one_batch, get_img_shapes, mask_images
from ..functional.masking import tokens_to_map
from ..functional.tracing import is_exporting, is_transforming
from .archs import takes_arch
from .layers import LayerNorm2d
from .vit import ViT

#: The logit of a mask in the padding: no loss and no query takes notice of it there.
_OUTSIDE = -100.0


class EoMT(ViT):
    """Encoder-only mask transformer (EoMT, Kerssies et al., CVPR 2025): learned queries join the
    tokens of a plain vision transformer before its last blocks, and each becomes a class and a
    mask. There is no adapter, no pixel decoder and no transformer decoder.

    The queries are prefix tokens. Before each query block a mask is predicted, and a query attends
    only to the patches inside its own (masked attention), with the probabilities of
    ``predictor.mask_probs``. ``MaskAnnealingHook`` lowers them from 1 to 0 in training. At 0,
    evaluation needs no mask and only the last prediction. Evaluation draws no random numbers: it
    takes probabilities as 1 from 0.5 on, and as 0 below.

    Args:
        arch: as in :class:`ViT`.
        num_classes: number of classes, without that of no object.
        num_queries: number of queries.
        query_blocks: number of blocks that the queries take part in.
        num_upscales: number of times that the sides of the last map are doubled before masks are
            read from it; None: to a stride of 4 pixels for patches of 16, at least once.
        shared: arguments of :class:`ViT` but ``pool``, ``out_indices``, ``final_norm`` and
            ``neck_channels``. Registers and class tokens are those of the arch.

    Raises:
        ValueError: as ViT; numbers that are no positive ones, or more query blocks than blocks; an
            encoding changes the grid or is shared by blocks with and without queries; query blocks
            attend in windows; ``out_indices``, ``neck_channels`` or ``ceil_mode=False`` are
            given.

    Differences from the releases: images of any size, whose padding may be masked; evaluation in
    the course of a training, where they draw random numbers; each block has
    its own mask in evaluation too, where transformers keeps that of the block before for a block of
    probability 0.
    """

    structure: Sequence[str] = (
        *ViT.structure, 'num_classes', 'num_queries', 'query_blocks', 'num_upscales')
    #: Weights that the file of a pretrained transformer does not have.
    may_be_new = r'(query|predictor)\..*'

    @takes_arch
    def __init__(self, arch: str | None = None, *, num_classes: int, num_queries: int = 100,
                 query_blocks: int = 4, num_upscales: int | None = None, **shared: Any) -> None:
        for name in ('out_indices', 'neck_channels', 'with_image'):
            if shared.get(name) not in (None, False):
                raise ValueError(f'{name}={shared[name]!r}: EoMT returns classes and masks; leave '
                                 f'it out, or use ViT for maps')
        layers, patch = shared['num_layers'], max(pair(shared.get('patch_size', 16)))
        if num_upscales is None:
            num_upscales = max(1, int(log2(patch)) - 2)
        check_at_least(1, num_classes=num_classes, num_queries=num_queries)
        check_at_least(0, num_upscales=num_upscales)
        if not 1 <= query_blocks <= layers:
            raise ValueError(f'query_blocks={query_blocks} must be from 1 to num_layers={layers}')
        # These are set first: the constructor of ViT calls methods of this class that need them.
        self.num_classes, self.num_queries = num_classes, num_queries
        self.query_blocks, self._num_upscales = range(layers - query_blocks, layers), num_upscales
        _check_shared(self.query_blocks, shared)
        super().__init__(arch, **{**shared, 'pool': None, 'out_indices': None, 'final_norm': True,
                                  'neck_channels': None})
        self.pos_encodings.refuse_unsupported(other_grid='the masks are of the whole image')

    def _make_output(self, embed_dims: int, num_layers: int, *options: Any) -> None:
        super()._make_output(embed_dims, num_layers, *options)
        self.query = nn.Embedding(self.num_queries, embed_dims)
        self.predictor = ClassAndMaskHead(embed_dims, self.num_classes, self._num_upscales,
                                          len(self.query_blocks))

    def reset_parameters(self) -> None:
        """Initialise as :class:`ViT`; queries and predictor as in torch."""
        super().reset_parameters()
        self.query.reset_parameters()
        reset_layers(self.predictor)

    def _num_prefix(self, block: int) -> int:
        return super()._num_prefix(block) + self._num_queries(block)

    def _num_queries(self, block: int) -> int:
        return self.num_queries if block in self.query_blocks else 0

    def forward(self, x: Tensor, img_shapes: ImgShapes | None = None  # type: ignore[override]
                ) -> tuple[tuple[Tensor, ...], tuple[Tensor, ...]]:
        """Predict classes and masks.

        Args:
            x: images (B, in_channels, H, W), padded at the right and bottom.
            img_shapes: as in :meth:`ViT.forward`.

        Returns:
            Logits of the classes, each (B, num_queries, num_classes + 1), the last for no object,
            and logits of the masks, each (B, num_queries, H', W'), which cover the batch exactly:
            one for ``patch_size / 2 ** num_upscales`` pixels, or one for each pixel if a side is no
            multiple of the patches, which takes more memory. (In an exported program they cover
            whole patches.) There is one of each before every block with masked attention, in
            training before every query block, and one after the last block.

        Raises:
            ValueError: as ViT.
        """
        batch_hw = checked_one_batch(x).shape[-2:]
        shapes = get_img_shapes(x, img_shapes, self.mask_padding)
        x, mask = mask_images(x, shapes, self.patch_size)
        tokens, hw_shape = self._tokens_and_grid(x)
        predictions: list[tuple[Tensor, Tensor]] = []
        probs = self.predictor.probabilities()
        for position in range(-1, len(self.blocks)):
            attn_mask = None
            if position == self.query_blocks.start:
                queries = self.query.weight.expand(tokens.shape[0], -1, -1)
                tokens = torch.cat((queries, tokens), dim=1)
            if position in self.query_blocks:
                prob = probs[position - self.query_blocks.start]
                if self.training or is_transforming() or prob > 0:
                    predictions.append(self._predict(tokens, hw_shape, mask))
                    attn_mask = self._attn_mask(predictions[-1][1], tokens, hw_shape, prob)
            tokens, hw_shape, mask = self._run_block_and_encodings(position, tokens, hw_shape, mask,
                                                                   attn_mask)
        predictions.append(self._predict(tokens, hw_shape, mask))
        classes, masks = zip(*predictions, strict=True)
        return classes, tuple(self._masks_of_batch(each, mask, batch_hw) for each in masks)

    def _predict(self, tokens: Tensor, hw_shape: tuple[int, int], mask: MaskLike | None
                 ) -> tuple[Tensor, Tensor]:
        assert self.norm is not None
        normed = self.norm(tokens)
        cells = normed[:, self._num_prefix(self.query_blocks.start):].contiguous()
        return self.predictor(normed[:, :self.num_queries], tokens_to_map(cells, hw_shape),
                              cells_of(mask))

    def _attn_mask(self, masks: Tensor, tokens: Tensor, hw_shape: tuple[int, int],
                   prob: float | Tensor) -> Tensor | None:
        """Which pairs of tokens (B, 1, L, L) may attend: all, except a query and a patch outside of
        the query's mask. With the probability 1 - ``prob`` a query may attend to all patches."""
        if not isinstance(prob, Tensor) and prob <= 0:
            return None
        inside = F.interpolate(masks.detach(), hw_shape, mode='bilinear').flatten(2) > 0
        if isinstance(prob, Tensor) or prob < 1:
            shape = inside.shape[:2] if self.training else (1, 1)
            is_open = torch.rand(shape, device=inside.device) if self.training else 0.5
            inside = inside | (is_open > torch.as_tensor(prob, device=inside.device).expand(
                shape))[..., None]
        others = tokens.shape[1] - self.num_queries
        return F.pad(inside, (self._num_prefix(self.query_blocks.start), 0, 0, others),
                     value=True)[:, None]

    def _masks_of_batch(self, masks: Tensor, mask: MaskLike | None, batch_hw: Sequence[int]
                        ) -> Tensor:
        """Move the masks of the largest image to the grid (B, num_queries, H', W') of the whole
        batch.

        Beyond an image its last cells are repeated, so that masks that are enlarged later equal
        those of the image alone; after that nothing is inside of a mask there.
        """
        if is_exporting():
            return masks
        sides, times = pair(self.patch_size), 2 ** len(self.predictor.upscale)
        grid = self.patch_embed.out_hw_shape(batch_hw)
        height, width = grid[0] * times, grid[1] * times
        if mask is not None or masks.shape[-2:] != (height, width):
            shown = masks.shape[-2] // times, masks.shape[-1] // times
            extents = [shown] * len(masks) if mask is None else read_extents(mask)
            parts = []
            for image, (rows, cols) in zip(masks, extents, strict=True):
                part = F.pad(image[:, :rows * times, :cols * times], (0, 1, 0, 1), mode='replicate')
                parts.append(F.pad(part, (0, width - part.shape[-1], 0, height - part.shape[-2]),
                                   value=_OUTSIDE))
            masks = torch.stack(parts)
        if all(side % cell == 0 for side, cell in zip(batch_hw, sides, strict=True)):
            return masks
        pixels = [cells * side for cells, side in zip(grid, sides, strict=True)]
        masks = F.interpolate(masks, pixels, mode='bilinear')
        return masks[..., :batch_hw[0], :batch_hw[1]]


class ClassAndMaskHead(nn.Module):
    """A class and a mask of each query.

    Args:
        embed_dims: channels of queries and cells.
        num_classes: classes without that of no object.
        num_upscales: number of times that the sides of the map are doubled.
        query_blocks: number of probabilities of masked attention.

    The buffer ``mask_probs`` (query_blocks,) holds the probability that a query attends to the
    patches in its mask alone, by block.
    """

    mask_probs: Tensor

    def __init__(self, embed_dims: int, num_classes: int, num_upscales: int, query_blocks: int
                 ) -> None:
        super().__init__()
        self.class_head = nn.Linear(embed_dims, num_classes + 1)
        self.mask_head = nn.Sequential(
            nn.Linear(embed_dims, embed_dims), nn.GELU(), nn.Linear(embed_dims, embed_dims),
            nn.GELU(), nn.Linear(embed_dims, embed_dims))
        self.upscale = nn.ModuleList(Upscale(embed_dims) for _ in range(num_upscales))
        self.register_buffer('mask_probs', torch.ones(query_blocks))

    def probabilities(self) -> list[float] | list[Tensor]:
        """The probabilities ``mask_probs`` as Python numbers, in evaluation 0 or 1. An exported
        program has no masked attention, because its graph is the same for all of them."""
        if is_exporting():
            return [0.0] * len(self.mask_probs)
        if self.mask_probs.is_meta:
            return [1.0] * len(self.mask_probs)
        if is_transforming():  # Models of an ensemble may have different ones.
            return list(self.mask_probs)
        probs: list[float] = self.mask_probs.tolist()
        return probs if self.training else [float(prob >= 0.5) for prob in probs]

    def forward(self, queries: Tensor, cells: Tensor, padding_mask: Tensor | None = None
                ) -> tuple[Tensor, Tensor]:
        """Queries (B, Q, C) and a map (B, C, H, W), of which padding (B, H, W) is left out ->
        (B, Q, num_classes + 1) and (B, Q, H', W')."""
        for upscale in self.upscale:
            if padding_mask is not None:
                padding_mask = padding_mask.repeat_interleave(2, 1).repeat_interleave(2, 2)
            cells = upscale(cells, padding_mask)
        masks = torch.einsum('bqc,bchw->bqhw', self.mask_head(queries), cells)
        return self.class_head(queries), masks


class Upscale(nn.Module):
    """A map of twice the height and width: a transposed convolution, GELU, a depthwise convolution
    and a norm of the channels.

    Args:
        embed_dims: channels.
    """

    def __init__(self, embed_dims: int) -> None:
        super().__init__()
        self.conv1 = nn.ConvTranspose2d(embed_dims, embed_dims, 2, stride=2)
        self.conv2 = nn.Conv2d(embed_dims, embed_dims, 3, padding=1, groups=embed_dims, bias=False)
        self.norm = LayerNorm2d(embed_dims, eps=1e-6)

    def forward(self, x: Tensor, padding_mask: Tensor | None = None) -> Tensor:
        """(B, C, H, W) -> (B, C, 2 H, 2 W); the padding mask is that of the output."""
        x = F.gelu(self.conv1(x))
        if padding_mask is not None:
            x = x.masked_fill(padding_mask[:, None], 0.0)
        return self.norm(self.conv2(x))


def _check_shared(query_blocks: range, shared: dict[str, Any]) -> None:
    """Raise ValueError for arguments of ViT that do not go with queries and masks."""
    if not shared.get('ceil_mode', True):
        raise ValueError('ceil_mode=False leaves out pixels, but the masks are of the whole image; '
                         'leave it out')
    sharing = shared.get('rel_pos_sharing', 'layer')
    windows = {name: shared[name] for name in ('window_size', 'window_count')
               if shared.get(name) is not None}
    if sharing != 'layer' and query_blocks.start:
        raise ValueError(f"rel_pos_sharing={sharing!r}: the last {len(query_blocks)} blocks have "
                         f"other prefix tokens, the queries; use rel_pos_sharing='layer'")
    if windows and not set(query_blocks) <= set(shared.get('global_blocks', ())):
        raise ValueError(f'{windows}: queries attend to the whole image, so '
                         f'global_blocks={tuple(shared.get("global_blocks", ()))} must contain '
                         f'{tuple(query_blocks)}')
