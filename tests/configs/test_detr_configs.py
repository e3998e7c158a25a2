"""The DETR configs, one a family: a step, a test and mmdet's own weights."""
from __future__ import annotations

from pathlib import Path

import pytest
import torch
from mmengine.registry import MODELS, init_default_scope
from mmengine.runner import Runner
from tinydetr import images, predict, short, total_loss
from tinymodels import shrink

import mmposenc  # noqa: F401
from mmposenc.engine import load_config

ROOT = Path(__file__).resolve().parents[2] / 'configs' / 'detection'
COCO = ('detr/detr_r50-dc5_8xb4-50e_coco.py', 'detr/detr_r50_irpe-clip-ctx-9x9_8xb2-150e_coco.py',
        'detr/detr_r50-none-anywhere_8xb2-150e_coco.py', 'detr/detr_swin-t_8xb2-150e_coco.py',
        'detr/detr_r50_irpe-ctx-9x9_8xb2-300e_coco.py',
        'deformable_detr/deformable-detr_r50-ss-none-peg_16xb2-50e_coco.py',
        'conditional_detr/conditional-detr_r50-peg_8xb2-50e_coco.py',
        'dab_detr/dab-detr_r50_irpe-ctx-9x9_8xb2-50e_coco.py',
        'dino/dino-4scale_swin-t-peg_8xb2-12e_coco.py',
        'ddq/ddq-detr-4scale_r50-peg_8xb2-12e_coco.py')
SMALL = ('small/deformable-detr_r18-w16-none-peg_1xb4-50e_bccd.py',
         'small/dino_r18-w16-peg_1xb4-15e_bccd.py')


def load(name: str):
    return load_config(f'mmposenc::detection/{name}')


def build(cfg):
    init_default_scope('mmdet')
    torch.manual_seed(0)
    model = MODELS.build(cfg.model)
    model.init_weights()
    return model


@pytest.mark.parametrize('name', short(COCO + SMALL, COCO[0], COCO[1], *COCO[5:], SMALL[0]))
def test_one_step_and_a_test_of_a_small_version(name: str) -> None:
    cfg = shrink(load(name))
    if 'drop_path_rate' in cfg.model.backbone:
        cfg.model.backbone.drop_path_rate = 0.0  # a block dropped for both images has no gradient
    model = build(cfg)
    found = predict(model, images(((64, 64), (45, 61))))
    assert all(len(one.scores) <= 5 and one.bboxes.isfinite().all() for one in found)
    model.train()
    loss = total_loss(model, images(((64, 64), (45, 61))))
    loss.backward()
    assert torch.isfinite(loss)
    frozen = {n for n, p in model.named_parameters() if not p.requires_grad}
    assert all('backbone' in n for n in frozen)
    # queries of the first layer are zeros in DETR: nothing tells its self-attention's values apart
    without = [n for n, p in model.named_parameters() if p.grad is None and n not in frozen]
    assert without == []
    for n, p in model.named_parameters():
        if 'rel_pos_encoding' in n or 'encoder.pos_encodings' in n:
            assert p.grad.abs().max() > 0, n


def test_dc5_is_torchvisions() -> None:
    """DETR takes torchvision's replace_stride_with_dilation: the first block is not dilated."""
    from torchvision.models import resnet50
    init_default_scope('mmdet')
    with torch.device('meta'):
        theirs = resnet50(replace_stride_with_dilation=[False, False, True])
        ours = MODELS.build({**load(COCO[0]).model.backbone, 'init_cfg': None})
    for a, b in zip(ours.layer4, theirs.layer4, strict=True):
        for conv in ('conv1', 'conv2', 'conv3'):
            for part in ('stride', 'padding', 'dilation'):
                assert getattr(getattr(a, conv), part) == getattr(getattr(b, conv), part)
    assert [block.conv2.dilation[0] for block in ours.layer4] == [1, 2, 2]
    assert ours.layer4[0].downsample[0].stride == theirs.layer4[0].downsample[0].stride


@pytest.mark.parametrize('name', ['detr/detr_r50_irpe-ctx-9x9_8xb2-150e_coco.py',
                                  'deformable_detr/deformable-detr_r50-none-peg_16xb2-50e_coco.py',
                                  'ddq/ddq-detr-4scale_r50-peg_8xb2-12e_coco.py'])
def test_encodings_take_no_weight_decay_and_start_as_they_should(name: str) -> None:
    cfg = shrink(load(name))
    model = build(cfg)
    holder = type('Holder', (), {'model': model})()
    optimizer = Runner.build_optim_wrapper(holder, cfg.optim_wrapper).optimizer
    decay = {id(p): group['weight_decay'] for group in optimizer.param_groups
             for p in group['params']}
    tables = [n for n, _ in model.named_parameters()
              if 'rel_pos_encoding' in n or '.pos_encodings' in n]
    assert tables
    for n, p in model.named_parameters():
        if n in tables:
            assert decay[id(p)] == 0, n
        if n.startswith('encoder') and 'rel_pos_encoding' in n:
            assert not p.any()
    assert decay[id(model.encoder.layers[0].ffn.layers[1].weight)] > 0


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
