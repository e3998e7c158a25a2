"""The config that the options of a command describe (``command_options.py``)."""
from __future__ import annotations

import argparse
import ast
import re
from typing import Any

from mmengine.config import Config, DictAction

from .config import load_config, set_work_dir
from .overrides import override


def read_config(args: argparse.Namespace) -> Config:
    """The config that the arguments of ``add_config`` name, with what they override."""
    cfg = load_config(args.config)
    # Not while arguments are parsed: this loads torch.
    override(cfg, dict(map(_key_and_value, args.cfg_options or ())))
    if not isinstance(cfg.get('model', {}), dict):
        raise ValueError(f'model={cfg.model!r} of {args.config} must be a dict')
    return cfg


def _key_and_value(word: str) -> tuple[str, Any]:
    """KEY=VALUE as mmengine reads it, and dicts, which it cuts at their commas."""
    key, _, value = word.partition('=')
    if not re.match(r'[\s\[(]*{', value):
        return key, DictAction._parse_iterable(value)
    try:
        return key, ast.literal_eval(value)
    except (ValueError, SyntaxError) as error:
        raise ValueError(f'--cfg-options {word}: the value must be written as in Python, such as '
                         f'"[{{\'type\': \'EMAHook\'}}]"') from error


def read_run_config(args: argparse.Namespace) -> Config:
    """As :func:`read_config`, with the work directory and launcher of ``add_run_options``."""
    cfg = read_config(args)
    set_work_dir(cfg, args.work_dir)
    cfg.launcher = args.launcher
    return cfg
