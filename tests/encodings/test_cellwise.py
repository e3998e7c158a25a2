"""``cellwise`` tells the truth: whether a part of a grid, by itself, gets the same terms. Where it
does not, ``follows_extent`` has attention take the part by itself."""
import examples
import pytest
import torch

from mmposenc.attention.core import attend
from mmposenc.encodings import LogSpacedCPB

WHOLE, PART = (4, 6), (3, 4)
HEADS, DIMS = 2, 8
#: What depends on more than the two cells: places in the sequence, the size of the grid.
NOT_CELLWISE = {'ShawRPE sequence', 'HuangRPE sequence', 'TransformerXLRPE sequence',
                'QueryAbsolute1D', 'QueryRelative1D', 'QueryRelative1D per head', 'CombinedRPE',
                'LogSpacedCPB of any grid'}
#: What depends on the size of the grid, and attention computes on each image's own.
FOLLOWS_EXTENT = {'RotaryEmbedding2D of DINOv3', 'RotaryEmbedding2D of EVA-02', 'DecomposedRPE',
                  'DecomposedRPE resized', 'LogSpacedCPB of any grid',
                  'RelativePositionBias geometric'}
NOT_CELLWISE |= FOLLOWS_EXTENT


@pytest.mark.parametrize('name', [*examples.RELATIVE, 'LogSpacedCPB of any grid'])
def test_part_of_a_grid(name: str) -> None:
    if name == 'LogSpacedCPB of any grid':
        encoding = LogSpacedCPB(HEADS, hidden_dims=8).double()
    else:
        encoding = examples.relative(name, WHOLE, head_dims=DIMS, num_heads=HEADS).double()
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for parameter in encoding.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=generator))
    follows = encoding.follows_extent
    encoding.follows_extent = False  # else attention takes the part by itself
    q, k, v = (torch.randn(1, HEADS, *WHOLE, DIMS, generator=generator, dtype=torch.float64)
               for _ in range(3))
    mask = torch.ones(1, *WHOLE, dtype=torch.bool)
    mask[:, :PART[0], :PART[1]] = False
    whole, _ = attend(q.flatten(2, 3), k.flatten(2, 3), v.flatten(2, 3), encoding, WHOLE,
                      key_padding_mask=mask.flatten(1), form='definition')
    whole = whole.unflatten(2, WHOLE)[:, :, :PART[0], :PART[1]]
    q, k, v = (x[:, :, :PART[0], :PART[1]].flatten(2, 3) for x in (q, k, v))
    part, _ = attend(q, k, v, encoding, PART, form='definition')
    same = torch.allclose(part.unflatten(2, PART), whole, atol=1e-12)
    assert same == encoding.cellwise == (name not in NOT_CELLWISE)
    assert follows == (name in FOLLOWS_EXTENT)
