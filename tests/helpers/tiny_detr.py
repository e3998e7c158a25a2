"""Small detectors, batches and the configs they are built from."""
import copy
from functools import cache, partial
from types import SimpleNamespace
from typing import Any

import torch
from mmdet import __version__ as mmdet_version
from mmengine.config import Config, ConfigDict
from mmengine.registry import MODELS, init_default_scope
from mmengine.utils import digit_version
from torch import Tensor, nn

from helpers.scripts import short  # noqa: F401

IRPE = dict(type='mmposenc.IRPE', method='product', mode='contextual', rpe_on='k', ratio=2.0)
PEG = dict(type='mmposenc.PEG', norm_act=True, bias=False)
LEARNED = dict(type='mmposenc.LearnedPositionEmbedding', grid_shape=(3, 4))
#: Arguments of an encoder and of its attention.
ENCODERS = {
    'sine': (dict(), dict()),
    'none': (dict(encoder_pos=None), dict()),
    'learned': (dict(encoder_pos='learned'), dict()),
    'small table': (dict(encoder_pos=LEARNED), dict()),
    'none+peg': (dict(encoder_pos=None, pos_encoding=PEG, positions=(-1, 0)), dict()),
    'peg on qk': (dict(encoder_pos='sine', pos_encoding=dict(type='mmposenc.PEG', apply_to='qk')),
                  dict()),
    'table on qk': (dict(encoder_pos=None, pos_encoding={**LEARNED, 'apply_to': 'qk'}), dict()),
    'irpe': (dict(), dict(rel_pos_encoding=IRPE)),
    'irpe bias, peg': (dict(encoder_pos='sine', pos_encoding=dict(type='mmposenc.PEG')),
                       dict(rel_pos_encoding={**IRPE, 'mode': 'bias', 'shared_heads': False})),
    'irpe qkv, chunked': (dict(), dict(rel_pos_encoding={**IRPE, 'rpe_on': 'qkv'},
                                              implementation='chunked')),
}
#: mmdet 3.3's DINO takes 256 channels alone, that of 3.5 any number.
LEAST_DINO = 256 if digit_version(mmdet_version) < digit_version('3.4') else 1
#: mmdet's config of each detector.
FILES = {
    'DETR': 'detr/detr_r50_8xb2-150e_coco.py',
    'ConditionalDETR': 'conditional_detr/conditional-detr_r50_8xb2-50e_coco.py',
    'DABDETR': 'dab_detr/dab-detr_r50_8xb2-50e_coco.py',
    'DeformableDETR': 'deformable_detr/deformable-detr_r50_16xb2-50e_coco.py',
    'DINO': 'dino/dino-4scale_r50_8xb2-12e_coco.py',
    'DDQDETR': 'ddq/ddq-detr-4scale_r50_8xb2-12e_coco.py',
    'GroundingDINO': 'grounding_dino/grounding_dino_swin-t_pretrain_obj365_goldg_cap4m.py'}


def pvt(**kwargs: Any) -> dict:
    """Our backbone with masks, and encodings of its own."""
    return dict(type='mmposenc.PVT', embed_dims=(8, 8, 16, 16), num_layers=(1, 1, 1, 1),
                num_heads=(1, 1, 2, 2), mlp_ratios=(1, 1, 1, 1), drop_path_rate=0.0,
                mask_padding=True, pos_encoding=dict(type='mmposenc.PEG'), **kwargs)


def resnet(**kwargs: Any) -> dict:
    return dict(type='ResNet', depth=18, base_channels=4, stem_channels=4,
                norm_cfg=dict(type='BN', requires_grad=False), norm_eval=True, **kwargs)


@cache
def _model_of(name: str) -> dict:
    return Config.fromfile(f'mmdet::{FILES[name]}').model.to_dict()


def _replaced(node: Any, values: dict) -> Any:
    """A config with these values wherever it has their names."""
    if isinstance(node, (list, tuple)):
        return [_replaced(each, values) for each in node]
    if not isinstance(node, dict):
        return node
    return {key: values[key] if key in values else _replaced(value, values)
            for key, value in node.items()}


