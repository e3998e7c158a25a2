"""What the command-line tools call: configs, checks, the runner, hooks, testing, browsing."""
from ..compat.openmmlab import require

require(__name__)

from .amp import AmpOptimWrapper
from .browse import browse
from .checkpoint_hook import CheckpointHook
from .config import load_config, set_work_dir
from .dump import DumpSegResults
from .feature_cache import FeatureCacheHook
from .finite import NotFinite, NotFiniteHook
from .gradients import GradientCheckHook
from .launch import (
    build_runner,
    cache_features,
    leave_process_group,
    prepare_testing,
    prepare_training,
    test,
    train,
)
from .layer_decay import LayerDecayOptimWrapperConstructor
from .loops import EpochBasedTrainLoop, IterBasedTrainLoop
from .overrides import override
from .processes import AverageLossHook
from .progress import ProgressBarHook
from .runner import Runner
from .seeding import EpochSeedHook

__all__ = ['AmpOptimWrapper', 'AverageLossHook', 'CheckpointHook', 'DumpSegResults',
           'EpochBasedTrainLoop', 'EpochSeedHook', 'FeatureCacheHook', 'GradientCheckHook',
           'IterBasedTrainLoop', 'LayerDecayOptimWrapperConstructor', 'NotFinite', 'NotFiniteHook',
           'ProgressBarHook', 'Runner', 'browse', 'build_runner', 'cache_features',
           'leave_process_group', 'load_config', 'override', 'prepare_testing', 'prepare_training',
           'set_work_dir', 'test', 'train']
