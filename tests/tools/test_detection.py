"""train.py and test.py on a tiny detector, and a test by size on a tiny classifier."""
import json

import pytest
import torch
from helpers.tiny_tasks import classifier_config
from helpers.untrained_weights import saved

import mmposenc
from mmposenc import engine


def log_of(work_dir) -> str:
    return max(work_dir.glob('*/*.log')).read_text()


def scalars(work_dir) -> list[dict]:
    lines = max(work_dir.glob('*/vis_data/scalars.json')).read_text().splitlines()
    return [line for line in map(json.loads, lines) if 'loss' in line]


def test_amp_and_auto_scale_lr(detector, train, tmp_path) -> None:
    """Two images a step where the rate of 1e-4 is meant for sixteen; the same images and weights
    as in float32, in a shorter format."""
    train(detector['config'], '--work-dir', tmp_path, '--amp', '--auto-scale-lr',
          '--cfg-options', 'param_scheduler=None')
    first = scalars(tmp_path)[0]
    assert first['lr'] == pytest.approx(1e-4 * 2 / 16)
    exact = scalars(detector['work_dir'])[0]['loss']
    assert first['loss'] == pytest.approx(exact, rel=2e-2) and first['loss'] != exact
    assert '\x1b' not in log_of(tmp_path)  # plain lines


def test_compile_adds_a_hook(detector, tmp_path) -> None:
    cfg = engine.load_config(str(detector['config']))
    cfg.work_dir = str(tmp_path)
    engine.set_train_options(cfg, compiled=True)
    assert cfg.custom_hooks[-1].type == 'mmposenc.CompileHook'


def test_checkpoint_of_another_architecture(detector, train, test, tmp_path) -> None:
    """Refused by both tools, with the difference in the log; on request the rest of it is loaded.
    What the difference says: tests/checkpoint/test_mismatch.py."""
    other = tmp_path / 'other.pth'
    checkpoint = torch.load(detector['checkpoint'], weights_only=False)
    checkpoint['state_dict']['bbox_head.retina_cls.weight'] = torch.zeros(27, 8, 3, 3)
    torch.save(checkpoint, other)
    config, work = detector['config'], tmp_path / 'work'
    with pytest.raises(SystemExit, match='does not fit the model; use the config .* --allow-mis'):
        test(config, other, '--work-dir', work)
    difference = '1 of another shape: bbox_head.retina_cls.weight: (27, 8, 3, 3) in the file'
    assert difference in log_of(work) and '--allow-mismatch' in log_of(work)
    for options in (['--resume', other], ['--cfg-options', f'load_from={other}']):
        with pytest.raises(SystemExit, match='does not fit the model'):
            train(config, '--work-dir', work, *options)
    assert not list(work.glob('*.pth'))
    test(config, other, '--work-dir', tmp_path / 'allowed', '--allow-mismatch')
    assert difference in log_of(tmp_path / 'allowed')


def test_hooks_switched_off_and_nothing_to_resume(detector, train, tmp_path) -> None:
    train(detector['config'], '--work-dir', tmp_path, '--resume', 'auto', '--cfg-options',
          'default_hooks.not_finite=None')
    assert ') NotFiniteHook' in log_of(detector['work_dir'])
    assert ') NotFiniteHook' not in log_of(tmp_path)
    assert f'no checkpoint in {tmp_path}, training starts from the beginning' in log_of(tmp_path)
    assert (tmp_path / 'epoch_1.pth').is_file()


def test_a_run_and_a_loaded_model_keep_it_out(detector, tmp_path):
    """What that gives is in tests/padding/test_prediction.py."""
    hooked = tmp_path / 'tiny.py'
    hooked.write_text(f"_base_ = {str(detector['config'])!r}\n"
                      f"custom_hooks = [dict(type='mmposenc.KeepPaddingOut')]\n")
    cfg = engine.load_config(str(hooked))
    cfg.work_dir = str(tmp_path / 'work')
    cfg.experiment_name = cfg.visualizer.name = 'padding_out'
    run = engine.train(cfg)
    log, = (tmp_path / 'work').rglob('*.log')
    assert log.read_text().count("the training uses the model's own loss") == 1
    models = [run.model, *(mmposenc.load(config, detector['checkpoint'])
                           for config in (hooked, detector['config']))]
    assert [type(model.predict).__name__ for model in models] == ['Prediction'] * 2 + ['method']


def test_a_test_by_size(test, tmp_path, capsys) -> None:
    """At the trained size it is the test itself. A config without a visualizer, as the small ones
    for digits, would have mmengine's, which draws no predictions."""
    config = classifier_config(tmp_path)
    weights, sized = saved(config, tmp_path / 'weights.pth'), tmp_path / 'sized.py'
    sized.write_text(f"""
_base_ = {str(config)!r}
visualizer = None
test_dataloader = dict(dataset=dict(pipeline=[
    dict(type='mmposenc.LoadImageFromFile'), dict(type='Resize', scale=(32, 32)),
    dict(type='PackInputs')]))
""")
    show = tmp_path / 'show'
    test(sized, weights, '--work-dir', tmp_path / 'one', '--show-dir', show)
    assert len([*show.rglob('*.png')]) == 4
    once = json.loads(next((tmp_path / 'one').glob('*/*.json')).read_text())
    assert capsys.readouterr().out.endswith(f'\npictures: {show}\n')
    test(sized, weights, '--work-dir', tmp_path / 'work', '--sizes', 32, 64, '32x64',
         '--show-dir', show / 'sized')
    said = capsys.readouterr().out
    assert f'\nsize 32: accuracy/top1 {once["accuracy/top1"]:g}' in said
    assert '\nsize 64: accuracy/top1 ' in said
    assert '\nsize 32x64: accuracy/top1 ' in said
    assert len([*(show / 'sized').rglob('*.png')]) == 12
    with pytest.raises(SystemExit, match='--sizes: no step of the test pipeline has a size'):
        test(config, weights, '--sizes', 64)
