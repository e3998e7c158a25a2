"""Any shipped config at a few channels and blocks, and batches for it."""
import copy
from typing import Any

import torch
from mmengine.config import Config
from mmengine.registry import MODELS, DefaultScope
from torch import nn

CLASSES = {'mmdet': 3, 'mmseg': 3, 'mmpretrain': 10}
_ONES = [1] * 4
#: Sizes of backbones by their class, and the channels of each stage.
STAGES = {
    'PVT': (dict(embed_dims=[8] * 4, num_layers=_ONES, num_heads=_ONES, mlp_ratios=_ONES), [8] * 4),
    'MixVisionTransformer': (
        dict(embed_dims=8, num_layers=_ONES, num_heads=_ONES, mlp_ratio=1), [8] * 4),
    **{kind: ({'embed_dims': 4, blocks: _ONES, 'num_heads': _ONES, 'window_size': 4,
               'mlp_ratio': 1}, [4, 8, 16, 32])
       for kind, blocks in (('Swin', 'num_layers'), ('SwinTransformer', 'depths'))},
    'VisionTransformer': (dict(arch=dict(
        embed_dims=24, num_layers=2, num_heads=3, feedforward_channels=24), img_size=64), [24] * 4)}


class Teacher(nn.Module):
    def forward(self, inputs, data_samples=None, mode='tensor'):
        return torch.eye(10)[torch.arange(len(inputs)) % 10]


def shrink(cfg: Config) -> Config:
    """The same parts with a few channels; as many blocks as the positions need."""
    widths = _shrink_backbone(cfg.model.backbone)
    {'mmdet': _shrink_detector, 'mmseg': _shrink_segmentor,
     'mmpretrain': _shrink_classifier}[cfg.default_scope](cfg, widths)
    return cfg


def _shrink_backbone(backbone: Any) -> list[int]:
    """Returns the channels of each stage."""
    kind = backbone.type.rpartition('.')[2]
    backbone.init_cfg = None
    if kind == 'PVT' and len(backbone.get('embed_dims', [0] * 4)) == 2:
        return list(backbone.embed_dims)  # small as it is
    if kind in STAGES:
        sizes, widths = STAGES[kind]
        backbone.update(copy.deepcopy(sizes))
        return list(widths)
    if kind == 'ViT' and (backbone.get('window_size')
                          or str(backbone.get('arch')).startswith('vitdet')):
        backbone.update(embed_dims=24, num_layers=2, num_heads=3, mlp_ratio=1.0, img_size=64,
                        window_size=3, global_blocks=(1, ))
        return [24] * 4
    if kind == 'DeiT':
        encodings = backbone.get('pos_encoding') or []
        encodings = encodings if isinstance(encodings, list) else [encodings]
        places = [backbone.get('positions'), *(e.get('default_positions') for e in encodings)]
        last = max([3, *(i for place in places if place != 'every' for i in place or ())])
        backbone.update(arch=None, embed_dims=24, num_layers=last + 1, num_heads=3, mlp_ratio=1.0,
                        img_size=28 if backbone.get('in_channels') == 1 else 64)
        return [24] * 4
    if kind == 'ViT':
        maps = backbone.get('out_indices')  # none where it pools
        blocks = max(2, len(maps or ()))
        frozen = backbone.get('frozen_stages', -1) >= 0
        backbone.update(embed_dims=24, num_layers=blocks, num_heads=3, mlp_hidden_dims=24,
                        img_size=64, frozen_stages=blocks if frozen else -1,
                        out_indices=maps and tuple(range(blocks))[-len(maps):])
        return [24] * 4
    if kind == 'EoMT':
        backbone.update(embed_dims=24, num_layers=3, num_heads=3, mlp_hidden_dims=24, img_size=64,
                        num_classes=3, num_queries=5, query_blocks=2,
                        frozen_stages=min(1, backbone.get('frozen_stages', -1)))
        return [24] * 3
    if kind == 'CPResNet' and backbone.depth in (44, 46):
        backbone.depth = 20
        return [16, 32, 64]
    if kind == 'CPResNet':
        backbone.update(base_channels=8, stem_channels=8)
        return [32, 64, 128, 256]
    if 'dcn' in backbone:  # which only the blocks of large ResNets take
        backbone.update(depth=50, base_channels=4, stem_channels=4)
        return [16, 32, 64, 128]
    backbone.update(depth=18, base_channels=4, stem_channels=4)
    return [4, 8, 16, 32]


def _shrink_detector(cfg: Config, widths: list[int]) -> None:
    model = cfg.model
    if model.backbone.type == 'mmposenc.EoMT':
        for part in (model.panoptic_head, model.panoptic_fusion_head):
            part.num_things_classes = CLASSES['mmdet']
        model.panoptic_head.num_queries = model.test_cfg.max_per_image = 5
        return
    if 'panoptic_head' in model:
        _shrink_masks(model, model.panoptic_head, widths, CLASSES['mmdet'])
        return
    if model.neck.type == 'mmposenc.SimpleFeaturePyramid':
        model.backbone.out_indices = (model.backbone.num_layers - 1,)
        model.neck.in_channels = widths[-1]
    else:
        stages = model.backbone.get('out_indices', (0, 1, 2, 3))
        model.neck.in_channels = [widths[i] for i in stages]
    if 'roi_head' in model:
        _shrink_two_stages(model)
        return
    model.bbox_head.num_classes = CLASSES['mmdet']
    if 'encoder' not in model:
        model.neck.out_channels = 8
        model.bbox_head.update(in_channels=8, feat_channels=8, stacked_convs=1)
        return
    model.num_queries, model.test_cfg.max_per_img = 5, 5
    # Decoders scale the positions of their queries from the second layer on.
    for coder, layers in ((model.encoder, 1), (model.decoder, 2)):
        coder.num_layers = layers
        coder.layer_cfg.ffn_cfg.feedforward_channels = 8


