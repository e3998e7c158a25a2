"""iRPE against the official release (golden files), naive loops, and itself in every form."""
import pytest
import torch
from golden import TOLERANCE, golden_names, load_golden

from mmposenc.attention import MultiheadAttention
from mmposenc.checkpoint import convert_attention

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


@pytest.mark.parametrize('stem', golden_names('irpe_attention_*'))
def test_golden(stem):
    params, data = load_golden(stem)
    hw = int(data['H']), int(data['W'])
    module = golden_module(stem, params, hw, float(data['ratio']))
    x = data['x'].requires_grad_()
    y = module(x, hw)
    torch.testing.assert_close(y, data['y'], **TOLERANCE)
    y.square().sum().backward()
    torch.testing.assert_close(x.grad, data['grad_x'], **TOLERANCE)
    grads = {name[5:]: value for name, value in data.items() if name.startswith('grad.')}
    ours = dict(module.named_parameters())
    for name, value in convert_attention(grads, 'irpe-deit').items():
        torch.testing.assert_close(ours[name].grad, value, **TOLERANCE)
