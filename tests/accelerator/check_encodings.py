"""Encodings on an accelerator, with deterministic algorithms; attention: check_models.py."""
import copy

import examples
import pytest
import torch
from compare import compare, draw, off_zero, padding
from device import Device
from torch import nn

from mmposenc.attention import attend
from mmposenc.attention.fast import flex
from mmposenc.encodings import TokenEncoding, build_encoding
from mmposenc.functional import Grid
from mmposenc.operators.deterministic import deterministic_forms

GRIDS = {'prefix': ((4, 5), None, 1), 'reduced': ((4, 6), Grid(2, 3, 2.0, 2.0), 0)}


class Attend(nn.Module):
    def __init__(self, encoding, grids, form):
        super().__init__()
        self.encoding, self.grids, self.form = encoding, grids, form

    def forward(self, q, k, v, hidden=None):
        return attend(q, k, v, self.encoding, *self.grids, key_padding_mask=hidden,
                      form=self.form)[0]


def forms(encoding, query, key):
    """The engines that can run it."""
    terms = encoding.terms(Grid(*query), key or Grid(*query))
    able = {'flex': all(flex.has_score_mod(term) for term in terms), 'pieces': True,
            'definition': True}
    return [form for form, yes in able.items() if yes]


@pytest.mark.usefixtures('deterministic')
@pytest.mark.parametrize('name, grid', [
    *((name, 'prefix') for name in examples.RELATIVE),
    # One of each class.
    *((name, 'reduced') for name in {cfg['type']: name for name, cfg in examples.RELATIVE.items()
                                     }.values())])
def test_relative_encodings(name, grid):
    """Every engine, padded or not: the definition's values, and no wait, forward or backward."""
    query, key, prefix = GRIDS[grid]
    encoding = off_zero(examples.relative(name, query, head_dims=16, num_prefix_tokens=prefix))
    lengths = (prefix + query[0] * query[1], prefix + (key or Grid(*query)).num_cells)
    inputs = [draw(2, 2, length, 16) for length in (*lengths, lengths[1])]
    hidden = torch.zeros(2, lengths[1], dtype=torch.bool)
    hidden[0, -2:] = True
    for form in forms(encoding, query, key):
        # As trainings run: CoPE's cumsum has no deterministic form of torch's own.
        with deterministic_forms():
            waits = compare(Attend(encoding, (query, key), form), lambda m, *x: m(*x),
                            inputs + [hidden] * (prefix and encoding.cellwise),
                            reference=Attend(copy.deepcopy(encoding), (query, key), 'definition'))
        assert not waits, (form, waits)


@pytest.mark.parametrize('name', ['IRPE product qkv', 'ShawRPE with values', 'SASARPE'])
def test_dropout_is_drawn_without_a_wait(name):
    encoding = off_zero(examples.relative(name, (4, 5), head_dims=8))
    with Device() as gpu:
        q, k, v = (gpu.tensor(draw(2, 2, 20, 8), True) for _ in range(3))
        out = attend(q, k, v, gpu.module(encoding), (4, 5), form='pieces', dropout_p=0.3)[0]
        out.backward(torch.ones_like(out))
        assert not gpu.waits, gpu.report()


TOKEN = {
    **examples.TOKEN_OPTIONS, 'PEG without padding': dict(type='PEG', padding='none'),
    'PEG of 2': dict(type='PEG', conv='separable', num_layers=2, norm_act=True),
    'learned bilinear': dict(type='LearnedPositionEmbedding', interpolation='bilinear'),
    'sin-cos of the extent': dict(type='SinCosPositionEncoding', normalize=True),
    'ContextPool strided': dict(type='ContextPool', stride=2)}


@pytest.mark.usefixtures('deterministic')
@pytest.mark.parametrize('name, masked', [
    *((name, True) for name in TOKEN),
    *((name, False) for name in examples.TOKEN)])
def test_token_encodings(name, masked):
    encoding = off_zero(build_encoding(dict(TOKEN[name]), TokenEncoding, 'encoding', embed_dims=16,
                                       grid_shape=(5, 6)))
    inputs = [draw(2, 72, 16), padding(2, 8, 9)][:1 + masked]
    waits = compare(encoding, lambda m, x, hidden=None: m(x, (8, 9), padding_mask=hidden), inputs)
    assert waits.total() <= name.startswith('ContextPool'), waits


def test_a_large_map_is_pooled_in_blocks(monkeypatch):
    """Too many tokens for one block: the corners of all groups of queries are read together with
    what is checked."""
    from mmposenc.functional.pooling import partition
    monkeypatch.setattr(partition, 'BLOCK_ELEMENTS', {'cpu': 2 ** 9, 'cuda': 2 ** 9})
    monkeypatch.setattr(partition, 'WHOLE_PAIRS', 2 ** 9)
    monkeypatch.setattr(partition, 'GROUP', 1)
    monkeypatch.setattr(partition, 'REGION', 4)
    encoding = off_zero(build_encoding(dict(type='ContextPool'), TokenEncoding, 'encoding',
                                       embed_dims=16))
    waits = compare(encoding, lambda m, x: m(x, (8, 9)), [draw(2, 72, 16)])
    assert waits.total() <= 1, waits


def test_what_has_no_deterministic_form_raises_here_too(deterministic):
    with Device() as gpu:
        x = gpu.tensor(draw(1, 2, 4, 4), True)
        out = torch.nn.functional.interpolate(x, size=(5, 6), mode='bicubic')
        with pytest.raises(RuntimeError, match='does not have a deterministic implementation'):
            out.sum().backward()
        with pytest.raises(RuntimeError, match='does not have a deterministic implementation'):
            x.cumsum(0)
