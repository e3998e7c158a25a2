"""Detectors and segmentors of mmdet and mmseg, narrow, on a ResNet-50, a PVT or a Swin."""
from pathlib import Path
from typing import Any

import numpy as np
import torch
from mmengine.config import Config, ConfigDict
from mmengine.registry import MODELS, DefaultScope
from mmengine.structures import InstanceData
from torch import Tensor, nn

from helpers.tiny_detr import LEAST_DINO
from mmposenc.padding import keep_padding_out

DETECTORS = {
    'RetinaNet': 'retinanet/retinanet_r50_fpn_1x_coco.py',
    'FCOS': 'fcos/fcos_r50-caffe_fpn_gn-head_1x_coco.py',
    'ATSS': 'atss/atss_r50_fpn_1x_coco.py',
    'Faster R-CNN': 'faster_rcnn/faster-rcnn_r50_fpn_1x_coco.py',
    'Mask R-CNN': 'mask_rcnn/mask-rcnn_r50_fpn_1x_coco.py',
    'Deformable DETR': 'deformable_detr/deformable-detr_r50_16xb2-50e_coco.py',
    'DINO': 'dino/dino-4scale_r50_8xb2-12e_coco.py',
    'Mask2Former': 'mask2former/mask2former_r50_8xb2-lsj-50e_coco.py',
    'SOLOv2': 'solov2/solov2_r50_fpn_1x_coco.py',
    'RTMDet': 'rtmdet/rtmdet_s_8xb32-300e_coco.py',
}
SEGMENTORS = {
    'Semantic FPN': 'sem_fpn/fpn_r50_4xb4-160k_ade20k-512x512.py',
    'UperNet': 'upernet/upernet_r50_4xb4-80k_ade20k-512x512.py',
    'PSPNet': 'pspnet/pspnet_r50-d8_4xb4-80k_ade20k-512x512.py',
}
FAMILIES = [*DETECTORS, *SEGMENTORS]
#: Families of which predictions alone are tried: on a narrow ResNet-50, or on their own backbone.
PREDICTORS = {
    'Panoptic FPN': 'panoptic_fpn/panoptic-fpn_r50_fpn_1x_coco.py',
    'CondInst': 'condinst/condinst_r50_fpn_ms-poly-90k_coco_instance.py',
    'DANet': 'danet/danet_r50-d8_4xb4-80k_ade20k-512x512.py',
}
OWN = {
    'PIDNet': 'pidnet/pidnet-s_2xb6-120k_1024x1024-cityscapes.py',
    'HRNet': 'hrnet/fcn_hr18s_4xb4-80k_ade20k-512x512.py',
    'ERFNet': 'erfnet/erfnet_fcn_4xb4-160k_cityscapes-512x1024.py',
    'CenterNet': 'centernet/centernet_r18_8xb16-crop512-140e_coco.py',
    'EfficientDet': 'efficientnet/retinanet_effb3_fpn_8xb4-crop896-1x_coco.py',
}
#: Arguments that are numbers of channels.
CHANNELS = ('in_channels', 'out_channels', 'feat_channels', 'channels', 'embed_dims',
            'feedforward_channels', 'fc_out_channels', 'conv_out_channels')
WIDTHS = [8, 16, 32, 64]
BACKBONES: dict[str, dict[str, Any]] = {
    'ResNet-50': dict(depth=50, base_channels=8, stem_channels=8),
    'PVT': dict(type='mmposenc.PVT', embed_dims=WIDTHS, num_layers=[1] * 4, num_heads=[1, 2, 4, 8],
                mlp_ratios=[1] * 4, pos_encoding=dict(type='mmposenc.PEG'), mask_padding=True,
                drop_path_rate=0.0),
    'Swin': dict(type='mmposenc.Swin', embed_dims=8, num_layers=[1] * 4, num_heads=[1, 2, 4, 8],
                 window_size=4, mlp_ratio=1.0, mask_padding=True, drop_path_rate=0.0),
}


def build(name: str, backbone: str, **model: Any) -> nn.Module:
    """A model with random weights, in eval mode."""
    path = config_path({**DETECTORS, **SEGMENTORS, **PREDICTORS}[name])
    width = max(64, LEAST_DINO) if name == 'DINO' else 64
    parts = _backbone(_narrow(Config.fromfile(path).model.to_dict(), width), backbone)
    return drawn({**parts, **model}, scope_of(path))


def of_config(path: Path, **model: Any) -> nn.Module:
    """The model of a config of mmdet or mmseg as it stands, with random weights and statistics near
    those of noise, in eval mode."""
    parts: dict[str, Any] = _tried(Config.fromfile(path).model.to_dict())
    built = drawn({**_any_sizes(parts), **model}, scope_of(path))
    for module in built.modules():
        if isinstance(module, nn.BatchNorm2d):
            module.train().momentum = 0.5  # few cells may vary by nothing
    side = 64 if parts.get('test_cfg', {}).get('mode') == 'slide' else 128
    with torch.no_grad():
        built.extract_feat(batch(built, [(side, side, seed) for seed in range(2)])['inputs'])
    return built.eval()


