"""No checkpoint runs code, whoever reads it."""
import os
import pathlib
import shutil

import pytest
import torch
from helpers.hostile_pickle import Call
from helpers.scripts import load_tool, run_python, short
from mmengine.registry import MODELS, DefaultScope

from mmposenc.checkpoint import read_checkpoint
from mmposenc.commands import inspect

MARK = Call(pathlib.Path.touch, pathlib.Path('mark'))
REFUSED = r'evil\.pth is refused: to read it, code .*weights_only=False.*use weights\.pth'


@pytest.fixture
def evil(tmp_path, monkeypatch):
    """A checkpoint that would leave a mark in the current directory."""
    monkeypatch.chdir(tmp_path)
    state = {'w': torch.zeros(1)}
    torch.save({'state_dict': state, 'meta': {'seed': 0, 'epoch': 1, 'iter': 2}, 'args': MARK},
               'evil.pth')
    yield str(tmp_path / 'evil.pth')
    assert not pathlib.Path('mark').exists()


def refused(function, *args, **kwargs) -> None:
    with pytest.raises((ValueError, SystemExit), match=f'(?s){REFUSED}'):
        function(*args, **kwargs)


def test_all_that_read_checkpoints(evil, detector, test) -> None:
    import mmengine.runner
    from mmengine.runner.checkpoint import CheckpointLoader, _load_checkpoint
    refused(test, detector['config'], evil, '--work-dir', 'work')
    refused(inspect.main, [str(detector['config']), str(evil), '--out', 'inspected'])
    refused(load_tool('convert_checkpoint').main, ['deit', evil, 'out.pth'])
    refused(mmengine.runner.load_checkpoint, torch.nn.Linear(1, 1), evil)
    for function in (read_checkpoint, CheckpointLoader.load_checkpoint, _load_checkpoint):
        refused(function, evil)
    for cfg in (dict(type='mmposenc.DeiT', arch='tiny', num_layers=1),
                dict(type='mmdet.ResNet', depth=18)):
        with DefaultScope.overwrite_default_scope('mmdet'):
            model = MODELS.build({**cfg, 'init_cfg': dict(type='Pretrained', checkpoint=evil)})
            refused(model.init_weights)


@pytest.mark.parametrize('options', [
    ('--resume', 'evil.pth'), ('--resume',), ('--cfg-options', 'load_from=evil.pth', 'resume=True'),
    ('--cfg-options', 'load_from=evil.pth'),
    ('--cfg-options', 'model.neck.init_cfg.type=Pretrained',
     'model.neck.init_cfg.checkpoint=evil.pth', 'model.neck.init_cfg.prefix=neck'),
    ('--cfg-options', 'model.backbone.init_cfg.type=Pretrained',
     'model.backbone.init_cfg.checkpoint=evil.pth')])
def test_training(evil, detector, train, options) -> None:
    pathlib.Path('work').mkdir()
    pathlib.Path('work/last_checkpoint').write_text(evil if options == ('--resume',) else '')
    refused(train, detector['config'], '--work-dir', 'work', *options)


def test_the_config_of_a_checkpoint_is_not_run_either(detector, train, tmp_path, monkeypatch
                                                      ) -> None:
    """mmengine's resume executes meta['config'], a string, as a Python file."""
    monkeypatch.chdir(tmp_path)
    checkpoint = torch.load(detector['work_dir'] / 'epoch_1.pth', weights_only=False)
    checkpoint['meta']['config'] = 'import pathlib\npathlib.Path("mark").touch()\n'
    torch.save(checkpoint, 'config.pth')
    train(detector['config'], '--work-dir', 'work', '--resume', 'config.pth')
    assert not pathlib.Path('mark').exists()


@pytest.mark.parametrize('change, said', [
    (lambda held: held['meta'].update(epoch='x'), "epoch in its meta is 'x'; a whole number"),
    (lambda held: held['meta'].update(dataset_meta={'classes': [1]}), 'names of classes'),
    (lambda held: held.update(meta=3), 'from which this training can continue .KeyError: epoch'),
    (lambda held: held.pop('message_hub'), 'continue .KeyError: message_hub.: resume one that'),
    (lambda held: held.update(optimizer=3), 'from which this training can continue .Attr'),
    (lambda held: held.update(ema_state_dict={f'module.{key}': value * torch.nan for key, value in
                                              held['state_dict'].items()}), 'NaN or infinite')])
def test_an_odd_checkpoint_is_named(detector, train, tmp_path, monkeypatch, change, said) -> None:
    monkeypatch.chdir(tmp_path)
    held = torch.load(detector['work_dir'] / 'epoch_1.pth', weights_only=False)
    change(held)
    torch.save(held, 'odd.pth')
    with pytest.raises((ValueError, SystemExit), match=f'odd.pth.*{said}'):
        train(detector['config'], '--work-dir', 'work', '--resume', 'odd.pth')


@pytest.mark.parametrize('imports', short((
    'import mmposenc; from mmengine.runner import load_checkpoint',
    'from mmengine.runner.checkpoint import load_checkpoint; import mmposenc.engine',
    'import mmengine, mmposenc.registry; from mmengine.runner import load_checkpoint'),
    'from mmengine.runner.checkpoint import load_checkpoint; import mmposenc.engine'))
def test_functions_of_mmengine_in_any_order_of_imports(evil, imports) -> None:
    """In a process of its own: here others have imported everything already."""
    assert 'evil.pth is refused' in run_python('-W', 'ignore', '-c', f"""
import os
os.chdir({os.path.dirname(evil)!r})
import torch
{imports}
try:
    load_checkpoint(torch.nn.Linear(1, 1), {evil!r})
except ValueError as error:
    print(error)
""")


@pytest.mark.parametrize('scheme', ['http://', 'torchvision://', 'mmcls://', 'open-mmlab://'])
def test_downloads(evil, scheme, monkeypatch) -> None:
    from mmengine.runner import checkpoint
    monkeypatch.setattr(torch.hub, 'get_dir', lambda: 'hub')
    monkeypatch.setattr(torch.hub, 'download_url_to_file',
                        lambda url, path, *rest, **options: shutil.copy(evil, path))
    for name in ('get_torchvision_models', 'get_mmcls_models', 'get_external_models'):
        monkeypatch.setattr(checkpoint, name, lambda: {'some': 'http://nowhere/evil.pth'})
    name = 'nowhere/evil.pth' if scheme == 'http://' else 'some'
    refused(checkpoint.CheckpointLoader.load_checkpoint, f'{scheme}{name}')
