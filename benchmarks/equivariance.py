"""How far a transformer is from translation equivariance with every encoding: CPVT's Appendix A as
numbers.

A stack of blocks sees a picture and the same picture moved by whole cells. What is measured is the
relative error between its output, moved as far, and its output for the moved picture, on the cells
that are in both: ||f(moved x) - moved f(x)|| / ||f(x)||. Random weights, float64.

    python benchmarks/equivariance.py [--seeds 5] [--rows none peg]

The same of a model of one's own, trained or not: mmposenc diagnose (docs/diagnose.md).

Three ways to move a picture:

    circular  what leaves on one side comes in on the other
    view      another crop of the same distances out of a larger picture: other cells come in
    object    a patch of random pixels on a plain ground

and, first, the encoding alone on other crops: its tokens, or the logits of all pairs of cells. In
each column first the cells that are at least MARGIN cells from the border in both (of 'object' the
cells of the patch), then all cells.
"""
from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from mmposenc.backbones import DeiT
from mmposenc.comparison.exports import markdown_rows
from mmposenc.diagnosis.borders import Borders
from mmposenc.diagnosis.shifts import relative_error, seen_twice, shift_error
from mmposenc.encodings import PEG, LearnedPositionEmbedding, RelativeEncoding, TokenEncoding

GRID, PATCH, DIMS, HEADS, LAYERS = 16, 4, 32, 4, 4
MARGIN = 4
SHIFTS = ((0, 1), (2, 0), (1, -3), (3, 2))
KINDS = ('circular', 'view', 'object')
#: Rows and columns of the patch of 'object', which stays two cells from the border at every shift.
PATCH_AT = slice(5, 11)

Errors = tuple[float, float]


class CircularPEG(PEG):
    """PEG whose map has no border: a control, since no image is a torus."""

    def _branch(self, x: Tensor, padding_mask: Tensor | None) -> Tensor:
        with Borders('circular'):
            return super()._branch(x, padding_mask)


def token(type_: Any, positions: Sequence[int] | None = None, **options: Any) -> dict:
    return dict(pos_encoding=dict(type=type_, **options), positions=positions)


def relative(name: str, **options: Any) -> dict:
    return dict(rel_pos_encoding=dict(type=f'mmposenc.{name}', **options))


ROWS: dict[str, tuple[str, dict]] = {
    'none': ('none', {}),
    'learned': ('learned table', token('mmposenc.LearnedPositionEmbedding')),
    'sincos': ('sin-cos, 2-D', token('mmposenc.SinCosPositionEncoding')),
    'peg': ('PEG after block 0', token('mmposenc.PEG')),
    'peg-all': ('PEG after every block', token('mmposenc.PEG', range(LAYERS))),
    'peg-none': ('PEG after block 0, no padding', token('mmposenc.PEG', padding='none')),
    'peg-circular': ('PEG after block 0, circular padding', token(CircularPEG)),
    'irpe-k': ('iRPE product on keys', relative('IRPE')),
    'irpe-qkv': ('iRPE product on q, k, v', relative('IRPE', rpe_on='qkv')),
    'irpe-bias': ('iRPE product, bias', relative('IRPE', mode='bias', shared_heads=False)),
    'shaw': ('Shaw, K = 8', relative('ShawRPE')),
    'swin': ("Swin's table over the image",
             relative('RelativePositionBias', window_size=(GRID, GRID))),
    'cpb': ('log-spaced CPB', relative('LogSpacedCPB')),
    'rotary': ('rotary, axial', relative('RotaryEmbedding2D')),
    'query-absolute': ('query absolute 1-D',
                       relative('QueryAbsolute1D', max_tokens=GRID * GRID)),
    'cp': ('ContextPool after block 0', token('mmposenc.ContextPool')),
}


def build(options: dict, seed: int) -> DeiT:
    """Four blocks without a class token, with random weights that make every part matter: linear
    layers and convolutions keep the variance of their input, tables of positions have variance 1,
    biases .01."""
    torch.manual_seed(seed)
    model = DeiT(img_size=GRID * PATCH, patch_size=PATCH, embed_dims=DIMS, num_layers=LAYERS,
                 num_heads=HEADS, mlp_ratio=2, pool=None, **options).double().eval()
    for module in model.modules():
        if isinstance(module, nn.Linear | nn.Conv2d):
            nn.init.normal_(module.weight, std=module.weight[0].numel() ** -0.5)
            if module.bias is not None:
                nn.init.normal_(module.bias, std=0.1)
        elif isinstance(module, RelativeEncoding | LearnedPositionEmbedding):
            for table in module.parameters(recurse=False):
                nn.init.normal_(table)
    return model


