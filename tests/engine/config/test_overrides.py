"""Encodings switched on, off and to others by options of the command line."""
import pytest
from mmengine.config import Config
from mmengine.registry import MODELS, init_default_scope

from mmposenc.engine import load_config, override_in_place
from mmposenc.engine.config.nodes import value_at

PVT = 'mmposenc::detection/pvt/retinanet_pvt-t_fpn_1x_coco.py'
DEFORMABLE = 'mmposenc::detection/deformable_detr/deformable-detr_r50_16xb2-50e_coco.py'
DETR = 'mmposenc::detection/detr/detr_r50_8xb4-50e_coco.py'
TABLE = 'model.backbone.pos_encoding'


def overridden(name: str, options: dict) -> Config:
    cfg = load_config(name)
    override_in_place(cfg, options)
    return cfg


def test_another_type_begins_without_the_options_of_the_former() -> None:
    cfg = overridden(PVT, {f'{TABLE}.type': 'mmposenc.PEG', f'{TABLE}.kernel_size': 5})
    assert cfg.model.backbone.pos_encoding == dict(type='mmposenc.PEG', kernel_size=5)
    # The class says that it does not take it: what was asked for is not passed over.
    cfg = overridden(PVT, {f'{TABLE}.interpolation': 'bicubic', f'{TABLE}.type': 'mmposenc.PEG'})
    assert cfg.model.backbone.pos_encoding == dict(type='mmposenc.PEG', interpolation='bicubic')
    for name in ('mmposenc.LearnedPositionEmbedding', 'LearnedPositionEmbedding'):
        same = overridden(PVT, {f'{TABLE}.type': name})
        assert same.model.backbone.pos_encoding.interpolation == 'bilinear'
    other_part = overridden(DEFORMABLE, {'model.neck.type': 'FPN'})
    assert other_part.model.neck.kernel_size == 1  # its class refuses what it does not take
    cfg = load_config(PVT)
    cfg.model.backbone.pos_encoding = [dict(type='mmposenc.PEG'), dict(type='mmposenc.PEG')]
    override_in_place(cfg, {f'{TABLE}.1.type': 'mmposenc.ConvMLP'})
    assert cfg.model.backbone.pos_encoding == [dict(type='mmposenc.PEG'),
                                               dict(type='mmposenc.ConvMLP')]


def test_an_encoding_of_an_arch_whose_arguments_are_no_part_of_the_config() -> None:
    cfg = Config(dict(default_scope='mmseg', model=dict(type='X', backbone=dict(
        type='mmposenc.ViT', arch='dinov2-small', num_layers=1))))
    override_in_place(cfg, {f'{TABLE}.type': 'mmposenc.PEG'})
    encodings = MODELS.build(cfg.model.backbone).pos_encodings.at
    assert list(encodings) == ['after0'] and type(encodings['after0'][0]).__name__ == 'PEG'


@pytest.mark.parametrize('name, section', [
    (DEFORMABLE, 'model.encoder.pos_encoding'),
    (DETR, 'model.encoder.layer_cfg.self_attn_cfg.rel_pos_encoding'),
    ('mmposenc::detection/detr/detr_r50-none_8xb4-50e_coco.py', 'model.encoder.encoder_pos'),
    ('mmposenc::segmentation/sem_fpn/fpn_pvt-t_8xb2-80k_ade20k-512x512.py',
     'model.backbone.rel_pos_encoding')])
def test_an_encoding_is_switched_on_where_the_config_has_none(name, section) -> None:
    kind = 'IRPE' if section.endswith('rel_pos_encoding') else 'SinCosPositionEncoding'
    cfg = overridden(name, {f'{section}.type': f'mmposenc.{kind}'})
    assert value_at(cfg, section) == dict(type=f'mmposenc.{kind}')
    init_default_scope(cfg.default_scope)
    cfg.model.backbone.init_cfg = None
    built = MODELS.build(cfg.model)
    assert any(type(module).__name__ == kind for module in built.modules())


@pytest.mark.parametrize('step, option, value, expected', [
    (dict(type='Resize', scale=224), 'scale', [320, 240], (320, 240)),
    (dict(type='RandomCrop'), 'crop_size', [64, 96], (64, 96)),
    (dict(type='RandomChoiceResize', scales=[64]), 'scales', [64, 96], [64, 96]),
    (dict(type='RandomFlip', prob=0.5), 'prob', [0.3, 0.5], [0.3, 0.5]),
    (dict(type='RandomFlip'), 'direction', ['horizontal', 'vertical'], ['horizontal', 'vertical'])])
def test_a_size_in_a_pipeline_becomes_a_tuple(step, option, value, expected) -> None:
    """Also where the config has one number for it, or none. Transforms take a list of
    probabilities, and of words, for nothing but a list."""
    from mmcv.transforms import TRANSFORMS
    cfg = Config(dict(train_dataloader=dict(dataset=dict(pipeline=[step]))))
    override_in_place(cfg, {f'train_dataloader.dataset.pipeline.0.{option}': value})
    changed = cfg.train_dataloader.dataset.pipeline[0]
    assert changed[option] == expected and type(changed[option]) is type(expected)
    if step['type'] == 'Resize':
        assert TRANSFORMS.build(changed).scale == (320, 240)
