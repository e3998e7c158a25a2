"""Published sizes of the Swin Transformers, and how explicit arguments override them."""
from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..functional.grids import as_grid

#: Side of a window, (Wh, Ww), or one of these for each stage.
Windows = int | Sequence[int | Sequence[int]]

_SIZES: dict[str, dict[str, Any]] = {
    'tiny': dict(embed_dims=96, num_layers=(2, 2, 6, 2), num_heads=(3, 6, 12, 24)),
    'small': dict(embed_dims=96, num_layers=(2, 2, 18, 2), num_heads=(3, 6, 12, 24)),
    'base': dict(embed_dims=128, num_layers=(2, 2, 18, 2), num_heads=(4, 8, 16, 32)),
    'large': dict(embed_dims=192, num_layers=(2, 2, 18, 2), num_heads=(6, 12, 24, 48))}
#: What holds where neither an arch nor an argument says another.
_V1: dict[str, Any] = dict(
    embed_dims=None, num_layers=None, num_heads=None, window_size=7, pretrained_window_size=0,
    window_bias=True, qkv_bias=True, cosine=False, post_norm=False)
_V2: dict[str, Any] = dict(
    window_size=8, window_bias='log_cpb', qkv_bias='qv', cosine=True, post_norm=True)
#: Windows of Swin V2's releases. Of its last stage, whose map at the size trained on is smaller
#: than a window, the window is that map.
_WINDOWS: dict[str, dict[str, Any]] = {
    '': {}, '-w12': dict(window_size=(12, 12, 12, 6)), '-w16': dict(window_size=(16, 16, 16, 8)),
    '-w12to16': dict(window_size=(16, 16, 16, 8), pretrained_window_size=(12, 12, 12, 6)),
    '-w12to24': dict(window_size=(24, 24, 24, 12), pretrained_window_size=(12, 12, 12, 6))}

#: Arguments of :class:`~mmposenc.backbones.Swin` by the name of an arch.
ARCHS: dict[str, dict[str, Any]] = _SIZES | {
    f'v2-{name}{suffix}': {**sizes, **_V2, **windows}
    for name, sizes in _SIZES.items() for suffix, windows in _WINDOWS.items()}


def resolve_arch(arch: str | None, **given: Any) -> dict[str, Any]:
    """Arguments of an arch, overridden by those given that are not None, with windows a stage each.

    Raises:
        ValueError: for an unknown arch, sizes that are missing or do not fit each other.
    """
    sizes = {name: given[name] for name in ('embed_dims', 'num_layers', 'num_heads')}
    if arch is None and None in sizes.values():
        missing = ', '.join(f'{name}={value}' for name, value in sizes.items())
        raise ValueError(f'arch=None needs {missing}; or give arch, one of {_names()}')
    if arch is not None and arch not in ARCHS:
        raise ValueError(f'arch={arch!r} must be one of {_names()}, or None with embed_dims, '
                         f'num_layers and num_heads')
    explicit = {name: value for name, value in given.items() if value is not None}
    found = {**_V1, **ARCHS.get(arch or '', {}), **explicit}
    layers, heads = tuple(found['num_layers']), tuple(found['num_heads'])
    if len(layers) != len(heads) or not layers:
        raise ValueError(f'num_layers={layers} and num_heads={heads} must hold one number a stage')
    if min(layers) < 1:
        raise ValueError(f'num_layers={layers} must be positive')
    windows = {name: _by_stage(found[name], name, len(layers))
               for name in ('window_size', 'pretrained_window_size')}
    windows['window_size'] = [as_grid(side, 'window_size').hw for side in windows['window_size']]
    return {**found, **windows, 'num_layers': layers, 'num_heads': heads}


def _by_stage(sides: Windows, name: str, num_stages: int) -> list[tuple[int, int]]:
    """(Wh, Ww) a stage: of one number, of two (Wh, Ww) for all stages, or of one entry a stage,
    a number or two."""
    if isinstance(sides, int):
        return [(sides, sides)] * num_stages
    if len(sides) == 2 and all(isinstance(side, int) for side in sides):
        sides = [sides] * num_stages  # type: ignore[list-item]
    if len(sides) != num_stages:
        raise ValueError(f'{name}={sides!r} must be a number, (Wh, Ww), or one of these for each '
                         f'of the {num_stages} stages')
    return [(side, side) if isinstance(side, int) else (side[0], side[1]) for side in sides]


def _names() -> str:
    return ', '.join(map(repr, ARCHS))
