"""Training, testing, predicting and exporting what a config describes, on mmengine.

    config/     configs: found, overridden, checked; their models, data and images
    training/   launch.py is where to start; the runner, its loops, hooks and checkpoints
    variants/   a config with other encodings, or tested at other sizes
    apps/       uses of a config other than training: predictions, export
    prepare/    data sets on disk; needs neither torch nor OpenMMLab

The names below are what commands and scripts call. Each is imported when it is asked for.
"""
from ..class_index import CLASSES, lazy

#: For each module, the names that this package exports: classes that configs name, and functions.
_MODULES = {
    **{name: module for table in CLASSES.values() for name, module in table.items()
       if module.startswith('engine.')},
    'DumpSegResults': 'openmmlab.dumping',
    'NotFinite': 'engine.training.finite',
    'browse': 'engine.apps.browse',
    'build_runner': 'engine.training.launch',
    'leave_process_group': 'engine.training.launch',
    'load_config': 'engine.config.config',
    'override_in_place': 'engine.config.options',
    'set_test_options': 'engine.training.launch',
    'set_train_options': 'engine.training.launch',
    'set_work_dir': 'engine.config.config',
    'test': 'engine.training.launch',
    'train': 'engine.training.launch',
}
__all__ = sorted(_MODULES)
__getattr__ = lazy(__name__, _MODULES)
