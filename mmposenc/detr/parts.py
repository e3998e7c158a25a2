"""Norms, activations and dropout of DETR by mmcv's configs: torch's own where they are the same."""
from __future__ import annotations

from importlib.util import find_spec
from typing import Any

from torch import nn

from ..backbones.layers import DropPath


def build_norm(cfg: dict[str, Any], embed_dims: int) -> nn.Module:
    """A norm of tokens, ``dict(type='LN')``; others by mmcv.

    Raises:
        ValueError: for another type without mmcv.
    """
    if cfg.get('type') != 'LN':
        _need_mmcv('norm_cfg', cfg, "dict(type='LN')")
        from mmcv.cnn import build_norm_layer
        return build_norm_layer(cfg, embed_dims)[1]  # type: ignore[no-any-return]
    options = {k: v for k, v in cfg.items() if k not in ('type', 'requires_grad')}
    return nn.LayerNorm(embed_dims, **options).requires_grad_(cfg.get('requires_grad', True))


def build_activation(cfg: dict[str, Any]) -> nn.Module:
    """An activation of torch.nn by its name, ``dict(type='ReLU')``; others by mmcv.

    Raises:
        ValueError: for another type without mmcv.
    """
    kind = getattr(nn.modules.activation, str(cfg.get('type')), None)
    if kind is None:
        _need_mmcv('act_cfg', cfg, "dict(type='ReLU') and others of torch.nn")
        from mmcv.cnn import build_activation_layer
        return build_activation_layer(cfg)  # type: ignore[no-any-return]
    return kind(**{k: v for k, v in cfg.items() if k != 'type'})  # type: ignore[no-any-return]


def build_dropout(cfg: dict[str, Any] | None) -> nn.Module:
    """``dict(type='Dropout' or 'DropPath', drop_prob=...)``, nothing for None; others by mmcv.

    Raises:
        ValueError: for another type without mmcv.
    """
    if not cfg:
        return nn.Identity()
    options = {k: v for k, v in cfg.items() if k != 'type'}
    if cfg.get('type') == 'Dropout':
        return nn.Dropout(options.pop('drop_prob', 0.5), **options)
    if cfg.get('type') == 'DropPath':
        return DropPath(options.pop('drop_prob', 0.1), **options)
    _need_mmcv('dropout_layer', cfg, "dict(type='Dropout') and dict(type='DropPath')")
    from mmcv.cnn.bricks.drop import build_dropout as build
    return build(cfg)  # type: ignore[no-any-return]


def _need_mmcv(name: str, cfg: dict[str, Any], known: str) -> None:
    if find_spec('mmcv') is None:
        raise ValueError(f'{name}={cfg!r}: without mmcv there is only {known}')


def check_batch_first(batch_first: bool) -> None:
    """Raise ValueError for tokens in front of batches."""
    if not batch_first:
        raise ValueError('batch_first=False: batches come first in all of mmdet; leave it out')
