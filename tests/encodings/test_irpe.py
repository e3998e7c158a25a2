"""iRPE against the official release (golden files), naive loops, and itself in every form."""
import itertools

import pytest
import torch
from golden import assert_released, golden_names, load_golden
from tinybackbones import randomize

from mmposenc.attention import MultiheadAttention, attend
from mmposenc.checkpoint import convert_attention
from mmposenc.encodings import IRPE
from mmposenc.functional import Grid, bucket_ids

METHODS = {'euc': 'euclidean', 'quant': 'quantization', 'cross': 'cross', 'product': 'product'}


def golden_module(stem, params, hw, ratio):
    """The attention a golden file's name describes."""
    _, _, _, method, mode, rpe_on, heads, skip, *_ = stem.split('_')
    weight = params['qkv.weight']
    module = MultiheadAttention(weight.shape[1], 3, num_prefix_tokens=int(skip[4:]),
                                rel_pos_encoding=dict(
        type='mmposenc.IRPE', method=METHODS[method], rpe_on=rpe_on, ratio=ratio,
        mode='bias' if mode == 'bias' else 'contextual', shared_heads=heads == 'shared'))
    module.load_state_dict(convert_attention(params, 'irpe-deit'))
    return module


@pytest.mark.parametrize('dtype', [torch.float64, torch.float32], ids=['float64', 'float32'])
@pytest.mark.parametrize('stem', golden_names('irpe_attention_*'))
def test_golden(stem, dtype):
    params, data = load_golden(stem)
    hw = int(data['H']), int(data['W'])
    module = golden_module(stem, params, hw, float(data['ratio'])).to(dtype)
    x = data['x'].to(dtype).requires_grad_()
    y = module(x, hw)
    assert_released(y, data['y'])
    y.square().sum().backward()
    assert_released(x.grad, data['grad_x'])
    grads = {name[5:]: value for name, value in data.items() if name.startswith('grad.')}
    ours = dict(module.named_parameters())
    for name, value in convert_attention(grads, 'irpe-deit').items():
        assert_released(ours[name].grad, value)


GRIDS = [((3, 5), None), ((1, 4), None), ((4, 1), None), ((1, 1), None),
         ((4, 6), Grid(2, 3, 2.0, 2.0)), ((4, 6), Grid(3, 2, 4 / 3, 3.0))]


def make(method='product', mode='contextual', rpe_on='k', prefix=0, shared=True, **kwargs):
    """An encoding of 2 heads of 4 channels with random tables, in double precision."""
    encoding = IRPE(4, 2, method, mode, rpe_on, shared, num_prefix_tokens=prefix, **kwargs).double()
    randomize(encoding, 1.0)
    return encoding


def tokens(prefix, query, key, batch=2):
    cells = key or Grid(*query)
    q = torch.randn(batch, 2, prefix + query[0] * query[1], 4, dtype=torch.double)
    k, v = (torch.randn(batch, 2, prefix + cells.num_cells, 4, dtype=torch.double)
            for _ in range(2))
    return [x.requires_grad_() for x in (q, k, v)]


def ids_naive(encoding, query, key):
    """Buckets with those of prefix tokens, pair by pair; one matrix for each table of a side."""
    ids = bucket_ids(encoding.method, query, key, ratio=1.9)
    prefix, out = encoding.num_prefix_tokens, []
    for each in ids if isinstance(ids, tuple) else (ids,):
        full = torch.full((prefix + each.shape[0], prefix + each.shape[1]), encoding.num_buckets)
        full[prefix:, prefix:] = each
        out.append(full)
    return out


