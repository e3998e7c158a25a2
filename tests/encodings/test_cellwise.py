"""``cellwise`` tells the truth: whether a part of a grid, by itself, gets the same terms."""
import pytest
import torch

from mmposenc.attention.core import attend
from mmposenc.encodings.base import RelativeEncoding
from mmposenc.encodings.build import build_encoding

WHOLE, PART = (4, 6), (3, 4)
HEADS, DIMS = 2, 8
RPE = dict(type='mmposenc.IRPE', rpe_on='qkv')
ENCODINGS = {
    **{f'irpe {method}': (True, {**RPE, 'method': method})
       for method in ('product', 'cross', 'euclidean', 'quantization')},
    'irpe bias': (True, dict(type='mmposenc.IRPE', mode='bias', rpe_on='k')),
    'shaw': (True, dict(type='mmposenc.ShawRPE', method='product', on_values=True)),
    'shaw sequence': (False, dict(type='mmposenc.ShawRPE', method='sequence')),
    'huang': (True, dict(type='mmposenc.HuangRPE', method='product')),
    'huang sequence': (False, dict(type='mmposenc.HuangRPE', method='sequence')),
    'transformer-xl': (True, dict(type='mmposenc.TransformerXLRPE')),
    'transformer-xl sequence': (False, dict(type='mmposenc.TransformerXLRPE', method='sequence')),
    'sasa': (True, dict(type='mmposenc.SASARPE')),
    'swin': (True, dict(type='mmposenc.RelativePositionBias', window_size=WHOLE)),
    'cpb': (False, dict(type='mmposenc.LogSpacedCPB', hidden_dims=8)),
    'cpb of a window': (True, dict(type='mmposenc.LogSpacedCPB', hidden_dims=8,
                                   window_size=WHOLE)),
    'absolute 1d': (False, dict(type='mmposenc.QueryAbsolute1D', max_tokens=24)),
    'relative 1d': (False, dict(type='mmposenc.QueryRelative1D', max_tokens=24)),
    'relative 2d': (True, dict(type='mmposenc.QueryRelative2D', max_size=WHOLE)),
    'rotary': (True, dict(type='mmposenc.RotaryEmbedding2D', mode='mixed')),
    'combined': (True, dict(type='mmposenc.CombinedRPE', encodings=[
        RPE, dict(type='mmposenc.RotaryEmbedding2D')])),
    'combined with one that is not': (False, dict(type='mmposenc.CombinedRPE', encodings=[
        RPE, dict(type='mmposenc.LogSpacedCPB', hidden_dims=8)])),
}


@pytest.mark.parametrize('name', ENCODINGS)
def test_part_of_a_grid(name: str) -> None:
    wanted, cfg = ENCODINGS[name]
    encoding = build_encoding(cfg, RelativeEncoding, 'rel_pos_encoding', head_dims=DIMS,
                              num_heads=HEADS, num_prefix_tokens=0).double()
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for parameter in encoding.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=generator))
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
    assert same == encoding.cellwise == wanted
