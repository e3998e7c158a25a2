"""Published pyramid vision transformers: for each, the arguments of PVT, by which its weights are
recognised too."""
from __future__ import annotations

from ...config_types import ConfigType

SIZES = ('num_layers',)
_PEG = dict(type='mmposenc.PEG')
#: PVT (Wang et al., ICCV 2021, Tab. 1).
_V1: dict[str, ConfigType] = {
    name: dict(num_layers=layers) for name, layers in (
        ('tiny', (2, 2, 2, 2)), ('small', (3, 4, 6, 3)), ('medium', (3, 4, 18, 3)),
        ('large', (3, 8, 27, 3)))}
_OVERLAPPING = dict(overlap=True, stage_norm=True, pos_encoding=dict(type='mmposenc.ConvMLP'))
_NARROW = dict(embed_dims=(32, 64, 160, 256))
#: PVT v2 (Wang et al., CVM 2022, Tab. 1).
_V2: dict[str, ConfigType] = {
    'b0': dict(_NARROW, num_layers=(2, 2, 2, 2)), 'b1': dict(num_layers=(2, 2, 2, 2)),
    'b2': dict(num_layers=(3, 4, 6, 3)), 'b3': dict(num_layers=(3, 4, 18, 3)),
    'b4': dict(num_layers=(3, 8, 27, 3)),
    'b5': dict(num_layers=(3, 6, 40, 3), mlp_ratios=(4, 4, 4, 4))}
#: MiT (SegFormer, Xie et al., NeurIPS 2021, Tab. 6).
_MIT = {**{name: _V2[name] for name in ('b0', 'b1', 'b2', 'b3', 'b4')},
        'b5': dict(num_layers=(3, 6, 40, 3))}
#: Twins (Chu et al., NeurIPS 2021, Tab. 1 and 2).
_SVT: dict[str, ConfigType] = {
    'small': dict(embed_dims=(64, 128, 256, 512), num_heads=(2, 4, 8, 16),
                  num_layers=(2, 2, 10, 4)),
    'base': dict(embed_dims=(96, 192, 384, 768), num_heads=(3, 6, 12, 24),
                 num_layers=(2, 2, 18, 2)),
    'large': dict(embed_dims=(128, 256, 512, 1024), num_heads=(4, 8, 16, 32),
                  num_layers=(2, 2, 18, 2))}

#: Arguments of :class:`~mmposenc.backbones.PVT` by the name of an arch.
ARCHS: dict[str, ConfigType] = {
    **_V1,
    **{f'v2-{name}': {**_OVERLAPPING, **sizes} for name, sizes in _V2.items()},
    'v2-b2-linear': {**_OVERLAPPING, **_V2['b2'], 'key_cells': 7,
                     'pos_encoding': dict(type='mmposenc.ConvMLP', relu=True)},
    **{f'mit-{name}': {**_OVERLAPPING, **sizes, 'mlp_ratios': (4, 4, 4, 4)}
       for name, sizes in _MIT.items()},
    **{f'pcpvt-{name}': dict(_V1[of], pos_encoding=_PEG)
       for name, of in (('small', 'small'), ('base', 'medium'), ('large', 'large'))},
    **{f'svt-{name}': dict(sizes, mlp_ratios=(4, 4, 4, 4), window_sizes=(7, 7, 7, 7),
                           pos_encoding=_PEG) for name, sizes in _SVT.items()}}
