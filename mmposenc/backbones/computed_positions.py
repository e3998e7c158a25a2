"""Compares what a file holds with what a backbone computes by itself or stores in another form."""
from __future__ import annotations

from collections.abc import Iterator, Mapping

import torch
from torch import Tensor, nn

from ..checkpoint.eva import rotary_options
from ..checkpoint.key_biases import MASK, mask_of_keys
from ..encodings.log_cpb import LogSpacedCPB
from ..encodings.rotary import RotaryEmbedding


def positions_computed_otherwise(backbone: nn.Module, computed: Mapping[str, Tensor]
                                 ) -> Iterator[str]:
    """Which positions of a file the backbone would compute in another way, with the options that
    give those of the file.

    Args:
        backbone: what the file is loaded into.
        computed: the positions of the file that no weight holds
            (:attr:`mmposenc.checkpoint.Converted.computed`).

    Raises:
        ValueError: no options have the file's positions.
    """
    modules = dict(backbone.named_modules())
    if 'periods' in computed:
        yield from _other_periods(list(modules.values()), computed['periods'])
    windows = {name: tuple(window.tolist()) for name, window in computed.items() if name in modules}
    others = {str(window): name for name, window in windows.items()
              if isinstance(modules[name], LogSpacedCPB)
              and modules[name].window_size not in (None, window)}
    if others:
        yield (f'biases of {", ".join(others.values())} were trained with offsets in windows of '
               f'{", ".join(others)}, and here are counted in others: pretrained_window_size with '
               'these sides, one for each stage, has its features')


def _other_periods(modules: list[nn.Module], periods: Tensor) -> Iterator[str]:
    rotary = [module for module in modules
              if isinstance(module, RotaryEmbedding) and module.directions == 'axes']
    if not rotary:
        yield 'it was trained with rotary positions, and this model has none'
        return
    ours = rotary[0].axis_periods().cpu()
    if ours.shape != periods.shape:
        raise ValueError(f'heads have {4 * len(periods)} channels in the file, '
                         f'{rotary[0].head_dims} here; give num_heads')
    if torch.allclose(ours, periods.double().cpu(), atol=0,
                      rtol=max(1e-5, 2 * torch.finfo(periods.dtype).eps)):
        return
    options = ' '.join(f'rel_pos_encoding.{name}={value}'.replace(' ', '')
                       for name, value in rotary_options(periods).items()
                       if getattr(rotary[0].frequencies, name) != value)
    yield ('it was trained with other periods of rotary positions than this model has: '
           f'{options} has its features')


def fit_biases_of_keys(backbone: nn.Module, state: Mapping[str, Tensor]
                       ) -> tuple[dict[str, Tensor], list[str]]:
    """Leave out the biases of the keys where a backbone has none. Returns the weights, and the
    names of biases whose part for the keys was left out although it is not zero.

    Without positions a bias of the keys changes nothing, as it adds the same number to all logits
    of a query. Rotary positions turn it.
    """
    names, fitted, left_out = backbone.state_dict(), dict(state), []
    for name in names:
        bias = name.removesuffix('_mask')
        if name.endswith(MASK) and name not in state and bias in state:
            query, key, value = state[bias].chunk(3)
            fitted |= {bias: torch.cat((query, torch.zeros_like(key), value)),
                       name: mask_of_keys(query)}
            left_out += [bias] * bool(key.any())
    return {name: value for name, value in fitted.items()
            if not name.endswith(MASK) or name in names}, left_out