def small(name: str, type_: str | None = None, *, dims: int = 16, levels: int = 1,
          backbone: dict | None = None, channels: Any = None, neck: dict | None = None,
          encoder: dict | None = None, attn: dict | None = None, decoder: dict | None = None,
          **model: Any) -> ConfigDict:
    """mmdet's config of a detector, with two layers, few channels and queries, and our backbone.

    Args:
        channels: of the backbone's maps, a number or a list.
        neck, encoder, attn, decoder: what is added to the configs of the neck, the encoder, its
            attention and the decoder.
        model: what is added to the model's config.
    """
    cfg = _replaced(_model_of(name), dict(
        embed_dims=dims, feedforward_channels=24, num_heads=2, num_layers=2, dropout=0.0,
        attn_drop=0.0, ffn_drop=0.0, num_feats=dims // 2, num_queries=5, num_classes=3,
        max_per_img=5, num_dn_queries=8))
    channels = [channels] if isinstance(channels, int) else channels or [16] * min(levels, 2)
    self_attn = cfg['encoder']['layer_cfg']['self_attn_cfg']
    if name not in ('DETR', 'ConditionalDETR', 'DABDETR'):
        cfg['num_feature_levels'] = levels
        for each in (self_attn, cfg['decoder']['layer_cfg']['cross_attn_cfg']):
            each.update(num_heads=2, num_levels=levels, num_points=2, dropout=0.0)
    self_attn.update(attn or {})
    cfg['encoder'].update(encoder or {})
    cfg['decoder'].update(decoder or {})
    cfg['bbox_head']['embed_dims'] = dims
    return ConfigDict({
        **cfg, 'type': type_ or f'mmposenc.{name}',
        'data_preprocessor': dict(type='mmposenc.DetDataPreprocessor', mean=[120.0] * 3,
                                  std=[60.0] * 3, pad_size_divisor=1),
        'backbone': backbone or pvt(out_indices=(2, 3)[-len(channels):]),
        'neck': dict(dict(type='ChannelMapper', in_channels=channels, kernel_size=1,
                          out_channels=dims, act_cfg=None, norm_cfg=None, num_outs=levels),
                     **(neck or {})),
        **model})


detr, dab, deformable = (partial(small, name) for name in ('DETR', 'DABDETR', 'DeformableDETR'))
# Its sines of points have 256 channels.
conditional = partial(small, 'ConditionalDETR', dims=256)
dino = partial(small, 'DINO', levels=2, dims=max(16, LEAST_DINO))
ddq = partial(small, 'DDQDETR', levels=2)


@MODELS.register_module()
class TinyWords(nn.Module):
    """Stands for BERT where a text is given as tokens."""

    def __init__(self) -> None:
        super().__init__()
        self.language_backbone = SimpleNamespace(body=SimpleNamespace(language_dim=8))


def grounding(type_: str = 'mmposenc.GroundingDINO', *, levels: int = 2,
              encoder: dict | None = None, **kwargs: Any) -> ConfigDict:
    """A Grounding DINO whose text is given as tokens."""
    fusion = dict(v_dim=256, l_dim=256, embed_dim=16, num_heads=2, dropout=0.0, init_values=0.5)
    cfg = small('GroundingDINO', type_, dims=256, levels=levels,
                encoder=dict(encoder or {}, fusion_layer_cfg=fusion),
                language_model=dict(type='TinyWords'), train_cfg=_model_of('DINO')['train_cfg'],
                **kwargs)
    cfg.bbox_head.contrastive_cfg.max_text_len = 9
    cfg.train_cfg.assigner.match_costs[0] = dict(type='BinaryFocalLossCost', weight=2.0)
    return cfg


def words(batch: int = 2) -> dict[str, Tensor]:
    """A text of seven tokens, two phrases and padding, as a language model gives it."""
    generator = torch.Generator().manual_seed(5)
    phrase = torch.tensor([0, 0, 0, 1, 1, 2, 2])
    return dict(embedded=torch.randn(batch, 7, 256, generator=generator),
                text_token_mask=(phrase < 2).expand(batch, -1),
                masks=(phrase[:, None] == phrase).expand(batch, -1, -1),
                position_ids=torch.tensor([0., 1, 2, 0, 1, 0, 1]).expand(batch, -1))


DENSE, SPARSE = 'TransformerEncoderPixelDecoder', 'MSDeformAttnPixelDecoder'
#: Of two images of which one is padded.
PIXEL_METAS = [dict(batch_input_shape=(64, 96), img_shape=shape) for shape in ((64, 96), (40, 64))]


def pixel_decoder(name: str, scope: str = 'mmposenc.', attn: dict | None = None,
                  **encoder: Any) -> ConfigDict:
    """The config of MaskFormer's pixel decoder or of Mask2Former's."""
    sizes = {} if name == DENSE else dict(num_levels=3, num_points=2)
    return ConfigDict(
        type=scope + name, positional_encoding=dict(num_feats=8, normalize=True),
        in_channels=[4, 6, 8, 10], feat_channels=16, out_channels=12,
        norm_cfg=dict(type='GN', num_groups=4),
        **({} if name == DENSE else dict(strides=[4, 8, 16, 32])),
        encoder=dict(num_layers=2, **encoder, layer_cfg=dict(
            self_attn_cfg=dict(embed_dims=16, num_heads=2, dropout=0.0, **sizes, **(attn or {})),
            ffn_cfg=dict(embed_dims=16, feedforward_channels=24, num_fcs=2, ffn_drop=0.0,
                         act_cfg=dict(type='ReLU', inplace=True)))))


