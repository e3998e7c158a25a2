"""Training from a folder of features, by the tools."""
import re
from pathlib import Path

import pytest
import torch
from helpers.default_scope import scope_fixture
from helpers.scripts import load_tool, named
from helpers.tiny_data import tiny_detector

pytest.importorskip('mmdet')
scope = scope_fixture('mmdet')
OPTIONS = ['model.backbone.frozen_stages=4', 'train_cfg.max_epochs=2', 'train_cfg.val_interval=9',
           'train_dataloader.batch_size=2', 'default_hooks.checkpoint.interval=2']


def train(config: Path, name: str) -> tuple[dict, tuple[int, ...]]:
    """The weights after training; how many features were read, damaged and written."""
    load_tool('train').main([str(config), '--work-dir', name, '--cfg-options', *OPTIONS,
                             *named(f'cache_{name}')])
    log = '\n'.join(path.read_text() for path in Path(name).glob('*/*.log'))
    counts = re.search(r'(\d+) read, (\d+) damaged, (\d+) written, 0 no room', log).groups()
    weights = torch.load(Path(name) / 'epoch_2.pth', weights_only=False)['state_dict']
    return weights, tuple(map(int, counts))


def test_heads_train_from_kept_features(tmp_path, monkeypatch) -> None:
    """That features are the backbone's: tests/engine/training/test_feature_cache.py."""
    monkeypatch.chdir(tmp_path)
    config = tiny_detector(tmp_path)
    with open(config, 'a') as file:
        file.write("\ncustom_hooks = [dict(type='mmposenc.FeatureCacheHook', folder='features')]\n")
    filled, (read, damaged, written) = train(config, 'fills')
    assert read + written == 8 and written > 0 == damaged
    again, counts = train(config, 'reads')
    assert counts == (8, 0, 0)
    assert filled.keys() == again.keys()
    for name in filled:
        assert torch.equal(filled[name], again[name]), name