def _shrink_masks(model: Any, head: Any, widths: list[int], classes: int) -> None:
    """Mask2Former's head, which mmdet and mmseg share; as many layers as its decoder has levels."""
    head.update(in_channels=widths, num_queries=5)
    head.loss_cls.class_weight = [1.0] * classes + [0.1]
    for coder, layers in ((head.pixel_decoder.encoder, 1), (head.transformer_decoder, 3)):
        coder.num_layers = layers
        coder.layer_cfg.ffn_cfg.feedforward_channels = 8
    (head.train_cfg if 'train_cfg' in head else model.train_cfg).num_points = 64
    if 'panoptic_fusion_head' in model:
        for part in (head, model.panoptic_fusion_head):
            part.update(num_things_classes=classes, num_stuff_classes=0)
        model.test_cfg.max_per_image = 5
        model.data_preprocessor.batch_augments[0].size = (64, 64)
    else:
        head.num_classes = classes


def _shrink_two_stages(model: Any) -> None:
    model.neck.out_channels = 8
    model.rpn_head.update(in_channels=8, feat_channels=8)
    if model.data_preprocessor.pad_size_divisor > 64:
        model.data_preprocessor.pad_size_divisor = 64
    roi, classes = model.roi_head, CLASSES['mmdet']
    for extractor in (roi.bbox_roi_extractor, roi.mask_roi_extractor):
        extractor.out_channels = 8
    roi.bbox_head.update(in_channels=8, fc_out_channels=8, num_classes=classes)
    if 'conv_out_channels' in roi.bbox_head:
        roi.bbox_head.conv_out_channels = 8
    roi.mask_head.update(num_convs=1, in_channels=8, conv_out_channels=8, num_classes=classes)


def _shrink_segmentor(cfg: Config, widths: list[int]) -> None:
    model = cfg.model
    if model.data_preprocessor.get('size'):
        model.data_preprocessor.size = (64, 64)
    if model.backbone.type == 'mmposenc.EoMT':
        model.decode_head.update(num_classes=CLASSES['mmseg'], num_queries=5)
        return
    if 'ConcatPyramid' in str(model.get('neck')):
        blocks = len(model.neck.in_channels)
        model.neck.in_channels = widths[:1] * blocks
        model.decode_head.update(in_channels=widths[0] * blocks, num_classes=CLASSES['mmseg'])
        model.decode_head.channels = 8 if model.decode_head.num_convs else widths[0] * blocks
        return
    if 'pixel_decoder' in model.decode_head:
        if model.get('neck'):
            model.neck.update(in_channels=widths[0], out_channels=widths[0])
        _shrink_masks(model, model.decode_head, widths, CLASSES['mmseg'])
        return
    if isinstance(model.get('neck'), list):
        model.backbone.out_indices = (0, 1, 2, 3)
        model.neck[0].embed_dim = widths[0]
        model.neck[1].update(in_channels=widths, out_channels=8)
    elif 'Feature2Pyramid' in str(model.get('neck')):
        model.neck.embed_dim = widths[0]
    elif model.get('neck'):
        model.neck.update(in_channels=widths, out_channels=8)
    fpn = 'FPN' in str(model.get('neck'))
    model.decode_head.update(channels=8, num_classes=CLASSES['mmseg'],
                             in_channels=[8] * 4 if fpn else widths)
    if model.get('auxiliary_head'):
        model.auxiliary_head.update(channels=8, num_classes=CLASSES['mmseg'],
                                    in_channels=widths[2])


def _shrink_classifier(cfg: Config, widths: list[int]) -> None:
    cfg.model.head.update(in_channels=widths[-1], num_classes=CLASSES['mmpretrain'])
    cfg.data_preprocessor.num_classes = CLASSES['mmpretrain']
    if 'teacher' in cfg.model:
        cfg.model.teacher = None


def build(cfg: Config, seed: int = 0, *, initialize: bool = True) -> nn.Module:
    """The model, with weights that the seed gives. (mmengine's ``init_weights`` takes a time that
    grows with the square of the number of modules.)"""
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
    side = cfg.model.backbone.get('img_size', 64) if cfg.default_scope == 'mmpretrain' else 64
    side = 32 if str(cfg.model.backbone.get('depth', 50)) in ('20',) else side
    channels = cfg.model.backbone.get('in_channels', 3)
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
        labels = torch.arange(len(boxes)) % CLASSES['mmdet']
        rows, cols = (torch.arange(side) + 0.5 for side in size)
        inside = ((cols > boxes[:, :1]) & (cols < boxes[:, 2:3]))[:, None] & (
            (rows > boxes[:, 1:2]) & (rows < boxes[:, 3:]))[:, :, None]
        return DetDataSample(metainfo=meta, gt_instances=InstanceData(
            bboxes=boxes, labels=labels, masks=BitmapMasks(inside.byte().numpy(), *size)))
    if scope == 'mmseg':
        from mmengine.structures import PixelData
        from mmseg.structures import SegDataSample
        labels = torch.randint(0, CLASSES['mmseg'], (1, *size), generator=generator)
        return SegDataSample(metainfo=meta, gt_sem_seg=PixelData(data=labels))
    from mmpretrain.structures import DataSample
    return DataSample().set_gt_label(i % CLASSES['mmpretrain'])


def collated(items: list[dict]) -> dict:
    items = copy.deepcopy(items)
    return dict(inputs=[item['inputs'] for item in items],
                data_samples=[item['data_samples'] for item in items])
