"""A bare model starts as training from scratch does."""
import logging

import pytest
import torch
from mmengine.logging import MMLogger

from mmposenc import engine
from mmposenc.engine.config.models import build_bare, load_weights


def deformable_detr():
    return engine.load_config('mmposenc::detection/small/deformable-detr_r18-w16_1xb4-50e_bccd.py')


def test_every_number_is_drawn_from_the_seed():
    """mmdet's level embedding is memory as it comes until the weights are initialised."""
    one, again, other = (build_bare(deformable_detr(), seed=seed) for seed in (0, 0, 1))
    for name, value in again.state_dict().items():
        assert torch.equal(one.state_dict()[name], value), name
    assert one.level_embed.std() > .5  # of a standard normal
    assert not torch.equal(one.level_embed, other.level_embed)


def test_no_weights_are_loaded_and_nothing_is_told(caplog):
    cfg = deformable_detr()
    cfg.model.backbone.init_cfg = dict(type='Pretrained', checkpoint='no/such/file.pth')
    with caplog.at_level(logging.INFO):
        build_bare(cfg)
    assert not caplog.records
    assert logging.root.manager.disable == logging.NOTSET


def test_a_backbone_without_its_weights_is_no_warning(caplog):
    cfg = engine.load_config('mmdet::swin/retinanet_swin-t-p4-w7_fpn_1x_coco.py')
    cfg.model.backbone.update(depths=[1, 1, 1, 1])
    logger = MMLogger.get_current_instance()  # does not pass its records on
    logger.addHandler(caplog.handler)
    try:
        build_bare(cfg)
    finally:
        logger.removeHandler(caplog.handler)
    assert [each.message for each in caplog.records if each.levelno > logging.DEBUG] == []


def test_other_ways_to_start_stay_beside_weights_that_are_not_loaded():
    cfg = deformable_detr()
    cfg.model.backbone.init_cfg = [dict(type='Pretrained', checkpoint='no/such/file.pth'),
                                   dict(type='Constant', layer='Conv2d', val=.25)]
    assert (build_bare(cfg).backbone.conv1.weight == .25).all()


def test_the_config_beside_a_checkpoint_is_named(tmp_path):
    """Of the training that wrote both; of several nobody knows which."""
    checkpoint = tmp_path / 'epoch_1.pth'
    torch.save(dict(state_dict={'x': torch.zeros(1)}), checkpoint)
    model = torch.nn.Linear(2, 2)
    (tmp_path / 'mine.py').write_text('')
    with pytest.raises(ValueError, match=f'it was trained with, {tmp_path}/mine.py:'):
        load_weights(model, str(checkpoint))
    (tmp_path / 'other.py').write_text('')
    with pytest.raises(ValueError, match='it was trained with:'):
        load_weights(model, str(checkpoint))