def pictures(kind: str, shift: tuple[int, int], seed: int, channels: int = 3, cell: int = PATCH
             ) -> tuple[Tensor, Tensor]:
    """A picture (1, channels, H, W) of GRID x GRID cells, and the same moved by ``shift`` cells."""
    generator = torch.Generator().manual_seed(seed)
    rows, cols = (each * cell for each in shift)
    side = GRID * cell
    if kind == 'view':
        most = max(abs(each) for pair in SHIFTS for each in pair) * cell
        large = torch.randn(1, channels, side + 2 * most, side + 2 * most, generator=generator,
                            dtype=torch.float64)
        return tuple(large[:, :, most - r:most - r + side, most - c:most - c + side]
                     for r, c in ((0, 0), (rows, cols)))
    picture = torch.randn(1, channels, side, side, generator=generator, dtype=torch.float64)
    if kind == 'object':
        kept = torch.zeros_like(picture)
        inside = slice(PATCH_AT.start * cell, PATCH_AT.stop * cell)
        kept[:, :, inside, inside] = picture[:, :, inside, inside]
        picture = kept
    return picture, picture.roll((rows, cols), (2, 3))


def cells(kind: str, shift: tuple[int, int], side: int) -> tuple[Tensor, Tensor]:
    """Cells (side, side) bool of the picture that count: those asked for first, and all that are
    still in the moved picture. A smaller map has lost its outermost cells."""
    lost = (GRID - side) // 2
    if kind != 'object':
        return (seen_twice((side, side), shift, MARGIN - lost),
                seen_twice((side, side), shift))
    place = torch.arange(side) + lost
    few = (place >= PATCH_AT.start) & (place < PATCH_AT.stop)
    return few[:, None] & few, seen_twice((side, side), shift)


def stack_errors(model: nn.Module, kind: str, shift: tuple[int, int], seed: int) -> Errors:
    """Of a backbone's last map, on some cells and on all."""
    with torch.no_grad():
        still, moved = (model(picture)[-1][0] for picture in pictures(kind, shift, seed))
    few, every = (shift_error(still, moved, shift, mask)
                  for mask in cells(kind, shift, still.shape[-1]))
    return few, every


def encoding_errors(model: DeiT, shift: tuple[int, int], seed: int) -> Errors | None:
    """Of the first encoding alone on two crops of random tokens: the tokens that it returns, or the
    logits of pairs of cells; None without an encoding."""
    tokens = [x.flatten(2).transpose(1, 2)
              for x in pictures('view', shift, seed, channels=DIMS, cell=1)]
    attn = model.blocks[0].attn
    for module in model.modules():
        if isinstance(module, TokenEncoding):
            with torch.no_grad():
                side = module.out_hw_shape((GRID, GRID))[0]
                still, moved = (module(x, (GRID, GRID))[0].T.view(-1, side, side) for x in tokens)
            few, every = (shift_error(still, moved, shift, mask)
                          for mask in cells('view', shift, side))
            return few, every
    if attn.rel_pos_encoding is None:
        return None
    still, moved = (_logits(attn, x) for x in tokens)
    number = torch.arange(GRID * GRID).view(GRID, GRID)
    errors = []
    for mask in cells('view', shift, GRID):
        here, there = number[mask], number.roll((-shift[0], -shift[1]), (0, 1))[mask]
        errors.append(relative_error(moved[:, there][:, :, there], still[:, here][:, :, here]))
    return errors[0], errors[1]


@torch.no_grad()
def _logits(attn: nn.Module, x: Tensor) -> Tensor:
    """(heads, L, L) of one layer, before the softmax."""
    q, k, _ = attn._project(x, x)
    encoding, grid = attn.rel_pos_encoding, (GRID, GRID)
    q = q * attn.head_dims ** -0.5
    q, k = encoding.rotate(q, k, grid)
    logits = q @ k.transpose(-2, -1)
    added = encoding.logits(q, k, grid)
    return (logits if added is None else logits + added)[0]


def mean_errors(measure: Callable[[tuple[int, int], int], Errors | None], seeds: int
                ) -> Errors | None:
    """Means over shifts and seeds."""
    found = [measure(shift, seed) for seed in range(seeds) for shift in SHIFTS]
    if found[0] is None:
        return None
    few, every = (sum(each) / len(found) for each in zip(*found, strict=True))
    return few, every


def measured(row: str, seeds: int) -> list[Errors | None]:
    """The encoding alone, then every kind of picture."""
    models = [build(ROWS[row][1], seed) for seed in range(seeds)]
    found = [mean_errors(lambda shift, seed: encoding_errors(models[seed], shift, seed), seeds)]
    for kind in KINDS:
        found.append(mean_errors(
            lambda shift, seed, kind=kind: stack_errors(models[seed], kind, shift, seed), seeds))
    return found


def cell_text(errors: Errors | None) -> str:
    if errors is None:
        return ''
    return ' / '.join('0' if each == 0 else f'{each:.0e}' if each < 1e-9 else f'{each:.3f}'
                      for each in errors)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('--seeds', type=int, default=5, help='weights and pictures')
    parser.add_argument('--rows', nargs='+', choices=ROWS, default=list(ROWS))
    args = parser.parse_args()
    if args.seeds < 1:
        parser.error(f'--seeds={args.seeds} must be at least 1')
    lines = [['Encoding', 'Encoding alone', *(f'Stack, {kind}' for kind in KINDS)]]
    for row in args.rows:
        lines.append([ROWS[row][0], *map(cell_text, measured(row, args.seeds))])
    print(markdown_rows(lines))


if __name__ == '__main__':
    main()
