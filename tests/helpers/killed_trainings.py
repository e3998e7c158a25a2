"""Kills trainings at every kind of moment, resumes them, and compares with one never killed, for
tests/engine/training/test_resume.py. The trainings are children of one process that has imported
everything; a kill is a SIGKILL that the child sends itself.
"""
import gc
import importlib
import json
import multiprocessing
import os
import signal
import sys
from multiprocessing import forkserver
from pathlib import Path
from typing import Any
from unittest import mock

ROOT = Path(__file__).resolve().parents[2]
EMA = dict(type='EMAHook', momentum=0.1)
ASPECT = dict(type='AspectRatioBatchSampler')
BY_ITER = {'train_cfg': {'type': 'IterBasedTrainLoop', 'max_iters': 12, 'val_interval': 4},
           'default_hooks.checkpoint.by_epoch': False, 'default_hooks.checkpoint.interval': 2,
           # Else each validation would be logged as of step 0.
           'default_hooks.logger.log_metric_by_epoch': False,
           'log_processor.by_epoch': False, 'custom_hooks': [EMA], 'param_scheduler': [
               dict(type='MultiStepLR', by_epoch=False, begin=0, end=12, milestones=[8])]}
ENDLESS = dict(type='InfiniteSampler', shuffle=True)
#: Four kinds of schedules; each image set has six images, so an epoch three batches of two.
SCHEDULES: dict[str, dict[str, Any]] = {
    'by epoch': {'train_cfg.max_epochs': 4, 'custom_hooks': [EMA]},
    'by iteration, 2 workers': {
        **BY_ITER, 'train_dataloader.sampler': ENDLESS,
        'train_dataloader.batch_sampler': ASPECT, 'train_dataloader.num_workers': 2},
    'by epoch, saved by iteration, 2 workers that persist': {
        'train_cfg.max_epochs': 4, 'train_dataloader.num_workers': 2,
        'train_dataloader.persistent_workers': True, 'train_dataloader.batch_sampler': ASPECT,
        'default_hooks.checkpoint': dict(type='CheckpointHook', by_epoch=False, interval=2,
                                         max_keep_ckpts=1, save_best='coco/bbox_mAP')},
    'by iteration, loss scale, accumulated gradients': {
        **BY_ITER, 'train_dataloader.batch_sampler': None,
        'train_dataloader.sampler': dict(type='DefaultSampler', shuffle=True),
        'optim_wrapper': dict(type='ScaledOptimWrapper', accumulative_counts=3,
                              optimizer=dict(type='SGD', lr=1e-3, momentum=0.9))},
}


def prepare() -> None:
    """What a child need not do again: imports, and parts of mmengine that only take time."""
    sys.path[:0] = [str(ROOT / 'tests'), str(ROOT)]
    import mmengine.runner.runner as runner
    import torch
    from mmengine.config import Config
    from mmengine.optim import AmpOptimWrapper, OptimWrapper
    from mmengine.registry import OPTIM_WRAPPERS

    import mmposenc  # noqa: F401
    for name in ('mmdet.models', 'mmdet.engine', 'mmdet.datasets.transforms', 'mmdet.evaluation',
                 'mmdet.visualization', 'mmposenc.backbones.pvt',
                 'mmposenc.openmmlab.mmdet.coco_dataset', 'mmposenc.openmmlab.datasets.loading',
                 'mmposenc.openmmlab.mmdet.detection', 'mmposenc.openmmlab.mmdet.retina_head'):
        importlib.import_module(name)  # after mmposenc; the registries would do it in each child
    runner.collect_env = dict
    Config.pretty_text = property(lambda self: 'text = None\n')
    torch.set_num_threads(1)
    gc.freeze()  # data sets look for garbage in each child

    @OPTIM_WRAPPERS.register_module()
    class ScaledOptimWrapper(AmpOptimWrapper):
        """With a loss scale that changes, as on a GPU in float16; computes in float32."""
        optim_context = OptimWrapper.optim_context

        def __init__(self, **kwargs: Any) -> None:
            OptimWrapper.__init__(self, **kwargs)  # mmengine's class asserts that there is a GPU
            self.loss_scaler = torch.amp.GradScaler('cpu', init_scale=8.0, growth_interval=2)
            self._scale_update_param = None


