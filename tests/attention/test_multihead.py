"""Attention modules against torch's own, and with masks; with encodings: test_irpe.py."""
import pytest
import torch
from torch import nn

from mmposenc.attention import MultiheadAttention, attend
from mmposenc.encodings import IRPE


@pytest.mark.parametrize('own_qk', [False, True])
@pytest.mark.parametrize('floating', [False, True])
def test_equals_torch_multihead(floating, own_qk):
    """With padded keys and a mask of pairs; queries and keys may be of other tokens."""
    torch.manual_seed(0)
    ours = MultiheadAttention(12, 3)
    theirs = nn.MultiheadAttention(12, 3, batch_first=True)
    theirs.load_state_dict({
        'in_proj_weight': ours.qkv.weight.detach(), 'in_proj_bias': ours.qkv.bias.detach(),
        'out_proj.weight': ours.proj.weight.detach(), 'out_proj.bias': ours.proj.bias.detach()})
    x, other = torch.randn(2, 2, 15, 12)
    qk = other if own_qk else x
    hidden = torch.zeros(2, 15, dtype=torch.bool)
    hidden[0, 9:] = True
    seen = torch.rand(15, 15) > 0.5
    seen[:, 0] = True
    expected, weights = theirs(qk, qk, x, key_padding_mask=hidden, attn_mask=~seen,
                               average_attn_weights=False)
    mask = torch.zeros(15, 15).masked_fill(~seen, -1e9) if floating else seen
    out, ours_weights = ours(x, (3, 5), hidden, need_weights=True, attn_mask=mask,
                             x_qk=other if own_qk else None)
    torch.testing.assert_close(out, expected)
    torch.testing.assert_close(ours_weights, weights)


def test_bad_input():
    module = MultiheadAttention(8, 2, num_prefix_tokens=1)
    x, q, irpe = torch.randn(2, 7, 8), torch.randn(1, 2, 6, 4), IRPE(4, 2, num_prefix_tokens=2)
    for call, message in (
            (lambda: module(x, (2, 2)), r'x has 7 tokens.*hw_shape=\(2, 2\).*1 \+ 2 \* 2 = 5'),
            (lambda: module(x, (2, 3), torch.zeros(2, 7)), 'key_padding_mask .* torch.float32'),
            (lambda: module(x, (2, 3), torch.zeros(2, 6, dtype=torch.bool)),
             r'key_padding_mask has shape \(2, 6\).*\(2, 7\)'),
            (lambda: module(x, (2, 3), x_qk=x[:, :6]), r'x_qk has shape \(2, 6, 8\)'),
            (lambda: MultiheadAttention(8, 3), 'embed_dims=8.*num_heads=3'),
            (lambda: MultiheadAttention(8, 2, num_prefix_tokens=-1), 'num_prefix_tokens=-1'),
            (lambda: MultiheadAttention(8, 2, rel_pos_encoding=irpe),
             'rel_pos_encoding has num_prefix_tokens=2'),
            (lambda: attend(q, q, q, IRPE(4, 2)), 'q_grid=None'),
            (lambda: attend(q, q, q, IRPE(4, 2), (2, 3), (2, 2)),
             r'k has 6 tokens, but k_grid=\(2, 2\)')):
        with pytest.raises(ValueError, match=message):
            call()
