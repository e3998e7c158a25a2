"""Finding configs and overriding them."""
import pytest
from mmengine.config import Config

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
