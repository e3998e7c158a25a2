"""Classes and arguments of a model that there are not, and what the error says instead."""
from __future__ import annotations

from typing import Any

import pytest
from mmengine.config import Config

from mmposenc.encodings import PEG
from mmposenc.engine import load_config, override_in_place
from mmposenc.engine.config.arguments import check_arguments
from mmposenc.engine.config.models import build_model
from mmposenc.engine.training.launch import set_train_options

PVT = 'mmposenc::detection/pvt/retinanet_pvt-t-peg_fpn_1x_coco.py'
DETR = 'mmposenc::detection/detr/detr_r50_8xb4-50e_coco.py'
THEIRS = 'mmdet::detr/detr_r50_8xb2-150e_coco.py'
RESNET = 'mmdet::retinanet/retinanet_r50_fpn_1x_coco.py'
PEGS = dict(type='mmposenc.PEG')
IRPE = dict(type='mmposenc.IRPE')

#: A config, an option of it, and what the error says.
BAD: list[tuple[str, str, Any, str]] = [
    # this project's arguments in classes of others
    ('mmdet::swin/mask-rcnn_swin-t-p4-w7_fpn_1x_coco.py', 'backbone.rel_pos_encoding', IRPE,
     r"^model\.backbone\.rel_pos_encoding: mmdet\.SwinTransformer has no such argument; write "
     r"model\.backbone\.type='mmposenc\.SwinTransformer', which takes it"),
    ('mmpretrain::swin_transformer/swin-tiny_16xb64_in1k.py', 'backbone.pos_encoding', PEGS,
     r"mmpretrain\.SwinTransformer .*write model\.backbone\.type='mmposenc\.SwinTransformer'"),
    (RESNET, 'backbone.pos_encoding', PEGS,
     r'mmdet\.ResNet has no such argument; .*PVT, .*ViT.* of mmposenc take it$'),
    (RESNET, 'backbone.mask_padding', True, r'^model\.backbone\.mask_padding: mmdet\.ResNet'),
    (THEIRS, 'encoder.rel_pos_encoding', IRPE,
     r"^model\.encoder\.rel_pos_encoding: mmdet\.DETR .* write model\.type='mmposenc\.DETR'"),
    (THEIRS, 'encoder.layer_cfg.self_attn_cfg.rel_pos_encoding', IRPE,
     r"self_attn_cfg\.rel_pos_encoding: mmdet\.DETR .* write model\.type='mmposenc\.DETR'"),
    (THEIRS, 'encoder.encoder_pos', None, r"write model\.type='mmposenc\.DETR'"),
    (THEIRS, 'pos_encoding', PEGS, r'^model\.pos_encoding: mmdet\.DETR .* of mmposenc take it'),
    # names that there are not
    (PVT, 'backbone.type', 'mmposenc.Pvt', r"^model\.backbone\.type='mmposenc\.Pvt': there is no "
                                           r"such class; did you mean 'PVT' or"),
    (PVT, 'backbone.type', 'PVT', r"there is no such class; write 'mmposenc\.PVT'$"),
    (PVT, 'backbone.pos_encoding', dict(type='mmposenc.Peg'), r"pos_encoding\.type='mmposenc\.Peg'"
                                                              r": .*; did you mean 'PEG'\?$"),
    (PVT, 'backbone.rel_pos_encoding', [IRPE, dict(type='mmposenc.IRPEE')],
     r"^model\.backbone\.rel_pos_encoding\.1\.type='mmposenc\.IRPEE': .*did you mean 'IRPE' or"),
    (DETR, 'type', 'mmposenc.DETRR', r"^model\.type='mmposenc\.DETRR': .*did you mean 'DETR' or"),
    # arguments that there are not, in parts of parts too
    (PVT, 'backbone.mask_paddin', True,
     r"^model\.backbone: PVT has no argument 'mask_paddin'; did you mean 'mask_padding' or"),
    (PVT, 'backbone.pos_encoding', [PEGS, dict(PEGS, kernal_size=5)],
     r"^model\.backbone\.pos_encoding\.1: PEG has no argument 'kernal_size'; did you mean 'kern"),
    (PVT, 'backbone.rel_pos_encoding', dict(type='CombinedRPE', encodings=[
        dict(IRPE, shred_heads=True)]), r"encodings\.0: IRPE has no .*did you mean 'shared_heads'"),
    (DETR, 'rel_pos_encoding', IRPE, r"^model: DETR has no argument 'rel_pos_encoding'")]


@pytest.mark.parametrize('name, key, value, message', BAD)
def test_mistakes_are_named_before_anything_is_built(name, key, value, message) -> None:
    cfg = load_config(name)
    override_in_place(cfg, {f'model.{key}': value})
    with pytest.raises(ValueError, match=message):
        check_arguments(cfg)


@pytest.mark.parametrize('change', [
    lambda backbone: backbone.update(pos_encoding=dict(type='PEG', zero_init=True)),
    lambda backbone: backbone.update(pos_encoding=dict(type=PEG, kernel_size=5)),
    lambda backbone: backbone.update(rel_pos_encoding=[IRPE, dict(type='ALiBi2D')])])
def test_what_there_is_passes(change) -> None:
    cfg = load_config(PVT)
    change(cfg.model.backbone)
    check_arguments(cfg)


def test_a_class_of_a_users_file(tmp_path) -> None:
    file = tmp_path / 'own.py'
    file.write_text('from mmposenc.encodings import PEG\n\n\nclass Mine(PEG):\n    pass\n')
    cfg = load_config(PVT)
    cfg.model.backbone.pos_encoding = dict(type=f'{file}:Mine', kernel_size=5)
    check_arguments(cfg)
    assert 'Mine' in {type(module).__name__ for module in build_model(cfg).modules()}


def test_commands_check_it(tmp_path) -> None:
    """What builds a model, and a training before it looks for its data."""
    cfg = load_config(RESNET)
    cfg.model.backbone.pos_encoding = PEGS
    cfg.work_dir = str(tmp_path / 'run')
    for command in (build_model, set_train_options):
        with pytest.raises(ValueError, match=r'^model\.backbone\.pos_encoding: mmdet\.ResNet'):
            command(cfg)


def test_a_plain_name_is_the_librarys() -> None:
    """Where the library and this project have a class of the same name."""
    cfg = load_config('mmdet::swin/mask-rcnn_swin-t-p4-w7_fpn_1x_coco.py')
    override_in_place(cfg, {'model.backbone.type': 'SwinTransformer',
                            'model.backbone.patch_norm': True})
    assert cfg.model.backbone.patch_norm is True and cfg.model.backbone.qk_scale is None
    other = Config(dict(default_scope='mmdet', model=dict(type='mmposenc.DETR', backbone=None)))
    check_arguments(other)