def pixel_maps() -> list[Tensor]:
    """Maps for it of both images."""
    generator = torch.Generator().manual_seed(0)
    return [torch.randn(2, channels, 16 // 2 ** level, 24 // 2 ** level, generator=generator)
            for level, channels in enumerate((4, 6, 8, 10))]


#: A config function of each detector.
FAMILY = {'DETR': detr, 'ConditionalDETR': conditional, 'DABDETR': dab,
          'DeformableDETR': deformable, 'DINO': dino, 'DDQDETR': ddq}


def build(cfg: dict, seed: int = 0) -> nn.Module:
    """The detector, initialised, with encodings and samplers moved off zero."""
    init_default_scope('mmdet')
    torch.manual_seed(seed)
    model = MODELS.build(copy.deepcopy(cfg))
    model.init_weights()
    scatter(model)
    return model


def scatter(model: nn.Module) -> None:
    """Small random values where training starts from zeros, so that a test sees them."""
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for name, p in model.named_parameters():
            if any(part in name for part in ('rel_pos_encoding', 'sampling_offsets',
                                             'attention_weights', 'pos_encodings',
                                             'reg_branches')):
                p.add_(torch.randn(p.shape, generator=generator) * 0.3)
        for module in model.modules():
            if isinstance(module, nn.BatchNorm2d):
                module.running_mean.normal_(generator=generator).mul_(0.1)


def images(sizes: tuple[tuple[int, int], ...], boxes: bool = True, seed: int = 0) -> dict:
    """What a data loader gives: images of these sizes, each the same whatever the others are."""
    from mmdet.structures import DetDataSample
    from mmengine.structures import InstanceData
    inputs, samples = [], []
    for height, width in sizes:
        generator = torch.Generator().manual_seed(seed + 1000 * height + width)
        inputs.append(torch.randint(0, 256, (3, height, width), generator=generator,
                                    dtype=torch.uint8))
        sample = DetDataSample(metainfo=dict(
            img_shape=(height, width), ori_shape=(height, width), scale_factor=(1.0, 1.0)))
        found = torch.tensor([[2.0, 3.0, width / 2, height / 2],
                              [width / 4, height / 5, width - 1.0, height - 2.0]])
        sample.gt_instances = InstanceData(
            bboxes=found if boxes else found[:0], labels=torch.tensor([1, 2] if boxes else [],
                                                                      dtype=torch.long))
        samples.append(sample)
    return dict(inputs=inputs, data_samples=samples)


def total_loss(model: nn.Module, data: dict) -> Tensor:
    prepared = model.data_preprocessor(copy.deepcopy(data), training=True)
    loss, _ = model.parse_losses(model(**prepared, mode='loss'))
    return loss


@torch.no_grad()
def predict(model: nn.Module, data: dict) -> list[Any]:
    """Predicted instances of each image."""
    prepared = model.eval().data_preprocessor(copy.deepcopy(data), training=False)
    return [sample.pred_instances for sample in model(**prepared, mode='predict')]


def gradients(model: nn.Module) -> dict[str, Tensor]:
    return {name: p.grad for name, p in model.named_parameters() if p.grad is not None}


def assert_gradients(found: dict[str, Tensor], expected: dict[str, Tensor]) -> None:
    """Of the same parameters, each within a ten thousandth of its largest number."""
    assert found.keys() == expected.keys()
    for name, grad in expected.items():
        scale = float(grad.abs().max())
        torch.testing.assert_close(found[name], grad, atol=1e-4 * scale + 1e-7, rtol=1e-3,
                                   msg=lambda text, name=name: f'{name}: {text}')


def rtdetr(type_: str = 'mmposenc.RTDETR', *, dims: int = 16, neck_dims: int = 16, heads: int = 2,
           backbone: dict | None = None, channels: tuple[int, ...] = (8, 16, 16),
           cross: dict | None = None, neck: dict | None = None, encoder: dict | None = None,
           decoder: dict | None = None, **model: Any) -> ConfigDict:
    """A small RT-DETR, on our backbone with masks.

    Args:
        cross, neck, encoder, decoder: what is added to the configs of the decoder's
            cross-attention, the neck, its encoder and the decoder.
    """
    def attention(dims: int, heads: int) -> dict:
        return dict(embed_dims=dims, num_heads=heads, dropout=0.0)

    def ffn(dims: int, hidden: int, act: str) -> dict:
        return dict(embed_dims=dims, feedforward_channels=hidden, ffn_drop=0.0,
                    act_cfg=dict(type=act))

    return ConfigDict({
        'type': type_, 'num_queries': 7,
        'data_preprocessor': dict(type='mmposenc.DetDataPreprocessor', mean=[0.0] * 3,
                                  std=[255.0] * 3, bgr_to_rgb=False, pad_size_divisor=1),
        'backbone': backbone or pvt(out_indices=(1, 2, 3)),
        'neck': dict(type='mmposenc.HybridEncoder', in_channels=channels, out_channels=neck_dims,
                     encoder=dict(num_layers=1, layer_cfg=dict(
                         self_attn_cfg=attention(neck_dims, 2), ffn_cfg=ffn(neck_dims, 24, 'GELU')),
                         **(encoder or {})), **(neck or {})),
        'decoder': dict(num_layers=2, layer_cfg=dict(
            self_attn_cfg=attention(dims, heads),
            cross_attn_cfg={**attention(dims, heads), 'num_levels': 3, **(cross or {})},
            ffn_cfg=ffn(dims, 20, 'ReLU')), **(decoder or {})),
        'bbox_head': dict(type='DINOHead', num_classes=3, embed_dims=dims,
                          sync_cls_avg_factor=True,
                          loss_cls=dict(type='mmposenc.MatchedVarifocalLoss'),
                          loss_bbox=dict(type='L1Loss', loss_weight=5.0),
                          loss_iou=dict(type='GIoULoss', loss_weight=2.0)),
        'dn_cfg': dict(label_noise_scale=0.5, box_noise_scale=1.0,
                       group_cfg=dict(dynamic=True, num_groups=None, num_dn_queries=6)),
        'train_cfg': dict(assigner=dict(type='HungarianAssigner', match_costs=[
            dict(type='FocalLossCost', weight=2.0),
            dict(type='BBoxL1Cost', weight=5.0, box_format='xywh'),
            dict(type='IoUCost', iou_mode='giou', weight=2.0)])),
        'test_cfg': dict(max_per_img=7), **model})


def dfine(*, cross: dict | None = None, neck: dict | None = None, head: dict | None = None,
          **options: Any) -> ConfigDict:
    """A small D-FINE; arguments are those of :func:`rtdetr`, and what is added to the head."""
    cfg = rtdetr('mmposenc.DFINE', cross={'num_points': [3, 1, 2], **(cross or {})},
                 neck={'fusion': 'gelan', 'num_blocks': 1, 'expansion': 0.5, **(neck or {})},
                 **options)
    cfg.bbox_head.update(type='mmposenc.DFINEHead', **(head or {}))
    return cfg


def rfdetr(*, dims: int = 16, levels: int = 1, backbone: dict | None = None,
           neck: dict | None = None, **options: Any) -> ConfigDict:
    """A small RF-DETR on a ViT with windows and masks; further arguments are those of
    :func:`rtdetr`.

    Args:
        levels: number of maps of the neck.
        backbone, neck: what is added to their configs.
    """
    cfg = rtdetr('mmposenc.RFDETR', dims=dims, **options)
    del cfg['dn_cfg']
    cfg['decoder']['layer_cfg']['cross_attn_cfg'].update(num_levels=levels, num_points=2)
    cfg['bbox_head'].update(type='mmposenc.RFDETRHead',
                            loss_cls=dict(type='mmposenc.IoUAwareBCELoss'))
    return ConfigDict({**cfg, **dict(
        num_feature_levels=levels, num_groups=3, backbone={**dict(
            type='mmposenc.ViT', embed_dims=16, num_layers=2, num_heads=2, mlp_ratio=2.0,
            patch_size=8, img_size=48, pool=None, class_token=True, out_indices=(0, 1),
            final_norm='every', window_count=2, window_tokens='copied', global_blocks=(1,),
            mask_padding=True, pos_encoding=dict(type='mmposenc.LearnedPositionEmbedding',
                                                 interpolation='bicubic_antialias')),
            **(backbone or {})},
        neck={**dict(type='mmposenc.MultiScaleProjector', in_channels=(16, 16), out_channels=dims,
                     num_blocks=1), **(neck or {})})})


def results(model: nn.Module, sizes: Any, **options: Any) -> tuple[list, dict[str, Tensor]]:
    """Predicted instances, and losses with BatchNorm in evaluation, of images in float64."""
    data = model.data_preprocessor(images(sizes, **options), training=True)
    batch, found = data['inputs'].double(), data['data_samples']
    batch.img_shapes = data['inputs'].img_shapes
    for sample in found:
        sample.gt_instances.bboxes = sample.gt_instances.bboxes.double()
    model.eval()
    with torch.no_grad():
        predicted = [each.pred_instances for each in model(batch, found, mode='predict')]
    model.train()
    for module in model.modules():
        if isinstance(module, nn.BatchNorm2d):
            module.eval()
    return predicted, model(batch, found, mode='loss')