def attention_naive(encoding, q, k, v, query, key):
    """iRPE eqs. 6, 7, 12 and 13 for each pair of tokens, with scale d ** -0.5 on every logit."""
    key = key or Grid(*query)
    forth = ids_naive(encoding, query, key)
    back = ids_naive(encoding, key, Grid(*query))  # keys look at queries
    out = torch.zeros_like(q)
    for b, h, i in itertools.product(*map(range, q.shape[:3])):
        scores = []
        for j in range(k.shape[2]):
            score = q[b, h, i] @ k[b, h, j] / 2
            for side, ids, x in (('k', forth, q[b, h, i]), ('q', back, k[b, h, j])):
                if side not in encoding.rpe_on:
                    continue
                for table, each in zip(encoding.tables(side), ids, strict=True):
                    bucket = each[i, j] if side == 'k' else each[j, i]
                    entry = table[h % table.shape[0]][..., bucket]
                    score = score + (entry if encoding.mode == 'bias' else x @ entry / 2)
            scores.append(score)
        weights = torch.stack(scores).softmax(0)
        total = weights @ v[b, h]
        if 'v' in encoding.rpe_on:
            for table, each in zip(encoding.tables('v'), forth, strict=True):
                total = total + weights @ table[h % table.shape[0]][each[i]]
        out[b, h, i] = total
    return out


@pytest.mark.parametrize('mode,rpe_on,prefix,shared', [
    ('contextual', 'qkv', 1, False), ('contextual', 'k', 0, True), ('bias', 'qk', 2, False)])
@pytest.mark.parametrize('method', METHODS.values())
@pytest.mark.parametrize('query,key', GRIDS)
def test_equals_formula(method, mode, rpe_on, prefix, shared, query, key):
    """The definition, to which every form is held with all encodings."""
    torch.manual_seed(0)
    encoding = make(method, mode, rpe_on, prefix, shared)
    q, k, v = tokens(prefix, query, key)
    out, _ = attend(q, k, v, encoding, query, key, form='definition')
    torch.testing.assert_close(out, attention_naive(encoding, q, k, v, query, key))


def test_bias_map():
    encoding = make(mode='bias', rpe_on='qk', prefix=1, shared=False)
    expected = encoding.logits(*tokens(1, (2, 3), None)[:2], (2, 3))
    torch.testing.assert_close(encoding.bias_map((2, 3)), expected.detach())
    contextual = make(rpe_on='k')
    with pytest.raises(ValueError, match='q and k are None, but the logits of IRPE depend on them'):
        contextual.bias_map((2, 3))
    q, k, _ = tokens(0, (2, 3), None)
    torch.testing.assert_close(contextual.bias_map((2, 3), q=q, k=k),
                               contextual.logits(q, k, (2, 3)).detach())
    assert contextual.bias_map((2, 3), q=q, k=k).requires_grad is False
    q, k, _ = tokens(0, (4, 6), Grid(2, 3, 2.0, 2.0))
    nothing = make(rpe_on='v').bias_map((4, 6), Grid(2, 3, 2.0, 2.0), q=q, k=k)
    assert nothing.shape == (1, 1, 24, 6) and not nothing.any()


@pytest.mark.parametrize('kwargs,match', [
    (dict(rpe_on=''), "rpe_on='' must be"),
    (dict(rpe_on='kk'), "rpe_on='kk' must be.*each once"),
    (dict(mode='bias', rpe_on='kv'), "rpe_on='kv' with mode='bias'.*not to the values"),
])
def test_bad_options(kwargs, match):
    with pytest.raises(ValueError, match=match):
        IRPE(**{'head_dims': 4, 'num_heads': 2, **kwargs})


def test_bad_use():
    encoding = make(prefix=1)
    q, k, v = tokens(1, (2, 3), None)
    with pytest.raises(ValueError, match=r'q has 7 tokens, but q_grid=\(2, 2\).*1 \+ 2 \* 2 = 5'):
        attend(q, k, v, encoding, (2, 2))
    with pytest.raises(ValueError, match="params has 'fc.weight'"):
        convert_attention({'fc.weight': q}, 'irpe-deit')
    with pytest.raises(ValueError, match="source='deit' must be 'irpe-deit'"):
        convert_attention({}, 'deit')
