"""RetinaNet and Mask R-CNN on PVT, Swin and DeiT with other encodings, for COCO."""
from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
import torch
from optimizer_checks import weight_decays
from scopes import scope_fixture
from tinymodels import build, shrink

import mmposenc  # noqa: F401
from mmposenc.engine import load_config

ROOT = Path(__file__).resolve().parents[2] / 'configs' / 'detection'
CONFIGS = sorted(f'{path.parent.name}/{path.name}' for folder in ('retinanet', 'mask_rcnn')
                 for path in (ROOT / folder).glob('*.py'))
scope = scope_fixture('mmdet')


def load(name: str):
    return load_config(f'mmposenc::detection/{name}')


def batch(model, training: bool):
    """Two images of other sizes, with a box and its mask."""
    from mmdet.structures import DetDataSample
    from mmdet.structures.mask import BitmapMasks
    from mmengine.structures import InstanceData
    images, samples = [], []
    for height, width in ((64, 96), (50, 64)):
        mask = np.zeros((1, height, width), dtype=np.uint8)
        mask[:, 6:38, 4:40] = 1
        boxes = InstanceData(bboxes=torch.tensor([[4.0, 6.0, 40.0, 38.0]]),
                             labels=torch.tensor([1]), masks=BitmapMasks(mask, height, width))
        samples.append(DetDataSample(gt_instances=boxes, metainfo=dict(
            img_shape=(height, width), ori_shape=(height, width), scale_factor=(1.0, 1.0))))
        images.append(torch.randint(0, 256, (3, height, width), dtype=torch.uint8))
    return model.data_preprocessor(dict(inputs=images, data_samples=samples), training=training)


def test_every_row_is_there() -> None:
    once, thrice = '1x', 'ms-480-800-crop-3x'
    rows = [(det, f'{model}_fpn', recipe) for det in ('retinanet', 'mask-rcnn') for model in (
        'pvt-s_irpe-k', 'swin-t-peg', 'swin-t_irpe-qkv') for recipe in (once, thrice)]
    rows += [(det, f'{model}_sfp', recipe) for det in ('retinanet', 'mask-rcnn') for model in (
        'deit-s', 'deit-s-peg', 'deit-s_irpe-k') for recipe in (once, thrice)]
    rows += [('mask-rcnn', f'{model}_fpn', recipe) for model in ('pvt-s', 'pvt-s-peg-gap', 'swin-t')
             for recipe in (once, thrice)]
    rows += [(det, 'swinv2-t_fpn', recipe) for det in ('retinanet', 'mask-rcnn')
             for recipe in (once, thrice)]
    rows += [('retinanet', 'pvt-t_irpe-k_fpn', once), ('mask-rcnn', 'pvt-t_fpn', once),
             ('retinanet', 'swin-t_fpn', thrice)]  # the others are in pvt/ and context_pool/
    assert CONFIGS == sorted(f'{det.replace("-", "_")}/{det}_{model}_{recipe}_coco.py'
                             for det, model, recipe in rows)


@pytest.mark.parametrize('name', CONFIGS)
def test_config(name: str) -> None:
    text = (ROOT / name).read_text()
    assert 'not trained here' in text and f'configs/detection/{name} 8' in text
    masks, long = 'mask_rcnn' in name, '3x' in name
    assert 'Recipe:' in text
    assert len([line for line in text.splitlines() if not line.startswith('#')]) <= 10  # a delta
    model = re.split('_fpn_|_sfp_', Path(name).stem)[0]
    assert f'`{model}`' in (ROOT / name).parent.joinpath('README.md').read_text()
    cfg = load(name)
    backbone = cfg.model.backbone
    assert backbone.mask_padding
    assert cfg.model.data_preprocessor.type == 'mmposenc.DetDataPreprocessor'
    assert ('CHECKPOINT' in text) == (backbone.get('init_cfg') is None)
    relative = backbone.get('rel_pos_encoding')
    assert (relative is not None) == ('irpe' in name)
    if relative is not None:
        assert f'irpe-{relative.rpe_on}_' in name
    absolute = backbone.get('pos_encoding') or {}
    assert absolute.get('type') == (
        'mmposenc.PEG' if 'peg' in name
        else None if 'swin' in name else 'mmposenc.LearnedPositionEmbedding')
    if 'swin' in name:
        assert backbone.get('window_bias', True) == (
            'swin-t_fpn' in name or 'swinv2' in name)
        assert backbone.arch == ('v2-tiny' if 'swinv2' in name else 'tiny')
    assert cfg.train_cfg.max_epochs == (36 if long else 12)
    decay = (0.05 if long or masks and 'swin' in name else 0.1 if 'deit' in name else 1e-4)
    assert cfg.optim_wrapper.optimizer == dict(type='AdamW', lr=1e-4, weight_decay=decay)
    crops = [step['type'] for step in cfg.train_dataloader.dataset.pipeline].count('RandomChoice')
    assert crops == long
    if 'deit' in name:
        assert cfg.model.neck.type == 'mmposenc.SimpleFeaturePyramid'
        strides = cfg.model.rpn_head.anchor_generator.strides if masks else [8, 16, 32, 64, 128]
        assert len(strides) == cfg.model.neck.num_outs
    for loader in (cfg.train_dataloader, cfg.val_dataloader):
        load_boxes = next(step for step in loader.dataset.pipeline
                          if step['type'] == 'LoadAnnotations')
        assert load_boxes.get('with_mask', False) == masks
    assert cfg.test_evaluator.metric == (['bbox', 'segm'] if masks else 'bbox')


# On the longer schedule a model is the same.
@pytest.mark.parametrize('name', [name for name in CONFIGS if name.replace(
    'ms-480-800-crop-3x', '1x') not in {*CONFIGS} - {name}])
def test_one_step_of_a_small_version(name: str) -> None:
    """Every weight gets a gradient (else training on several GPUs would stop); it also predicts."""
    cfg = shrink(load(name))
    model = build(cfg).train()
    loss, _ = model.parse_losses(model(**batch(model, True), mode='loss'))
    loss.backward()
    assert torch.isfinite(loss)
    assert [n for n, p in model.named_parameters() if p.grad is None] == []
    free = {n for n, decay in weight_decays(model, cfg).items() if decay == 0}
    assert {n for n, _ in model.named_parameters()
            if 'pos_encoding' in n or 'logit_scale' in n} <= free
    assert ('swinv2' in name) == any('logit_scale' in n for n in free)
    found = model.eval()(**batch(model, False), mode='predict')
    assert len(found) == 2 and ('masks' in found[0].pred_instances) == ('mask_rcnn' in name)
