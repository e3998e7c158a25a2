"""Mixins that put this project's encoder into mmdet's detectors of the DETR family."""
from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any

import torch
from mmdet.models.detectors import DINO, DetectionTransformer
from mmdet.structures import DetDataSample
from torch import Tensor, nn

from mmposenc.backbones.checkpoints import load_pretrained
from mmposenc.backbones.optional_mmengine import is_pretrained
from mmposenc.compat.deform_attn import host_shapes, level_sizes
from mmposenc.config_types import ConfigType
from mmposenc.detr.boxes import BoxRPB, PositionRelation, cell_boxes
from mmposenc.detr.encoders import DetrEncoder
from mmposenc.encodings.base import reset_encodings
from mmposenc.encodings.build import construct_or_name_config
from mmposenc.functional.extents import PaddingMask, cells_of, filled_extents, token_mask
from mmposenc.functional.masking import map_to_tokens
from mmposenc.functional.tracing import is_exporting

from ...stand_ins import with_children, with_output
from . import positions
from .decoders import check_decoder
from .encoders import DeformableEncoder, one_layer_config
from .neck import ChannelMapper
from .positions import AbsoluteKind
from .relation import Boxes, add_relations

#: What mmdet's detectors hand from one of their steps to the next, by the names of arguments.
Arguments = dict[str, Any]


