"""The DETR configs, one a family: mmdet's own parts and weights. Steps: test_gradients.py."""
from __future__ import annotations

import pytest
import torch
from mmengine.registry import MODELS, init_default_scope
from tinymodels import shrink

import mmposenc  # noqa: F401
from mmposenc.engine import load_config


def load(name: str):
    return load_config(f'mmposenc::detection/{name}')


def build(cfg):
    init_default_scope('mmdet')
    torch.manual_seed(0)
    model = MODELS.build(cfg.model)
    model.init_weights()
    return model


def test_dc5_is_torchvisions() -> None:
    """DETR takes torchvision's replace_stride_with_dilation: the first block is not dilated."""
    from torchvision.models import resnet50
    init_default_scope('mmdet')
    with torch.device('meta'):
        theirs = resnet50(replace_stride_with_dilation=[False, False, True])
        backbone = load('detr/detr_r50-dc5_8xb4-50e_coco.py').model.backbone
        ours = MODELS.build({**backbone, 'init_cfg': None})
    for a, b in zip(ours.layer4, theirs.layer4, strict=True):
        for conv in ('conv1', 'conv2', 'conv3'):
            for part in ('stride', 'padding', 'dilation'):
                assert getattr(getattr(a, conv), part) == getattr(getattr(b, conv), part)
    assert [block.conv2.dilation[0] for block in ours.layer4] == [1, 2, 2]
    assert ours.layer4[0].downsample[0].stride == theirs.layer4[0].downsample[0].stride


@pytest.mark.parametrize('name, theirs', [
    ('detr/detr_r50_8xb2-150e_coco.py', 'mmdet::detr/detr_r50_8xb2-150e_coco.py'),
    ('deformable_detr/deformable-detr_r50_16xb2-50e_coco.py',
     'mmdet::deformable_detr/deformable-detr_r50_16xb2-50e_coco.py'),
    *((name, f'mmdet::{name}') for name in (
        'conditional_detr/conditional-detr_r50_8xb2-50e_coco.py',
        'dab_detr/dab-detr_r50_8xb2-50e_coco.py', 'dino/dino-4scale_r50_8xb2-12e_coco.py',
        'ddq/ddq-detr-4scale_r50_8xb2-12e_coco.py'))])
def test_mmdets_checkpoints_fit(name: str, theirs: str) -> None:
    """Parameters have mmdet's names and shapes, so its files load with strict=True; what else the
    parts are made of, dropout and activations among it, is mmdet's too."""
    ours, upstream = load(name), load_config(theirs)
    for key in ('num_queries', 'positional_encoding', 'train_cfg', 'test_cfg', 'dn_cfg', 'dqs_cfg',
                'dense_topk_ratio', 'with_random_refpoints', 'num_patterns'):
        assert ours.model.get(key) == upstream.model.get(key), key
    for key in ('type', 'loss_cls', 'loss_bbox', 'loss_iou', 'num_classes'):
        assert ours.model.bbox_head[key] == upstream.model.bbox_head[key], key
    # As published; the installed mmdet's own config may not be.
    assert ours.model.decoder.pop('coordinate_feats', 128) == 128
    ours, upstream = (build(shrink(cfg)) for cfg in (ours, upstream))
    ours.load_state_dict(upstream.state_dict())
    assert _parts(ours) == _parts(upstream)


def _parts(model) -> dict[str, str]:
    """Modules of encoder and decoder that hold no others, and the dropout of attention."""
    return {name: repr(module) if not list(module.children()) else str(module.dropout)
            for coder in (model.encoder, model.decoder) for name, module in coder.named_modules()
            if 'pos_encodings' not in name
            and (not list(module.children()) or isinstance(module, torch.nn.MultiheadAttention))}
