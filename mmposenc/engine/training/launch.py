"""Trains and tests a config. Start reading here."""
from __future__ import annotations

import os

from mmengine.config import Config
from mmengine.device import get_device
from mmengine.registry import RUNNERS
from mmengine.runner import Runner
from torch import distributed as dist

from mmposenc.writing import check_new_files

from ..config import checks
from ..config.arguments import check_arguments
from ..config.nodes import find_or_add_custom_hook
from ..config.options import check_silent_arguments
from ..config.parsed import ParsedConfig
from ..config.testing import draw_predictions_into, set_tta, write_predictions_to
from .checkpoints import check_replaces_no_files
from .lock import check_unlocked

#: Keys of a config that a runner which only tests does not have.
_TRAINING = ('train_cfg', 'train_dataloader', 'optim_wrapper', 'param_scheduler')


def build_runner(cfg: Config) -> Runner:
    """Build the runner that a config asks for, or this project's, with its hook."""
    cfg.setdefault('runner_type', 'mmposenc.Runner')
    cfg.setdefault('default_hooks', {})
    if cfg.default_hooks.setdefault('not_finite', dict(type='mmposenc.NotFiniteHook')) is None:
        # The hook is switched off by None, which mmengine allows only for its own hooks.
        del cfg.default_hooks['not_finite']
    return RUNNERS.build(cfg)


def leave_process_group() -> None:
    """End this process's part in distributed training, if it had one."""
    if dist.is_available() and dist.is_initialized():
        dist.destroy_process_group()


def set_train_options(cfg: Config, *, amp: bool = False, compiled: bool = False,
                      auto_scale_lr: bool = False, resume: str | None = None,
                      allow_mismatch: bool = False, tests: bool = False) -> None:
    """Puts the options of ``mmposenc train`` into a config, and checks what it names.

    Args:
        cfg: a config of mmdet, mmseg or mmpretrain with a work_dir; changed in place.
        amp: mixed precision: float16 with loss scaling on a GPU, bfloat16 on a CPU.
        compiled: torch.compile for the model's blocks, see :class:`.compiling.CompileHook`.
        auto_scale_lr: scale the learning rate by the batch size over auto_scale_lr.base_batch_size.
        resume: a checkpoint to continue from, or 'auto' for the latest in the work directory.
        allow_mismatch: let ``load_from`` and ``resume`` load only what fits the model.
        tests: check what the config's test names, too, which follows the training.

    Raises:
        ValueError: an option that the config can't serve, or another training in the work_dir.
        FileNotFoundError: a file that the config names or the checkpoint is not there.
    """
    check_unlocked(cfg.work_dir)
    check_replaces_no_files(cfg, anew=resume is None and not cfg.get('resume'))
    used = {'train': True, 'val': cfg.get('val_dataloader'), 'test': tests}
    _check_config(ParsedConfig(cfg), tuple(phase for phase in used if used[phase]))
    if amp or str(cfg.optim_wrapper.get('type')).endswith('AmpOptimWrapper'):
        _use_amp(cfg)
    if compiled:
        find_or_add_custom_hook(cfg, 'mmposenc.CompileHook')
    if auto_scale_lr:
        cfg.auto_scale_lr = {**(cfg.get('auto_scale_lr') or {}), 'enable': True}
    if resume is None and cfg.get('resume'):
        resume = cfg.get('load_from') or 'auto'
    if resume is not None:
        cfg.resume, cfg.load_from = True, None if resume == 'auto' else resume
    if cfg.get('load_from'):
        checks.check_checkpoint(cfg.load_from, '--resume' if cfg.get('resume') else 'load_from')
    if allow_mismatch:
        cfg.load_strict = False


def _check_config(parsed: ParsedConfig, phases: tuple[str, ...]) -> None:
    """Check what can be checked from the config alone."""
    checks.check_sections(parsed, phases)
    check_new_files(parsed.cfg.work_dir, (), '--work-dir',
                    data=parsed.folders_of_data(of_classes=True))
    check_arguments(parsed)
    if 'train' in phases:
        check_silent_arguments(parsed)
        checks.check_weights(parsed)
    checks.check_enough_queries(parsed)
    for check in (checks.check_files, checks.check_num_classes, checks.check_ignored_label,
                  checks.check_topk, checks.check_same_class_folders):
        check(parsed, phases)


def train(cfg: Config, **options: object) -> Runner:
    """Train a model, with the options of :func:`set_train_options`, and return the runner.

    Raises:
        ValueError, FileNotFoundError: as :func:`set_train_options`; also when a checkpoint does
            not fit the model or the data set is not as it should be, before training starts.
    """
    set_train_options(cfg, **options)
    runner = build_runner(cfg)
    runner.train()
    return runner


def _use_amp(cfg: Config) -> None:
    kind = str(cfg.optim_wrapper.get('type', 'OptimWrapper')).rpartition('.')[2]
    if kind not in ('OptimWrapper', 'AmpOptimWrapper'):
        raise ValueError(f'--amp: optim_wrapper.type is {kind!r}; it can replace only '
                         "'OptimWrapper'")
    cfg.optim_wrapper.type = 'mmposenc.AmpOptimWrapper'
    if get_device() != 'cpu':
        cfg.optim_wrapper.setdefault('loss_scale', 'dynamic')


def set_test_options(cfg: Config, checkpoint: str, *, out: str | None = None,
                     show_dir: str | None = None, tta: bool = False, compiled: bool = False,
                     allow_mismatch: bool = False) -> None:
    """Puts the options of ``mmposenc test`` into a config, and checks what it names.

    Args:
        cfg: a config of mmdet, mmseg or mmpretrain with a work_dir; changed in place.
        checkpoint: the weights.
        out: file (or, in segmentation, folder) for the predictions; see
            :func:`mmposenc.engine.config.testing.write_predictions_to`.
        show_dir: folder for pictures of the predictions.
        tta: merge the predictions of several views of each image.
        compiled: as for training.
        allow_mismatch: load only what fits the model.

    Raises:
        ValueError: an option that the config can't serve.
        FileNotFoundError: a file that the config names or the checkpoint is not there.
    """
    parsed = ParsedConfig(cfg)
    _check_config(parsed, ('test',))
    checks.check_checkpoint(checkpoint, 'checkpoint')
    cfg.load_from, cfg.resume = checkpoint, False
    if allow_mismatch:
        cfg.load_strict = False
    if show_dir is not None:
        if out is not None and os.path.realpath(out) == os.path.realpath(show_dir):
            raise ValueError(f'--out {out}: the pictures of --show-dir need a folder of their own')
        draw_predictions_into(parsed, show_dir)
    if tta:
        set_tta(parsed)
    if compiled:
        find_or_add_custom_hook(cfg, 'mmposenc.CompileHook')
    if out is not None:
        write_predictions_to(parsed, out)
    # Removed, so that the config that the runner writes is not mistaken for one to train with.
    for key in _TRAINING:
        cfg[key] = None


def test(cfg: Config, checkpoint: str, **options: object) -> dict[str, float]:
    """Test a model, with the options of :func:`set_test_options`, and return its metrics.

    Raises:
        ValueError, FileNotFoundError: as :func:`set_test_options`; also when the checkpoint does
            not fit the model.
    """
    set_test_options(cfg, checkpoint, **options)
    return build_runner(cfg).test()
