"""docs/install.md: its Python runs, its commands ask for what there is. What they lead to is
tested in tests/packaging/test_installed.py."""
import re

import pytest
from running import ROOT, blocks, commands, run_page

from mmposenc.commands import COMMANDS


def test_its_python_runs(tmp_path):
    pytest.importorskip('mmseg')
    cfg = run_page('docs/install.md', tmp_path)['cfg']
    assert cfg.filename.endswith('fcn_r50-d8_4xb2-40k_cityscapes-512x1024.py')


def test_its_commands_are_there():
    words = commands('docs/install.md')
    named = {line[1] for line in words if line[0] == 'mmposenc'} - {'--help'}
    assert named and named <= set(COMMANDS)
    text = ' '.join(block.code for block in blocks('docs/install.md', 'bash'))
    extras = re.findall(r'whl\[(\w+)\]', text)
    project = (ROOT / 'pyproject.toml').read_text()
    assert sorted(extras) == ['onedl', 'openmmlab']
    assert all(f'\n{extra} = [' in project for extra in extras)
    version = re.search(r'__version__ = "(.*)"', (ROOT / 'mmposenc/__init__.py').read_text())[1]
    assert text.count(f'./dist/mmposenc-{version}-py3-none-any.whl[') == 2
