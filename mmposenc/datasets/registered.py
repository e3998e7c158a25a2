"""Registers the data sets of those OpenMMLab libraries that are installed."""
from importlib import import_module
from importlib.util import find_spec

for _library, _module in (('mmdet', 'coco'), ('mmseg', 'segmentation')):
    if find_spec(_library):
        import_module(f'{__package__}.{_module}')
