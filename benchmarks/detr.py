"""An encoder of one layer of DETR: this project's against mmdet's, paired.

    python benchmarks/detr.py [--rows 25x42] [--case none] [--repeats 7] [--dropout 0.1]
    python benchmarks/detr.py --device cuda --dtype bfloat16

256 channels, 8 heads, a batch of two images of which the second is padded, forward and backward;
half precision is autocast. Same weights; the iRPE rows add their tables. "Unasked" is mmdet's layer
that only does not ask for attention weights.
"""
from __future__ import annotations

import argparse
import copy
import warnings
from functools import partial
from typing import Any

import torch
from measure import Run, add_arguments, header, model_step, paired_times, parse, peak_memory, row
from torch import Tensor, nn

import mmposenc  # noqa: F401  (before mmdet)

DIMS, HEADS = 256, 8
GRIDS = {'25x42': (25, 42), '50x84': (50, 84), '4x5': (4, 5)}
#: Contextual, on keys, 9 x 9 buckets.
IRPE = dict(type='mmposenc.IRPE', method='product', mode='contextual', rpe_on='k', ratio=2.0)
CASES = ('none', 'irpe-k')


def ffn(hidden: int, dropout: float) -> dict:
    """Two linear layers with ReLU between."""
    return dict(embed_dims=DIMS, feedforward_channels=hidden, num_fcs=2, ffn_drop=dropout,
                act_cfg=dict(type='ReLU', inplace=True))


def padding(height: int, width: int) -> Tensor:
    """The second image fills about 0.8 of the height and 0.9 of the width."""
    mask = torch.zeros(2, height, width, dtype=torch.bool)
    mask[1, -(-4 * height // 5):] = True
    mask[1, :, -(-9 * width // 10):] = True
    return mask.flatten(1)


def layers(rows: str, relative: bool, args: argparse.Namespace) -> dict[str, Run]:
    """An encoder of one layer, FFN of 2048."""
    from mmdet.models.layers.transformer import DetrTransformerEncoder

    from mmposenc.detr.encoders import DetrEncoder
    layer = dict(self_attn_cfg=dict(embed_dims=DIMS, num_heads=HEADS, dropout=args.dropout),
                 ffn_cfg=ffn(2048, args.dropout))
    theirs = DetrTransformerEncoder(1, copy.deepcopy(layer))
    layer['self_attn_cfg']['rel_pos_encoding'] = IRPE if relative else None
    ours = DetrEncoder(1, layer)
    ours.load_state_dict(theirs.state_dict(), strict=False)
    hw = GRIDS[rows]
    tokens = torch.randn(2, hw[0] * hw[1], DIMS, device=args.device, requires_grad=True)
    shared = dict(query_pos=torch.randn_like(tokens), key_padding_mask=padding(*hw).to(args.device))
    unasked = copy.deepcopy(theirs)
    attn = unasked.layers[0].self_attn.attn
    attn.forward = partial(attn.forward, need_weights=False)

    def step(layer: nn.Module, **grids: Any) -> Run:
        return model_step(
            layer.to(args.device), lambda: layer(tokens, **shared, **grids).square().mean(),
            'training', args.device, getattr(torch, args.dtype), [tokens])
    return {'mmdet': step(theirs), 'unasked': step(unasked),
            'ours': step(ours, spatial_shapes=[hw])}


def measure(case: str, rows: str, args: argparse.Namespace) -> None:
    """One row."""
    runs = layers(rows, case == 'irpe-k', args)
    ratios = {name: each.ratio
              for name, each in paired_times(runs, args.repeats, args.device).items()}
    memory = {name: peak_memory(runs[name], args.device) / 2 ** 20 for name in ('mmdet', 'ours')}
    print(f'| {case} | {rows} | {ratios["ours"]:.2f} | {ratios["unasked"]:.2f} | '
          f'{memory["mmdet"]:.0f} | {memory["ours"]:.0f} | '
          f'{memory["ours"] / memory["mmdet"]:.2f} |', flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    add_arguments(parser, repeats=7)
    parser.add_argument('--rows', choices=sorted(GRIDS), action='append')
    parser.add_argument('--case', choices=CASES, action='append')
    parser.add_argument('--dropout', type=float, default=0.0)
    warnings.simplefilter('ignore')
    args = parse(parser)
    torch.manual_seed(0)
    print(header(args))
    print('| layer | tokens | time / mmdet | unasked | MiB, mmdet | MiB, ours | memory / mmdet |\n'
          '|---|---|---|---|---|---|---|')
    for case in args.case or CASES:
        for rows in args.rows or [rows for rows in GRIDS if (rows == '4x5') == args.tiny]:
            with row(case, rows):
                measure(case, rows, args)


if __name__ == '__main__':
    main()
