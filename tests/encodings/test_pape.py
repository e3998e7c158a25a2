"""PaPE against its release, a loop over pairs, and in attentions of every kind."""
import itertools

import pytest
import torch
import torch.nn.functional as F
from helpers.golden_files import assert_released, load_golden
from helpers.relative_checks import GRIDS, cells, close, random_inputs, tokens_of

from mmposenc.attention import MultiheadAttention, SpatialReductionAttention, attend
from mmposenc.attention.window import PlainWindowAttention
from mmposenc.detr.attention import MultiheadAttention as EncoderAttention
from mmposenc.encodings import CombinedRPE, PaPE
from mmposenc.functional import key_grid

#: Options and names of golden files.
KINDS = {'pape': dict(num_parabolas=5), 'pape_ri': dict(rotation_invariant=True)}


@pytest.mark.parametrize('name', KINDS)
def test_it_equals_the_release(name):
    """All logits of a grid behind a class token, and the gradients of their squares."""
    params, data = load_golden(name)
    encoding = PaPE(8, 2, num_prefix_tokens=1, **KINDS[name])
    encoding.load_state_dict(params)
    x = data['x'].requires_grad_()
    logits = data['q'] @ data['k'].mT * 8 ** -0.5 + encoding.logits(
        data['q'], data['k'], (3, 5), tokens=x)
    assert_released(logits, data['logits'])
    logits.square().sum().backward()
    assert_released(x.grad, data['grad_x'])
    for key, parameter in encoding.named_parameters():
        assert_released(parameter.grad, data[f'grad.{key}'])


@pytest.mark.parametrize('name', KINDS)
@pytest.mark.parametrize('number', range(len(GRIDS)))
def test_a_pair_at_a_time(name, number):
    """sum_m b_m d_m - a_m d_m^2; prefix tokens lie at (-1, -1)."""
    grids, prefix = GRIDS[number], number % 2
    encoding = PaPE(4, 2, num_prefix_tokens=prefix, **KINDS[name])
    q, k, _ = random_inputs(encoding, *grids)
    tokens = tokens_of(encoding, q)['tokens']
    places = [[(-1.0, -1.0)] * prefix + cells(grid) for grid in (grids[0], key_grid(*grids))]
    expected = torch.zeros(2, 2, q.shape[2], k.shape[2], dtype=q.dtype)
    for b, h, (i, at), (j, other) in itertools.product(
            range(2), range(2), *(enumerate(each) for each in places)):
        dy, dx = (x - y for x, y in zip(at, other, strict=True))
        if name == 'pape_ri':
            a = F.softplus(encoding.a.weight[h] @ tokens[b, i])
            logit = -a * encoding.position_scales[0, h, 0, 0] ** 2 * (dx ** 2 + dy ** 2)
        else:
            a, b_ = (encoding.ab.weight.view(2, 2, 5, 8)[:, h] @ tokens[b, i])
            d = encoding.position.weight.view(2, 5, 2)[h] @ torch.tensor([dx, dy], dtype=q.dtype)
            logit = (b_ * d - F.softplus(a) * d ** 2).sum()
        expected[b, h, i, j] = logit.detach() / 2
    close(encoding.logits(q, k, *grids, tokens=tokens), expected)


@pytest.mark.parametrize('how', ['auto', 'sdpa', 'chunked'])
def test_half_precision_is_as_exact_as_its_queries(how):
    encoding, grid = PaPE(8, 2, num_parabolas=3), (20, 30)
    half, tokens = torch.randn(3, 1, 2, 600, 8).half(), torch.randn(1, 600, 16)
    with torch.no_grad():
        exact = attend(*(x.float() for x in half), encoding, grid, tokens=tokens,
                       implementation='reference')[0]
        found = attend(*half, encoding, grid, tokens=tokens, implementation=how)[0]
    torch.testing.assert_close(found.float(), exact, atol=2e-3, rtol=2e-3)


CONFIG = dict(type='mmposenc.PaPE', num_parabolas=3)
#: Attentions whose queries may be of other tokens than their values. (Of the same: test_window.py,
#: test_cellwise.py.)
ATTENTIONS = {
    MultiheadAttention: {}, PlainWindowAttention: dict(window_size=(4, 6)),
    SpatialReductionAttention: dict(sr_ratio=2), EncoderAttention: {}}


@pytest.mark.parametrize('kind', ATTENTIONS)
def test_attentions_hand_over_the_tokens_of_their_queries(kind, monkeypatch):
    module, seen = kind(16, 2, rel_pos_encoding=CONFIG, **ATTENTIONS[kind]), []
    original = PaPE.terms
    monkeypatch.setattr(PaPE, 'terms', lambda self, q_grid, k_grid, tokens: seen.append(
        tokens) or original(self, q_grid, k_grid, tokens))
    x, other = torch.randn(2, 2, 24, 16)
    if kind is EncoderAttention:
        module(x, hw_shape=(4, 6), query_pos=other)
    else:
        module(x, (4, 6), x_qk=other)
    tokens, = seen
    torch.testing.assert_close(tokens, x + other if kind is EncoderAttention else other,
                               rtol=0, atol=0)


def test_what_it_needs_is_named():
    q = torch.zeros(1, 2, 6, 4)
    for encoding in (PaPE(4, 2), CombinedRPE([dict(type='PaPE')], head_dims=4, num_heads=2)):
        with pytest.raises(ValueError, match='tokens=None, but PaPE reads the tokens'):
            attend(q, q, q, encoding, (2, 3))
    with pytest.raises(ValueError, match='zero_init=True: PaPE has no weights'):
        PaPE(4, 2, rotation_invariant=True).start_at_zero()
