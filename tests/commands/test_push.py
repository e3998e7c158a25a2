"""mmposenc push, and models that come back from a folder and from a hub: nothing of them runs."""
from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch
import yaml
from hub_server import serving
from scripts import run_python
from tinydata import tiny_detector
from tinytasks import classifier_config, segmentor_config
from tinyweights import saved

import mmposenc
from mmposenc.checkpoint import load_checkpoint
from mmposenc.commands.push import main as push
from mmposenc.engine.apps import repository

TASKS = {
    'detection': tiny_detector,
    'segmentation': segmentor_config, 'classification': classifier_config}


def trained(task: str, root: Path) -> tuple[Path, Path]:
    """A config with random weights as training leaves them."""
    root.mkdir(parents=True, exist_ok=True)
    config = TASKS[task](root)
    classes = ['bright', 'dark'] if task == 'classification' else None
    return config, saved(config, root / 'epoch_1.pth', classes)


def same(one: torch.nn.Module, other: torch.nn.Module) -> bool:
    """Weights, names and predictions."""
    first, second = one.state_dict(), other.state_dict()
    picture = np.random.default_rng(0).integers(0, 256, (40, 64, 3), dtype=np.uint8)
    thr = dict(score_thr=0.0) if 'bbox_head.retina_cls.weight' in first else {}
    found = [mmposenc.predict(model, picture, **thr) for model in (one, other)]
    return (first.keys() == second.keys() and all(map(torch.equal, first.values(), second.values()))
            and found[0].names == found[1].names and len(found[0]) > 0
            and np.array_equal(found[0].scores, found[1].scores)
            and np.array_equal(found[0].draw(), found[1].draw()))


@pytest.mark.parametrize('task', TASKS)
def test_a_folder_gives_the_model_back(task, tmp_path, capsys) -> None:
    config, checkpoint = trained(task, tmp_path / 'made')
    (tmp_path / 'test.json').write_text(json.dumps({'coco/bbox_mAP': 0.25, 'note': 'text'}))
    push([str(config), str(tmp_path / 'out'), '--checkpoint', str(checkpoint),
          '--metrics', str(tmp_path / 'test.json')])
    assert sorted(path.name for path in (tmp_path / 'out').iterdir()) == [
        'README.md', 'config.py', 'model.safetensors']
    (tmp_path / 'moved').mkdir()
    (tmp_path / 'out').rename(tmp_path / 'moved' / 'model')
    assert same(mmposenc.load(config, checkpoint), mmposenc.load(tmp_path / 'moved' / 'model'))
    assert str(tmp_path) not in (tmp_path / 'moved' / 'model' / 'config.py').read_text()
    card = (tmp_path / 'moved' / 'model' / 'README.md').read_text()
    head = yaml.safe_load(card.split('---')[1])
    (result,) = head['model-index'][0]['results']
    assert head['library_name'] == 'mmposenc' and result['metrics'] == [
        dict(type='coco/bbox_mAP', value=0.25)]
    assert '| coco/bbox_mAP | 0.25 |' in card and 'PEG' in card and 'note' not in card


def test_through_a_hub(tmp_path, monkeypatch, capsys) -> None:
    pytest.importorskip('huggingface_hub', minversion='1.0')
    config, checkpoint = trained('classification', tmp_path / 'made')
    words = [str(config), 'hf://me/tiny', '--checkpoint', str(checkpoint), '--private']
    with serving(monkeypatch, tmp_path / 'cache') as server:
        with pytest.raises(SystemExit, match='to upload, set HF_TOKEN'):
            push(words)
        monkeypatch.setenv('HF_TOKEN', 'hf_wrong')
        with pytest.raises(SystemExit, match='could not be uploaded'):
            push(words)
        assert not server.repos
        monkeypatch.setenv('HF_TOKEN', server.token)
        push(words)
        assert set(server.repos['me/tiny']) == {'README.md', 'config.py', 'model.safetensors'}
        assert 'me/tiny' in server.private and 'uploaded: http' in capsys.readouterr().out
        assert "load('hf://me/tiny')" in server.repos['me/tiny']['README.md'].decode()
        assert 'No test result' in server.repos['me/tiny']['README.md'].decode()
        back = mmposenc.load('hf://me/tiny')
        assert same(mmposenc.load(config, checkpoint), back)
        weights = load_checkpoint('hf://me/tiny')
        backbone = mmposenc.PVT(**{key: value for key, value in back.cfg.model.backbone.items()
                                   if key not in ('type', 'init_cfg')},
                                init_cfg=dict(type='Pretrained', checkpoint='hf://me/tiny'))
        backbone.init_weights()
        for name, value in backbone.state_dict().items():
            assert torch.equal(value, weights[f'backbone.{name}'])


