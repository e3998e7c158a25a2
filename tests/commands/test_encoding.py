"""--encoding: other encodings in any config by one word."""
import re
from pathlib import Path

import pytest
import torch
from helpers.tiny_tasks import classifier_config
from mmengine.config import Config
from mmpretrain.models.backbones import SwinTransformer

from mmposenc.backbones import checkpoints
from mmposenc.checkpoint import convert_with_report
from mmposenc.commands import inspect, test, train
from mmposenc.engine.config.models import build_model
from mmposenc.engine.variants.encodings import NAMES
from mmposenc.terminal.options import WORDS

SWIN = dict(type='SwinTransformer', arch=dict(embed_dims=8, depths=[1, 1], num_heads=[1, 2]),
            window_size=4, img_size=32, out_indices=(1,))


def test_help_lists_the_words_that_there_are():
    assert WORDS.split(', ') == list(NAMES), 'WORDS in terminal/options.py, in this order'


@pytest.fixture
def config(tmp_path, monkeypatch):
    """mmpretrain's Swin with weights of its own."""
    monkeypatch.chdir(tmp_path)
    cfg = Config.fromfile(classifier_config(tmp_path))
    options = {key: value for key, value in SWIN.items() if key != 'type'}
    torch.save(SwinTransformer(**options).state_dict(), 'swin.pth')
    del cfg.model['backbone']
    cfg.model.backbone = dict(SWIN, init_cfg=dict(type='Pretrained', checkpoint='swin.pth'))
    cfg.model.neck = dict(type='GlobalAveragePooling')
    cfg.model.head.in_channels = 16
    cfg.dump('swin_config.py')
    return 'swin_config.py'


def test_what_was_trained_with_a_word_is_tested_and_resumed_without_it(config, capfd):
    train.main([config, '--encoding', 'peg+irpe-k', '--work-dir', 'run'])
    said = capfd.readouterr()
    said = re.sub(r'\s+', ' ', said.out + said.err)
    assert 'rel_pos_encoding: IRPE in place of RelativePositionBias' in said
    assert 'swin.pth: left out, as the model lacks these encodings: stages.0.blocks.0.attn' in said
    written = Config.fromfile('run/swin_config.py').model.backbone
    assert written == dict(
        SWIN, type='mmposenc.SwinTransformer', pos_encoding=dict(type='mmposenc.PEG'),
        positions=None, rel_pos_encoding=dict(type='mmposenc.IRPE', rpe_on='k'),
        rel_pos_sharing='layer', init_cfg=dict(type='Pretrained', checkpoint='swin.pth',
                                               strict='but encodings'))
    test.main(['run/swin_config.py', 'run/epoch_1.pth', '--work-dir', 'tested'])
    test.main([config, 'run/epoch_1.pth', '--encoding', 'peg+irpe-k', '--work-dir', 'again'])
    train.main([config, '--encoding', 'peg+irpe-k', '--work-dir', 'run', '--resume',
                '--cfg-options', 'train_cfg.max_epochs=2'])
    with pytest.raises(SystemExit, match='does not fit the model'):
        test.main([config, 'run/epoch_2.pth', '--encoding', 'none', '--work-dir', 'other'])


def test_weights_of_a_whole_model_are_converted_and_reported_once(config, capfd, monkeypatch):
    cfg = Config.fromfile(config)
    torch.save(dict(state_dict=build_model(cfg).state_dict()), 'whole.pth')
    del cfg.model.backbone.init_cfg
    cfg.dump('plain.py')
    sources = []

    def convert(state):
        converted = convert_with_report(state)
        sources.append(converted.source)
        return converted
    monkeypatch.setattr(checkpoints, 'convert_with_report', convert)
    train.main(['plain.py', '--encoding', 'irpe-k', '--cfg-options', 'load_from=whole.pth'])
    log, = Path('work_dirs/plain_irpe-k').glob('*/*.log')
    said = log.read_text() + ''.join(capfd.readouterr())
    assert [source for source in sources if source] == ['mmpretrain-swin']
    assert log.read_text().count('left out, as the model lacks these encodings') == 1
    assert 'source state_dict' not in said and 'does not fit' not in said


def test_an_inspection_shows_what_stands_and_what_was_replaced(config, capfd):
    lines = {}
    for word in ('peg', 'none', 'none+peg', 'keep+irpe-k'):
        inspect.main([config, '--encoding', word])
        lines[word] = capfd.readouterr().out
    table = 'rel_pos_encoding: none in place of RelativePositionBias'
    assert {word: (text.count('PEG after'), text.count('RelativePositionBias'), text.count(table))
            for word, text in lines.items()} == {
        'peg': (1, 1, 0), 'none': (0, 1, 1), 'none+peg': (1, 1, 1), 'keep+irpe-k': (0, 1, 0)}
    assert 'RelativePositionBias + IRPE in 2 attentions' in lines['keep+irpe-k']
