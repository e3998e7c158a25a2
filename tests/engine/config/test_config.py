"""Finding configs and overriding them; encodings switched on, off and to others by options."""
import pytest
from mmengine.config import Config
from mmengine.registry import MODELS, init_default_scope

from mmposenc.engine import load_config, override_in_place, set_work_dir
from mmposenc.engine.config.nodes import value_at

BASE = """epochs = 2
lr = 0.25
steps = [dict(type='A', scale=(4, 6)), dict(type='B')]
name = 'nothing uses it'
train_cfg = dict(max_epochs=epochs)
train_dataloader = dict(dataset=dict(pipeline=steps))
optim_wrapper = dict(optimizer=dict(type='SGD', lr=lr))
"""


@pytest.mark.parametrize('child, key', [
    ('epochs = 3', 'train_cfg.max_epochs'),
    ("steps = [dict(type='C')]", 'train_dataloader.dataset.pipeline'),
    ('lr = 0.5\nother = lr_of = 3', 'optim_wrapper.optimizer.lr')])
def test_a_variable_of_the_base_that_changes_nothing(tmp_path, child, key) -> None:
    (tmp_path / 'base.py').write_text(BASE)
    mine = tmp_path / 'mine.py'
    mine.write_text(f"_base_ = ['base.py']\n{child}\n")
    name = child.split(' ')[0]
    with pytest.raises(ValueError, match=rf'sets {name}, .* its base base.py.*such as {key}'):
        load_config(str(mine))


@pytest.mark.parametrize('child', [
    'epochs = 2', "steps = [dict(type='C')]\ntrain_dataloader = dict(dataset=dict(pipeline=steps))",
    'mine = 3', "name = 'also not'", 'train_cfg = dict(max_epochs=5)',
    'steps = {{_base_.steps}}\ntrain_dataloader = dict(dataset=dict(pipeline=steps))'])
def test_variables_that_are_used_or_nobodys(tmp_path, child) -> None:
    (tmp_path / 'base.py').write_text(BASE)
    (tmp_path / 'mine.py').write_text(f"_base_ = 'base.py'\n{child}\n")
    assert load_config(str(tmp_path / 'mine.py')).optim_wrapper.optimizer.lr == 0.25


@pytest.mark.parametrize('key', [
    'optim_wrapper.optimizer.lr', 'train_dataloader.dataset.pipeline.1.prob',
    'optim_wrapper.clip_grad.max_norm', 'randomness.seed', 'load_from', 'find_unused_parameters',
    'model.backbone.init_cfg.checkpoint'])
def test_override_takes_what_has_an_effect(key) -> None:
    cfg = load_config('mmposenc::detection/pvt/retinanet_pvt-t_fpn_1x_coco.py')
    cfg.model.backbone.init_cfg = None
    override_in_place(cfg, {key: 0.5})
    assert value_at(cfg, key) == 0.5


def test_override_refuses_a_key_in_a_list_of_encodings() -> None:
    """Other refusals are in tests/tools/wrong_command_lines.yaml."""
    pegs = [dict(type='mmposenc.PEG'), dict(type='mmposenc.PEG')]
    cfg = Config(dict(model=dict(encoder={}, backbone=dict(pos_encoding=pegs))))
    for key, message in (
            ('backbone.pos_encoding.type', r'is a list of 2; name .*\.pos_encoding\.0\.type'),
            ('encoder.pos_encodign.type', "no 'pos_encodign'; did you mean 'pos_encoding'")):
        with pytest.raises(ValueError, match=message):
            override_in_place(cfg, {f'model.{key}': 1})
    assert cfg.model.backbone.pos_encoding == pegs


def test_work_dir(tmp_path) -> None:
    path = tmp_path / 'some_model.py'
    path.write_text('x = 1\n')
    cfg = load_config(str(path))
    for encoding, name in (('own.py:Mine', 'some_model_own.py-Mine'), (None, 'some_model')):
        cfg.work_dir = None
        set_work_dir(cfg, None, encoding)
        assert cfg.work_dir == f'work_dirs/{name}'
    for given in ('elsewhere', None):
        set_work_dir(cfg, given, 'peg')
        assert cfg.work_dir == 'elsewhere'


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