class Encoded(DetectionTransformer):
    """A mixin that replaces the encoder (and the decoder) of one of mmdet's detectors.

    mmdet's detectors build their encoder inside ``_init_layers``. Here mmdet builds one of a single
    small layer, which is then replaced. So the names in the state dict and their order stay
    mmdet's, and no other code of mmdet is copied.
    """

    encoder_type: type[DetrEncoder]
    #: The argument that takes encodings; '' if there is none.
    encodings_in = 'encoder'
    #: The class of this project that replaces the decoder; None keeps mmdet's decoder.
    decoder_type: type[nn.Module] | None = None
    #: Why the encoder, or the decoder's keys, cannot do without an absolute encoding; '' if they
    #: can.
    needs_encoder_pos = needs_key_pos = ''
    #: Whether the queries have boxes before the first layer of the decoder.
    decoder_knows_boxes = False
    #: For arguments of biases by boxes that the decoder does not support, the reason.
    no_relations: dict[str, str] = {}
    #: Why the neck cannot encode in the place of the encoder (``encoder=None``), or what there is
    #: instead of an encoder; '' if there can be either.
    needs_encoder = has_no_encoder = ''
    #: mmdet's sines, or their config while it is built; None where the neck encodes.
    positional_encoding: Any

    def _init_layers(self) -> None:
        encoder_cfg, decoder_cfg = copy.copy(self.encoder), copy.copy(self.decoder)
        self.neck_encodes = encoder_cfg is None
        if self.neck_encodes and self.needs_encoder:
            raise ValueError(f'encoder=None: {self.needs_encoder}')
        if not self.neck_encodes and self.has_no_encoder:
            raise ValueError(f'encoder={encoder_cfg!r}: {type(self).__name__} has none of its own; '
                             f'{self.has_no_encoder}')
        self.encoder_pos, self.replaced_encodings = None, {}
        if not self.neck_encodes:
            self.encoder_pos = positions.pop_absolute(encoder_cfg)
            self.replaced_encodings = positions.replaced_sines(self.encoder_pos,
                                                               encoder_cfg.get('pos_encoding'))
        self.key_pos = self._checked_key_pos(decoder_cfg)
        for name, kind, needs in (('encoder.encoder_pos', self.encoder_pos, self.needs_encoder_pos),
                                  ('decoder.key_pos', self.key_pos, self.needs_key_pos)):
            if kind is None and needs:
                raise ValueError(f'{name}=None: {needs}')
        relations = {name: decoder_cfg.pop(name, None) for name in ('relation', 'box_bias')}
        for name, cfg in relations.items():
            if cfg is not None and name in self.no_relations:
                raise ValueError(f'decoder.{name}={cfg!r}: {self.no_relations[name]}')
        check_decoder(decoder_cfg)
        encoder = None if self.neck_encodes else construct_or_name_config(
            self.encoder_type, encoder_cfg, 'encoder')
        self._check_encoder(encoder)
        decoder = None if self.decoder_type is None else construct_or_name_config(
            self.decoder_type, decoder_cfg, 'decoder')
        self.encoder = one_layer_config(encoder or decoder, encoder_cfg or {}, of_encoder=True)
        self.decoder = decoder_cfg if decoder is None else one_layer_config(decoder, decoder_cfg)
        if self.neck_encodes:
            self.positional_encoding = dict(num_feats=decoder.embed_dims // 2)
        super()._init_layers()
        self.encoder = encoder or nn.Identity()
        if self.neck_encodes:
            self.positional_encoding = None
        if decoder is not None:
            self.decoder = decoder
        if encoder is not None and self.decoder.embed_dims != encoder.embed_dims:
            raise ValueError(f'the encoder has embed_dims={encoder.embed_dims} and the decoder '
                             f'{self.decoder.embed_dims}; they must be equal')
        add_relations(self.decoder, **relations, starts=self.decoder_knows_boxes)
        self.uses_boxes = any(relations.values())
        # Configs exclude parameters with this name from weight decay.
        self.encoder_pos_encodings = positions.build_position(
            self.encoder_pos, self.embed_dims, 'encoder.encoder_pos')
        self.key_pos_encodings = positions.build_position(
            self.key_pos, self.embed_dims, 'decoder.key_pos')

    def _check_encoder(self, encoder: DetrEncoder | None) -> None:
        """Raise ValueError if the detector cannot have this encoder."""

    def init_weights(self) -> None:
        """Initialise as mmdet does, except that encodings keep their own initial values and a
        checkpoint of the whole detector (``init_cfg``), which may be a release's, is loaded."""
        if is_pretrained(self.init_cfg) and 'prefix' not in self.init_cfg:
            load_pretrained(self, self.init_cfg['checkpoint'])
            return
        self._init_parts()
        reset_encodings(self.encoder)
        for module in self.decoder.modules():
            if isinstance(module, BoxRPB | PositionRelation):
                module.reset_parameters()

    def _init_parts(self) -> None:
        """Initialise everything as mmdet does."""
        super().init_weights()

    def forward_decoder(self, hw_shape: tuple[int, int] | None = None, **kwargs: Any) -> Arguments:
        """Decode as mmdet does; ``relation`` and ``box_bias`` add biases to the decoder's
        attention."""
        if not self.uses_boxes:
            return super().forward_decoder(**kwargs)
        cells, mask = None, kwargs.get('memory_mask')
        if hw_shape is not None:
            sides = (torch.tensor(hw_shape, device=kwargs['query'].device) if mask is None
                     else filled_extents(mask.view(-1, *hw_shape)))
            cells = (hw_shape, sides)
        boxes = Boxes(self.decoder, self.bbox_head, self._initial_reference(kwargs),
                      getattr(self, 'with_box_refine', self.decoder_knows_boxes), cells)
        biased = with_children(self, {'decoder': boxes.biased_decoder()})
        return super(Encoded, biased).forward_decoder(**kwargs)

    def _initial_reference(self, decoder_args: Arguments) -> Tensor | None:
        """The boxes or points of the queries before the first layer, as shares of the image."""
        return decoder_args.get('reference_points')

    def extract_feat(self, batch_inputs: Tensor) -> tuple[Tensor, ...]:
        """Extract features as mmdet does; necks of this project also get the images' sizes."""
        if not self.with_neck or not positions.masks_exactly(self):
            return super().extract_feat(batch_inputs)
        shapes, full_hw = getattr(batch_inputs, 'img_shapes', None), tuple(batch_inputs.shape[-2:])
        maps = self.backbone(batch_inputs)
        for neck in self.necks:
            if isinstance(neck, ChannelMapper):
                maps = neck(maps, shapes, full_hw)
            elif getattr(neck, 'takes_padding_mask', False):
                maps = neck(maps, None if shapes is None else positions.exact_mask(
                    maps[0], full_hw, list(shapes)))
            else:
                maps = neck(maps)
        return maps

    @property
    def necks(self) -> list[nn.Module]:
        """The neck, or the necks of a list, in which each gets the maps of the one before."""
        if not self.with_neck:
            return []
        return list(self.neck) if isinstance(self.neck, nn.Sequential) else [self.neck]

    def _masks(self, features: Sequence[Tensor], samples: Sequence[DetDataSample] | None
               ) -> list[PaddingMask | None]:
        if is_exporting():  # An exported model has no padding.
            return [None] * len(features)
        return positions.padding_masks(samples, features, positions.masks_exactly(self))


class Dense(Encoded):
    """Detectors whose encoder attends to all tokens of one map: DETR and its direct variants."""

    encoder_type = DetrEncoder
    needs_encoder = 'only a detector whose decoder samples several maps can have a neck encode'

    def _checked_key_pos(self, decoder_cfg: ConfigType) -> AbsoluteKind:
        return decoder_cfg.pop('key_pos', 'sine')

    def pre_transformer(self, img_feats: tuple[Tensor, ...],
                        batch_data_samples: Sequence[DetDataSample] | None = None
                        ) -> tuple[Arguments, Arguments]:
        """Prepare the last map: its tokens, mask, grid and positions for the encoder, and mask and
        positions for the decoder."""
        feature = img_feats[-1]
        mask = self._masks([feature], batch_data_samples)[0]
        args = (self.positional_encoding, feature, cells_of(mask))
        encoder_pos = positions.position_tokens(self.encoder_pos, self.encoder_pos_encodings, *args)
        if self.key_pos == 'sine' and self.encoder_pos == 'sine':
            key_pos = encoder_pos
        else:
            key_pos = positions.position_tokens(self.key_pos, self.key_pos_encodings, *args)
        flat_mask = None if mask is None else token_mask(mask)
        return (dict(feat=map_to_tokens(feature), feat_mask=flat_mask, feat_pos=encoder_pos,
                     spatial_shapes=[(feature.shape[-2], feature.shape[-1])]),
                dict(memory_mask=cells_of(flat_mask), memory_pos=key_pos,
                     **{'hw_shape': feature.shape[-2:]} if self.uses_boxes else {}))

    def forward_encoder(self, feat: Tensor, feat_mask: PaddingMask | None,
                        feat_pos: Tensor | None,
                        spatial_shapes: list[tuple[int, int]] | None = None) -> Arguments:
        """Encode as mmdet does, with the grid as a further argument."""
        return dict(memory=self.encoder(feat, feat_pos, feat_mask, spatial_shapes=spatial_shapes))


class Deformable(Encoded):
    """Detectors with deformable attention on one level or several: Deformable DETR and its
    variants."""

    encoder_type: type[DetrEncoder] = DeformableEncoder
    #: Whether two stages always choose ``num_queries`` tokens, even if there are fewer.
    takes_num_queries = True
    no_relations = {'box_bias': 'deformable attention has no logits of queries and cells; use '
                                'decoder.relation'}

    def _init_layers(self) -> None:
        super()._init_layers()
        if self.neck_encodes:
            del self.level_embed
            self.level_embed = torch.zeros(0)  # mmdet initialises it; no encoder would add it.

    def _checked_key_pos(self, decoder_cfg: ConfigType) -> None:
        if 'key_pos' in decoder_cfg:
            raise ValueError(f'decoder.key_pos={decoder_cfg["key_pos"]!r}: the decoder of '
                             f'{type(self).__name__} has no keys; leave it out')

    def _check_encoder(self, encoder: DetrEncoder | None) -> None:
        cross = self.decoder.get('layer_cfg', {}).get('cross_attn_cfg', {})
        given = {}
        if encoder is not None:
            given['encoder'] = encoder.num_levels
        elif self.necks and (levels := getattr(self.necks[-1], 'num_levels', 0)):
            given['neck'] = levels
        for name, levels in (*given.items(), ('decoder', cross.get('num_levels', 4))):
            if levels != self.num_feature_levels:
                raise ValueError(f'num_feature_levels={self.num_feature_levels}, but the {name} '
                                 f'has num_levels={levels}; they must be equal')

    def pre_transformer(self, mlvl_feats: tuple[Tensor, ...],
                        batch_data_samples: Sequence[DetDataSample] | None = None
                        ) -> tuple[Arguments, Arguments]:
        """Prepare all levels: their tokens, masks, grids and positions."""
        if len(mlvl_feats) != self.num_feature_levels:
            raise ValueError(f'the neck gives {len(mlvl_feats)} maps, but num_feature_levels='
                             f'{self.num_feature_levels}')
        masks = [cells_of(mask) for mask in self._masks(mlvl_feats, batch_data_samples)]
        maps = self._projected(mlvl_feats, masks)
        feat, mask, shared = self._flattened(maps, masks)
        for_encoder = dict(feat=feat, feat_mask=mask, feat_pos=None, **shared)
        if not self.neck_encodes:
            embedded = []
            for embed, feature, level_mask in zip(self.level_embed, maps, masks, strict=True):
                position = positions.position_tokens(
                    self.encoder_pos, self.encoder_pos_encodings, self.positional_encoding, feature,
                    level_mask)
                embed = embed.view(1, 1, -1)
                embedded.append(embed.expand(feature.shape[0], feature[0, 0].numel(), -1)
                                if position is None else position + embed)
            for_encoder['feat_pos'] = torch.cat(embedded, 1)
        return for_encoder, dict(memory_mask=mask, **shared)

    def _projected(self, maps: Sequence[Tensor], masks: Sequence[Tensor | None]
                   ) -> Sequence[Tensor]:
        """The neck's maps as the encoder, or the decoder, takes them."""
        return maps

    def _flattened(self, maps: Sequence[Tensor], masks: Sequence[Tensor | None]
                   ) -> tuple[Tensor, Tensor | None, Arguments]:
        """The tokens of all levels one after the other, their mask, and where the levels lie."""
        shapes = [(each.shape[-2], each.shape[-1]) for each in maps]
        spatial_shapes, starts = level_sizes(shapes, maps[0])
        mask_flat, ratios = None, maps[0].new_ones(maps[0].shape[0], len(shapes), 2)
        if any(mask is not None for mask in masks):
            whole = [torch.zeros(len(maps[0]), *hw, dtype=torch.bool, device=ratios.device)
                     if mask is None else mask for mask, hw in zip(masks, shapes, strict=True)]
            mask_flat = torch.cat([mask.flatten(1) for mask in whole], 1)
            extents = torch.stack([filled_extents(mask) for mask in whole], 1)
            ratios = (extents / spatial_shapes).flip(-1)
        return torch.cat([map_to_tokens(each) for each in maps], 1), mask_flat, dict(
            spatial_shapes=spatial_shapes, valid_ratios=ratios, level_start_index=starts)

    def forward_encoder(self, feat: Tensor, feat_mask: Tensor | None, feat_pos: Tensor | None,
                        spatial_shapes: Tensor, level_start_index: Tensor, valid_ratios: Tensor
                        ) -> Arguments:
        """Encode as mmdet does; without an encoder, the memory is the tokens of the neck."""
        memory = feat if self.neck_encodes else self.encoder(
            feat, feat_pos, feat_mask, spatial_shapes, level_start_index, valid_ratios)
        return dict(memory=memory, memory_mask=feat_mask, spatial_shapes=spatial_shapes)

    def pre_decoder(self, memory: Tensor, memory_mask: Tensor | None, spatial_shapes: Tensor,
                    **kwargs: Any) -> tuple[Arguments, Arguments]:
        """Prepare the decoder as mmdet does. With two stages and a backbone that masks padding,
        padded tokens become proposals only after all valid ones.

        Raises:
            ValueError: two stages, and fewer tokens than queries, which are chosen among them.
        """
        self._check_num_queries(memory, spatial_shapes)
        if not self.as_two_stage or memory_mask is None or not positions.masks_exactly(self):
            return super().pre_decoder(memory, memory_mask, spatial_shapes, **kwargs)
        # Also a second branch, which DDQ has for its dense queries. Logits must be finite, because
        # the loss multiplies them by labels of zero.
        branches = nn.ModuleList(
            with_output(branch, lambda out: out.masked_fill(memory_mask[..., None], -1e4))
            for branch in self.bbox_head.cls_branches)
        masking = with_children(self, {'bbox_head': with_children(
            self.bbox_head, {'cls_branches': branches})})
        return super(Deformable, masking).pre_decoder(memory, memory_mask, spatial_shapes, **kwargs)

    def _check_num_queries(self, memory: Tensor, spatial_shapes: Tensor) -> None:
        if (self.as_two_stage and self.takes_num_queries and not is_exporting()
                and memory.shape[1] < self.num_queries):
            maps = ', '.join(f'{height}x{width}' for height, width in host_shapes(spatial_shapes))
            raise ValueError(f'num_queries={self.num_queries} is more than the {memory.shape[1]} '
                             f'cells of the maps ({maps}) of images of this size; lower '
                             'model.num_queries, or take larger images')

    def _best_tokens(self, scores: Tensor, memory_mask: Tensor | None, *others: Tensor
                     ) -> list[Tensor]:
        """Of as many tokens as there are queries, those with the highest scores outside of padding:
        their scores (B, queries, classes), and the same rows of other tensors."""
        best = scores.max(-1)[0]
        if memory_mask is not None:
            best = best.masked_fill(memory_mask, -torch.inf)
        chosen = best.topk(self.num_queries, dim=1)[1][..., None]
        return [each.gather(1, chosen.expand(-1, -1, each.shape[-1]))
                for each in (scores, *others)]

    def gen_encoder_output_proposals(self, memory: Tensor, memory_mask: Tensor | None,
                                     spatial_shapes: Tensor) -> tuple[Tensor, Tensor]:
        """The projected memory, and a box of each cell before its sigmoid, as mmdet computes them,
        but in the precision of the memory, and without asking the device for sizes."""
        logits, unused = cell_boxes(host_shapes(spatial_shapes), memory, memory_mask,
                                    before_sigmoid=True)
        memory = memory.masked_fill(unused, 0)
        return self.memory_trans_norm(self.memory_trans_fc(memory)), logits


class AnyBatchDINO(DINO):
    """mmdet's DINO without its comparison of the number of images with that of the queries: an
    exported file would have that number for ever."""

    def forward_decoder(self, query: Tensor, memory: Tensor, memory_mask: Tensor | None,
                        dn_mask: Tensor | None = None, **kwargs: Any) -> Arguments:
        """Decode as mmdet does."""
        states, references = self.decoder(
            query=query, value=memory, key_padding_mask=memory_mask, self_attn_mask=dn_mask,
            reg_branches=self.bbox_head.reg_branches, **kwargs)
        return dict(hidden_states=states, references=list(references))
