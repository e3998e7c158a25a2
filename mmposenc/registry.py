"""Registries of scope ``mmposenc``: ``type='mmposenc.PVT'`` resolves from mmdet, mmseg and
mmpretrain configs without custom_imports."""
from mmengine.registry import DATASETS as MMENGINE_DATASETS
from mmengine.registry import HOOKS as MMENGINE_HOOKS
from mmengine.registry import METRICS as MMENGINE_METRICS
from mmengine.registry import MODELS as MMENGINE_MODELS
from mmengine.registry import OPTIM_WRAPPERS as MMENGINE_OPTIM_WRAPPERS
from mmengine.registry import RUNNERS as MMENGINE_RUNNERS
from mmengine.registry import STRATEGIES as MMENGINE_STRATEGIES
from mmengine.registry import TRANSFORMS as MMENGINE_TRANSFORMS
from mmengine.registry import Registry

from . import encodings

# Child registries are searched by name: it must equal that of mmengine's registry's scope.
MODELS = Registry('model', parent=MMENGINE_MODELS, scope='mmposenc',
                  locations=['mmposenc.backbones', 'mmposenc.classifiers',
                             'mmposenc.data_preprocessors', 'mmposenc.detr',
                             'mmposenc.heads', 'mmposenc.segmentors'])
DATASETS = Registry('dataset', parent=MMENGINE_DATASETS, scope='mmposenc',
                    locations=['mmposenc.datasets.registered'])
TRANSFORMS = Registry('transform', parent=MMENGINE_TRANSFORMS, scope='mmposenc',
                      locations=['mmposenc.datasets.loading'])
HOOKS = Registry('hook', parent=MMENGINE_HOOKS, scope='mmposenc', locations=['mmposenc.engine'])
METRICS = Registry('metric', parent=MMENGINE_METRICS, scope='mmposenc',
                   locations=['mmposenc.engine'])
OPTIM_WRAPPERS = Registry('optim_wrapper', parent=MMENGINE_OPTIM_WRAPPERS, scope='mmposenc',
                          locations=['mmposenc.engine'])
RUNNERS = Registry('runner', parent=MMENGINE_RUNNERS, scope='mmposenc',
                   locations=['mmposenc.engine', 'mmposenc.engine.sharding'])
STRATEGIES = Registry('strategy', parent=MMENGINE_STRATEGIES, scope='mmposenc',
                      locations=['mmposenc.engine.sharding'])

# encodings/ stays free of OpenMMLab, so its classes are registered here.
for _name in encodings.ENCODINGS:
    MODELS.register_module(name=_name, module=getattr(encodings, _name))
