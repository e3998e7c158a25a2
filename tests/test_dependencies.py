"""Which OpenMMLab is missing, and two sets of it over each other."""
import pytest

from mmposenc import class_index, dependencies
from mmposenc.dependencies import DISTRIBUTIONS, require

ONEDL = {'torch': '2.13.0+cpu', 'numpy': '2.2.6', 'onedl-mmengine': '0.10.12',
         'onedl-mmcv': '2.3.6', 'onedl-mmdetection': '3.5.1', 'onedl-mmsegmentation': '1.4.2',
         'onedl-mmpretrain': '1.3.6'}
OPENMMLAB = {'torch': '2.4.1', 'numpy': '1.26.4', 'mmengine': '0.10.7', 'mmcv': '2.1.0',
             'mmdet': '3.3.0', 'mmsegmentation': '1.2.2', 'mmpretrain': '1.2.0'}


def check(installed, room='mmposenc.backbones'):
    """require() in an environment with these distributions, and the modules they bring."""
    modules = {module for module, (onedl, openmmlab) in DISTRIBUTIONS.items()
               if {onedl, *openmmlab} & set(installed)}
    require(room, look_up=installed.get, is_importable=modules.__contains__)


def test_what_is_fine():
    for room in ('mmposenc.backbones', 'mmposenc.detr'):
        check(ONEDL, room)
        check(OPENMMLAB, room)
    # A checkout of mmengine on PYTHONPATH has no metadata.
    require('mmposenc.backbones', ['mmengine', 'mmcv'], {'torch': '2.13.0'}.get,
            {'mmengine', 'mmcv'}.__contains__)


def test_nothing_installed():
    installed = {'torch': '2.13.0', 'numpy': '2.2.6'}
    with pytest.raises(ImportError, match='mmposenc.engine needs mmengine and mmcv of OpenMMLab'):
        check(installed, 'mmposenc.engine')


@pytest.mark.parametrize('name, said', [
    ('mmdet.models', 'mmposenc.openmmlab.mmdet.detection needs mmdet of OpenMMLab, which is not'),
    ('mmdetx', "No module named 'mmdetx'")])
def test_a_module_that_needs_one_library_more(name, said, monkeypatch):
    def import_module(module):
        raise ModuleNotFoundError(f'No module named {name!r}', name=name)

    monkeypatch.setattr(class_index, 'import_module', import_module)
    monkeypatch.setattr(dependencies, 'is_importable', lambda module: module != 'mmdet')
    with pytest.raises(ImportError, match=said):
        class_index.load_own_class('openmmlab.mmdet.detection', 'RetinaHead')
    with pytest.raises(ImportError, match='quickstart needs mmdet of OpenMMLab'):
        require('quickstart', ['mmcv', 'mmdet'], ONEDL.get, {'mmcv'}.__contains__)


@pytest.mark.parametrize('installed, named', [
    ({'torch': '2.13.0', 'onedl-mmengine': '0.10.12', 'mmengine': '0.10.7'},
     'onedl-mmengine 0.10.12 and mmengine 0.10.7'),
    ({'onedl-mmcv': '2.3.6', 'mmdet': '3.3.0'}, 'onedl-mmcv 2.3.6 and mmdet 3.3.0')])
def test_both_sets(installed, named):
    with pytest.raises(ImportError, match=f'over each other: {named}'):
        check(installed)


def test_an_installed_version_is_read_once(monkeypatch):
    read = []
    monkeypatch.setattr(dependencies, 'installed_version', lambda name: read.append(name) or '1.0')
    assert [dependencies.look_up('only-of-this-test') for _ in range(2)] == ['1.0', '1.0']
    assert read == ['only-of-this-test']
