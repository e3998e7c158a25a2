"""A bare model starts as training from scratch does."""
import logging

import pytest
import torch

from mmposenc import engine
from mmposenc.engine.config.models import build_bare, load_all_weights

BCCD = 'mmposenc::detection/small/deformable-detr_r18-w16_1xb4-50e_bccd.py'


def test_every_number_is_drawn_anew():
    """mmdet's level embedding is memory as it comes until the weights are initialised."""
    one, again = (build_bare(engine.load_config(BCCD)) for _ in range(2))
    torch.testing.assert_close(dict(again.state_dict()), dict(one.state_dict()), rtol=0, atol=0)
    assert one.level_embed.std() > .5  # of a standard normal


@pytest.mark.parametrize('config, backbone', [
    (BCCD, dict(init_cfg=dict(type='Pretrained', checkpoint='no/such/file.pth'))),
    ('mmdet::swin/retinanet_swin-t-p4-w7_fpn_1x_coco.py', dict(depths=[1, 1, 1, 1]))])
def test_no_weights_are_loaded_and_nothing_is_said(said, config, backbone):
    cfg = engine.load_config(config)
    cfg.model.backbone.update(backbone)
    build_bare(cfg)
    assert [text for level, text in said if level > logging.DEBUG] == []
    assert logging.root.manager.disable == logging.NOTSET


def test_other_ways_to_start_stay_beside_weights_that_are_not_loaded():
    cfg = engine.load_config(BCCD)
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
        load_all_weights(model, str(checkpoint))
    (tmp_path / 'other.py').write_text('')
    with pytest.raises(ValueError, match='it was trained with:'):
        load_all_weights(model, str(checkpoint))
