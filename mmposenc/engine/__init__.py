"""Training, testing, predicting and exporting what a config describes, on mmengine.

    config/     configs: found, overridden, checked; their models, data and images
    training/   launch.py is where to start; the runner, its loops, hooks and checkpoints
    apps/       what is done with a config beside training: predictions, export, complexity
    prepare/    data sets on disk; needs neither torch nor OpenMMLab

The names below are what commands and scripts call. Each is imported when it is asked for.
"""
from ..names import lazy

_MODULES = {
    'AmpOptimWrapper': 'engine.training.amp',
    'AverageLossHook': 'engine.training.processes',
    'CheckpointHook': 'engine.training.checkpoints',
    'DumpSegResults': 'engine..openmmlab.segmentation',
    'EpochBasedTrainLoop': 'engine.training.loops',
    'EpochSeedHook': 'engine.training.seeding',
    'FeatureCacheHook': 'engine.training.feature_cache',
    'GradientCheckHook': 'engine.training.processes',
    'IterBasedTrainLoop': 'engine.training.loops',
    'LayerDecayOptimWrapperConstructor': 'engine.training.layer_decay',
    'NotFinite': 'engine.training.finite',
    'NotFiniteHook': 'engine.training.finite',
    'ProgressBarHook': 'engine.training.progress',
    'Runner': 'engine.training.runner',
    'SeedHook': 'engine.training.seeding',
    'browse': 'engine.apps.browse',
    'build_runner': 'engine.training.launch',
    'cache_features': 'engine.training.launch',
    'leave_process_group': 'engine.training.launch',
    'load_config': 'engine.config.config',
    'override': 'engine.config.options',
    'prepare_testing': 'engine.training.launch',
    'prepare_training': 'engine.training.launch',
    'require': 'engine..installed',
    'set_work_dir': 'engine.config.config',
    'test': 'engine.training.launch',
    'train': 'engine.training.launch',
}
__all__ = sorted(_MODULES)
__getattr__ = lazy(__name__, _MODULES)