def config_roots() -> dict[str, Path]:
    """Of mmdet and mmseg."""
    import mmdet.models
    import mmseg.models
    return {package.__name__: Path(package.__file__).parent / '.mim' / 'configs'
            for package in (mmdet, mmseg)}


def config_path(name: str) -> Path:
    return next(folder / name for folder in config_roots().values() if (folder / name).exists())


def scope_of(path: Path) -> str:
    return next(scope for scope, folder in config_roots().items() if path.is_relative_to(folder))


def _any_sizes(model: dict[str, Any]) -> dict[str, Any]:
    """The model for batches of several sizes, which mmseg's preprocessor does not take."""
    if 'decode_head' in model:
        model['data_preprocessor'] = dict(model['data_preprocessor'], size=None, size_divisor=1,
                                          type='mmposenc.SegDataPreProcessor')
    return model


def _tried(value: Any) -> Any:
    """A config without files of weights, with norms that a CPU has, of 50 boxes of any score and of
    windows of 64 pixels."""
    if isinstance(value, (list, tuple)):
        return type(value)(map(_tried, value))
    if not isinstance(value, dict):
        return value
    value = {key: _tried(part) for key, part in value.items()}
    if 'score_thr' in value:
        value['score_thr'] = 0.0
    if 'max_per_img' in value:
        value['max_per_img'] = min(50, value['max_per_img'])
    if value.get('mode') == 'slide':
        value.update(crop_size=(64, 64), stride=(48, 48))
    if 'img_size' in value:
        value['img_size'] = (64, 64)
    if value.get('type') in ('SyncBN', 'MMSyncBN'):
        value['type'] = 'BN'
    if 'pretrained' in value:
        value['pretrained'] = False if isinstance(value['pretrained'], bool) else None
    if (value.get('init_cfg') or {}) and 'checkpoint' in value['init_cfg']:
        value['init_cfg'] = None
    return value


def drawn(parts: dict[str, Any], scope: str) -> nn.Module:
    """A model of a config, with random weights, in eval mode."""
    with DefaultScope.overwrite_default_scope(scope):
        torch.manual_seed(0)
        built: nn.Module = MODELS.build(ConfigDict(parts))
    generator = torch.Generator().manual_seed(1)
    for key, parameter in built.named_parameters():
        if key.endswith('init_proposal_bboxes.weight'):  # centres and sides
            nn.init.uniform_(parameter, 0.4, 0.6, generator=generator)
        elif parameter.dim() > 1 and 'pos' not in key:
            size = 0.1 if 'reg' in key else 1.0  # boxes move by little
            nn.init.normal_(parameter, std=size * parameter[0].numel() ** -0.5, generator=generator)
    head = getattr(built, 'bbox_head', None)
    for layer in getattr(head, 'rtm_reg', [head.retina_reg] if type(head).__name__ == 'FSAFHead'
                         else []):
        nn.init.ones_(layer.bias)  # there is no box without a positive distance
    for key, buffer in built.named_buffers():
        if key.endswith('running_mean'):
            nn.init.normal_(buffer, std=0.1, generator=generator)
    return built.eval()


def _backbone(model: dict[str, Any], name: str) -> dict[str, Any]:
    """The model on another backbone, whose maps' channels its readers take."""
    given = model['backbone']
    levels = tuple(given.get('out_indices', (0, 1, 2, 3)))
    if given['type'] == 'CSPNeXt':
        levels = (1, 2, 3)
        given = dict(type='ResNet', norm_cfg=dict(type='BN'))
    if name == 'ResNet-50':
        widths = [32, 64, 128, 256]
        model['backbone'] = {**given, **BACKBONES[name], 'out_indices': levels, 'init_cfg': None,
                             'norm_cfg': dict(type='BN'), 'frozen_stages': -1}
    else:
        widths = WIDTHS
        model['backbone'] = dict(BACKBONES[name], out_indices=levels)
    widths = [widths[i] for i in levels]
    model.pop('pretrained', None)
    if model['type'] == 'RTMDet':  # its neck enlarges maps by two; its pipeline pads otherwise
        model['data_preprocessor'] = dict(model['data_preprocessor'], pad_size_divisor=32)
    _any_sizes(model)
    if 'encoder' in model:
        model['bbox_head']['embed_dims'] = model['neck']['out_channels']
    if 'neck' in model:
        model['neck']['in_channels'] = widths
    elif 'panoptic_head' in model:
        model['panoptic_head']['in_channels'] = widths
    else:
        head, extra = model['decode_head'], model['auxiliary_head']
        head['in_channels'] = widths if isinstance(head['in_channels'], list) else widths[3]
        extra['in_channels'] = widths[2]
    return model


