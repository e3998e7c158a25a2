"""Small detectors, batches and the configs they are built from."""
import copy
from types import SimpleNamespace
from typing import Any

import torch
from mmdet import __version__ as mmdet_version
from mmengine.config import ConfigDict
from mmengine.registry import MODELS, init_default_scope
from mmengine.utils import digit_version
from torch import Tensor, nn

import mmposenc  # noqa: F401
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
COSTS = [dict(type='FocalLossCost', weight=2.0),
         dict(type='BBoxL1Cost', weight=5.0, box_format='xywh'),
         dict(type='IoUCost', iou_mode='giou', weight=2.0)]


def pvt(**kwargs: Any) -> dict:
    """Our backbone with masks, and encodings of its own."""
    return dict(type='mmposenc.PVT', embed_dims=(8, 8, 16, 16), num_layers=(1, 1, 1, 1),
                num_heads=(1, 1, 2, 2), mlp_ratios=(1, 1, 1, 1), drop_path_rate=0.0,
                mask_padding=True, pos_encoding=dict(type='mmposenc.PEG'), **kwargs)


def resnet(**kwargs: Any) -> dict:
    return dict(type='ResNet', depth=18, base_channels=4, stem_channels=4,
                norm_cfg=dict(type='BN', requires_grad=False), norm_eval=True, **kwargs)


def _ffn(dims: int) -> dict:
    return dict(embed_dims=dims, feedforward_channels=24, num_fcs=2, ffn_drop=0.0,
                act_cfg=dict(type='ReLU', inplace=True))


