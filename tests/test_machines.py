"""Without what only Linux has (tests/helpers/not_linux.py): imports and a training."""
from importlib.util import find_spec

import pytest
from helpers.scripts import run_python


def run(*words):
    return run_python('-W', 'ignore', *words)


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