def train(root: str, name: str, options: dict, moment: tuple[str, int] | None,
          resume: bool) -> None:
    """Trains in ``root/name``, until the moment comes."""
    from mmengine.registry import OPTIM_WRAPPERS

    from mmposenc import engine
    if 'ScaledOptimWrapper' not in OPTIM_WRAPPERS.module_dict:
        prepare()  # another test had started the server, which then preloads nothing
    os.chdir(root)
    cfg = engine.load_config('tiny.py')
    cfg.work_dir, cfg.log_level = name, 'WARNING'
    cfg.merge_from_dict({'model.backbone.drop_path_rate': 0.4, 'model.test_cfg.score_thr': 0.0,
                         'train_dataloader.dataset.serialize_data': False,
                         'val_dataloader.dataset.serialize_data': False})
    for key, value in options.items():
        *path, last = key.split('.')
        section = cfg
        for part in path:
            section = section[part]
        section[last] = value
    if moment is not None:
        arm(*moment)
    engine.train(cfg, resume='auto' if resume else None)


def arm(kind: str, number: int) -> None:
    """Has the process kill itself when the moment comes for the nth time."""
    import mmengine.runner
    from mmengine.fileio import LocalBackend

    from mmposenc import writing
    from mmposenc.engine.training import loops
    counts = {'n': 0}

    def comes() -> bool:
        counts['n'] += 1
        return counts['n'] == number

    def die() -> None:
        os.kill(os.getpid(), signal.SIGKILL)

    def before(owner: Any, name: str, act: Any) -> None:
        original = getattr(owner, name)

        def replacement(*args: Any, **kwargs: Any) -> Any:
            act(*args)
            return original(*args, **kwargs)
        setattr(owner, name, replacement)

    def write_half(backend: Any, content: bytes, path: str) -> None:
        if comes():
            Path(path).write_bytes(content[:len(content) // 2])
            die()
    if kind == 'iteration':
        for loop in (loops.EpochBasedTrainLoop, loops.IterBasedTrainLoop):
            before(loop, 'run_iter', lambda loop, *args: die() if loop.iter == number else None)
    elif kind == 'validation':
        before(mmengine.runner.ValLoop, 'run_iter', lambda *args: die() if comes() else None)
    elif kind == 'write':
        before(LocalBackend, 'put', write_half)
    elif kind == 'remove':
        before(LocalBackend, 'remove', lambda *args: die() if comes() else None)
    elif kind == 'renamed':
        before(writing, 'flush', lambda path: die() if Path(path).is_dir() and comes() else None)


def result(work_dir: Path) -> dict[str, Any]:
    """All that must be the same: the last checkpoint's content, and the logged numbers by step;
    tensors as their types and lists."""
    from torch import Tensor
    from torch.utils._pytree import tree_map

    from mmposenc.checkpoint import load_checkpoint
    from mmposenc.engine.training.checkpoints import latest_checkpoint
    checkpoint = load_checkpoint(latest_checkpoint(work_dir))
    logged: dict[int, dict] = {}
    for path in sorted(work_dir.glob('*/vis_data/scalars.json')):
        for text in path.read_text().splitlines():
            line = json.loads(text)
            numbers = {key: value for key, value in line.items()
                       if key not in ('time', 'data_time', 'memory')}
            step = (line['step'], 'loss' in line)
            assert logged.setdefault(step, numbers) == numbers, (logged[step], numbers)
    files = sorted(path.name for path in work_dir.glob('*.pth'))
    saved = {key: checkpoint.get(key) for key in (
        'state_dict', 'ema_state_dict', 'optimizer', 'param_schedulers')}
    return {**tree_map(lambda value: (value.dtype, value.tolist()) if isinstance(value, Tensor)
                       else value, saved),
            'counters': {key: checkpoint['meta'][key] for key in ('epoch', 'iter', 'data')},
            'logged': logged, 'files': files}


class Children:
    """Trainings in processes of their own, on one small data set."""

    def __init__(self, root: Path) -> None:
        from helpers.tiny_data import tiny_detector
        self.root = root
        tiny_detector(root, images=6, size=56, tall=True)
        self.context = multiprocessing.get_context('forkserver')
        self.context.set_forkserver_preload(['helpers.killed_trainings_preload'])
        # The server keeps the path for its children; other tests of this process must not see it.
        path = os.pathsep.join((str(ROOT), str(ROOT / 'tests')))
        with mock.patch.dict(os.environ, PYTHONPATH=path):
            forkserver.ensure_running()

    def train(self, name: str, schedule: str, moment: tuple[str, int] | None = None,
              resume: bool = False) -> int:
        child = self.context.Process(target=train, args=(
            str(self.root), name, SCHEDULES[schedule], moment, resume))
        child.start()
        child.join()
        assert child.exitcode is not None
        return child.exitcode
