"""What a config gives to classes that do not take it."""
from __future__ import annotations

from pathlib import Path

import pytest
from mmengine.config import Config

import mmposenc  # noqa: F401
from mmposenc.engine import load_config
from mmposenc.engine.config.checks import check_sections
from mmposenc.engine.config.options import check_arguments

ROOT = Path(__file__).resolve().parents[2] / 'configs'
PHASES = ('train', 'val', 'test')


@pytest.mark.parametrize('name', [
    *(f'mmposenc::{folder}/{sorted(path.name for path in (ROOT / folder).glob("*.py"))[0]}'
      for folder in sorted({str(path.parent.relative_to(ROOT)) for path in ROOT.rglob('*.py')
                            if '_base_' not in path.parts})),
    'mmdet::faster_rcnn/faster-rcnn_r50_fpn_1x_coco.py',
    'mmdet::deformable_detr/deformable-detr_r50_16xb2-50e_coco.py',
    'mmdet::yolox/yolox_s_8xb8-300e_coco.py', 'mmseg::swin/swin-tiny-patch4-window7-in1k-'
    'pre_upernet_8xb2-160k_ade20k-512x512.py', 'mmpretrain::resnet/resnet50_8xb32_in1k.py'])
def test_configs_that_are_right_pass(name: str) -> None:
    cfg = load_config(name)
    check_sections(cfg, PHASES)
    check_arguments(cfg, PHASES)


@pytest.fixture
def cfg() -> Config:
    return load_config('mmposenc::detection/pvt/retinanet_pvt-t_fpn_1x_coco.py')


@pytest.mark.parametrize('key, value, message', [
    ('custom_hooks', [dict(type='EMAHok')], r"custom_hooks\.0\.type='EMAHok'.* mean 'EMAHook'"),
    ('custom_hooks', ['EMAHook'], r"custom_hooks\.0='EMAHook' must be a dict with a 'type'"),
    ('train_cfg', dict(type='EpochBasedTrainLoop', max_epochs=1, val_intervall=1),
     "did you mean 'val_interval'"),
    ('default_hooks', dict(checkpoint=dict(type='CheckpointHook', save_bst='auto')),
     "did you mean 'save_best'"),
    ('optim_wrapper', dict(
        optimizer=dict(type='AdamW', lr=1e-4), paramwise_cfg=dict(layer_decay_rat=0.7),
        constructor='mmposenc.LayerDecayOptimWrapperConstructor'),
     "did you mean 'layer_decay_rate'")])
def test_a_wrong_argument_is_named(cfg, key, value, message) -> None:
    cfg[key] = value
    with pytest.raises(ValueError, match=message):
        check_arguments(cfg, PHASES)


def test_an_argument_of_saving_goes_through_the_checkpoint_hook(cfg) -> None:
    cfg.default_hooks.checkpoint.file_client_args = None
    check_arguments(cfg, PHASES)


@pytest.mark.parametrize('slip, meant', [
    ('optim_wraper', 'optim_wrapper'), ('modle', 'model'), ('train_cgf', 'train_cfg'),
    ('defaults_hooks', 'default_hooks')])
def test_a_section_that_nothing_reads(cfg, slip, meant) -> None:
    cfg[slip] = dict(lr=1)
    with pytest.raises(ValueError, match=f"'{slip}', which nothing reads; did you mean '{meant}'"):
        check_sections(cfg, PHASES)


def test_a_section_that_is_missing(cfg) -> None:
    cfg.val_evaluator = None
    with pytest.raises(ValueError, match=r'the config has no val_evaluator \(phases: train, val'):
        check_sections(cfg, ('train', 'val'))
