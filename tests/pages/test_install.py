"""docs/install.md: its Python runs, its commands ask for what there is. What they lead to is
tested in tests/packaging/test_installed.py."""
import inspect
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


def test_the_opencv_it_keeps_is_the_one_of_set_up():
    pins = (ROOT / 'requirements' / 'onedl.txt').read_text()
    assert '\nopencv-python-headless==4.12.' in pins  # '<4.13', as imaug requires


@pytest.mark.parametrize('module, name', [('mmdet.apis', 'DetInferencer'),
                                          ('mmseg.apis', 'MMSegInferencer'),
                                          ('mmpretrain', 'ImageClassificationInferencer')])
def test_inferencers_take_what_it_says(module, name):
    imported = pytest.importorskip(module)
    text = (ROOT / 'docs' / 'install.md').read_text()
    assert f'    from {module} import {name}\n    {name}(' in text
    names = list(inspect.signature(getattr(imported, name).__init__).parameters)
    assert names[1] == 'model' and names[2] in ('weights', 'pretrained')
