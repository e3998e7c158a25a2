"""The Mask2Former configs: mmdet's and mmseg's models and recipes. Steps: test_gradients.py."""
from __future__ import annotations

import pytest
import torch
from mmengine.model.utils import revert_sync_batchnorm
from tinymodels import build, collated, samples, shrink

import mmposenc  # noqa: F401
from mmposenc.engine import load_config
from mmposenc.engine.config.checks import check_num_classes

INSTANCES, SEMANTIC = (f'{folder}/mask2former/mask2former_r50{{}}_{recipe}.py'
                       for folder, recipe in (('detection', '8xb2-lsj-50e_coco'),
                                              ('segmentation', '8xb2-160k_ade20k-512x512')))
THEIRS = {INSTANCES: 'mmdet::mask2former/mask2former_r50_8xb2-lsj-50e_coco.py',
          SEMANTIC: 'mmseg::mask2former/mask2former_r50_8xb2-160k_ade20k-512x512.py'}


def load(name: str, peg: bool = False):
    return load_config(f"mmposenc::{name.format('-peg' if peg else '')}")


def head_of(cfg):
    return cfg.model.get('panoptic_head') or cfg.model.decode_head


@pytest.mark.parametrize('name', THEIRS)
def test_model_and_recipe_are_upstreams(name: str) -> None:
    ours, theirs = load(name), load_config(THEIRS[name])
    for key in ('loss_cls', 'loss_mask', 'loss_dice', 'num_queries', 'strides', 'in_channels',
                'positional_encoding', 'num_transformer_feat_level', 'train_cfg'):
        assert head_of(ours).get(key) == head_of(theirs).get(key), key
    assert ours.model.get('test_cfg') == theirs.model.test_cfg
    assert ours.model.train_cfg == theirs.model.train_cfg
    assert ours.model.backbone == {k: v for k, v in theirs.model.backbone.items()
                                   if k != 'deep_stem'}
    optimizer, their_optimizer = (cfg.optim_wrapper for cfg in (ours, theirs))
    assert optimizer.optimizer == their_optimizer.optimizer
    assert optimizer.clip_grad == their_optimizer.clip_grad
    schedulers = theirs.param_scheduler
    theirs_last = schedulers if isinstance(schedulers, dict) else schedulers[-1]
    assert ours.param_scheduler[-1] == theirs_last
    assert ours.train_cfg.max_iters == theirs.train_cfg.max_iters == ours.param_scheduler[-1].end
    assert ours.train_dataloader.batch_size == theirs.train_dataloader.batch_size == 2
    assert ours.train_dataloader.sampler.type == 'InfiniteSampler'
    assert ours.default_hooks.checkpoint.by_epoch is ours.log_processor.by_epoch is False
    check_num_classes(ours, ('train', 'val', 'test'))
    state = revert_sync_batchnorm(build(shrink(theirs))).state_dict()
    revert_sync_batchnorm(build(shrink(ours))).load_state_dict(state)


@pytest.mark.parametrize('upstream, name', [
    ('mmdet::maskformer/maskformer_r50_ms-16xb1-75e_coco.py', 'TransformerEncoderPixelDecoder'),
    ('mmdet::mask2former/mask2former_r50_8xb2-lsj-50e_coco.py', 'MSDeformAttnPixelDecoder')])
def test_mmdets_configs_take_the_pixel_decoders(upstream: str, name: str) -> None:
    """With the type changed alone the loss is mmdet's; then with encodings."""
    losses, state = [], {}
    for ours, peg in ((False, False), (True, False), (True, True)):
        cfg = load_config(upstream)
        pixel = cfg.model.panoptic_head.pixel_decoder
        if 'batch_augments' not in cfg.model.data_preprocessor:
            cfg.model.data_preprocessor.batch_augments = [dict(type='BatchFixedSizePad', size=0)]
        pixel.type = name if not ours else f'mmposenc.{name}'
        if peg:
            pixel.encoder.pos_encoding = dict(type='mmposenc.PEG')
        torch.manual_seed(0)
        model = build(shrink(cfg)).eval()  # no dropout
        if state:
            model.load_state_dict(state, strict=not peg)
        state = model.state_dict()
        torch.manual_seed(1)  # points at which masks are compared
        batch = model.data_preprocessor(collated(samples(cfg, 2)), True)
        losses.append(model.parse_losses(model(**batch, mode='loss'))[0])
    torch.testing.assert_close(losses[1], losses[0], atol=1e-5, rtol=1e-5)
    assert losses[2].isfinite() and abs(losses[2] - losses[0]) > 1e-4
