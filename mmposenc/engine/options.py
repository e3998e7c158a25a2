"""The config that the options of a command describe (``command_options.py``)."""
from __future__ import annotations

import argparse

from mmengine.config import Config, DictAction

from .config import load_config, set_work_dir
from .overrides import override


def read_config(args: argparse.Namespace) -> Config:
    """The config that the arguments of ``add_config`` name, with what they override."""
    cfg = load_config(args.config)
    given = argparse.Namespace(options={})
    # mmengine reads the values of KEY=VALUE; not while arguments are parsed, since it loads torch.
    DictAction([], 'options')(argparse.ArgumentParser(), given, args.cfg_options)
    override(cfg, given.options)
    if not isinstance(cfg.get('model', {}), dict):
        raise ValueError(f'model={cfg.model!r} of {args.config} must be a dict')
    return cfg


def read_run_config(args: argparse.Namespace) -> Config:
    """As :func:`read_config`, with the work directory and launcher of ``add_run_options``."""
    cfg = read_config(args)
    set_work_dir(cfg, args.work_dir)
    cfg.launcher = args.launcher
    return cfg
