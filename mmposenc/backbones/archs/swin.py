"""Published sizes of the Swin Transformers."""
from __future__ import annotations

from collections.abc import Sequence

from ...config_types import ConfigType

#: Side of a window, (Wh, Ww), or one of these for each stage.
WindowSizes = int | Sequence[int | Sequence[int]]

_SIZES: dict[str, ConfigType] = {
    'tiny': dict(embed_dims=96, num_layers=(2, 2, 6, 2), num_heads=(3, 6, 12, 24)),
    'small': dict(embed_dims=96, num_layers=(2, 2, 18, 2), num_heads=(3, 6, 12, 24)),
    'base': dict(embed_dims=128, num_layers=(2, 2, 18, 2), num_heads=(4, 8, 16, 32)),
    'large': dict(embed_dims=192, num_layers=(2, 2, 18, 2), num_heads=(6, 12, 24, 48))}
#: The arguments in which Swin V2 differs from V1.
V2: ConfigType = dict(
    window_size=8, rel_pos_encoding=dict(type='mmposenc.LogSpacedCPB'), qkv_bias='qv', cosine=True,
    post_norm=True)
#: The encoding of Swin V1. In windows its table is never resized; ``resize`` acts in models that
#: attend to whole maps.
TABLE: ConfigType = dict(type='mmposenc.RelativePositionBias', resize='geometric')
#: The sides of the windows of Swin V2's releases. In the last stage the map at the training size is
#: smaller than a window; there the window is the map.
_WINDOWS: dict[str, ConfigType] = {
    '': {}, '-w12': dict(window_size=(12, 12, 12, 6)), '-w16': dict(window_size=(16, 16, 16, 8)),
    '-w12to16': dict(window_size=(16, 16, 16, 8), pretrained_window_size=(12, 12, 12, 6)),
    '-w12to24': dict(window_size=(24, 24, 24, 12), pretrained_window_size=(12, 12, 12, 6))}

#: Arguments of :class:`~mmposenc.backbones.Swin` by the name of an arch.
ARCHS: dict[str, ConfigType] = _SIZES | {
    f'v2-{name}{suffix}': {**sizes, **V2, **windows}
    for name, sizes in _SIZES.items() for suffix, windows in _WINDOWS.items()}


#: The arguments that must be given if there is no arch.
SIZES = ('embed_dims', 'num_layers', 'num_heads')


def sides_by_stage(sides: WindowSizes, name: str, num_stages: int) -> list[tuple[int, int]]:
    """(Wh, Ww) of each stage, from a number, from (Wh, Ww) for all stages, or from a sequence with
    one of these per stage.

    Raises:
        ValueError: another number of entries.
    """
    if isinstance(sides, int):
        return [(sides, sides)] * num_stages
    if len(sides) == 2 and all(isinstance(side, int) for side in sides):
        sides = [sides] * num_stages  # type: ignore[list-item]
    if len(sides) != num_stages:
        raise ValueError(f'{name}={sides!r} must be a number, (Wh, Ww), or one of these for each '
                         f'of the {num_stages} stages')
    return [(side, side) if isinstance(side, int) else (side[0], side[1]) for side in sides]
