"""Without what only Linux has (tests/helpers/not_linux.py): imports, an encoding and a training."""
from importlib.util import find_spec

import pytest
from helpers.scripts import run_python


def run(*words):
    return run_python('-W', 'ignore', *words)


def test_the_core_computes_and_writes(tmp_path):
    run('-c', f"""
from helpers import not_linux
import os, pathlib
for name in ('fcntl', 'resource'):
    try:
        __import__(name)
    except ImportError:
        continue
    raise AssertionError(name)
assert not hasattr(os, 'fork') and not hasattr(os, 'killpg')
import torch
from mmposenc.backbones import ViT
from mmposenc.checkpoint.integrity import put_in_place
vit = ViT(img_size=32, patch_size=8, embed_dims=16, num_layers=2, num_heads=2,
          pos_encoding=dict(type='PEG'), rel_pos_encoding=dict(type='IRPE'))
vit(torch.randn(1, 3, 40, 32))[0].sum().backward()
folder = pathlib.Path({str(tmp_path)!r})
(folder / 'a').write_text('x')
put_in_place(folder / 'a', folder / 'b')
assert (folder / 'b').read_text() == 'x'
""")


@pytest.mark.slow
@pytest.mark.skipif(find_spec('mmdet') is None, reason='needs OpenMMLab')
def test_every_module_imports():
    run('-c', """
from helpers import not_linux
import importlib, pkgutil, mmposenc
for module in pkgutil.walk_packages(mmposenc.__path__, 'mmposenc.'):
    if not module.name.endswith('__main__'):
        importlib.import_module(module.name)
""")


@pytest.mark.slow
@pytest.mark.skipif(find_spec('mmdet') is None, reason='needs OpenMMLab')
def test_a_training(tmp_path):
    out = run('-c', f"""
from helpers import not_linux
import sys
del sys.modules['resource']  # mmengine leaves it out only where the platform is Windows
from pathlib import Path
from mmposenc.commands import main
from helpers.tiny_data import tiny_detector
root = Path({str(tmp_path)!r})
config = tiny_detector(root)
main(['train', str(config), '--work-dir', str(root / 'work')])
""")
    assert (tmp_path / 'work' / 'epoch_1.pth').is_file() and 'weights: ' in out
