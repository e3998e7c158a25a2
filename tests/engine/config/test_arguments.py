"""Arguments of this project in classes of others; messages are in
tests/tools/wrong_command_lines.yaml."""
from __future__ import annotations

import pytest

from mmposenc.engine import load_config
from mmposenc.engine.config.arguments import model_class
from mmposenc.engine.config.models import build_model
from mmposenc.engine.training.launch import set_train_options


def test_commands_check_it(tmp_path) -> None:
    """What builds a model, and a training before it looks for its data."""
    cfg = load_config('mmdet::retinanet/retinanet_r50_fpn_1x_coco.py')
    cfg.model.backbone.pos_encoding = dict(type='mmposenc.PEG')
    cfg.work_dir = str(tmp_path / 'run')
    for command in (build_model, set_train_options):
        with pytest.raises(ValueError, match=r'^model\.backbone\.pos_encoding: mmdet\.ResNet'):
            command(cfg)


def test_a_plain_name_is_the_librarys(tmp_path) -> None:
    """Where the library and this project have a class of the same name."""
    (tmp_path / 'own.py').write_text('class SwinTransformer:\n    pass\n')
    for name, module in (('SwinTransformer', 'mmdet.models'),
                         ('mmposenc.SwinTransformer', 'mmposenc.openmmlab'),
                         (f'{tmp_path}/own.py:SwinTransformer', 'own_')):
        assert model_class(name, 'mmdet').__module__.startswith(module)