def _narrow(value: Any, width: int, key: str = '') -> Any:
    """At most so many channels everywhere but in the backbone, and few queries."""
    if isinstance(value, dict):
        return {k: v if k == 'backbone' else _narrow(v, width, k) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return type(value)(_narrow(part, width, key) for part in value)
    if key == 'type' and value == 'SyncBN':  # none on a CPU
        return 'BN'
    most = {**dict.fromkeys(CHANNELS, width), 'num_feats': width // 2, 'num_queries': 20}
    return min(value, most[key]) if key in most and value is not None else value


def image(height: int, width: int, seed: int) -> Tensor:
    """Noise, (3, H, W) from 0 to 255: no two cells have one score, which rounding would decide."""
    generator = torch.Generator().manual_seed(seed)
    return torch.rand(3, height, width, generator=generator) * 255


def sample(model: nn.Module, height: int, width: int, seed: int) -> Any:
    """What a data loader says of a picture; two objects for a detector."""
    info = dict(img_shape=(height, width), ori_shape=(height, width), scale_factor=(1.0, 1.0),
                img_id=seed)
    if hasattr(model, 'decode_head'):
        from mmseg.structures import SegDataSample
        return SegDataSample(metainfo=info)
    from mmdet.structures import DetDataSample
    if type(model).__name__ in ('CenterNet', 'CornerNet'):
        info['border'] = np.array([0, height, 0, width])
    boxes = torch.tensor([[0.1, 0.1, 0.5, 0.6], [0.4, 0.3, 0.9, 1.0]]) * torch.tensor(
        [width, height, width, height])
    found = DetDataSample(metainfo=info, gt_instances=InstanceData(
        bboxes=boxes, labels=torch.tensor([1, 2])))
    if type(model).__name__ == 'FastRCNN':
        found.proposals = InstanceData(bboxes=boxes, scores=torch.ones(2))
    return found


def batch(model: nn.Module, sizes: list[tuple[int, int, int]], junk: float | None = None,
          training: bool = False) -> dict[str, Any]:
    """Pictures of (height, width, seed) as the model's data preprocessor makes a batch of them,
    with ``junk`` in the padding."""
    data = dict(inputs=[image(*size) for size in sizes],
                data_samples=[sample(model, *size) for size in sizes])
    made: dict[str, Any] = model.data_preprocessor(data, training)
    if junk is not None:
        for pixels, (height, width, _) in zip(made['inputs'], sizes, strict=True):
            pixels[:, height:] = junk
            pixels[:, :, width:] = junk
    noted = getattr(made['inputs'], 'img_shapes', None)
    made['inputs'] = made['inputs'].to(next(model.parameters()).dtype)
    if noted is not None:
        made['inputs'].img_shapes = noted
    return made


def assert_same(alone: Any, batched: Any) -> None:
    """Boxes within 1e-3 pixels, scores within 1e-5, the same labels; maps of labels the same, but
    where two logits are closer to each other than the logits of the two runs may be."""
    if 'seg_logits' in alone:
        logits = alone.seg_logits.data
        bound = 1e-5 * logits.abs().max()
        assert (logits - batched.seg_logits.data).abs().max() < bound
        best = logits.topk(min(2, len(logits)), dim=0).values
        tied = (best[0] - best[-1] < 2 * bound) & (len(logits) > 1)
        assert ((alone.pred_sem_seg.data == batched.pred_sem_seg.data) | tied).all()
        return
    if 'pred_panoptic_seg' in alone:
        a, b = (each.pred_panoptic_seg.sem_seg for each in (alone, batched))
        assert len(a.unique()) > 2 and (a != b).sum() <= 2
        return
    a, b = alone.pred_instances, batched.pred_instances
    assert len(a) == len(b) > 0, f'{len(a)} and {len(b)} boxes'
    # Scores within rounding of each other may change places: each has its partner.
    scores = (a.scores[:, None] - b.scores[None]).abs()
    boxes = (a.bboxes[:, None] - b.bboxes[None]).abs().amax(2)
    same = (scores < 1e-5) & (boxes < 1e-3) & (a.labels[:, None] == b.labels[None])
    if 'masks' in a:
        same &= (a.masks[:, None] != b.masks[None]).flatten(2).sum(2) <= 2  # at a logit of zero
    assert same.any(1).all() and same.any(0).all(), (
        f'{(~same.any(1)).sum()} of {len(a)} boxes have no partner; the largest score '
        f'{a.scores.max()}, the largest side {a.bboxes.abs().max()}')


def kept_out(name, backbone, **model):
    """A model that padding is kept out of, on one of the backbones or on its own."""
    built = (build(name, backbone, **model) if backbone in BACKBONES else
             of_config(config_path(OWN[name])))
    for cfg in (built.test_cfg or {}, *(part for part in (built.test_cfg or {}).values()
                                        if isinstance(part, dict))):
        if 'score_thr' in cfg:
            # Random weights have no confident boxes; SOLO computes a mask for each.
            cfg['score_thr'] = 0.6 if name == 'SOLOv2' else 0.0
    if name == 'SOLOv2':
        built.test_cfg.update(nms_pre=50, max_per_img=20)
        built.mask_head.test_cfg = built.test_cfg
    return keep_padding_out(built)


def assert_batch_is_images(model, pair):
    """What a batch gives for its images is what each gives alone, with 1e3 in the padding."""
    with torch.no_grad():
        batched = model(**batch(model, pair, junk=1e3), mode='predict')
        for image, found in zip(pair, batched, strict=True):
            assert_same(model(**batch(model, [image]), mode='predict')[0], found)
