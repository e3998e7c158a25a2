"""DETR's encoder with position encodings, for one or several feature levels."""
from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from ..backbones.layers import run_block
from ..backbones.optional_mmengine import BaseModule, ModuleList
from ..config_types import ConfigType
from ..encodings import build
from ..encodings.base import RelativeConfig
from ..encodings.placement import EncodingConfigs, PlacedEncodings
from ..encodings.sharing import share_encodings
from ..functional.extents import MaskLike, cells_of
from ..functional.grids import as_grid
from ..functional.packing import Packing
from ..functional.tracing import is_compiling
from .layers import DetrEncoderLayer

HWShapes = Sequence[tuple[int, int]]


class LevelEncodings(nn.ModuleList):
    """The encodings of an encoder whose tokens are those of all levels, one after the other.

    Each level is encoded on its own grid with its own padding, so levels do not mix.

    Args:
        pos_encoding, positions: as in a backbone, see :class:`PlacedEncodings`.
        num_layers: number of encoder layers.
        num_levels: number of feature levels.
        shared: all levels share their encodings; False: each has its own.
        embed_dims: channels.

    Raises:
        ValueError: as in PlacedEncodings, or an encoding changes the grid, or ``pos_encoding`` is a
            module and there are several levels.
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
        if build.listed(pos_encoding) and not self[0].at:
            raise ValueError(f'positions={positions!r} is no place in an encoder of num_layers='
                             f'{num_layers}: pos_encoding={pos_encoding!r} would not be used')
        self[0].refuse_unsupported(
            other_grid='a DETR encoder must keep it: the decoder reads the memory by it')

    def has_encoding_at(self, position: int) -> bool:
        """Whether an encoding stands at a position."""
        return bool(self[0].encodings(position))

    def forward(self, x: Tensor, hw_shapes: HWShapes | None, position: int,
                padding_mask: Tensor | None = None) -> Tensor:
        """Encode tokens (B, L, C) with the encodings at ``position`` that replace tokens
        (``apply_to='qkv'``)."""
        if not self.has_encoding_at(position):
            return x
        return self._joined(placed(part, hw, position, padding_mask=mask)[0]
                            for placed, part, hw, mask in self._split(x, hw_shapes, padding_mask))

    def query_key_tokens(self, x: Tensor, hw_shapes: HWShapes | None, position: int,
                         padding_mask: Tensor | None = None) -> Tensor | None:
        """The tokens from which the next layer computes queries and keys, or None if these are x
        itself."""
        if not any(e.apply_to == 'qk' for e in self[0].encodings(position)):
            return None
        return self._joined(placed.query_key_tokens(part, hw, position, padding_mask=mask)
                            for placed, part, hw, mask in self._split(x, hw_shapes, padding_mask))

    def _joined(self, levels: Iterable[Tensor]) -> Tensor:
        parts = list(levels)
        return parts[0] if len(parts) == 1 else torch.cat(parts, 1)

    def _split(self, x: Tensor, hw_shapes: HWShapes | None, padding_mask: Tensor | None
               ) -> list[tuple[PlacedEncodings, Tensor, tuple[int, int], Tensor | None]]:
        """Split tokens by level: the encodings of each level, its tokens, its grid and its mask (B,
        H, W)."""
        shapes = check_levels(x, hw_shapes, self.num_levels)
        sizes = [height * width for height, width in shapes]
        masks: list[Tensor | None] = [None] * len(shapes)
        if padding_mask is not None:
            masks = [mask.unflatten(1, hw) for mask, hw in
                     zip(padding_mask.split(sizes, 1), shapes, strict=True)]
        return [(self[index if len(self) > 1 else 0], part, hw, mask) for index, (part, hw, mask)
                in enumerate(zip(x.split(sizes, 1), shapes, masks, strict=True))]


def check_levels(x: Tensor, hw_shapes: HWShapes | None, num_levels: int) -> list[tuple[int, int]]:
    """The grids of the levels, after a check that they have as many cells as x (B, L, C) has
    tokens.

    Raises:
        ValueError: they do not; it names both.
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


#: The share of padded tokens from which it is faster to compute only with the valid ones.
SKIP_SHARE = 0.05


