"""Any shipped config with few blocks, and batches for it."""
import copy
from typing import Any

import torch
from mmengine.config import Config
from mmengine.registry import MODELS, DefaultScope
from torch import nn


class Teacher(nn.Module):
    """Gives each image of a batch another class."""

    def forward(self, inputs, data_samples=None, mode='tensor'):
        return torch.eye(1000)[:len(inputs)]


def shrink(cfg: Config) -> Config:
    """The same parts for pictures of 64 x 64 pixels, with a block or layer each, or as many as
    positions and levels need, few queries, and no file of weights."""
    model = cfg.model
    _shrink_backbone(model.backbone)
    if 'decoder' in model:  # Decoders scale positions of queries from the second layer on.
        model.decoder.num_layers = 2
        model.num_queries, model.test_cfg.max_per_img = 5, 5
    if 'encoder' in model:
        model.encoder.num_layers = 1
    head = model.get('panoptic_head') or model.get('decode_head') or {}
    if 'pixel_decoder' in head:
        head.pixel_decoder.encoder.num_layers, head.transformer_decoder.num_layers = 1, 3
    if 'teacher' in model:
        model.teacher = None
    batches = model.get('data_preprocessor') or {}
    if batches.get('size'):
        batches.size = (64, 64)
    if batches.get('pad_size_divisor', 1) > 64:
        batches.pad_size_divisor = 64
    if 'batch_augments' in batches:  # Resizing asks the runner for the number of the step.
        batches.batch_augments = [{**each, 'size': (64, 64)} for each in batches.batch_augments
                                  or () if 'random_size_range' not in each]
    return cfg


def _shrink_backbone(backbone: Any) -> None:
    kind = backbone.type.rpartition('.')[2]
    backbone.init_cfg = None
    if kind in ('PVT', 'Swin', 'MixVisionTransformer'):
        backbone.num_layers = [1] * len(backbone.get('num_layers') or range(4))
    elif kind == 'SwinTransformer':
        backbone.depths = [1] * 4
    elif kind == 'VisionTransformer':
        backbone.update(img_size=64, arch=dict(
            embed_dims=768, num_layers=2, num_heads=12, feedforward_channels=768))
    elif kind in ('ViT', 'DeiT', 'EoMT'):
        _shrink_plain(backbone)


def _shrink_plain(backbone: Any) -> None:
    """As many blocks as there are maps, positions of encodings, and blocks with queries."""
    encodings = backbone.get('pos_encoding') or []
    encodings = encodings if isinstance(encodings, list) else [encodings]
    positions = [backbone.get('positions'), *(each.get('default_positions') for each in encodings)]
    last = max([1, *(i for each in positions if each != 'every' for i in each or ())])
    maps, query_blocks = backbone.get('out_indices') or (), backbone.get('query_blocks', 0)
    blocks = max(last + 1, len(maps), query_blocks + 1)
    backbone.num_layers = blocks
    backbone.frozen_stages = min(backbone.get('frozen_stages', -1), blocks - query_blocks)
    if maps:
        backbone.out_indices = tuple(range(blocks))[-len(maps):]
    if str(backbone.get('arch')).startswith('dinov'):  # Untrained, its blocks would add nothing.
        backbone.layer_scale_init_value = 1.0
    if backbone.get('in_channels', 3) == 3:  # digits are small as they are
        backbone.img_size = 64
    if 'window_size' in backbone or str(backbone.get('arch')).startswith('vitdet'):
        backbone.update(window_size=3, global_blocks=(1,))
    if backbone.get('window_count'):
        backbone.global_blocks = (1,)


def build(cfg: Config, seed: int = 0, *, initialize: bool = True) -> nn.Module:
    """The model, with weights that the seed gives."""
    torch.manual_seed(seed)
    model = copy.deepcopy(cfg.model)
    if cfg.default_scope == 'mmpretrain':
        model['data_preprocessor'] = copy.deepcopy(cfg.data_preprocessor)
        if 'teacher' in model:
            model['teacher'] = Teacher()
    with DefaultScope.overwrite_default_scope(cfg.default_scope):
        built = MODELS.build(model)
        if initialize:
            built.init_weights()
    return built


def samples(cfg: Config, number: int, seed: int = 0,
            sizes: list[tuple[int, int]] | None = None) -> list[dict]:
    """Items of a data set: random pictures of one size, or of those (height, width), each with
    another number of objects."""
    channels = cfg.model.backbone.get('in_channels', 3)
    side = 64 if channels == 3 else cfg.model.backbone.get('img_size', 32)  # of digits
    generator = torch.Generator().manual_seed(seed)
    made = []
    for i, size in enumerate(sizes or [(side, side)] * number):
        image = torch.randint(0, 256, (channels, *size), dtype=torch.uint8, generator=generator)
        made.append(dict(inputs=image, data_samples=_sample(cfg.default_scope, i, size, generator)))
    return made


def _sample(scope: str, i: int, size: tuple[int, int], generator: torch.Generator) -> Any:
    meta = dict(img_shape=size, ori_shape=size, pad_shape=size, scale_factor=(1.0, 1.0))
    if scope == 'mmdet':
        from mmdet.structures import DetDataSample
        from mmdet.structures.mask import BitmapMasks
        from mmengine.structures import InstanceData
        corners = torch.rand(1 + 2 * i, 2, generator=generator) * torch.tensor(size[::-1]) / 2
        boxes = torch.cat([corners, corners + 8 + corners.flip(0) / 2], 1)
        labels = torch.zeros(len(boxes), dtype=torch.long)  # some have one class
        rows, cols = (torch.arange(side) + 0.5 for side in size)
        inside = ((cols > boxes[:, :1]) & (cols < boxes[:, 2:3]))[:, None] & (
            (rows > boxes[:, 1:2]) & (rows < boxes[:, 3:]))[:, :, None]
        return DetDataSample(metainfo=meta, gt_instances=InstanceData(
            bboxes=boxes, labels=labels, masks=BitmapMasks(inside.byte().numpy(), *size)))
    if scope == 'mmseg':
        from mmengine.structures import PixelData
        from mmseg.structures import SegDataSample
        labels = torch.randint(0, 2, (1, *size), generator=generator)
        return SegDataSample(metainfo=meta, gt_sem_seg=PixelData(data=labels))
    from mmpretrain.structures import DataSample
    return DataSample().set_gt_label(i)


def collated(items: list[dict]) -> dict:
    items = copy.deepcopy(items)
    return dict(inputs=[item['inputs'] for item in items],
                data_samples=[item['data_samples'] for item in items])
