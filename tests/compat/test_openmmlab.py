import re
from pathlib import Path

import pytest

import mmposenc
from mmposenc.compat.openmmlab import ALSO_NEEDED, RELEASES, number, require
from mmposenc.names import CLASSES

ONEDL = {'torch': '2.13.0+cpu', 'numpy': '2.2.6', 'onedl-mmengine': '0.10.12',
         'onedl-mmcv': '2.3.6', 'onedl-mmdetection': '3.5.1', 'onedl-mmsegmentation': '1.4.2',
         'onedl-mmpretrain': '1.3.6'}
OPENMMLAB = {'torch': '2.4.1', 'numpy': '1.26.4', 'mmengine': '0.10.7', 'mmcv': '2.1.0',
             'mmdet': '3.3.0', 'mmsegmentation': '1.2.2', 'mmpretrain': '1.2.0'}


def check(installed, room='mmposenc.backbones'):
    """require() in an environment with these distributions, and the modules they bring."""
    modules = {module for module, release in RELEASES.items()
               if {release.onedl, *release.openmmlab} & set(installed)}
    require(room, installed.get, modules.__contains__)


@pytest.mark.parametrize('installed', [ONEDL, OPENMMLAB], ids=['onedl', 'openmmlab'])
@pytest.mark.parametrize('room', ['mmposenc.backbones', 'mmposenc.detr'])
def test_either_set_is_fine(installed, room):
    check(installed, room)


def test_modules_without_a_distribution_are_fine():
    """A checkout of mmengine on PYTHONPATH has no metadata."""
    require('mmposenc.backbones', {'torch': '2.13.0'}.get, {'mmengine', 'mmcv'}.__contains__)


def test_nothing_installed():
    installed = {'torch': '2.13.0', 'numpy': '2.2.6'}
    with pytest.raises(ImportError, match='mmposenc.engine needs mmengine and mmcv of OpenMMLab'
                                          ".*cannot find them(.|\n)*pip install 'mmposenc.onedl"):
        check(installed, 'mmposenc.engine')
    check(installed, 'mmposenc.backbones.vit')


@pytest.mark.parametrize(('module', 'library', 'distribution'), [
    ('mmposenc.detr.detectors', 'mmdet', 'onedl-mmdetection'),
    ('mmposenc.segmentors.encoder_decoder', 'mmseg', 'onedl-mmsegmentation'),
    ('mmposenc.backbones.resnet', 'mmpretrain', 'onedl-mmpretrain')])
def test_modules_that_need_one_library_more(module, library, distribution):
    installed = {name: version for name, version in ONEDL.items() if name != distribution}
    check(installed)
    check(installed, module.rpartition('.')[0])
    with pytest.raises(ImportError, match=f'{module} needs {library} of OpenMMLab'):
        check(installed, module)


def test_every_class_of_another_library_says_so():
    """A module of the table of names that imports mmdet, mmseg or mmpretrain."""
    package = Path(mmposenc.__file__).parent
    for module in {module for table in CLASSES.values() for module in table.values()}:
        source = package.joinpath(*module.split('.')).with_suffix('.py').read_text()
        libraries = set(re.findall(r'^from (mmdet|mmseg|mmpretrain)\b', source, re.MULTILINE))
        assert libraries == {library for name, library in ALSO_NEEDED.items()
                             if name == f'mmposenc.{module}'}


def test_both_sets():
    with pytest.raises(ImportError, match='over each other: onedl-mmengine 0.10.12 and mmengine '
                                          '0.10.7.*`pip uninstall onedl-mmengine mmengine`'):
        check({'torch': '2.13.0', 'onedl-mmengine': '0.10.12', 'mmengine': '0.10.7'})
    with pytest.raises(ImportError, match='onedl-mmcv 2.3.6 and mmdet 3.3.0'):
        check({'onedl-mmcv': '2.3.6', 'mmdet': '3.3.0'})


@pytest.mark.parametrize('changes, message', [
    ({'torch': '2.0.1'}, r'needs torch >= 2.1.0, and torch 2.0.1 is installed'),
    ({'torch': '2.2.2', 'numpy': '2.0.0'}, r'torch 2.2.2 was built for NumPy 1 and numpy 2.0.0'),
    ({'mmengine': '0.9.1'}, 'needs mmengine >= 0.10.0, and mmengine 0.9.1'),
    ({'mmcv': '1.7.2'}, 'needs mmcv >= 2.0.0, and mmcv 1.7.2'),
    ({'mmcv': '2.2.0'}, r'mmdet 3.3.0 needs mmcv < 2.2.0, and mmcv 2.2.0 is installed'),
    ({'mmdet': '2.28.2'}, 'needs mmdet >= 3.1.0, and mmdet 2.28.2'),
    ({'mmsegmentation': '0.30.0'}, 'needs mmseg >= 1.1.0, and mmsegmentation 0.30.0'),
])
def test_versions_that_can_not_work(changes, message):
    with pytest.raises(ImportError, match=message):
        check({**OPENMMLAB, **changes})


def test_number():
    assert number('2.13.0+cpu') == (2, 13, 0)
    assert number('2.10.0rc1') == (2, 10, 0) > number('2.9')
    assert number('dev') == ()


def test_this_environment_is_fine():
    pytest.importorskip('mmengine')
    require()
