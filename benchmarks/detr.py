"""An encoder of one layer of DETR and of Deformable DETR: this project's against mmdet's, paired.

    python benchmarks/detr.py [--rows 25x42] [--case none] [--repeats 7] [--dropout 0.1]
    python benchmarks/detr.py --device cuda --dtype bfloat16      # never tried

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
from torch.utils._pytree import tree_leaves, tree_map

import mmposenc  # noqa: F401  (before mmdet)

DIMS, HEADS = 256, 8
GRIDS = {'25x42': (25, 42), '50x84': (50, 84), '4x5': (4, 5)}
#: Contextual, on keys, 9 x 9 buckets.
IRPE = dict(type='mmposenc.IRPE', method='product', mode='contextual', rpe_on='k', ratio=2.0)
LEVELS = {'25x42': [(25, 42)], '50x84': [(50, 84)], '4x5': [(4, 5)],
          'four levels': [(50, 84), (25, 42), (13, 21), (7, 11)]}
CASES = ('none', 'irpe-k', 'deformable', 'deformable decoder')
#: Time and memory that the project set itself, as fractions of mmdet's.
TARGETS = {('none', '25x42'): '.55', ('none', '50x84'): '.45, .15',
           ('irpe-k', '50x84'): '.80, .20'}


def ffn(hidden: int, dropout: float) -> dict:
    """Two linear layers with ReLU between."""
    return dict(embed_dims=DIMS, feedforward_channels=hidden, num_fcs=2, ffn_drop=dropout,
                act_cfg=dict(type='ReLU', inplace=True))


def padding(shapes: list[tuple[int, int]]) -> Tensor:
    """The second image fills about 0.8 of the height and 0.9 of the width."""
    masks = []
    for height, width in shapes:
        mask = torch.zeros(2, height, width, dtype=torch.bool)
        mask[1, -(-4 * height // 5):] = True
        mask[1, :, -(-9 * width // 10):] = True
        masks.append(mask.flatten(1))
    return torch.cat(masks, 1)


def step(layer: nn.Module, args: argparse.Namespace, tokens: Tensor, **kwargs: Any) -> Run:
    """Forward and backward, on the device."""
    layer.to(args.device)
    tokens, kwargs = tree_map(
        lambda x: x.detach().to(args.device).requires_grad_(x.requires_grad)
        if isinstance(x, Tensor) else x, (tokens, kwargs))
    inputs = [x for x in tree_leaves((tokens, kwargs)) if isinstance(x, Tensor) and x.requires_grad]
    return model_step(layer, lambda: layer(tokens, **kwargs).square().mean(), 'training',
                      args.device, getattr(torch, args.dtype), inputs)


def detr_layers(rows: str, relative: bool, args: argparse.Namespace) -> dict[str, Run]:
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
    tokens = torch.randn(2, hw[0] * hw[1], DIMS, requires_grad=True)
    pos = torch.randn(2, hw[0] * hw[1], DIMS)
    shared = dict(query_pos=pos, key_padding_mask=padding([hw]))
    unasked = copy.deepcopy(theirs)
    attn = unasked.layers[0].self_attn.attn
    attn.forward = partial(attn.forward, need_weights=False)
    return {'mmdet': step(theirs, args, tokens, **shared),
            'unasked': step(unasked, args, tokens, **shared),
            'ours': step(ours, args, tokens, spatial_shapes=[hw], **shared)}


def deformable_layers(rows: str, decoder: bool, args: argparse.Namespace) -> dict[str, Run]:
    """An encoder layer, or a decoder layer of 300 queries, FFN of 1024."""
    from mmdet.models.layers import transformer as theirs_room

    from mmposenc.openmmlab.detr import decoders as ours_room
    shapes = LEVELS[rows]
    attn = dict(embed_dims=DIMS, num_heads=HEADS, num_levels=len(shapes), dropout=args.dropout)
    kind = 'Decoder' if decoder else 'Encoder'
    parts = [dict(embed_dims=DIMS, num_heads=HEADS, dropout=args.dropout)] if decoder else []
    parts += [{**attn, 'batch_first': True}, ffn(1024, args.dropout)]
    theirs = getattr(theirs_room, f'DeformableDetrTransformer{kind}Layer')(*copy.deepcopy(parts))
    ours = getattr(ours_room, f'Deformable{kind}Layer')(*copy.deepcopy(parts))
    with torch.no_grad():
        for name, p in theirs.named_parameters():
            if 'sampling_offsets' in name or 'attention_weights' in name:
                p.add_(torch.randn_like(p) * 0.05)
    ours.load_state_dict(theirs.state_dict())
    cells = sum(h * w for h, w in shapes)
    memory = torch.randn(2, cells, DIMS, requires_grad=True)
    tokens = torch.randn(2, 300, DIMS, requires_grad=True) if decoder else memory
    starts = torch.tensor([0] + [h * w for h, w in shapes]).cumsum(0)[:-1]
    kwargs = dict(query_pos=torch.randn(tokens.shape), key_padding_mask=padding(shapes),
                  reference_points=torch.rand(2, tokens.shape[1], len(shapes), 2),
                  spatial_shapes=torch.tensor(shapes), level_start_index=starts)
    if decoder:
        kwargs['value'] = memory
    return {'mmdet': step(theirs, args, tokens, **kwargs),
            'ours': step(ours, args, tokens, **kwargs)}


def measure(case: str, rows: str, args: argparse.Namespace) -> None:
    """One row."""
    deformable = case.startswith('deformable')
    runs = (deformable_layers(rows, case.endswith('decoder'), args) if deformable
            else detr_layers(rows, case == 'irpe-k', args))
    ratios = {name: each.ratio
              for name, each in paired_times(runs, args.repeats, args.device).items()}
    other = f'{ratios["unasked"]:.2f}' if 'unasked' in ratios else ''
    memory = {name: peak_memory(runs[name], args.device) / 2 ** 20 for name in ('mmdet', 'ours')}
    target = TARGETS.get((case, rows), '1.0' if deformable else '')
    print(f'| {case} | {rows} | {ratios["ours"]:.2f} | {other} | {memory["mmdet"]:.0f} | '
          f'{memory["ours"]:.0f} | {memory["ours"] / memory["mmdet"]:.2f} | {target} |', flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    add_arguments(parser, repeats=7)
    parser.add_argument('--rows', choices=sorted(LEVELS), action='append')
    parser.add_argument('--case', choices=CASES, action='append')
    parser.add_argument('--dropout', type=float, default=0.0)
    warnings.simplefilter('ignore')
    args = parse(parser)
    torch.manual_seed(0)
    print(header(args))
    print('| layer | tokens | time / mmdet | unasked | MiB, mmdet | MiB, ours | memory / mmdet | '
          'target |\n|---|---|---|---|---|---|---|---|')
    for case in args.case or CASES:
        sizes = LEVELS if case.startswith('deformable') else GRIDS
        usual = [rows for rows in sizes if (rows == '4x5') == args.tiny]
        for rows in args.rows or usual:
            if rows in sizes:
                with row(case, rows):
                    measure(case, rows, args)


if __name__ == '__main__':
    main()
