"""The table of names: real classes, found by every registry, imported when asked for."""
import inspect
from importlib import import_module

import mmengine.registry
import pytest

import mmposenc.registry
from mmposenc.class_index import CLASSES
from mmposenc.encodings import ENCODINGS

MM = ('mmdet', 'mmseg', 'mmpretrain')
for library in MM:
    pytest.importorskip(library)
ALL = [(kind, name, module) for kind, table in CLASSES.items() for name, module in table.items()]


def registries(package, kind):
    """Registries of a package whose root is mmengine's of that name."""
    found = [value for value in vars(import_module(f'{package}.registry')).values()
             if isinstance(value, mmengine.registry.Registry)]
    return [value for value in found if value.root.name == kind]


@pytest.mark.parametrize(('kind', 'name', 'module'), ALL)
def test_a_name_is_a_class_that_every_registry_finds(kind, name, module):
    cls = getattr(import_module(f'mmposenc.{module}'), name)
    assert inspect.isclass(cls) and cls.__name__ == {'DeiT': 'ViT'}.get(name, name)
    assert cls.__module__ == f'mmposenc.{module}'
    for package in ('mmengine', 'mmposenc', *MM):
        for registry in registries(package, kind):
            assert registry.get(f'mmposenc.{name}') is cls
            if registry.scope == 'mmposenc':
                assert registry.get(name) is cls


@pytest.mark.parametrize('name', ENCODINGS)
def test_encodings_are_registered(name):
    cls = getattr(import_module('mmposenc.encodings'), name)
    assert mmengine.registry.MODELS.get(f'mmposenc.{name}') is cls


@pytest.mark.parametrize(('package', 'names'), [
    ('mmposenc', [*ENCODINGS, *(name for _, name, _ in ALL)]),
    ('mmposenc.backbones', ['CPResNet', 'DeiT', 'PVT', 'Swin', 'ViT']),
    ('mmposenc.detr', ['DDQDETR', 'DETR', 'DINO', 'DeformableDETR', 'DetrEncoder']),
    ('mmposenc.openmmlab.datasets', ['LoadImageFromFile']),
    ('mmposenc.openmmlab.mmdet', ['CocoDataset', 'CocoMetric', 'DETR', 'RetinaHead']),
    ('mmposenc.openmmlab.mmseg', ['EncoderDecoder', 'SegDataset']),
    ('mmposenc.openmmlab.mmpretrain', ['CPResNet', 'DistilledClassifier'])])
def test_packages_offer_their_classes(package, names):
    module = import_module(package)
    for name in names:
        assert inspect.isclass(getattr(module, name)), name
    with pytest.raises(AttributeError, match=f"module '{package}' has no attribute 'Detr'"):
        module.Detr  # noqa: B018


def test_dir_lists_what_there_is():
    listed = dir(mmposenc)
    assert {'PEG', 'PVT', 'DINO', 'load', 'predict', '__version__'} <= set(listed)
    assert callable(mmposenc.load) and callable(mmposenc.predict)
    assert all(getattr(mmposenc, name) is not None for name in listed)


def test_a_class_registered_by_a_user_is_found(monkeypatch):
    monkeypatch.setitem(mmposenc.registry.MODELS.module_dict, 'OfAUser', dict)
    assert mmengine.registry.MODELS.get('mmposenc.OfAUser') is dict
    assert mmposenc.registry.MODELS.get('mmposenc.NoSuchClass') is None
