"""Backbones and DETR's encoder for tests/test_torch_alone.py, which runs them with and without
OpenMMLab; nothing of OpenMMLab is imported here."""
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from helpers.tiny_backbones import BUILD
from mmposenc.detr import DetrEncoder

IRPE = dict(type='mmposenc.IRPE', rpe_on='qkv')
ENCODINGS: dict[str, Any] = dict(pos_encoding=[dict(type='mmposenc.PEG'),
                                               dict(type='mmposenc.ContextPool')],
                                 rel_pos_encoding=IRPE)
MODELS: dict[str, Callable[[], nn.Module]] = {
    **{name: partial(BUILD[name], mask_padding=True, **ENCODINGS) for name in BUILD},
    'DetrEncoder': lambda: DetrEncoder(
        2, dict(self_attn_cfg=dict(embed_dims=16, num_heads=2, dropout=0.1, rel_pos_encoding=IRPE),
                ffn_cfg=dict(embed_dims=16, feedforward_channels=24, ffn_drop=0.1)),
        pos_encoding=dict(type='mmposenc.PEG', norm_act=True)),
}


def results(name: str) -> dict[str, Tensor]:
    """Weights as they start, outputs in training and evaluation, gradients."""
    torch.manual_seed(0)
    model = MODELS[name]()
    model.init_weights()  # type: ignore[operator]
    found = {f'weight {key}': value.clone() for key, value in model.state_dict().items()}
    for parameter in model.parameters():
        if not parameter.any():
            nn.init.normal_(parameter, std=0.1)
    if name == 'DetrEncoder':
        mask = torch.zeros(2, 5, 6, dtype=torch.bool)
        mask[1, 3:], mask[1, :, 4:] = True, True
        args: tuple[Any, ...] = (torch.randn(2, 30, 16), torch.randn(2, 30, 16), mask.flatten(1))
        options: dict[str, Any] = dict(spatial_shapes=(5, 6))
    else:
        args, options = (torch.randn(2, 3, 40, 48), [(40, 48), (30, 20)]), {}
    for mode in (False, True):
        out = model.train(mode)(*args, **options)
        outs = out if isinstance(out, tuple) else (out,)
        found.update({f'output {mode} {i}': each.detach() for i, each in enumerate(outs)})
    sum(each.square().sum() for each in outs).backward()
    found.update({f'gradient {key}': p.grad for key, p in model.named_parameters()
                  if p.grad is not None})
    assert len([key for key in found if 'gradient' in key]) == len(list(model.parameters()))
    return found