def detr(type_: str = 'mmposenc.DETR', *, dims: int = 16, backbone: dict | None = None,
         encoder: dict | None = None, attn: dict | None = None, decoder: dict | None = None,
         num_queries: int = 5, channels: int = 16) -> dict:
    """A DETR config of two encoder layers and one decoder layer."""
    attention = dict(embed_dims=dims, num_heads=2, dropout=0.0)
    return dict(
        type=type_, num_queries=num_queries,
        data_preprocessor=dict(type='mmposenc.DetDataPreprocessor', mean=[120.0] * 3,
                               std=[60.0] * 3, pad_size_divisor=1),
        backbone=backbone or pvt(out_indices=(3,)),
        neck=dict(type='ChannelMapper', in_channels=[channels], kernel_size=1, out_channels=dims,
                  act_cfg=None, norm_cfg=None, num_outs=1),
        encoder=dict(num_layers=2, layer_cfg=dict(self_attn_cfg={**attention, **(attn or {})},
                                                  ffn_cfg=_ffn(dims)), **(encoder or {})),
        decoder={**dict(num_layers=1, return_intermediate=True, layer_cfg=dict(
            self_attn_cfg=dict(attention), cross_attn_cfg=dict(attention), ffn_cfg=_ffn(dims))),
            **(decoder or {})},
        positional_encoding=dict(num_feats=dims // 2, normalize=True),
        bbox_head=dict(
            type='DETRHead', num_classes=3, embed_dims=dims,
            loss_cls=dict(type='CrossEntropyLoss', bg_cls_weight=0.1, class_weight=1.0),
            loss_bbox=dict(type='L1Loss', loss_weight=5.0),
            loss_iou=dict(type='GIoULoss', loss_weight=2.0)),
        train_cfg=dict(assigner=dict(type='HungarianAssigner', match_costs=[
            dict(type='ClassificationCost', weight=1.0), *COSTS[1:]])),
        test_cfg=dict(max_per_img=5))


def deformable(type_: str = 'mmposenc.DeformableDETR', *, levels: int = 1, dims: int = 16,
               backbone: dict | None = None, encoder: dict | None = None,
               attn: dict | None = None, num_queries: int = 5, channels: Any = None,
               neck: dict | None = None, **kwargs: Any) -> dict:
    """A Deformable DETR config on one level or several."""
    cross = dict(embed_dims=dims, num_heads=2, num_levels=levels, num_points=2, dropout=0.0)
    attention = dict(embed_dims=dims, num_heads=2, dropout=0.0)
    channels = channels or [16] * min(levels, 2)
    cfg = detr(type_, dims=dims, backbone=backbone or pvt(out_indices=(2, 3)[-len(channels):]),
               num_queries=num_queries)
    cfg.update(
        num_feature_levels=levels,
        neck={**dict(type='ChannelMapper', in_channels=channels, kernel_size=1, out_channels=dims,
                     act_cfg=None, norm_cfg=None, num_outs=levels), **(neck or {})},
        encoder=dict(num_layers=2, layer_cfg=dict(
            self_attn_cfg={**cross, **(attn or {})}, ffn_cfg=_ffn(dims)), **(encoder or {})),
        decoder=dict(num_layers=2, return_intermediate=True, post_norm_cfg=None, layer_cfg=dict(
            self_attn_cfg=attention, cross_attn_cfg=dict(cross), ffn_cfg=_ffn(dims))),
        positional_encoding=dict(num_feats=dims // 2, normalize=True, offset=-0.5), **kwargs)
    return _focal(cfg, type='DeformableDETRHead', sync_cls_avg_factor=True)


def _focal(cfg: dict, **head: Any) -> dict:
    """A DETR's config with the head of a detector that has no class for the background."""
    cfg['bbox_head'].update(loss_cls=dict(type='FocalLoss', use_sigmoid=True, gamma=2.0,
                                          alpha=0.25, loss_weight=2.0), **head)
    cfg['train_cfg']['assigner']['match_costs'] = list(COSTS)
    return cfg


def conditional(type_: str = 'mmposenc.ConditionalDETR', *, key: dict | None = None,
                **kwargs: Any) -> dict:
    """A Conditional DETR config of two decoder layers. (Its sines of points have 256 channels.)"""
    cfg = detr(type_, **{'dims': 256, **kwargs})
    dims = cfg['encoder']['layer_cfg']['self_attn_cfg']['embed_dims']
    attention = dict(embed_dims=dims, num_heads=2)
    cfg['decoder'] = dict(num_layers=2, return_intermediate=True, layer_cfg=dict(
        self_attn_cfg=dict(attention, cross_attn=False),
        cross_attn_cfg=dict(attention, cross_attn=True), ffn_cfg=_ffn(dims)), **(key or {}))
    return _focal(cfg, type='ConditionalDETRHead')


def dab(type_: str = 'mmposenc.DABDETR', *, dims: int = 16, **kwargs: Any) -> dict:
    """A DAB-DETR config of two decoder layers."""
    cfg = conditional(type_, dims=dims, **kwargs)
    cfg['decoder'].update(query_dim=4, query_scale_type='cond_elewise',
                          with_modulated_hw_attn=True)
    cfg['positional_encoding'].update(temperature=20)
    cfg['bbox_head']['type'] = 'DABDETRHead'
    return cfg


def dino(type_: str = 'mmposenc.DINO', *, levels: int = 2, dims: int = max(16, LEAST_DINO),
         **kwargs: Any) -> dict:
    """A DINO config of two stages with denoising queries."""
    cfg = deformable(type_, levels=levels, dims=dims, with_box_refine=True, as_two_stage=True,
                     **kwargs)
    cfg['bbox_head']['type'] = 'DINOHead'
    cfg['dn_cfg'] = dict(label_noise_scale=0.5, box_noise_scale=1.0,
                         group_cfg=dict(dynamic=True, num_groups=None, num_dn_queries=8))
    return cfg


@MODELS.register_module()
class TinyWords(nn.Module):
    """Stands for BERT where a text is given as tokens."""

    def __init__(self) -> None:
        super().__init__()
        self.language_backbone = SimpleNamespace(body=SimpleNamespace(language_dim=8))


def grounding(type_: str = 'mmposenc.GroundingDINO', **kwargs: Any) -> dict:
    """A Grounding DINO config of two encoder layers."""
    cfg = dino(type_, dims=256, **kwargs)
    attention = ConfigDict(embed_dims=256, num_heads=2, dropout=0.0)
    cfg['bbox_head'] = {**cfg['bbox_head'], 'type': 'GroundingDINOHead',
                        'contrastive_cfg': dict(max_text_len=9)}
    cfg['encoder'].update(
        text_layer_cfg=dict(self_attn_cfg=attention, ffn_cfg=_ffn(256)),
        fusion_layer_cfg=dict(v_dim=256, l_dim=256, embed_dim=16, num_heads=2, dropout=0.0,
                              init_values=0.5))
    cfg['decoder']['layer_cfg']['cross_attn_text_cfg'] = dict(attention)
    cfg['train_cfg']['assigner']['match_costs'][0] = dict(type='BinaryFocalLossCost', weight=2.0)
    return {**cfg, 'language_model': dict(type='TinyWords')}


def words(batch: int = 2) -> dict[str, Tensor]:
    """A text of seven tokens, two phrases and padding, as a language model gives it."""
    generator = torch.Generator().manual_seed(5)
    phrase = torch.tensor([0, 0, 0, 1, 1, 2, 2])
    return dict(embedded=torch.randn(batch, 7, 256, generator=generator),
                text_token_mask=(phrase < 2).expand(batch, -1),
                masks=(phrase[:, None] == phrase).expand(batch, -1, -1),
                position_ids=torch.tensor([0., 1, 2, 0, 1, 0, 1]).expand(batch, -1))


def ddq(type_: str = 'mmposenc.DDQDETR', **kwargs: Any) -> dict:
    """A DDQ DETR config of two decoder layers."""
    cfg = dino(type_, dims=16, **kwargs)
    cfg['bbox_head']['type'] = 'DDQDETRHead'
    cfg.update(dense_topk_ratio=1.5, dqs_cfg=dict(type='nms', iou_threshold=0.8))
    return cfg


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
