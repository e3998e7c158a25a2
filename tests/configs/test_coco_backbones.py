"""RetinaNet and Mask R-CNN on PVT and Swin with other encodings, for COCO."""
from __future__ import annotations

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
    assert CONFIGS == sorted(
        [f'retinanet/retinanet_{model}_fpn_1x_coco.py' for model in (
            'pvt-t_irpe-k', 'pvt-s_irpe-k', 'swin-t-peg', 'swin-t_irpe-qkv')]
        + [f'mask_rcnn/mask-rcnn_{model}_fpn_1x_coco.py' for model in (
            'pvt-t', 'pvt-s', 'pvt-s-peg-gap', 'pvt-s_irpe-k', 'swin-t', 'swin-t-peg',
            'swin-t_irpe-qkv')])


@pytest.mark.parametrize('name', CONFIGS)
def test_config(name: str) -> None:
    text = (ROOT / name).read_text()
    assert 'not trained here' in text and f'configs/detection/{name} 8' in text
    assert 'Recipe:' in text
    assert len([line for line in text.splitlines() if not line.startswith('#')]) <= 10  # a delta
    assert Path(name).stem.split('_fpn_')[0] in (ROOT / name).parent.joinpath(
        'README.md').read_text()
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
        else 'mmposenc.LearnedPositionEmbedding' if 'pvt' in name else None)
    if 'swin' in name:
        assert backbone.get('window_bias', True) == ('swin-t_fpn' in name)
    assert cfg.train_cfg.max_epochs == 12
    masks = 'mask_rcnn' in name
    assert cfg.optim_wrapper.optimizer == dict(
        type='AdamW', lr=1e-4, weight_decay=0.05 if masks and 'swin' in name else 1e-4)
    for loader in (cfg.train_dataloader, cfg.val_dataloader):
        load_boxes = next(step for step in loader.dataset.pipeline
                          if step['type'] == 'LoadAnnotations')
        assert load_boxes.get('with_mask', False) == masks
    assert cfg.test_evaluator.metric == (['bbox', 'segm'] if masks else 'bbox')


@pytest.mark.parametrize('name', CONFIGS)
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
            if 'pos_encoding' in n} <= free
    found = model.eval()(**batch(model, False), mode='predict')
    assert len(found) == 2 and ('masks' in found[0].pred_instances) == ('mask_rcnn' in name)
