"""Decoders whose attention has biases that depend on the boxes which the layer before predicts."""
from __future__ import annotations

from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from mmdet.models.layers.transformer import (
    ConditionalDetrTransformerDecoder,
    DABDetrTransformerDecoder,
    inverse_sigmoid,
)
from mmengine.model import ModuleList
from torch import Tensor, nn

from mmposenc.config_types import ReadOnlyConfig
from mmposenc.detr.boxes import BoxRPB, PositionRelation
from mmposenc.registry import MODELS

from ...stand_ins import with_children

#: Decoders of mmdet whose layers call the masks of their attentions otherwise than DETR's.
_OTHER_NAMES = (ConditionalDetrTransformerDecoder, DABDetrTransformerDecoder)


def add_relations(decoder: nn.Module, relation: ReadOnlyConfig | None,
                  box_bias: ReadOnlyConfig | None, starts: bool) -> None:
    """Add biases to a decoder: ``relation``, which all layers share, and ``box_bias``, one for each
    layer.

    Args:
        starts: whether queries have boxes before the first layer.
    """
    if relation is None and box_bias is None:
        return
    layers = decoder.layers
    heads = layers[0].self_attn.num_heads
    if relation is not None:
        _check_config('relation', relation, PositionRelation, heads, 1, len(layers))
        decoder.relation = MODELS.build({'num_heads': heads, **relation})
    if box_bias is not None:
        _check_config('box_bias', box_bias, BoxRPB, heads, int(not starts), len(layers))
        decoder.box_bias = ModuleList(
            MODELS.build({'num_heads': heads, **box_bias}) if starts or number else nn.Identity()
            for number in range(len(layers)))


def _check_config(name: str, cfg: object, kind: type[nn.Module], heads: int, first: int, layers: int
                  ) -> None:
    """Raise ValueError for a config of another class or number of heads, or if no layer uses it."""
    chosen = cfg.get('type') if isinstance(cfg, dict) else None
    chosen = MODELS.get(chosen) if isinstance(chosen, str) else chosen
    if not (isinstance(cfg, dict) and isinstance(chosen, type) and issubclass(chosen, kind)):
        raise ValueError(f'decoder.{name}={cfg!r} must be dict(type=\'mmposenc.{kind.__name__}\')')
    if cfg.get('num_heads', heads) != heads:
        raise ValueError(f'decoder.{name}.num_heads={cfg["num_heads"]} must be {heads}, the heads '
                         f'of the decoder; leave it out')
    if layers <= first:
        raise ValueError(f'decoder.{name}={cfg!r}: the first layer has no boxes before it, and '
                         f'decoder.num_layers={layers}; at least {first + 1} layers are required')


class Boxes:
    """The boxes of the queries in one pass of a decoder, and the biases computed from them.

    Args:
        decoder: a decoder changed by :func:`add_relations`.
        head: the detector's head, which predicts boxes from queries.
        reference: (B, queries, 4 or 2) before the first layer, as shares of the image; None if the
            detector has none.
        refines: whether each layer refines the reference.
        cells: (H, W) of the keys' map, and (B, 2) or (2,) valid rows and columns; for
            ``box_bias``.
    """

    def __init__(self, decoder: nn.Module, head: nn.Module, reference: Tensor | None, refines: bool,
                 cells: tuple[tuple[int, int], Tensor] | None) -> None:
        self.decoder, self.head, self.refines, self.cells = decoder, head, refines, cells
        self.relation = getattr(decoder, 'relation', None)
        self.box_bias = getattr(decoder, 'box_bias', None)
        self.norm = getattr(decoder, 'post_norm', None) or getattr(decoder, 'norm', None)
        self.reference = None if reference is None else reference.detach()
        self.boxes = self.before = self.reference if self._has_boxes() else None

    def _has_boxes(self) -> bool:
        return self.reference is not None and self.reference.shape[-1] == 4

    def biased_decoder(self) -> nn.Module:
        """The decoder with layers that get biases, for one pass: mmdet's decoders hand nothing down
        to their layers.

        Raises:
            RuntimeError: the decoder is not called itself, so that it would call its own layers.
        """
        if 'layers' not in self.decoder._modules or 'forward' in vars(self.decoder):
            raise RuntimeError('a decoder with relation or box_bias is recomputed as a whole, or '
                               'wrapped: recompute or wrap its layers')
        return with_children(self.decoder, {'layers': [
            partial(self._run_layer, number) for number in range(len(self.decoder.layers))]})

    def _run_layer(self, number: int, query: Tensor, *args: object, **kwargs: Any) -> Tensor:
        """Run a layer with the biases of its attentions, outside of the layer's compiled graph."""
        to_self, to_cross = ('self_attn_masks', 'cross_attn_masks') if isinstance(
            self.decoder, _OTHER_NAMES) else ('self_attn_mask', 'cross_attn_mask')
        if self.relation is not None and number:
            kwargs[to_self] = _bias_with_mask(self.relation(self.before, self.boxes),
                                              kwargs.get(to_self))
        boxes = self.reference if self._has_boxes() else self.boxes
        if self.box_bias is not None and boxes is not None:
            assert self.cells is not None
            kwargs[to_cross] = _heads_in_batch(self.box_bias[number](boxes, *self.cells))
        query = self.decoder.layers[number](query, *args, **kwargs)
        self._move(number, query)
        return query

    @torch.no_grad()
    def _move(self, number: int, query: Tensor) -> None:
        """Replace the boxes by those that the detector predicts after a layer."""
        if number == len(self.decoder.layers) - 1:
            return
        normed = query if self.norm is None else self.norm(query)
        boxes = self._moved(number, normed)
        self.before, self.boxes = boxes if self.boxes is None else self.boxes, boxes
        if self.refines:
            self.reference = self._moved(number, query)

    def _moved(self, number: int, query: Tensor) -> Tensor:
        head = self.head
        if hasattr(head, 'reg_branches'):
            boxes = head.reg_branches[number](query)
        elif hasattr(head, 'reg_ffn'):
            boxes = head.fc_reg(head.activate(head.reg_ffn(query)))
        else:
            boxes = head.fc_reg(query)
        if self.reference is not None:
            start = inverse_sigmoid(self.reference, eps=1e-3)
            boxes = boxes + F.pad(start, (0, 4 - start.shape[-1]))
        return boxes.sigmoid()


def _bias_with_mask(bias: Tensor, mask: Tensor | None) -> Tensor:
    """Combine a bias (B * heads, queries, queries) with a mask: it becomes -inf where the mask is
    True, because groups of denoising queries do not attend to each other."""
    bias = _heads_in_batch(bias)
    if mask is None:
        return bias
    return bias.masked_fill(mask, float('-inf')) if mask.dtype == torch.bool else bias + mask


def _heads_in_batch(bias: Tensor) -> Tensor:
    """Join heads to the batch, (B, heads, n, m) -> (B * heads, n, m); mmdet's attention takes no
    mask in bfloat16."""
    bias = bias.flatten(0, 1)
    return bias.float() if bias.dtype == torch.bfloat16 else bias