@pytest.mark.slow
def test_a_fresh_process_takes_a_folder(tmp_path) -> None:
    """Registries of the libraries are not there before somebody asks for them."""
    config, checkpoint = trained('detection', tmp_path / 'made')
    push([str(config), str(tmp_path / 'out'), '--checkpoint', str(checkpoint)])
    code = f"import mmposenc; print(type(mmposenc.load({str(tmp_path / 'out')!r})).__name__)"
    assert run_python('-W', 'ignore', '-c', code).split()[-1:] == ['RetinaNet']


EVIL = {
    'code': "import os\n",
    'call': "model = __import__('os').system('touch executed')\n",
    'argument': "model = dict(open('executed', 'w'))\n",
    'list': "model = [print(1) for _ in (1,)]\n",
    'import': "default_scope = 'mmseg'\nmodel = dict(type='os.system', command='touch executed')\n",
    'load': "default_scope = 'mmseg'\nmodel = dict(type='mmengine.load', file='evil.pkl')\n",
    'inner': "default_scope = 'mmseg'\nmodel = dict(type='EncoderDecoder', backbone=dict("
             "type='subprocess.Popen', args='touch executed', shell=True))\n",
    'file': "default_scope = 'mmseg'\nmodel = dict(type='evil.py:Model')\n",
    'eval': "default_scope = 'mmdet'\nmodel = dict(type='RetinaNet', test_cfg=dict(nms=dict("
            "iou_threshold='open(1)')))\n",
    'pickle': "default_scope = 'mmpretrain'\nmodel = dict(type='mmpretrain.RAMNormal')\n",
    'deep': 'model = ' + '[' * 5000 + ']' * 5000 + '\n'}


@pytest.mark.parametrize('kind', EVIL)
def test_no_code_of_a_repository_runs(kind, tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / 'evil.py').write_text("open('executed', 'w')\nclass Model: pass\n")
    (tmp_path / 'bad').mkdir()
    (tmp_path / 'bad' / 'config.py').write_text(EVIL[kind])
    (tmp_path / 'bad' / 'model.safetensors').write_bytes(b'')
    told = dict.fromkeys(('import', 'load', 'inner', 'file', 'pickle'), 'this is none').get(
        kind, 'may hold no calls' if kind == 'eval' else 'more than values')
    with pytest.raises(ValueError, match=told):
        mmposenc.load(tmp_path / 'bad')
    assert not (tmp_path / 'executed').exists()


def test_what_push_refuses(tmp_path, monkeypatch) -> None:
    config, checkpoint = trained('classification', tmp_path / 'made')
    (tmp_path / 'text.json').write_text('[1]')
    (tmp_path / 'none.json').write_text('{"note": "text"}')
    (tmp_path / 'out').mkdir()
    (tmp_path / 'out' / 'README.md').write_text('mine')
    given = ['--checkpoint', str(checkpoint)]
    for words, told in [
            ([str(config), 'out'], 'give the weights by --checkpoint'),
            ([str(config), str(tmp_path / 'out'), *given], 'holds README.md: give another folder'),
            ([str(config), 'new', *given, '--metrics', str(tmp_path / 'text.json')], 'not hold'),
            ([str(config), 'new', *given, '--metrics', str(tmp_path / 'none.json')], 'no number')]:
        with pytest.raises(SystemExit, match=told):
            push(words)
    assert (tmp_path / 'out' / 'README.md').read_text() == 'mine'
    model = mmposenc.load(config, checkpoint)
    model.cfg.model.backbone.pos_encoding.type = 'own.py:PEG'
    with pytest.raises(ValueError, match=r"type='own.py:PEG': a repository may name"):
        repository.write(model, tmp_path / 'new', 'new')
    assert not (tmp_path / 'new').exists()
