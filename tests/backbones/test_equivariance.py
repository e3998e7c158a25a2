"""Logits of relative encodings depend on offsets alone (CPVT, Appendix A)."""
import sys
from pathlib import Path

import pytest
import torch

sys.path.insert(0, str(Path(__file__).parent.parent / 'encodings'))
import examples  # noqa: E402

SIDE, HEADS, DIMS = 8, 2, 8


def logits(encoding, x):
    """(heads, SIDE, SIDE, SIDE, SIDE) of queries and keys (heads, channels, SIDE, SIDE)."""
    tokens = x.flatten(2).transpose(1, 2)[None]
    grid = (SIDE, SIDE)
    with torch.no_grad():
        q, k = encoding.rotate(tokens, tokens.roll(1, -1), grid)
        found, added = q @ k.transpose(-2, -1), encoding.logits(q, k, grid)
    return (found if added is None else found + added).view(-1, *grid * 2)


@pytest.mark.parametrize('shift', [(0, 1), (2, 0), (1, 3)])
@pytest.mark.parametrize('name, moves', [
    *((name, True) for name in ('IRPE product k', 'IRPE product qkv', 'IRPE product bias',
                                'ShawRPE', 'RelativePositionBias', 'LogSpacedCPB',
                                'RotaryEmbedding2D')), ('QueryAbsolute1D', False)])
def test_logits_move_with_the_picture(name, moves, shift):
    """Two crops of one picture: pairs of cells that both hold have the same logits, and only of an
    absolute encoding they have not."""
    torch.manual_seed(0)
    encoding = examples.relative(name, (SIDE, SIDE), head_dims=DIMS, num_heads=HEADS).double()
    for parameter in encoding.parameters():
        torch.nn.init.normal_(parameter)
    picture = torch.randn(HEADS, DIMS, SIDE + 3, SIDE + 3, dtype=torch.float64)
    row, col = shift
    still = logits(encoding, picture[..., :SIDE, :SIDE])[:, row:, col:, row:, col:]
    moved = logits(encoding, picture[..., row:row + SIDE, col:col + SIDE])
    moved = moved[:, :SIDE - row, :SIDE - col, :SIDE - row, :SIDE - col]
    assert torch.allclose(moved, still, rtol=1e-10, atol=1e-10) == moves
