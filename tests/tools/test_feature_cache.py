"""Training from a folder of features, by the tools."""
from __future__ import annotations

import re
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from scopes import scope_fixture
from scripts import load_tool, named
from tinydata import tiny_detector

pytest.importorskip('mmdet')
scope = scope_fixture('mmdet')
OPTIONS = ['model.backbone.frozen_stages=4', 'train_cfg.max_epochs=2', 'train_cfg.val_interval=9',
           'train_dataloader.batch_size=2', 'default_hooks.checkpoint.interval=2']


@pytest.fixture
def config(tmp_path, monkeypatch) -> str:
    monkeypatch.chdir(tmp_path)
    return str(tiny_detector(tmp_path))


def train(config: str, name: str, *options: str) -> tuple[dict, str]:
    """The weights after training, and the log."""
    load_tool('train').main([config, '--work-dir', name, *options, '--cfg-options', *OPTIONS,
                             *named(f'cache_{name}')])
    log = '\n'.join(path.read_text() for path in Path(name).glob('*/*.log'))
    return torch.load(Path(name) / 'epoch_2.pth', weights_only=False)['state_dict'], log


def counts(log: str) -> tuple[int, ...]:
    found = re.search(r'(\d+) read, (\d+) damaged, (\d+) written, (\d+) no room', log)
    return tuple(int(number) for number in found.groups())


def test_heads_train_from_kept_features(config, capsys) -> None:
    """The tool fills the folder, training reads it, and both are as training that fills it. That
    features are the backbone's: tests/engine/test_feature_cache.py."""
    first, log = train(config, 'fills', '--feature-cache', 'a')
    assert sum(counts(log)) == 8 and counts(log)[2] > 0 == counts(log)[1]
    load_tool('cache_features').main([config, '--folder', 'b', '--work-dir', 'tool',
                                      '--cfg-options', *OPTIONS, *named('cache_tool')])
    # 4 views of 4 images; only flips are drawn, so each image has 2 of different pixels.
    assert '\n8 read, 8 written\n' in capsys.readouterr().out
    second, log = train(config, 'reads', '--feature-cache', 'b')
    assert counts(log) == (8, 0, 0, 0)
    assert first.keys() == second.keys()
    for name in first:
        assert torch.equal(first[name], second[name]), name
    # What lies in both folders is the same, whoever wrote it.
    for path in Path('a').rglob('*.safetensors'):
        ours, others = load_file(path), load_file('b' / path.relative_to('a'))
        assert ours.keys() == others.keys()
        assert all(torch.equal(ours[name], others[name]) for name in ours)