class DetrEncoder(BaseModule):
    """Encoder of DETR with encodings between its layers and inside its attention.

    Args:
        num_layers: number of layers.
        layer_cfg: arguments of :class:`DetrEncoderLayer`, or of a subclass given by ``type``.
        rel_pos_encoding: a RelativeEncoding config for the attention of every layer, a list of them
            to be summed, or None; ``layer_cfg.self_attn_cfg`` takes it too.
        rel_pos_sharing: 'layer': each layer has its own relative encoding; 'stage' or 'all': all
            layers share one.
        pos_encoding: a TokenEncoding config, a list of them, or None.
        positions: where ``pos_encoding`` is applied: -1 before the first layer, i after layer i;
            None: the usual place of each encoding (PEG: after layer 0).
        num_cp: number of layers, from the first, that are recomputed in the backward pass.
        skip_padding: whether the layers skip padded tokens, which are then zero in the memory;
            valid tokens do not change. None: on a CPU if at least 5 % of the tokens are padding.
        init_cfg: mmengine's.

    Parameters have the names of mmdet's encoder. Without encodings the results equal mmdet's.

    Raises:
        ValueError: positions or encodings do not fit.
    """

    layer_type: type[DetrEncoderLayer] = DetrEncoderLayer
    num_levels = 1
    pos_encoding_shared = False

    def __init__(self, num_layers: int, layer_cfg: ConfigType, *,
                 rel_pos_encoding: RelativeConfig | None = None, rel_pos_sharing: str = 'layer',
                 pos_encoding: EncodingConfigs = None, positions: Sequence[int] | None = None,
                 num_cp: int = -1, skip_padding: bool | None = None,
                 init_cfg: ConfigType | None = None) -> None:
        if skip_padding not in (None, True, False):
            raise ValueError(f'skip_padding={skip_padding!r} must be True, False or None')
        if num_layers < 1 or num_cp > num_layers:
            raise ValueError(f'num_layers={num_layers} must be at least 1, and num_cp={num_cp} at '
                             f'most num_layers')
        if pos_encoding is None and positions is not None:
            raise ValueError(f'positions={positions!r} needs a pos_encoding')
        if rel_pos_encoding is not None:
            attention = layer_cfg.get('self_attn_cfg') or self.layer_type.usual_attention
            if attention.get('rel_pos_encoding') is not None:
                raise ValueError(f'encoder.rel_pos_encoding={rel_pos_encoding!r}: layer_cfg.'
                                 'self_attn_cfg has a rel_pos_encoding too; give one of them')
            attention = {**attention, 'rel_pos_encoding': rel_pos_encoding}
            layer_cfg = {**layer_cfg, 'self_attn_cfg': attention}
        super().__init__(init_cfg)
        self.num_layers, self.layer_cfg, self.num_cp = num_layers, layer_cfg, num_cp
        self._init_layers()
        share_encodings(rel_pos_sharing, self, [self.layers])
        self.skip_padding = skip_padding
        self.num_levels = getattr(self.layers[0].self_attn, 'num_levels', 1)
        self.pos_encodings = LevelEncodings(pos_encoding, positions, num_layers, self.num_levels,
                                            self.pos_encoding_shared, self.embed_dims)

    def _init_layers(self) -> None:
        arguments = dict(self.layer_cfg)
        name = arguments.pop('type', self.layer_type)
        layer_type = name if isinstance(name, type) else build.find_class(name)
        if not (isinstance(layer_type, type) and issubclass(layer_type, self.layer_type)):
            raise ValueError(f'encoder.layer_cfg.type={name!r} must be '
                             f'mmposenc.{self.layer_type.__name__}, or a class derived from it')
        self.layers = ModuleList(build.construct_or_name_config(layer_type, arguments,
                                                                'encoder.layer_cfg')
                                 for _ in range(self.num_layers))
        self.embed_dims = self.layers[0].embed_dims

    def forward(self, query: Tensor, query_pos: Tensor | None = None,
                key_padding_mask: MaskLike | None = None, *,
                spatial_shapes: HWShapes | tuple[int, int] | Tensor | None = None,
                need_weights: bool = False) -> Tensor | tuple[Tensor, list[Tensor]]:
        """Encode.

        Args:
            query: tokens (B, H * W, C).
            query_pos: absolute encoding added to queries and keys, same shape, or None.
            key_padding_mask: (B, H * W) bool, True = padding, at the right and bottom; or a
                ``PaddingMask``.
            spatial_shapes: (H, W), or [(H, W)] as in mmdet; optional if no encoding needs it.
            need_weights: also return the attention weights of every layer, for figures.

        Returns:
            Memory (B, H * W, C); with ``need_weights`` also a list of (B, heads, L, L).

        Raises:
            ValueError: the grid is missing or does not have L cells.
        """
        shapes: Any = spatial_shapes
        if isinstance(shapes, Tensor):
            shapes = shapes.tolist()
        if shapes is not None:
            shapes = check_levels(query, shapes if len(shapes) == 1 else [shapes], 1)
        return self._run_layers(query, query_pos, key_padding_mask, shapes, need_weights,
                                dict(hw_shape=None if shapes is None else shapes[0]))

    def _run_layers(self, x: Tensor, query_pos: Tensor | None, padding: MaskLike | None,
                    hw_shapes: HWShapes | None, need_weights: bool, kwargs: dict[str, Any],
                    before: Callable[[int, Tensor], Tensor] | None = None
                    ) -> Tensor | tuple[Tensor, list[Tensor]]:
        """Run all layers, each with ``kwargs``, and the encodings between them. ``before`` gets the
        number of the next layer and its tokens, and returns the tokens to encode."""
        weights: list[Tensor] = []
        mask = cells_of(padding)
        if mask is not None and (mask.dtype != torch.bool or mask.shape != x.shape[:2]):
            raise ValueError(f'key_padding_mask has shape {tuple(mask.shape)} and dtype '
                             f'{mask.dtype}; (B, L) = {tuple(x.shape[:2])} and bool are required')
        packing = None if need_weights else self._packing(mask, hw_shapes)
        if packing is not None:
            query_pos = None if query_pos is None else packing.pack(query_pos.expand_as(x))
            x, kwargs = packing.pack(x), dict(packing=packing)
        elif need_weights:
            kwargs['need_weights'] = True
        if before is not None:
            x = before(0, x)
        x, kwargs['x_qk'] = self._apply_encodings(x, -1, hw_shapes, mask, packing)
        for index, layer in enumerate(self.layers):
            args = (x, self._layer_pos(x, query_pos), None if packing is not None else padding)
            out = run_block(layer, *args, recompute=index < self.num_cp and self.training, **kwargs)
            if need_weights:
                out, layer_weights = out
                weights.append(layer_weights)
            if before is not None and index + 1 < self.num_layers:
                out = before(index + 1, out)
            x, kwargs['x_qk'] = self._apply_encodings(out, index, hw_shapes, mask, packing)
        x = x if packing is None else packing.unpack_to_padded(x)
        return (x, weights) if need_weights else x

    def _layer_pos(self, x: Tensor, query_pos: Tensor | None) -> Tensor | None:
        """The encoding that a layer adds to its tokens x to compute queries and keys."""
        return query_pos

    def _apply_encodings(self, x: Tensor, position: int, hw_shapes: HWShapes | None,
                         mask: Tensor | None, packing: Packing | None
                         ) -> tuple[Tensor, Tensor | None]:
        """The tokens after the encodings at a position, and those for the next queries and keys if
        they differ."""
        if not self.pos_encodings.has_encoding_at(position):
            return x, None
        x = x if packing is None else packing.unpack_to_padded(x)
        x = self.pos_encodings(x, hw_shapes, position, mask)
        qk = None
        if position + 1 < self.num_layers:
            qk = self.pos_encodings.query_key_tokens(x, hw_shapes, position, mask)
        if packing is None:
            return x, qk
        return packing.pack(x), None if qk is None else packing.pack(qk)

    def _packing(self, mask: Tensor | None, hw_shapes: HWShapes | None) -> Packing | None:
        """The packing of the valid tokens, if layers leave padded ones out; otherwise None."""
        if mask is None or self.skip_padding is False or self._is_compiled():
            return None
        if self.skip_padding is None:
            # On a GPU the host would have to wait for the number of tokens.
            if mask.device.type != 'cpu' or float(mask.float().mean()) < SKIP_SHARE:
                return None
        grid = None
        if any(layer.self_attn.rel_pos_encoding is not None for layer in self.layers):
            if hw_shapes is None:
                return None
            grid = hw_shapes[0]
        return Packing.of_batch(mask, grid)

    def _is_compiled(self) -> bool:
        """Whether a layer is compiled. A compiled layer is not packed, because each batch would
        need a graph of its own."""
        layers = [layer._compiled_call_impl for layer in self.layers]
        return is_compiling() or any(layer is not None for layer in layers)
