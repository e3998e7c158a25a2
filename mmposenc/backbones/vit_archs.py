"""Published sizes of the plain vision transformer, each a dict of arguments of ViT."""
from __future__ import annotations

import copy
import functools
from collections.abc import Callable
from typing import Any

_Options = dict[str, Any]
_SIZES = ('embed_dims', 'num_layers', 'num_heads')


def _sizes(embed_dims: int, num_layers: int, num_heads: int) -> _Options:
    return dict(zip(_SIZES, (embed_dims, num_layers, num_heads), strict=True))


def _table(**options: Any) -> _Options:
    return dict(type='mmposenc.LearnedPositionEmbedding', **options)


#: ViT (Dosovitskiy et al., ICLR 2021, Tab. 1) and DeiT (Touvron et al., ICML 2021, Tab. 1).
_VIT = {'tiny': _sizes(192, 12, 3), 'small': _sizes(384, 12, 6), 'base': _sizes(768, 12, 12),
        'large': _sizes(1024, 24, 16)}
_VIT['giant'] = _sizes(1536, 40, 24)

#: By name; explicit arguments of ViT win.
ARCHS: dict[str, _Options] = {name: _VIT[name] for name in ('tiny', 'small', 'base', 'large')}

# DINOv2 (Oquab et al., TMLR 2024) and with registers (Darcet et al., ICLR 2024). Registers have no
# place in the table. How tables are resized are the defaults of the release's hub.
for _name in ('small', 'base', 'large', 'giant'):
    _dinov2 = dict(
        _VIT[_name], patch_size=14, img_size=518, class_token=True, layer_scale_init_value=1e-5,
        pos_encoding=_table(num_prefix_embeds=1, interpolation_offset=0.1))
    if _name == 'giant':
        _dinov2 |= dict(mlp='swiglu', mlp_hidden_dims=4096)
    ARCHS[f'dinov2-{_name}'] = _dinov2
    ARCHS[f'dinov2-{_name}-reg'] = dict(
        _dinov2, register_tokens=4,
        pos_encoding=_table(num_prefix_embeds=1, interpolation='bicubic_antialias'))

# DeiT III (Touvron et al., ECCV 2022): a table of the cells alone.
for _name, _size in {**{name: _VIT[name] for name in ('small', 'base', 'large')},
                     'medium': _sizes(512, 12, 8),
                     'huge': dict(_sizes(1280, 32, 16), patch_size=14)}.items():
    ARCHS[f'deit3-{_name}'] = dict(_size, class_token=True, layer_scale_init_value=1e-6,
                                   pos_encoding=_table(num_prefix_embeds=0))

# SigLIP (Zhai et al., ICCV 2023), the tower for images, without its attention pooling.
for _name, _size in {'base': _VIT['base'], 'large': dict(_VIT['large'], img_size=256),
                     'so400m': dict(_sizes(1152, 27, 16), mlp_hidden_dims=4304, patch_size=14)
                     }.items():
    ARCHS[f'siglip-{_name}'] = dict(_size, class_token=False, pool='gap', act='gelu_tanh',
                                    pos_encoding=_table())

# CLIP (Radford et al., ICML 2021), the tower for images, without its projection.
for _name, _size in {'base': _VIT['base'], 'large': dict(_VIT['large'], patch_size=14)}.items():
    ARCHS[f'clip-{_name}'] = dict(_size, class_token=True, pre_norm=True, act='quick_gelu',
                                  norm_eps=1e-5, pos_encoding=_table())


def arch_options(arch: str | None, given: _Options) -> _Options:
    """Arguments of ViT: those of an arch, and the given ones in their place.

    Args:
        arch: a name out of :data:`ARCHS`, or None.
        given: explicit arguments. Of the three sizes None stands for the arch's own.

    Raises:
        ValueError: for an unknown arch, or sizes that are missing without one.
    """
    names = ', '.join(map(repr, ARCHS))
    if arch is not None and arch not in ARCHS:
        raise ValueError(f'arch={arch!r} must be one of {names}, or None with '
                         f'{", ".join(_SIZES)}')
    given = {name: value for name, value in given.items()
             if name not in _SIZES or value is not None}
    options = {**copy.deepcopy(ARCHS.get(arch or '', {})), **given}
    missing = [name for name in _SIZES if name not in options]
    if missing:
        raise ValueError(f'arch=None needs {", ".join(missing)}; or give arch, one of {names}')
    if options['num_layers'] < 1:
        raise ValueError(f'num_layers={options["num_layers"]} must be at least 1')
    return options


def takes_arch(init: Callable[..., None]) -> Callable[..., None]:
    """Let ``__init__(self, arch, *, ...)`` see the arguments of an arch as if they were given.

    In the body a preset and an explicit argument are the same thing; the signature stays, which
    configs are checked by.
    """
    @functools.wraps(init)
    def wrapped(self: Any, arch: str | None = None, **given: Any) -> None:
        init(self, arch, **arch_options(arch, given))
    return wrapped
