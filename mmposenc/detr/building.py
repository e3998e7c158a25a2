"""Norms, activations and dropout from configs like mmcv's."""
from __future__ import annotations

from torch import nn

from ..backbones.layers import DropPath
from ..config_types import ConfigType


def build_norm(cfg: ConfigType, embed_dims: int) -> nn.Module:
    """A norm of tokens, ``dict(type='LN')``.

    Raises:
        ValueError: another type.
    """
    options = {k: v for k, v in cfg.items() if k not in ('type', 'requires_grad')}
    if cfg.get('type') != 'LN':
        raise ValueError(f"norm_cfg={cfg!r} must be dict(type='LN')")
    return nn.LayerNorm(embed_dims, **options).requires_grad_(cfg.get('requires_grad', True))


def build_activation(cfg: ConfigType) -> nn.Module:
    """An activation of torch.nn by its name, ``dict(type='ReLU')``.

    Raises:
        ValueError: torch.nn has no activation of this name.
    """
    kind = getattr(nn.modules.activation, str(cfg.get('type')), None)
    if kind is None:
        raise ValueError(f"act_cfg={cfg!r} must be dict(type='ReLU') or another of torch.nn")
    # Never in place: if the layer before it has a full backward hook, its output is a view, which
    # torch does not let us overwrite.
    options = {k: v for k, v in cfg.items() if k not in ('type', 'inplace')}
    return kind(**options)


def build_dropout(cfg: ConfigType | None) -> nn.Module:
    """``dict(type='Dropout' or 'DropPath', drop_prob=...)``, the identity for None.

    Raises:
        ValueError: another type.
    """
    if not cfg:
        return nn.Identity()
    options = {k: v for k, v in cfg.items() if k != 'type'}
    if cfg.get('type') == 'Dropout':
        return nn.Dropout(options.pop('drop_prob', 0.5), **options)
    if cfg.get('type') == 'DropPath':
        return DropPath(options.pop('drop_prob', 0.1), **options)
    raise ValueError(f"dropout_layer={cfg!r} must be dict(type='Dropout') or dict(type='DropPath')")


def check_batch_first(batch_first: bool) -> None:
    """Raise ValueError for ``batch_first=False``."""
    if not batch_first:
        raise ValueError('batch_first=False must be True, as everywhere in mmdet; leave it out')
